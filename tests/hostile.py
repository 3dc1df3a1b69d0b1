"""Small files that attack whoever reads them, made by this script alone.

``python -m tests.hostile FOLDER`` writes them all. `CORPUS` has a function for each that returns
its bytes: damage, lies in headers, bombs, numbers that are none, and code. What would run code
writes to the file that the environment variable `MARKER` names, so a test sees whether it did.
"""

import gzip
import io
import json
import lzma
import os
import pickle
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import tifffile
import torch
from PIL import Image
from safetensors.numpy import save as save_tensors

#: Names of classes, columns and files that a report, a figure or a spreadsheet might run or parse.
NAMES = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</title></style><svg onload=alert(1)>",
    '" onmouseover="alert(1)',
    "[click](javascript:alert(1))",
    "![s](/etc/hostname.png)",
    "<!-- a | b -->",
    "`code` *bold* _it_ ~~no~~",
    r"back\slash\*",
    "&lt;b&gt; &#60;",
    r"$\frac$ and $x_$",
    "$\\undefined{$",
    '=HYPERLINK("http://there/?"&A1)',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "two\nlines",
    "\t=1",
)
MARKER = "GEOSOFTMAX_HOSTILE_MARKER"


class Runs:
    """Unpickled, it writes to the marker."""

    def __reduce__(self):
        code = f"import os, pathlib; pathlib.Path(os.environ[{MARKER!r}]).write_text('it ran')"
        return exec, (code,)


def bytes_of(write, *arguments, **options):
    """Return what a function writes to a file."""
    buffer = io.BytesIO()
    write(buffer, *arguments, **options)
    return buffer.getvalue()


def picture(path):
    """Write a harmless picture."""
    pixels = np.random.default_rng(0).integers(0, 255, (12, 12), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


# ------------------------------------------------------------------ pictures


def png(width, height, rows=b"", text=b""):
    """Return a PNG of one bit a pixel whose header, rows and text need not agree."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    extra = chunk(b"zTXt", b"Comment\0\0" + text) if text else b""
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def zeros(size):
    """Return so many zeros, compressed."""
    return zlib.compress(bytes(size), 9)


def saved(form, mode="L", **options):
    """Return a picture of noise in a format of Pillow's."""
    noise = np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8)
    return bytes_of(Image.fromarray(noise).convert(mode).save, form, **options)


def eps():
    """PostScript: Pillow would hand it to Ghostscript."""
    program = b"(%pipe%touch pwned) (w) file closefile showpage"
    return (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n" + program + b"\n%%EOF\n"
    )


# ------------------------------------------------------------------ stacks


def tiff(width, height, strips=1, strip=b"", pages=1, loop=False):
    """Return a TIFF of bytes, deflated, all of whose strips are the same: a bomb of any size."""
    entries = 9
    size = 2 + 12 * entries + 4
    data = 8 + pages * size
    offsets, counts = data + len(strip), data + len(strip) + 4 * strips
    out = struct.pack("<2sHI", b"II", 42, 8)
    for page in range(pages):
        last = page == pages - 1
        following = (8 if loop else 0) if last else 8 + (page + 1) * size
        several = strips > 1
        out += struct.pack("<H", entries)
        for tag, kind, count, value in (
            (256, 4, 1, width),
            (257, 4, 1, height),
            (258, 3, 1, 8),
            (259, 3, 1, 8 if strip else 1),
            (262, 3, 1, 1),
            (273, 4, strips, offsets if several else data),
            (277, 3, 1, 1),
            (278, 4, 1, -(-height // strips)),
            (279, 4, strips, counts if several else len(strip)),
        ):
            out += struct.pack("<HHII", tag, kind, count, value)
        out += struct.pack("<I", following)
    return (
        out
        + strip
        + struct.pack(f"<{strips}I", *[data] * strips)
        + struct.pack(f"<{strips}I", *[len(strip)] * strips)
    )


def stack(fill, dtype):
    """Return a TIFF stack, one pixel of which has another value."""
    frames = np.full((3, 24, 24), 100, dtype)
    frames[1, 12, 12] = fill
    return bytes_of(tifffile.imwrite, frames, photometric="minisblack")


# ------------------------------------------------------------------ arrays and archives


def npy(header, data=b""):
    """Return a file of NumPy's with any header."""
    text = header.encode("latin1")
    text += b" " * (64 - (10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def archive(entries, mode=zipfile.ZIP_DEFLATED):
    """Return a zip archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", mode) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return buffer.getvalue()


def tar(name, content, size=None, kind=tarfile.REGTYPE):
    """An archive of one member, which may claim another size."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, len(content) if size is None else size
    padding = bytes(-len(content) % tarfile.BLOCKSIZE + 2 * tarfile.BLOCKSIZE)
    return entry.tobuf(tarfile.GNU_FORMAT) + content + padding


def claims_objects():
    """An array of objects, which is a pickle inside."""
    return bytes_of(np.save, np.array([Runs()], dtype=object), allow_pickle=True)


def idx_bomb():
    """A gigabyte of pixels: members of gzip, one after the other, unpack to the sum of all."""
    header = np.array([2051, 2**20, 32, 32], dtype=">i4").tobytes()
    return gzip.compress(header) + gzip.compress(bytes(2**20)) * 1024


# ------------------------------------------------------------------ tensors, tables, text


def tensors(header, data=b""):
    """Return a file of safetensors with any header."""
    text = json.dumps(header).encode() if isinstance(header, dict) else header
    return struct.pack("<Q", len(text)) + text + data


def checkpoint(content):
    """Return what torch.save makes of something."""
    return bytes_of(lambda file: torch.save(content, file))


def parquet_bomb():
    """Sixty million rows in a few kilobytes."""
    table = pd.DataFrame({"rating": np.zeros(60_000_000, np.int8)})
    return bytes_of(lambda file: table.to_parquet(file, compression="zstd"))


def parquet():
    return bytes_of(lambda file: pd.DataFrame({"a": range(50), "b": ["x"] * 50}).to_parquet(file))


#: A run whose network would have terabytes.
HUGE_RUN = {
    "data": "digits", "digest": "", "shape": [10**5, 10**5], "loss": "softmax", "weight": 1.0,
    "seed": 0, "epochs": 1, "batch": 1, "architecture": "mlp", "latent": 10**12,
    "learning_rate": 1.0, "precision": "32-true", "compile": False, "start": "zero", "scale": 1.0,
    "every": 1, "on": "test", "format": 1,
}  # fmt: skip

CORPUS = {
    # damage, and files of another kind
    "empty": lambda: b"",
    "zeros": lambda: bytes(1000),
    "noise": lambda: np.random.default_rng(0).bytes(2000),
    "words": lambda: b"this is not what you think it is\n" * 3,
    "latin": lambda: "größe,wört\n1,2\n".encode("latin1"),
    "html": lambda: b"<html><script>alert(1)</script></html>",
    "eps": eps,
    "pdf": lambda: b"%PDF-1.4\n1 0 obj <</OpenAction <</S /Launch /F (calc)>>>> endobj\n%%EOF\n",
    "svg": lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>',
    "gif": lambda: saved("GIF"),
    "bmp": lambda: saved("BMP"),
    # pictures
    "png-truncated": lambda: saved("PNG")[:300],
    "png-broken-sum": lambda: saved("PNG").replace(b"IDAT", b"IDAT\x00", 1),
    "png-huge-header": lambda: png(2**31 - 1, 2**31 - 1, zeros(100)),
    "png-bomb": lambda: png(30000, 30000, zeros(3751 * 3000)),
    "png-text-bomb": lambda: png(8, 8, zeros(16), text=zeros(80_000_000)),
    "png-no-pixels": lambda: png(0, 0),
    "jpeg-truncated": lambda: saved("JPEG")[:200],
    "webp-truncated": lambda: saved("WEBP", "RGB")[:100],
    # stacks
    "tiff-truncated": lambda: stack(7, np.uint16)[:900],
    "tiff-bomb": lambda: tiff(2**15, 2**16, strips=2**10, strip=zeros(2**21)),
    "tiff-huge-header": lambda: tiff(2**31 - 1, 2**31 - 1),
    "tiff-many-pages": lambda: tiff(2**12, 2**12, strip=zeros(2**24), pages=100),
    "tiff-loop": lambda: tiff(64, 64, strip=zeros(64 * 64)[:-3], loop=True),
    "tiff-nan": lambda: stack(np.nan, np.float32),
    "tiff-infinite": lambda: stack(-np.inf, np.float64),
    "tiff-beyond-float32": lambda: stack(1e300, np.float64),
    # arrays
    "npy-truncated": lambda: bytes_of(np.save, np.zeros((30, 64), np.uint8))[:-9],
    "npy-huge-header": lambda: npy(
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 784), }", bytes(100)
    ),
    "npy-negative": lambda: npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 8), }"),
    "npy-code": lambda: npy("{'descr': __import__('os').system('true'), 'shape': (1,)}"),
    "npy-deep": lambda: npy("{'descr': " + "[" * 3000 + "'<f8'" + "]" * 3000 + "}"),
    "npy-objects": claims_objects,
    "npy-nan": lambda: bytes_of(np.save, np.full((3, 24, 24), np.nan)),
    "npy-beyond-float32": lambda: bytes_of(np.save, np.full((3, 24, 24), 1e300)),
    # archives
    "zip-bomb": lambda: archive(
        {"reconstructions/drawing.npy": bytes_of(np.save, np.zeros((8192, 8192), np.float16))}
    ),
    "zip-truncated": lambda: archive({"samples/a.npy": bytes(4000)})[:-40],
    "zip-paths": lambda: archive(
        {"../../pwned.npy": bytes_of(np.save, np.zeros((2, 8, 8), np.float16))}
    ),
    "zip-objects": lambda: archive({"samples/drawing.npy": claims_objects()}),
    "zip-many-pictures": lambda: archive(
        {"samples/a.npy": bytes_of(np.save, np.zeros((100_000, 2, 2), np.float16))}
    ),
    "gzip-bomb": idx_bomb,
    "gzip-truncated": lambda: gzip.compress(np.random.default_rng(0).bytes(5000))[:-100],
    "xz-bomb": lambda: lzma.compress(bytes(90_000_000), preset=0),
    "xz-truncated": lambda: lzma.compress(np.random.default_rng(0).bytes(5000))[:-100],
    "xz-huge-dictionary": lambda: lzma.compress(
        b"words", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**30}]
    ),
    "gzip-tar-paths": lambda: gzip.compress(tar("../../pwned", b"it ran")),
    "gzip-tar-huge-header": lambda: gzip.compress(tar("a", b"", 2**33 - 1, tarfile.XHDTYPE)),
    # code
    "pickle": lambda: pickle.dumps(Runs()),
    "pickle-2": lambda: pickle.dumps({"state_dict": Runs()}, protocol=2),
    "torch-code": lambda: checkpoint({"epoch": Runs()}),
    "torch-truncated": lambda: checkpoint({"epoch": 1})[:-60],
    "torch-other": lambda: checkpoint([torch.zeros(3)]),
    # tensors
    "tensors-truncated": lambda: save_tensors({"offset": np.zeros((8, 8), np.float32)})[:-5],
    "tensors-huge-header": lambda: struct.pack("<Q", 2**62) + b"{}",
    "tensors-huge-shape": lambda: tensors(
        {"offset": {"dtype": "F32", "shape": [2**40, 2**20], "data_offsets": [0, 4]}}, bytes(4)
    ),
    "tensors-other": lambda: save_tensors({"coef": np.full((2, 2), np.nan)}),
    # tables and text
    "csv-binary": lambda: b"a,b\n\x00\x00,\x00\n\xff\xfe,1\n",
    "csv-quote": lambda: b'a,b\n"1,2\n' + b"3,4\n" * 20,
    "csv-twice": lambda: b"a,a\n1,2\n",
    "csv-infinite": lambda: b"frame,x [nm],y [nm]\n1,inf,2\n",
    "csv-many-columns": lambda: b",".join(b"c%d" % k for k in range(20_000)) + b"\n",
    "csv-utf-16": lambda: ("c," * 20_000 + "\n1,2\n").encode("utf-16"),
    "csv-control": lambda: b"a\x1b[31m;\x07b\r\n1;2\n",
    "parquet-truncated": lambda: parquet()[:-20],
    "parquet-damaged": lambda: parquet()[:60] + bytes(40) + parquet()[100:],
    "parquet-bomb": parquet_bomb,
    "json-deep": lambda: b"[" * 200_000,
    "json-list": lambda: b"[1, 2, 3]\n",
    "json-null": lambda: b"null\n",
    "json-empty": lambda: b"{}\n",
    "json-nan": lambda: b'{"format": NaN, "version": NaN, "seconds_per_step": {"softmax": NaN}}\n',
    "json-long-number": lambda: b'{"version": ' + b"9" * 100_000 + b"}\n",
    "json-huge-net": lambda: json.dumps(HUGE_RUN).encode(),
    "strokes-huge-number": lambda: b'{"drawing": [[[0, 1e400], [0, ' + b"9" * 40 + b"]]]}\n",
    "strokes-endless-line": lambda: b'{"drawing": [[[' + b"0," * 2_000_000,
    "strokes-wrong": lambda: b'{"drawing": {"a": [[[]]]}}\n',
}


def write(path: Path, kind: str) -> Path:
    """Write a file of the corpus."""
    path.write_bytes(CORPUS[kind]())
    return path


if __name__ == "__main__":
    os.environ.setdefault(MARKER, os.devnull)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in CORPUS:
        print(f"{write(folder / kind, kind).stat().st_size:>10,}  {kind}")

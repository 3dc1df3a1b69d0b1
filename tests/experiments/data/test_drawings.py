"""Drawings: every format, and what is wrong with a file."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from geosoftmax_experiments.data.drawings import as_distributions, load_drawings
from geosoftmax_experiments.data.images import read_picture
from geosoftmax_experiments.data.strokes import render
from geosoftmax_experiments.errors import UserError
from tests.conftest import data_file


@pytest.fixture
def pictures():
    return np.random.default_rng(0).integers(0, 255, (30, 8, 8), dtype=np.uint8)


def idx(pictures):
    header = np.array([2051, *pictures.shape], dtype=">i4").tobytes()
    return gzip.compress(header + pictures.tobytes())


def save_mnist(folder, train, test):
    (folder / "mnist").mkdir()
    (folder / "mnist/train-images-idx3-ubyte.gz").write_bytes(train)
    (folder / "mnist/t10k-images-idx3-ubyte.gz").write_bytes(test)


def save_pngs(folder, pictures):
    for k, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{k:02}.png")


def test_digits_need_no_download(monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    found = load_drawings("digits")
    assert found.images.shape == (1797, 8, 8)
    assert found.images.max() == 255
    assert found.blank == 0


def test_distributions(pictures):
    alpha = as_distributions(torch.from_numpy(pictures))
    assert alpha.dtype == torch.float32
    assert (alpha.amin((1, 2)) == 0).all()
    torch.testing.assert_close(alpha.sum((1, 2)), torch.ones(30))
    wanted = pictures[3] - float(pictures[3].min())
    torch.testing.assert_close(alpha[3].double(), torch.from_numpy(wanted / wanted.sum()),
                               rtol=1e-5, atol=0)  # fmt: skip


def test_bitmaps_are_mapped_and_blank_ones_dropped(tmp_path, pictures):
    pictures[4], pictures[7] = 9, 0
    path = tmp_path / "own.npy"
    np.save(path, pictures.reshape(30, 64))
    found = load_drawings(str(path))
    assert isinstance(found.images.base, np.memmap)
    assert (found.images == pictures).all()
    assert found.blank == 2
    assert {4, 7}.isdisjoint(found.rows)


def test_splits_are_seeded_and_apart(tmp_path, pictures):
    np.save(tmp_path / "own.npy", pictures.reshape(30, 64))
    split, again, other = (
        load_drawings(str(tmp_path / "own.npy"), seed=seed).split() for seed in (1, 1, 2)
    )
    assert [len(part) for part in split] == [24, 3, 3]
    assert sorted(np.concatenate(split)) == list(range(30))
    assert all((a == b).all() for a, b in zip(split, again, strict=True))
    assert (split.test != other.test).any()


def test_mnist_keeps_its_test_set(tmp_path, monkeypatch, pictures):
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    save_mnist(tmp_path, idx(pictures[:20]), idx(pictures[20:]))
    found = load_drawings("mnist", seed=0)
    assert (found.images == pictures).all()
    split = found.split()
    assert sorted(split.test) == list(range(20, 30))
    assert len(split.validation) == 2
    anew = load_drawings("mnist", seed=1).split()
    assert [len(part) for part in anew] == [24, 3, 3]
    assert min(anew.test) < 20
    assert load_drawings("mnist", limit=15).last == 0


@pytest.mark.parametrize("paper", [0, 255])
def test_pngs_that_are_not_square_get_margins(tmp_path, paper):
    wide = np.full((8, 16), paper, np.uint8)
    wide[2:6, 4:8] = 100
    for k, picture in enumerate((wide, wide.T)):
        Image.fromarray(np.ascontiguousarray(picture)).save(tmp_path / f"{k}.png")
    for picture in load_drawings(str(tmp_path), size=8, invert=False).images:
        ink = np.argwhere(picture != paper)
        assert (picture[picture != paper] == 100).all()
        assert np.ptp(ink, axis=0).tolist() == [1, 1]  # a square is a square


def test_pngs(tmp_path, pictures):
    save_pngs(tmp_path, pictures)
    assert (load_drawings(str(tmp_path)).images == pictures).all()
    assert (load_drawings(str(tmp_path), invert=True).images == 255 - pictures).all()
    assert load_drawings(str(tmp_path), size=4, limit=5).images.shape == (5, 4, 4)
    Image.fromarray(pictures[0].astype(np.uint16) * 257).save(tmp_path / "00.png")
    assert (load_drawings(str(tmp_path)).images == pictures).all()


@pytest.mark.parametrize(
    ("form", "suffix"), [("JPEG", ".JPG"), ("JPEG", ".jpeg"), ("TIFF", ".tif"), ("WEBP", ".webp")]
)
def test_folders_of_other_formats(tmp_path, form, suffix):
    """Whatever their names say: the content counts."""
    ink = np.zeros((30, 16, 16), np.uint8)
    ink[:, 4:9, 2:5] = 200
    for k, picture in enumerate(ink):
        Image.fromarray(picture).save(tmp_path / f"{k:02}{suffix}", form)
    found = load_drawings(str(tmp_path)).images.astype(int)
    assert np.abs(found - ink).max() <= (0 if form == "TIFF" else 40)  # what they compress away
    assert np.abs(found - ink).mean() < 3


def test_photographs_are_turned_as_the_camera_was_held(tmp_path):
    picture = np.zeros((16, 32), np.uint8)
    picture[:, :8] = 255
    held = Image.Exif()
    held[0x0112] = 6  # the camera was turned by a quarter
    Image.fromarray(picture).save(tmp_path / "a.jpg", exif=held)
    found = read_picture(tmp_path / "a.jpg")
    assert found.shape == (32, 16)
    assert found[:7].min() > 200
    assert found[9:].max() < 50


def test_pictures_are_opened_in_one_place_with_named_formats():
    root = Path(__file__).parents[3] / "src"
    opens = [
        (path.name, line.strip())
        for path in root.rglob("*.py")
        for line in path.read_text(encoding="utf8").splitlines()
        if "Image.open" in line or "imread" in line
    ]
    assert opens == [("images.py", "return Image.open(path, formats=FORMATS)")]


def test_strokes_are_one_pixel_wide_and_joined():
    assert (render([[[7], [7]]], 64) > 0).sum() == 1
    picture = render([[[0, 255, 255], [0, 100, 255]]], 64) > 0
    assert picture.sum(0)[2:-2].min() == 1  # in each column but the margins
    assert picture.sum(0)[2:60].max() == 1
    assert not picture[:, :2].any()
    assert not picture[:, -2:].any()
    rows, columns = np.nonzero(picture.T)[::-1]
    steps = np.maximum(abs(np.diff(rows)), abs(np.diff(columns)))
    assert steps.max() == 1
    small = render([[[0, 50], [0, 0]]], 64)  # in the middle, whatever corner it was drawn in
    rows, columns = np.nonzero(small)
    assert abs(columns.mean() - 31.5) < 1
    assert abs(rows.mean() - 31.5) < 1


def test_strokes_of_a_file(tmp_path):
    path = tmp_path / "few.ndjson"
    line = json.dumps({"word": "x", "drawing": [[[0, 255], [0, 255]]]})
    path.write_text(f"{line}\n" * 12)
    assert load_drawings(str(path), size=32).images.shape == (12, 32, 32)
    path.write_text(f"{line}\n{line[:30]}")
    with pytest.raises(UserError, match=r"few.ndjson, line 2: not a drawing"):
        load_drawings(str(path))
    path.write_text(json.dumps({"drawing": [[[0, 256], [0, 0]]]}))
    with pytest.raises(UserError, match=r"few.ndjson, line 1: not a drawing"):
        load_drawings(str(path))


def test_damaged_files_are_named(tmp_path, monkeypatch, pictures):
    path = tmp_path / "own.npy"
    np.save(path, pictures.reshape(30, 64))
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"own.npy cannot be read.*truncated"):
        load_drawings(str(path))
    np.save(path, pictures.reshape(30, 64).astype(float))
    with pytest.raises(UserError, match=r"own.npy holds float64 of shape \(30, 64\)"):
        load_drawings(str(path))
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    save_mnist(tmp_path, idx(pictures)[:-20], idx(pictures))
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte.gz cannot be read"):
        load_drawings("mnist")
    short = gzip.compress(gzip.decompress(idx(pictures))[:-1])
    (tmp_path / "mnist/train-images-idx3-ubyte.gz").write_bytes(short)
    with pytest.raises(UserError, match=r"holds 1919 bytes of pixels; its header says 30 × 8 × 8"):
        load_drawings("mnist")
    folder = tmp_path / "pngs"
    folder.mkdir()
    with pytest.raises(UserError, match=r"holds no pictures.*JPEG"):
        load_drawings(str(folder))
    save_pngs(folder, pictures)
    Image.fromarray(pictures[0, :7]).save(folder / "05.png")
    several = load_drawings(str(folder))
    assert several.shape == (28, 28)
    assert several.size == 28
    (folder / "05.png").write_bytes((folder / "04.png").read_bytes()[:60])
    with pytest.raises(UserError, match=r"05.png cannot be read"):
        load_drawings(str(folder))


def test_what_was_asked_for_is_checked(tmp_path, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    with pytest.raises(UserError, match=r"no data 'dogs'.*digits, cats, mnist"):
        load_drawings("dogs")
    with pytest.raises(UserError, match="have a size of their own"):
        load_drawings("digits", size=28)
    with pytest.raises(UserError, match=r"mixed.ndjson is missing"):
        load_drawings("drawings")
    with pytest.raises(UserError, match="too few"):
        load_drawings("digits", limit=9).split()


def test_a_failed_download_says_where_the_file_may_be_put(monkeypatch, tmp_path):
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nobody answers there
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"Could not download https.*cat.npy.*quickdraw/numpy_bit"):
        load_drawings("cats")


@pytest.mark.data
def test_published_files():
    data_file("quickdraw/numpy_bitmap/cat.npy")
    cats = load_drawings("cats")
    assert cats.shape == (28, 28)
    data_file("quickdraw/simplified/mixed.ndjson")
    drawings = load_drawings("drawings", limit=300)
    assert drawings.shape == (64, 64)
    assert drawings.blank == 0
    assert 60 < (drawings.images > 0).sum((1, 2)).mean() < 500
    data_file("mnist/train-images-idx3-ubyte.gz")
    mnist = load_drawings("mnist")
    assert mnist.images.shape == (70000, 28, 28)
    assert len(mnist.split().test) == 7000
    assert len(load_drawings("mnist", seed=0).split().test) == 10000
    labels = mnist.labels()
    assert labels is not None
    assert np.bincount(labels).min() > 6000

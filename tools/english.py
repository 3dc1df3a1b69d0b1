"""``make lint``: what a machine can see of plain English, in all that users read.

It finds sentences of more than `LONGEST` words, and words that this project replaced by those of
the field. It reads the README, the changelog, the pages and reports of docs/, the introductions of
the examples, docstrings of public code, help texts and messages. The rest is for a person who
edits. A sentence that has to stay is listed in `ALLOWED`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGES = ["*.md", "experiments/README.md", "benchmarks/*.md", "docs/*.md", "docs/results/**/*.md"]
CODE = ["src/geosoftmax/**/*.py", "src/geosoftmax_experiments/**/*.py", "examples/*.py"]
#: Kernels, which users do not read.
INTERNAL = "src/geosoftmax/backends/**/*.py"
#: Words of a sentence. Code, formulas, numbers in brackets and links' addresses are not counted.
LONGEST = 40
#: What is written instead, by the expression that finds a word in its replaced sense.
REPLACED = {
    r"\btwins?\b": "sibling, counterpart",
    r"\b(?:left|right|upper|lower|two) halves\b": "the two parts, by their names",
    r"\blanes?\b": "SIMD lane, row, thread",
    r"\bwhole (?:solve|loss|call|kernel)\b": "fused",
    r"\b(?:is|are) told\b(?! apart)": "is given, is informed",
    r"\b(?:is|are|was|were) said\b": "is stated, is printed",
    r"\bback-ends?\b": "backend",
    r"\bsays scores\b": "outputs scores",
    r"\bso many times as long as\b": "times slower than",
    r"\bat all \w+ points\b": "everywhere",
    r"\bnobody waits\b": "no synchronisation is needed",
}
#: Sentences that stay, by how they begin.
ALLOWED = ("it is lower at every rate of its own that lies between",)


class Complaint(NamedTuple):
    """A place, and what is wrong there."""

    path: str
    line: int
    words: str


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of Markdown or a docstring, each with the line on which it begins."""
    text = re.sub(r"^```.*?^```", _blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", _blank, text, flags=re.DOTALL)
    for block in re.finditer(r"(?:^(?![ \t]*$).+\n?)+", text, re.MULTILINE):
        if re.search(r"^ *=+(?: +=+)+$", block[0], re.MULTILINE):  # a table of a docstring
            continue
        start = text.count("\n", 0, block.start()) + 1
        for offset, piece in _pieces(block[0]):
            for found in re.finditer(r".+?(?:[.!?:;](?=\s|$)|\Z)", piece, re.DOTALL):
                begin = offset + found.start() + len(found[0]) - len(found[0].lstrip())
                line = start + block[0].count("\n", 0, begin)
                yield line, found[0]


def _pieces(block: str) -> Iterator[tuple[int, str]]:
    """Split a paragraph at list items, table cells, headings and underlines."""
    at = 0
    for piece in re.split(r"(\n(?=\s*(?:[-*|#>]|\d+\.)\s?)|\|)", block):
        if piece.strip("|\n "):
            yield at, piece
        at += len(piece)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def count(sentence: str) -> int:
    """Count words; code, formulas, brackets and addresses of links are left out."""
    plain = re.sub(r"`[^`]*`|\$[^$]*\$|\]\([^)]*\)|\([^()]*\)|:\w+:", " ", sentence)
    return len(re.findall(r"[^\W\d_][\w’'-]*", plain))


def examine(text: str, path: str, first: int = 1) -> Iterator[Complaint]:
    """Yield what is wrong in a text that begins on the line `first`."""
    for line, sentence in sentences(text):
        clean = " ".join(sentence.split())
        if clean.startswith(ALLOWED):
            continue
        if (words := count(sentence)) > LONGEST:
            yield Complaint(path, first + line - 1, f"{words} words: {clean[:70]}…")
        plain = re.sub(r"`[^`]*`", " ", clean)
        for expression, instead in REPLACED.items():
            if found := re.search(expression, plain, re.IGNORECASE):
                yield Complaint(path, first + line - 1, f"'{found[0]}': {instead}")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings of public code, and messages of errors, with their lines."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            name = getattr(node, "name", "module")
            text = ast.get_docstring(node, clean=False)
            if text and not name.startswith("_"):
                yield node.body[0].lineno, text
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield node.lineno, " ".join(_strings(node.exc))
        elif isinstance(node, ast.keyword) and node.arg == "help":
            yield node.value.lineno, " ".join(_strings(node.value))


def _strings(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def check(root: Path = ROOT) -> list[Complaint]:
    """Return all that is wrong in a checkout."""
    found = []
    for pattern in PAGES:
        for path in sorted(root.glob(pattern)):
            found += examine(path.read_text(encoding="utf8"), str(path.relative_to(root)))
    for pattern in CODE:
        for path in sorted(set(root.glob(pattern)) - set(root.glob(INTERNAL))):
            for line, text in texts(path.read_text(encoding="utf8")):
                found += examine(text, str(path.relative_to(root)), line)
    return found


def main() -> None:
    """Print all complaints; end with status 1 where there are any."""
    found = check()
    for path, line, words in found:
        print(f"{path}:{line}: {words}")
    if found:
        sys.exit(f"English: {len(found)} places. The table is in tools/english.py.")


if __name__ == "__main__":
    main()

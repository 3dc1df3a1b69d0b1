"""What reports are made of: tables in Markdown, pictures, and pages that need no other file.

Names of classes, columns and files come from data, and may hold anything. `escape` makes them plain
text of a report, `plain_label` of a figure, and `write_csv` of a spreadsheet. Pages have a second
line of defence: raw HTML is off, pictures are those that the report has written, and a
content-security policy forbids scripts and requests.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from geosoftmax_experiments import files

__all__ = [
    "Report",
    "as_markdown",
    "escape",
    "escape_all",
    "html_page",
    "made_with",
    "plain_label",
    "save",
    "say_saved",
    "write_csv",
]

#: What Markdown takes for more than text, inside a line.
_MARKS = re.compile(r"([\\`*_\[\]<>|!&#~$])")
#: Letters of a label in a figure.
LONGEST = 40
#: What makes a spreadsheet take a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Report:
    """Paragraphs, tables and figures in their order, for ``report.md`` and ``report.html``.

    Parameters
    ----------
    folder : Path
        Where the pages and their pictures are written.
    title : str
        Plain text.
    """

    def __init__(self, folder: Path, title: str) -> None:
        self._folder = folder
        self._title = title
        self._parts = [f"# {escape(title)}"]
        self._pictures: list[str] = []

    def add(self, *paragraphs: str) -> None:
        """Add paragraphs or headings in Markdown; names that come from data are escaped before."""
        self._parts += paragraphs

    def add_table(self, table: pd.DataFrame) -> None:
        """Add a table. Cells may hold Markdown: `escape` those that come from data."""
        self._parts.append(as_markdown(table))

    def add_figure(self, name: str, figure: Figure, caption: str) -> None:
        """Write a figure to the folder as a PNG of that name, and show it."""
        save(figure, self._folder / f"{name}.png")
        self._parts.append(f"![{caption}]({name}.png)")
        self._pictures.append(f"{name}.png")

    def write(self) -> Path:
        """Write both pages; return the path of the HTML page, which needs no other file."""
        text = "\n\n".join(self._parts) + "\n"
        files.write_text(self._folder / "report.md", text)
        page = self._folder / "report.html"
        files.write_text(page, html_page(self._title, text, self._folder, self._pictures))
        return page


def say_saved(console: Console, page: Path) -> None:
    """Say where a report is, and which pictures are beside it: those that it shows."""
    console.print(f"Report saved to {page.resolve()}", soft_wrap=True)
    text = page.with_suffix(".md").read_text(encoding="utf8")
    if pictures := re.findall(r"^!\[.*\]\(([\w-]+\.png)\)$", text, re.MULTILINE):
        console.print(f"Pictures beside it: {', '.join(pictures)}", soft_wrap=True)


def escape(value: object) -> str:
    r"""Return text from data as Markdown that shows it as it is, in one line.

    Examples
    --------
    >>> print(escape("<b>![a](b.png)|"))
    \<b\>\!\[a\](b.png)\|
    """
    return _MARKS.sub(r"\\\1", " ".join(str(value).split()))


def made_with(versions: Mapping[str, str], commits: Mapping[str, int]) -> str:
    """Return a paragraph on where results come from."""
    packages = ", ".join(f"{name} {number}" for name, number in versions.items())
    made = ", ".join(f"{escape(commit)} ({count})" for commit, count in commits.items())
    return f"Versions: {packages}. Commits, and how many units each computed: {made}."


def escape_all(value: Any) -> Any:
    """Return what was read from JSON with all its text escaped."""
    if isinstance(value, dict):
        return {key: escape_all(part) for key, part in value.items()}
    if isinstance(value, list):
        return [escape_all(part) for part in value]
    return escape(value) if isinstance(value, str) else value


def plain_label(value: object) -> str:
    """Return text from data for a figure: no formulas, no tabs, and not too long to be drawn."""
    text = re.sub(r"[^\S\n]+", " ", str(value))
    return (text if len(text) <= LONGEST else text[: LONGEST - 1] + "…").replace("$", r"\$")


def as_markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown. Cells may hold Markdown: `escape` those that come from data."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html_page(title: str, text: str, folder: Path, pictures: Collection[str]) -> str:
    """Return a page that needs no other file.

    Parameters
    ----------
    title : str
        Plain text.
    text : str
        Markdown.
    folder : Path
    pictures : collection of str
        The PNGs of the folder that the report has written: these are put into the page, all other
        pictures that the text names are left out.
    """
    from markdown_it import MarkdownIt

    def image(tokens: Any, index: int, options: Any, environment: Any) -> str:
        name, words = tokens[index].attrs["src"], html.escape(tokens[index].content)
        if name not in pictures:
            return words
        data = base64.b64encode((folder / name).read_bytes()).decode()
        return f'<img src="data:image/png;base64,{data}" alt="{words}" />'

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.renderer.rules["image"] = image  # type: ignore[attr-defined]
    style = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{style}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n"
        f"<body>\n{markdown.render(text)}</body></html>\n"
    )


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; display: block; overflow-x: auto; margin: 1rem 0 }
td, th { padding: .15rem .6rem; border-bottom: 1px solid #ddd; text-align: left }
img { max-width: 100% }
"""


def _cell(value: Any) -> str:
    if pd.isna(value):
        return "–"
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < abs(value) < 0.001 else f"{value:.3f}"
    return str(value)


def write_csv(
    path: Path,
    table: pd.DataFrame,
    *,
    index: bool = False,
    separator: str = ",",
    decimal: str = ".",
) -> None:
    """Write a table whole or not at all, with no cell that a spreadsheet would take for a formula.

    Text that begins with ``=``, ``+``, ``-``, ``@``, a tab or a carriage return, and is not a
    number, gets an apostrophe before it. Numbers stay as they are.
    """
    safe = table.reset_index(names=table.index.name or "") if index else table.copy()
    for place, kind in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            column: Any = safe.iloc[:, place].astype(object)
            safe.isetitem(place, column.map(_unlike_a_formula))
    safe.columns = [_unlike_a_formula(str(name)) for name in safe.columns]
    files.write(
        path, lambda partial: safe.to_csv(partial, index=False, sep=separator, decimal=decimal)
    )


def _unlike_a_formula(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def save(figure: Figure, path: Path) -> None:
    """Write a picture whole or not at all."""
    try:
        files.write(path, lambda partial: figure.savefig(partial, dpi=150))
    finally:
        plt.close(figure)

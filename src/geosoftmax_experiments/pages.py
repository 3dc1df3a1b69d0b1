"""What reports are made of: tables in Markdown, pictures, and pages that need no other file."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from geosoftmax_experiments import files

__all__ = ["as_markdown", "html_page", "save"]


def as_markdown(table: pd.DataFrame) -> str:
    """Return a table as Markdown."""
    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def html_page(title: str, text: str, folder: Path) -> str:
    """Return a page that needs no other file: pictures of the folder are put into it."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(text)

    def embed(match: re.Match[str]) -> str:
        picture = (folder / match[1]).read_bytes()
        return f'src="data:image/png;base64,{base64.b64encode(picture).decode()}"'

    body = re.sub(r'src="([^":]+\.png)"', embed, body)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body>\n{body}</body></html>\n"
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


def save(figure: Figure, path: Path) -> None:
    """Write a picture whole or not at all."""
    try:
        files.write(path, lambda partial: figure.savefig(partial, dpi=150))
    finally:
        plt.close(figure)

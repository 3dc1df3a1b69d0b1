"""What the site makes each time it is built: tables of benchmarks, and links to what is made."""

import json
import re
from pathlib import Path

from sphinx.application import Sphinx

from benchmarks.report import markdown, summary

RESULTS = Path("benchmarks/results")
#: Pages name files where they lie in the repository, so that links work there, too; here they lead
#: to what is made of these files for the site.
LINKS = {
    r"\.\./benchmarks/results/README\.md": "generated/benchmarks.md",
    r"\.\./benchmarks/results/(\w+\.md)": r"generated/\1",
    r"\.\./examples/README\.rst": "gallery/index.rst",
    r"\.\./examples/(plot_\w+)\.py": r"gallery/\1.rst",
}


def generate(app: Sphinx) -> None:
    """Write ``docs/generated``."""
    folder = Path(app.srcdir) / "generated"
    root = Path(app.srcdir).parent
    folder.mkdir(exist_ok=True)
    results = sorted((root / RESULTS).glob("*.json"))
    for path in results:
        write(folder / f"{path.stem}.md", markdown(json.loads(path.read_text(encoding="utf8"))))
    # Written by a script that tunes, and by a run that was stopped.
    others = [root / RESULTS / name for name in ("splitting.md", "gpu_solves.md")]
    for path in others:
        write(folder / path.name, path.read_text(encoding="utf8"))
    names = "\n".join(path.stem for path in [*results, *others])
    toctree = f"```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{names}\n```\n"
    text = summary(root / RESULTS).replace("# Results", "# Benchmarks", 1)
    write(folder / "benchmarks.md", f"{text}\n{toctree}")


def write(path: Path, text: str) -> None:
    """Write a page, unless it is there already: Sphinx reads again only what changed."""
    if not path.exists() or path.read_text(encoding="utf8") != text:
        path.write_text(text, encoding="utf8")


def escape_stars(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list
) -> None:
    """In docstrings ``(*batch, *cost.shape)`` is a shape, not the beginning of an emphasis."""
    for k, line in enumerate(lines):
        line = re.sub(r"(?<![*\w`\\])\*(?=[a-z_.]+[,)])", r"\\*", line)
        lines[k] = re.sub(r"(?<=\w)_(?=,\))", r"\\_", line)  # nor (n_features_in_,) a link


def link_to_generated(app: Sphinx, name: str, source: list) -> None:
    """Lead links of a page to the site."""
    for file, page in LINKS.items():
        source[0] = re.sub(rf"\]\({file}(?=[)#])", f"]({page}", source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", generate, priority=100)
    app.connect("autodoc-process-docstring", escape_stars, priority=100)
    app.connect("source-read", link_to_generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Every code block of the site runs and prints what the page says; every command exists."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from tests.conftest import compiles

ROOT = Path(__file__).parent.parent.resolve()
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page):
    """Yield the code blocks of a page: kind, text, and the line where it begins."""
    text = page.read_text(encoding="utf8")
    for found in FENCE.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


WITH_CODE = [page for page in PAGES if any(kind == "python" for kind, _, _ in blocks(page))]


def test_report_have_code():
    assert len(WITH_CODE) >= 8


@pytest.fixture
def _print_options():
    """Put back how tensors are printed, which pages may set."""
    yield
    torch.set_printoptions(profile="default")


@compiles
@pytest.mark.usefixtures("_print_options")
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning on torch 2.13
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.stem)
def test_blocks_run_and_print_what_the_page_says(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, printed = {"__name__": "__main__"}, None
    for kind, text, line in blocks(page):
        if kind == "python":
            code = compile("\n" * (line - 1) + text, str(page), "exec")
            exec(code, names)
            printed = capsys.readouterr().out
        elif kind == "text":
            assert printed is not None, f"{page.name}:{line}: output without code"
            assert printed.split() == text.split(), f"{page.name}:{line}: it printed\n{printed}"
            printed = None


def commands():
    for page in [ROOT / "README.md", *PAGES]:
        for kind, text, line in blocks(page):
            if kind == "console":
                for command in re.findall(r"^\$ (?:\S*/)?(geosoftmax .*)$", text, re.MULTILINE):
                    yield pytest.param(command, id=f"{page.stem}:{line}:{command[:40]}")


@pytest.mark.parametrize("command", [*commands()])
def test_commands_of_the_pages_exist_with_their_options(command):
    words = shlex.split(command, comments=True)[1:]
    path = []
    for word in words:
        # An option first: it might take --help for its value, and run the command.
        if word.startswith("-") or CliRunner().invoke(app, [*path, word, "--help"]).exit_code:
            break
        path.append(word)
    options = [re.split("=", word)[0] for word in words if re.match(r"--?[a-z]", word)]
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).output
    assert path or options == ["--version"]
    assert [option for option in options if option not in shown] == []


def kept():
    """Return what a checkout has, without what a build leaves in it: files, and their folders."""
    git = ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    files = {ROOT / name for name in listed if name and (ROOT / name).exists()}
    return files | {folder for path in files for folder in path.parents}


def test_links_and_pictures_work_where_nothing_was_built():
    """Pages are read in the checkout, too: what they name lies there, not only on the site."""
    files = kept()
    links = [
        (page, link)
        for page in sorted(path for path in files if path.suffix == ".md")
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf8"))
        if not re.match(r"https?:|mailto:", link)
    ]
    assert {ROOT / "README.md", ROOT / "docs" / "start.md"} <= {page for page, _ in links}
    missing = [item for item in links if (item[0].parent / item[1]).resolve() not in files]
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in missing] == []

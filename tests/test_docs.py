"""Every code block of the site runs and prints what the page says; every command exists."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page):
    """Yield the code blocks of a page: kind, text, and the line where it begins."""
    text = page.read_text(encoding="utf8")
    for found in FENCE.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start()) + 2


WITH_CODE = [page for page in PAGES if any(kind == "python" for kind, _, _ in blocks(page))]


def test_pages_have_code():
    assert len(WITH_CODE) >= 8


@pytest.fixture
def _print_options():
    """Put back how tensors are printed, which pages may set."""
    yield
    torch.set_printoptions(profile="default")


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
        if word.startswith("-"):  # before it is tried: `-o --help` would write to such a folder
            break
        if CliRunner().invoke(app, [*path, word, "--help"]).exit_code:
            break
        path.append(word)
    options = [re.split("=", word)[0] for word in words if re.match(r"--?[a-z]", word)]
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "200"}).output
    assert path or options == ["--version"]
    assert [option for option in options if option not in shown] == []


def test_links_of_the_pages_lead_somewhere():
    """What a build makes lies in docs/generated and docs/gallery: its sources have to exist."""
    missing = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf8")):
            if not link.startswith("http") and not source_of(page, link).exists():
                missing.append(f"{page.name}: {link}")
    assert missing == []


def test_the_first_page_leads_to_what_users_came_for():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf8")
    for what, page in [
        ("microscopy", "continuous.md#microscopy"),
        ("drawings", "drawings.md"),
        ("ordered classes", "ordinal-table.md"),
    ]:
        assert re.search(rf"^\| .*{what}.* \| \[[^]]+\]\({page}\) \|$", text, re.MULTILINE), what


def source_of(page, link):
    path = page.parent / link
    if link.startswith("gallery/"):
        example = "README.rst" if path.stem == "index" else f"{path.stem}.py"
        return ROOT / "examples" / example
    if link.startswith("generated/"):
        made = {
            "benchmarks": "benchmarks/report.py",
            "splitting": "benchmarks/results/splitting.md",
        }
        figures = {name: "docs/_ext/generated.py" for name in ("fields", "levels")}
        return ROOT / (made | figures).get(path.stem, f"benchmarks/results/{path.stem}.json")
    return path

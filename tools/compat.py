"""``make compat``: the library tested on the oldest and newest packages, and on each Python.

Each row is a scratch environment. Builds of torch for CPUs alone are taken (``torch==…+cpu``). Pip
finds them in its own index or where ``--torch-index`` says. A row whose packages cannot be had is
listed with the reason.
Rows are stored in docs/results/compat.json as they come; the page beside it is written from all.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.environments import ROOT, CommandError, Environment, call

STORED = ROOT / "docs" / "results" / "compat.json"
PAGE = STORED.with_suffix(".md")
#: Torch as tested every day, and the oldest that pyproject.toml allows.
NEWEST_TORCH, OLDEST_TORCH = "2.13.0", "2.6.0"
#: The oldest of the others that pyproject.toml allows.
OLDEST = ["numpy==1.26.0", "numba==0.60.0", "scipy==1.11.4", "scikit-learn==1.7.0"]
ROWS = {
    "newest": (NEWEST_TORCH, []),
    "oldest but torch": (NEWEST_TORCH, OLDEST),
    "oldest torch": (OLDEST_TORCH, []),
    "oldest": (OLDEST_TORCH, OLDEST),
}
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
#: What is run: the functions, costs, modules and estimators, and the README.
TESTS = ["functional", "costs", "nn", "estimators", "readme"]
NEEDED = ["pytest", "pytest-xdist", "hypothesis", "pandas", "matplotlib"]
SHOWN = ["torch", "numpy", "scipy", "numba", "scikit-learn"]


def find_python(version: str) -> str | None:
    """Return an interpreter of this version: on the path, or of pyenv."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))
    for path in filter(None, candidates):
        tell = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(tell, capture_output=True, text=True)
        if done.stdout.strip() == version:
            return path
    return None


def run_row(python: str, name: str, wheel: Path, folder: Path, index: list[str]) -> dict:
    """Test one row; return what was found."""
    torch, pins = ROWS[name]
    row = {"python": python, "packages": name, "asked": [f"torch=={torch}", *pins]}
    path = find_python(python)
    if path is None:
        return {**row, "not_run": f"no Python {python} here"}
    env = Environment(folder / f"{python}-{name.replace(' ', '-')}", path)
    try:
        # Torch first, and alone: where there is no such build, nothing large is fetched.
        env.install(*index, "--dry-run", "--no-deps", f"torch=={torch}+cpu")
    except CommandError:
        return {**row, "not_run": f"no CPU build of torch {torch} for Python {python} here"}
    try:
        env.install(*index, f"{wheel}[sklearn]", *NEEDED, f"torch=={torch}+cpu", *pins)
    except CommandError as error:
        return {**row, "not_run": f"pip: {_last_error(str(error))}"}
    row["versions"] = {key: value for key, value in env.versions().items() if key in SHOWN}
    tests = [f"tests/test_{name}.py" for name in TESTS]
    # Warnings of other versions are not ours to answer for; failures are.
    pytest = [
        env.python,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "-m",
        "not slow and not gpu",
        "-W",
        "default",
    ]
    done = subprocess.run([*pytest, *tests], cwd=ROOT, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]])[-1]
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", done.stdout, re.MULTILINE)
    shutil.rmtree(env.folder, ignore_errors=True)
    return {**row, "passed": done.returncode == 0, "words": last.strip("= "), "failures": failures}


def _last_error(text: str) -> str:
    found = re.findall(r"ERROR: (.+)", text)
    return found[-1][:160] if found else text.strip().splitlines()[-1][:160]


def store(row: dict) -> list[dict]:
    """Store a row in place of an earlier one of its name; write the page."""
    rows = json.loads(STORED.read_text(encoding="utf8")) if STORED.exists() else []
    rows = [old for old in rows if _key(old) != _key(row)]
    rows = sorted([*rows, row], key=_key)
    STORED.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf8")
    PAGE.write_text(page(rows), encoding="utf8")
    return rows


def _key(row: dict) -> tuple[int, int]:
    return PYTHONS.index(row["python"]), [*ROWS].index(row["packages"])


def page(rows: list[dict]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Tested versions",
        "",
        "Written by `make compat`. It installs the wheel of the library in scratch environments.",
        f"These tests are run there: {', '.join(TESTS)}. Torch is the build for CPUs.",
        "",
        f"| Python | packages | {' | '.join(SHOWN)} | result | date |",
        "|---" * (len(SHOWN) + 4) + "|",
    ]
    for row in rows:
        found = row.get("versions", {})
        versions = [found.get(name, "") for name in SHOWN]
        result = f"not run: {row['not_run']}" if "not_run" in row else row["words"]
        if row.get("passed") is False:
            result = f"**failed**: {result}"
        cells = [row["python"], row["packages"], *versions, result, row["date"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the rows that were asked for."""
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=PYTHONS)
    parser.add_argument("--packages", nargs="+", choices=[*ROWS], default=[*ROWS])
    parser.add_argument("--torch-index", help="index of CPU builds of torch")
    options = parser.parse_args()
    index = ["--extra-index-url", options.torch_index] if options.torch_index else []
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)])
        (wheel,) = folder.glob("geosoftmax-*.whl")
        for python in options.python:
            for packages in options.packages:
                row = run_row(python, packages, wheel, folder, index)
                row["date"] = datetime.date.today().isoformat()
                store(row)
                failed |= row.get("passed") is False
                print(
                    f"Python {python}, {packages}: {row.get('words') or row['not_run']}", flush=True
                )
                for failure in row.get("failures", []):
                    print(f"  {failure}")
    sys.exit(failed)


if __name__ == "__main__":
    main()

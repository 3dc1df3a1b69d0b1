"""``make compat``: the library tested on the oldest and newest packages, and on each Python.

Each row is a scratch environment. Torch is the build for CPUs (``torch==…+cpu``) where pip finds
one, in its own index or where ``--torch-index`` says. With ``--any-build`` the ordinary build, of
several GB, is taken where there is none. A row whose packages cannot be had is listed with the
reason; if no row could be run, the command fails. Rows are stored in
docs/results/compat.json as they come; the page beside it is written from all.
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

from tools.environments import ROOT, CommandError, Environment, call, clean_environ

STORED = ROOT / "docs" / "results" / "compat.json"
PAGE = STORED.with_suffix(".md")
#: Torch as tested every day, and the oldest that pyproject.toml allows.
NEWEST_TORCH, OLDEST_TORCH = "2.13.0", "2.6.0"
#: The oldest of the others that pyproject.toml allows.
OLDEST = ["numpy==1.26.0", "numba==0.60.0", "scipy==1.11.4", "scikit-learn==1.7.0"]
#: Where those have no wheels: the oldest that have.
OLDEST_ON = {"3.13": ["numpy==2.1.0", "numba==0.61.0", "scipy==1.14.1", "scikit-learn==1.7.0"]}
#: Of each row: which torch, and whether the others are the oldest.
ROWS = {
    "newest": (NEWEST_TORCH, False),
    "oldest but torch": (NEWEST_TORCH, True),
    "oldest torch": (OLDEST_TORCH, False),
    "oldest": (OLDEST_TORCH, True),
}
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
#: What is run: the functions, their derivatives, costs, modules and estimators, and the README.
TESTS = ["functional", "autograd", "costs", "nn", "estimators", "estimators_cv", "readme"]
NEEDED = ["pytest", "pytest-xdist", "hypothesis", "pandas", "matplotlib"]
TORCH_BUILD = "import torch; print(torch.__version__)"
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


def run_row(python: str, name: str, wheel: Path, folder: Path, options) -> dict:
    """Test one row; return what was found."""
    torch, oldest = ROWS[name]
    pins = OLDEST_ON.get(python, OLDEST) if oldest else []
    row = {"python": python, "packages": name, "asked": [f"torch=={torch}", *pins]}
    path = find_python(python)
    if path is None:
        return {**row, "not_run": f"no Python {python} here"}
    env = Environment(folder / f"{python}-{name.replace(' ', '-')}", path)
    index = ["--extra-index-url", options.torch_index] if options.torch_index else []
    build = find_build(env, index, torch)
    if build is None and not options.any_build:
        return {**row, "not_run": f"no CPU build of torch {torch} for Python {python} here"}
    wheels = [*index, "--only-binary", ":all:"]  # nobody waits for SciPy to compile
    asked = [f"{wheel}[sklearn]", *NEEDED, build or f"torch=={torch}", *pins]
    try:
        env.install(*wheels, *asked)
        row["versions"] = {key: value for key, value in env.versions().items() if key in SHOWN}
        # Pip does not list the build of torch; torch does.
        row["versions"]["torch"] = call([env.python, "-c", TORCH_BUILD]).strip()
        return {**row, **run_tests(env, options.jobs)}
    except CommandError as error:
        return {**row, "not_run": _last_error(str(error))}
    finally:
        shutil.rmtree(env.folder, ignore_errors=True)


def find_build(env: Environment, index: list[str], torch: str) -> str | None:
    """Return the CPU build of this torch as a requirement, None where pip finds none."""
    build = f"torch=={torch}+cpu"
    try:
        env.install(*index, "--dry-run", "--no-deps", build)
    except CommandError:
        return None
    return build


def run_tests(env: Environment, jobs: int) -> dict:
    """Run the tests against the installed wheel."""
    pytest = [env.python, "-m", "pytest", "-q", "-n", str(jobs), "-m", "not slow and not gpu"]
    # Warnings of other versions are not ours to answer for; failures are.
    pytest += ["-W", "default", *(f"tests/test_{name}.py" for name in TESTS)]
    done = subprocess.run(
        pytest, cwd=ROOT, env=clean_environ(), capture_output=True, text=True, check=False
    )
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-300:]])[-1]
    failures = re.findall(r"^(?:FAILED|ERROR) (.+)$", done.stdout, re.MULTILINE)
    return {"passed": done.returncode == 0, "words": last.strip("= "), "failures": failures}


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
        f"These tests are run there: {', '.join(TESTS)}.",
        "Torch `+cpu` is the build for CPUs, `+cu…` the ordinary one on a machine without a GPU.",
        "Torch 2.6 cannot compile (`torch.compile`) the gradients of a learnt cost, nor with "
        "`dynamic=True`: those tests are skipped there.",
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


def verdict(rows: list[dict]) -> str | None:
    """Return why the command fails; rows that cannot be had are no reason, if some row was run."""
    if any(row.get("passed") is False for row in rows):
        return "make compat: some tests failed."
    if all("not_run" in row for row in rows):
        return "make compat: no row could be run. The reasons stand above."
    return None


def main() -> None:
    """Run the rows that were asked for."""
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__.splitlines()[0])
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=PYTHONS)
    parser.add_argument("--packages", nargs="+", choices=[*ROWS], default=[*ROWS])
    parser.add_argument("--torch-index", help="index of CPU builds of torch")
    any_build = "where there is no CPU build of torch, take the ordinary one (several GB)"
    parser.add_argument("--any-build", action="store_true", help=any_build)
    parser.add_argument("--jobs", type=int, default=2, help="processes of pytest")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call([sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)])
        (wheel,) = folder.glob("geosoftmax-*.whl")
        for python in options.python:
            for packages in options.packages:
                row = run_row(python, packages, wheel, folder, options)
                row["date"] = datetime.date.today().isoformat()
                store(row)
                rows.append(row)
                print(
                    f"Python {python}, {packages}: {row.get('words') or row['not_run']}", flush=True
                )
                for failure in row.get("failures", []):
                    print(f"  {failure}")
    sys.exit(verdict(rows))


if __name__ == "__main__":
    main()

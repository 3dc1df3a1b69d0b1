"""``make release``: build what would be published, check it, and try it in an empty environment.

Nothing is published: .github/workflows/publish.yml does that, from a tag. With
``--final TAG``, as there, the tag must be this version's, the changelog must have its date, and the
README must say how to install from the package index.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.environments import ROOT, CommandError, Environment, call

#: Bytes of the wheel that people install: it has the library alone.
LARGEST = 300_000
DIST = ROOT / "dist"
#: What the README says until the first release.
UNPUBLISHED = "not on PyPI yet"
SMOKE = """
import torch, geosoftmax
cost = geosoftmax.GridCost((8, 8), p=1)
found = geosoftmax.solve(torch.randn(4, 8, 8).double(), cost)
assert found.converged.all() and (found.lower <= found.upper).all()
try:
    import geosoftmax.estimators
except ModuleNotFoundError as error:
    print(error)
print(geosoftmax.__version__, geosoftmax.__file__)
"""


def read_version() -> str:
    """Return the version, which stands in one place."""
    text = (ROOT / "src/geosoftmax/__init__.py").read_text(encoding="utf8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return version


def release_date(changelog: str, version: str) -> str | None:
    """Return the date that the changelog has for a version, None where it has none yet."""
    found = re.search(rf"^## {re.escape(version)} \((.+)\)$", changelog, re.MULTILINE)
    if not found:
        raise CommandError(f"CHANGELOG.md has no heading '## {version} (date)'.")
    return found[1] if re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]) else None


def build() -> tuple[Path, Path]:
    """Write an sdist and a wheel of the library and a wheel of the application to dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = [sys.executable, "-m"]
    call([*python, "build", "--outdir", str(DIST), str(ROOT)])
    call([*python, "build", "--wheel", "--outdir", str(DIST), str(ROOT / "experiments")])
    (library,) = DIST.glob("geosoftmax-*.whl")
    (application,) = DIST.glob("geosoftmax_experiments-*.whl")
    call([*python, "twine", "check", "--strict", *map(str, DIST.iterdir())])
    call([*python, "check_wheel_contents", str(library), str(application)])
    if library.stat().st_size >= LARGEST:
        raise CommandError(
            f"{library.name} has {library.stat().st_size:,} bytes; below {LARGEST:,}."
        )
    return library, application


def readme_code() -> str:
    """Return the code of the README as one program, a block after the other."""
    text = (ROOT / "README.md").read_text(encoding="utf8")
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def try_out(library: Path, application: Path, version: str) -> None:
    """Install step by step in an empty environment, and run from an empty folder."""
    constraints = ROOT / "constraints.txt"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = Environment(folder / "environment", sys.executable)
        empty = folder / "empty"
        empty.mkdir()

        env.install(str(library), constraints=constraints)
        said = call([env.python, "-c", SMOKE], empty)
        check('pip install "geosoftmax[sklearn]"' in said, "estimators name what they need", said)
        check(str(env.folder) in said, "the library comes from the wheel", said)
        said = call([str(env.bin / "geosoftmax"), "doctor"], empty, status=1)
        one_line = said.count("\n") == 1 and "pip install geosoftmax-experiments" in said
        check(one_line, "the command names its package in one line", said)

        env.install(f"{library}[sklearn]", "pandas", constraints=constraints)
        call([env.python, "-c", readme_code()], empty)
        print("  the README's code runs")

        env.install(str(library), str(application), constraints=constraints)
        said = call([str(env.bin / "geosoftmax"), "--version"], empty)
        check(said.strip() == version, "the command has the version", said)
        said = call([str(env.bin / "geosoftmax"), "doctor"], empty)
        check("All is well." in said, "geosoftmax doctor finds all well", said)


def check(passed: bool, what: str, printed: str) -> None:
    """Print what was checked, or fail with what was printed instead."""
    if not passed:
        raise CommandError(f"{what}: no, it printed\n{printed}")
    print(f"  {what}")


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__.splitlines()[0])
    parser.add_argument("--final", metavar="TAG", help="for good: tag, date and README are right")
    final = parser.parse_args().final
    version = read_version()
    date = release_date((ROOT / "CHANGELOG.md").read_text(encoding="utf8"), version)
    if final and date is None:
        raise CommandError(f"CHANGELOG.md: write the date of {version} in its heading.")
    if final and final != f"v{version}":
        raise CommandError(f"the tag {final} is not v{version}, the version of the library.")
    if final and UNPUBLISHED in (ROOT / "README.md").read_text(encoding="utf8"):
        raise CommandError(f"README.md says '{UNPUBLISHED}': write how to install from there.")
    print(f"geosoftmax {version}: building")
    library, application = build()
    for path in sorted(DIST.iterdir()):
        print(f"  {path.name}: {path.stat().st_size / 1000:.0f} kB")
    print("Trying it in an empty environment")
    try_out(library, application, version)
    print(
        f"Ready: dist/ has {version}" + ("" if date else ", but CHANGELOG.md has no date yet") + "."
    )


if __name__ == "__main__":
    try:
        main()
    except (CommandError, subprocess.CalledProcessError) as error:
        sys.exit(f"make release: {error}")

"""Two distributions of one checkout: what they contain, and what is said where one is missing."""

import importlib.util
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import _geosoftmax_command
import geosoftmax
from tools import compat, release
from tools.environments import CommandError

ROOT = Path(__file__).parent.parent
LIBRARY = tomllib.loads((ROOT / "pyproject.toml").read_text())
APPLICATION = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text())


def test_without_the_application_the_command_names_it_in_one_line(monkeypatch):
    monkeypatch.setattr(_geosoftmax_command, "entry_points", lambda **group: ())
    with pytest.raises(SystemExit) as ended:
        _geosoftmax_command.main()
    words = str(ended.value)
    assert APPLICATION["project"]["name"] in words
    assert "\n" not in words


def test_the_command_runs_what_is_registered(monkeypatch):
    class Commands:
        def load(self):
            return lambda: ran.append(True)

    ran = []
    (group,) = APPLICATION["project"]["entry-points"]
    (name,) = APPLICATION["project"]["entry-points"][group]

    def find(**asked):
        return (Commands(),) if asked == {"group": group, "name": name} else ()

    monkeypatch.setattr(_geosoftmax_command, "entry_points", find)
    _geosoftmax_command.main()
    assert ran == [True]


def test_the_command_does_not_wait_for_torch():
    code = "import sys, _geosoftmax_command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_estimators_without_scikit_learn_name_it():
    code = "import sys; sys.modules['sklearn'] = None; import geosoftmax.estimators"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: geosoftmax.estimators needs scikit-learn: "
        'pip install "geosoftmax[sklearn]"'
    )


def test_the_version_stands_in_one_place():
    assert release.read_version() == geosoftmax.__version__
    for project in (LIBRARY["project"], APPLICATION["project"]):
        assert "version" in project["dynamic"]


def test_changelogs_have_a_date_or_not_yet():
    assert release.release_date("# C\n\n## 1.2.0 (2030-01-02)\n", "1.2.0") == "2030-01-02"
    assert release.release_date("## 1.2.0 (unreleased)\n", "1.2.0") is None
    with pytest.raises(CommandError, match=r"no heading '## 1.2.1"):
        release.release_date("## 1.2.0 (2030-01-02)\n", "1.2.1")
    release.release_date((ROOT / "CHANGELOG.md").read_text(), geosoftmax.__version__)


def test_a_release_for_good_needs_tag_date_and_readme(tmp_path, monkeypatch):
    """Nothing is built before these are right."""
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release, "build", lambda: pytest.fail("it went on to build"))
    (tmp_path / "src/geosoftmax").mkdir(parents=True)
    (tmp_path / "src/geosoftmax/__init__.py").write_text('__version__ = "1.2.0"\n')
    cases = [
        ("v1.2.0", "unreleased", "", "write the date of 1.2.0"),
        ("v1.2.1", "2030-01-02", "", "the tag v1.2.1 is not v1.2.0"),
        ("v1.2.0", "2030-01-02", f"It is {release.UNPUBLISHED}.", "how to install"),
    ]
    for tag, date, readme, words in cases:
        (tmp_path / "CHANGELOG.md").write_text(f"## 1.2.0 ({date})\n")
        (tmp_path / "README.md").write_text(readme)
        monkeypatch.setattr(sys, "argv", ["release", "--final", tag])
        with pytest.raises(CommandError, match=words):
            release.main()


def test_links_of_the_readme_lead_to_the_repository(monkeypatch):
    pytest.importorskip("hatchling", reason="hatchling is not installed: make release")
    monkeypatch.syspath_prepend(ROOT)
    from hatch_build import lead_home

    text = "![a b](docs/x.png) [c](docs/y.md#z) [d](https://e.example/f.png) [g](#h)"
    assert lead_home(text, "https://forge.example/o/r/", "1.0") == (
        "![a b](https://forge.example/o/r/raw/v1.0/docs/x.png) "
        "[c](https://forge.example/o/r/blob/v1.0/docs/y.md#z) "
        "[d](https://e.example/f.png) [g](#h)"
    )


def test_editable_installs_hold_no_copy_of_the_application():
    pytest.importorskip("hatchling", reason="hatchling is not installed: make release")
    path = ROOT / "experiments/hatch_build.py"
    spec = importlib.util.spec_from_file_location("hatch_build_of_experiments", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hook = module.CustomBuildHook.__new__(module.CustomBuildHook)
    for version, held in (("editable", []), ("standard", ["geosoftmax_experiments"])):
        data = {"force_include": {}}
        hook.initialize(version, data)
        assert list(data["force_include"].values()) == held


def test_the_table_of_versions_shows_what_was_not_run():
    rows = [
        {"python": "3.11", "packages": "newest", "versions": {"torch": "9"}, "passed": False,
         "words": "1 failed", "date": "2030-01-02"},
        {"python": "3.12", "packages": "oldest", "not_run": "no build", "date": "2030-01-02"},
    ]  # fmt: skip
    page = compat.page(rows)
    assert "| 3.11 | newest | 9 |  |  |  |  | **failed**: 1 failed | 2030-01-02 |" in page
    assert "| 3.12 | oldest |  |  |  |  |  | not run: no build | 2030-01-02 |" in page


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"passed": True}, {"not_run": "no build"}], None),
        ([{"passed": True}, {"passed": False}], "tests failed"),
        ([{"not_run": "no Python"}, {"not_run": "no build"}], "no row could be run"),
    ],
)
def test_compat_fails_where_a_test_fails_or_nothing_was_run(rows, words):
    found = compat.verdict(rows)
    assert found is None if words is None else words in found


@pytest.mark.parametrize("name", ["test", "publish"])
def test_workflows_take_torch_without_cuda(name):
    """The package index has the large build alone, which `make compat` does not take."""
    text = (ROOT / f".github/workflows/{name}.yml").read_text()
    before, _, _ = text.partition("jobs:")
    assert "PIP_EXTRA_INDEX_URL: https://download.pytorch.org/whl/cpu" in before


def test_the_oldest_versions_that_are_tested_are_those_that_are_allowed():
    project = LIBRARY["project"]
    allowed = [*project["dependencies"], *project["optional-dependencies"]["sklearn"]]
    for item in [f"torch=={compat.OLDEST_TORCH}", *compat.OLDEST]:
        name, _, version = item.partition("==")
        bounds = {f"{name}>={version}", f"{name}>={version.removesuffix('.0')}"}
        assert bounds & set(allowed), item


@pytest.mark.slow
def test_wheels_have_what_they_should(tmp_path):
    """The library alone, small; the application with its stored results."""
    pytest.importorskip("build", reason="build is not installed: make release")
    for folder in (ROOT, ROOT / "experiments"):
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(folder)]
        subprocess.run(command, check=True, capture_output=True)
    (library,) = tmp_path.glob("geosoftmax-*.whl")
    (application,) = tmp_path.glob("geosoftmax_experiments-*.whl")
    assert library.stat().st_size < release.LARGEST
    tops = {name.split("/")[0] for name in zipfile.ZipFile(library).namelist()}
    dist_info = f"geosoftmax-{geosoftmax.__version__}.dist-info"
    assert tops == {"geosoftmax", "_geosoftmax_command.py", dist_info}
    names = set(zipfile.ZipFile(application).namelist())
    for name in ("cats", "cats-p1", "mnist-p1", "drawings-p1"):
        assert f"geosoftmax_experiments/stored/drawings/{name}/results.json" in names
    assert "geosoftmax_experiments/play/page.css" in names
    assert not any(name.startswith("geosoftmax/") for name in names)

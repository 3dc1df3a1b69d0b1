"""Modules on the meta device, in programs of torch.export, and where TorchScript is asked for."""

import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import geosoftmax
from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost, nn
from tests.conftest import compiles
from tests.test_nn import MODULES, inputs

ROOT = Path(__file__).parent.parent

#: As a user writes them: made of numbers, so that torch.device("meta") could lose them.
MAKERS = {
    "zero-one": lambda: ZeroOneCost(4) * 1.5,
    "line": lambda: LineCost(4, p=2) / 2,
    "even positions": lambda: LineCost([0.0, 0.5, 1.0]),
    "uneven positions": lambda: LineCost([0.0, 1.0, 1.5, 3.0]),
    "tree": lambda: TreeCost([-1, 0, 0, 1], [0.0, 1.0, 0.5, 2.0]),
    "names": lambda: TreeCost.from_dict({"a": ["b", "c"], "d": 2.0}),
    "grid": lambda: GridCost((2, 3), p=1, spacing=(1.0, 0.3)),
    "matrix": lambda: DenseCost([[0.0, 1.0], [1.0, 0.0]]),
    "points": lambda: DenseCost.from_points([[0.0, 0.0], [1.0, 0.3], [-0.4, 2.0]], p=1),
    "embeddings": lambda: DenseCost.from_embeddings([[1.0, 0.2], [0.1, 1.0]]),
}
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def on_meta(make, **options):
    with torch.device("meta"):
        return nn.GeometricSoftmax(make(), **options)


# ------------------------------------------------------------------ the meta device


@each_maker
@pytest.mark.parametrize("learn_scale", [False, True])
@pytest.mark.parametrize("assign", [False, True])
def test_a_module_of_the_meta_device_is_filled_by_a_state(make, learn_scale, assign):
    expected = nn.GeometricSoftmax(make(), learn_scale=learn_scale)
    module = on_meta(make, learn_scale=learn_scale)
    assert all(tensor.is_meta for tensor in module.state_dict().values())
    if not assign:
        module.to_empty(device="cpu")
    module.load_state_dict(expected.state_dict(), assign=assign)
    scores = torch.randn(3, *expected.cost.shape)
    assert torch.equal(module(scores), expected(scores))
    assert repr(module) == repr(expected)


@each_maker
def test_an_empty_module_is_not_run(make):
    module = on_meta(make).to_empty(device="cpu")
    with pytest.raises(ValueError, match=r"no values yet.*load_state_dict"):
        module(torch.randn(3, *module._unscaled.shape))
    assert "not loaded" in repr(module)
    module.load_state_dict({}, strict=False)  # a state without the cost fills nothing
    with pytest.raises(ValueError, match="no values yet"):
        module(torch.randn(3, *module._unscaled.shape))


def test_the_state_of_another_cost_is_refused_by_an_empty_module():
    module = on_meta(lambda: LineCost(4)).to_empty(device="cpu")
    with pytest.raises(RuntimeError, match=r"another kind of cost \(LineCost 2\.0 1\)"):
        module.load_state_dict(nn.GeometricSoftmax(LineCost(4, p=2)).state_dict())


@each_maker
def test_shapes_on_the_meta_device(make):
    module = on_meta(make)
    scores = torch.randn(3, *module.cost.shape, device="meta")
    assert module(scores).shape == scores.shape


def test_mistakes_are_found_on_the_meta_device_too():
    with torch.device("meta"):
        with pytest.raises(ValueError, match="strictly increasing"):
            LineCost([0.0, 2.0, 1.0])
        with pytest.raises(ValueError, match="not symmetric"):
            DenseCost([[0.0, 1.0], [3.0, 0.0]])
        with pytest.raises(ValueError, match="one root"):
            TreeCost([-1, -1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: LineCost(torch.arange(3.0)),
        lambda: TreeCost(torch.tensor([-1, 0, 0])),
        lambda: TreeCost([-1, 0, 0], torch.ones(3)),
        lambda: GridCost((2, 2), spacing=torch.ones(2)),
        lambda: DenseCost.repair([[0.0, 1.0], [3.0, 0.0]]),
    ],
    ids=["positions", "parents", "lengths", "spacing", "repair"],
)
def test_tensors_without_values_are_refused_where_values_are_needed(make):
    with torch.device("meta"), pytest.raises(ValueError, match=r"outside of torch\.device"):
        make()


PLACES = {
    "points": lambda: nn.LearntPoints([[0.0, 0.0], [1.0, 0.3], [-0.4, 2.0]], p=1, scale=2.0),
    "embeddings": lambda: nn.LearntEmbeddings([[1.0, 0.2], [0.1, 1.0]]),
}


@pytest.mark.parametrize("make", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("learn_scale", [False, True])
@pytest.mark.parametrize("assign", [False, True])
def test_places_of_the_meta_device_are_filled_by_a_state(make, learn_scale, assign):
    expected = nn.GeometricSoftmax(make(), learn_scale=learn_scale)
    module = on_meta(make, learn_scale=learn_scale)
    assert all(tensor.is_meta for tensor in module.state_dict().values())
    scores = torch.randn(3, *expected.cost.shape)
    if not assign:
        module.to_empty(device="cpu")
        with pytest.raises(ValueError, match=r"no values yet.*load_state_dict"):
            module(scores)
        assert "not loaded" in repr(module)
        module.load_state_dict({}, strict=False)
        with pytest.raises(ValueError, match="no values yet"):
            module(scores)
    module.load_state_dict(expected.state_dict(), assign=assign)
    assert torch.equal(module(scores), expected(scores))
    assert repr(module) == repr(expected)


def test_places_on_the_meta_device_are_checked():
    with torch.device("meta"), pytest.raises(ValueError, match="outputs 0 and 1 is 0"):
        nn.LearntPoints([[0.0, 1.0], [0.0, 1.0]])


def test_a_matrix_without_values_may_be_filled_later():
    with torch.device("meta"):
        module = nn.GeometricSoftmax(DenseCost(torch.zeros(3, 3)))
    expected = nn.GeometricSoftmax(DenseCost(LineCost(3).matrix()))
    module.to_empty(device="cpu").load_state_dict(expected.state_dict())
    scores = torch.randn(2, 3)
    assert torch.allclose(module(scores), expected(scores))


# ------------------------------------------------------------------ torch.export


@compiles
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize("name", ["line", "grid", "names"])
def test_an_exported_program_is_saved_and_loaded(name):
    cost = MAKERS[name]()
    network = torch.nn.Sequential(
        torch.nn.Linear(4, cost.size),
        torch.nn.Unflatten(-1, cost.shape),
        nn.GeometricSoftmax(cost),
    )
    dynamic = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(network, (torch.randn(3, 4),), dynamic_shapes=dynamic)
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    x = torch.randn(7, 4)
    torch.testing.assert_close(loaded(x), network(x))


# ------------------------------------------------------------------ TorchScript

no_torchscript = pytest.raises(TypeError, match=r"TorchScript.*torch\.export\.export")
ignore_deprecation = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


@ignore_deprecation
@pytest.mark.parametrize("kind", MODULES)
def test_modules_refuse_torchscript(kind):
    cost = LineCost(4)
    network = torch.nn.Sequential(kind(cost))
    with no_torchscript:
        torch.jit.trace(kind(cost), inputs(kind, cost))
    with no_torchscript:
        torch.jit.script(kind(cost))
    with no_torchscript:
        torch.jit.script(network)


@ignore_deprecation
def test_functions_refuse_torchscript():
    cost, scores = LineCost(4), torch.randn(2, 4)
    with no_torchscript:
        torch.jit.trace(lambda f: geosoftmax.geometric_softmax(f, cost), (scores,))
    with no_torchscript:
        torch.jit.trace(lambda f: geosoftmax.solve(f, cost).alpha, (scores,))
    with no_torchscript:
        torch.jit.script(geosoftmax.geometric_softmax)


# ------------------------------------------------------------------ the command line

#: Runs the script of pyproject.toml where packages are hidden.
HIDDEN = """
import importlib, sys
for name in sys.argv.pop(1).split(","):
    sys.modules[name] = None
module, _, function = sys.argv.pop(1).partition(":")
getattr(importlib.import_module(module), function)()
"""


@pytest.mark.parametrize("hidden", ["typer", "rich", "typer,rich,matplotlib,pandas"])
def test_the_command_line_says_what_to_install(hidden):
    project = tomllib.loads((ROOT / "experiments" / "pyproject.toml").read_text())["project"]
    script = project["entry-points"]["geosoftmax"]["commands"]
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, hidden, script, "--help"],
        capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"needs {hidden.split(',')[0]}, which is not installed" in done.stderr
    assert "pip install geosoftmax-experiments" in done.stderr


def test_the_command_line_helps_where_nothing_is_hidden():
    done = subprocess.run(
        [sys.executable, "-m", "geosoftmax_experiments", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "doctor" in done.stdout

"""``geosoftmax doctor`` tries what it reports on, and says what fails."""

import dataclasses

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from geosoftmax_experiments import doctor
from geosoftmax_experiments.cli import app

# torch.compile instantiates what torch itself has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")


def test_all_is_well_here():
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    for words in ("torch", "numba", "hull", "splitting", "accelerated", "doctor --full"):
        assert words in result.output
    assert "FAILED" not in result.output
    assert "All is well." in result.output
    assert "compiled" in result.output


def test_what_first_use_compiles_is_named():
    """Measured, not assumed: numba reports what it compiles, and nothing that was stored."""
    numba = pytest.importorskip("numba")

    @numba.njit
    def fresh(x):
        return x + 1

    waited = doctor._seconds_of_compiling(lambda: fresh(1))
    assert waited > 0
    assert doctor._seconds_of_compiling(lambda: fresh(1)) == 0
    new = doctor.Finding("line", True, f"hull{doctor._first_use(waited + 0.1)}")
    old = doctor.Finding("tree", True, f"policy{doctor._first_use(0.0)}")
    assert "compiled kernels for: line." in doctor.compiled([new, old])
    assert "nothing was compiled now" in doctor.compiled([old])


def test_every_method_of_the_table_is_checked():
    from geosoftmax.solvers import Request, choose, methods

    request = Request("value", torch.device("cpu"), torch.float64, 1e-9)
    found = {choose(cost, request).method for cost in doctor.problems().values()}
    assert found == set(methods()) - {"lbfgs"}


def test_a_solver_that_lies_is_found(monkeypatch, request):
    """A method that returns a wrong minimiser is betrayed by the certificate."""
    from geosoftmax import solvers
    from geosoftmax.backends import reference
    from geosoftmax.solvers.registry import SOLVERS

    honest = next(s for s in SOLVERS if (s.method, s.backend) == ("hull", "reference"))

    class LazyHull(solvers.Solver):
        method, backend = "hull", "reference"

        def accepts(self, cost, request):
            return honest.accepts(cost, request)

        def prepare(self, cost, request):
            plan = honest.prepare(cost, request)

            def rows(b, start, max_iter):
                u = plan.rows(b, start, max_iter).u * torch.linspace(0.5, 1, b.shape[-1])
                u, lower, upper = reference.certify(plan.kernel, b, u)
                return reference.Rows(u, lower, upper, torch.zeros(len(b), dtype=torch.int64))

            return dataclasses.replace(plan, rows=rows)

    lazy = LazyHull()
    solvers.register(lazy)
    request.addfinalizer(lambda: solvers.unregister(lazy))
    monkeypatch.setattr(doctor, "problems", lambda: {"line": doctor.LineCost(20)})
    monkeypatch.setattr(doctor, "backends", lambda full: [])
    console = Console(record=True, width=100)
    assert not doctor.run(console)
    assert "Failed: line" in console.export_text()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_is_tried():
    found = {finding.name: finding for finding in doctor.backends()}
    assert found["GPU kernels (Triton, CUDA)"].passed


def test_a_backend_that_raises_is_named(monkeypatch):
    def broken():
        raise RuntimeError("no compiler\nlong story")

    monkeypatch.setattr(doctor, "_try_compile", broken)
    found = {finding.name: finding for finding in doctor.backends()}
    assert found["torch.compile"].passed is False
    assert found["torch.compile"].words == "RuntimeError: no compiler"
    assert found["compiled CPU kernels (numba)"].passed

"""``geosoftmax doctor``: what is installed, which backends work, and a self-check."""

from __future__ import annotations

import importlib.metadata
import platform
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import geosoftmax
from geosoftmax import (
    ConvergenceWarning,
    Cost,
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    geometric_logistic_loss,
    geometric_softmax,
    sinkhorn_potential,
    solve,
)
from geosoftmax.solvers import Request, choose
from geosoftmax.solvers.base import numba_installed, triton_installed

__all__ = ["Finding", "backends", "compiled", "packages", "problems", "run", "self_check"]

#: Packages by what they are for, as the extras of the distribution are named.
PACKAGES = {
    "the library": ("torch", "numpy", "numba", "scipy", "triton"),
    "sklearn": ("scikit-learn",),
    "experiments": ("typer", "matplotlib", "pandas", "entmax", "skordinal", "pytorch-lightning"),
    "docs": ("sphinx", "pydata-sphinx-theme", "sphinx-gallery"),
}


#: Samples of each problem of the self-check.
ROWS = 4
COMPILED = "compiled for"


class Finding(NamedTuple):
    """What a check found: `passed` is None where there is nothing to check on this machine."""

    name: str
    passed: bool | None
    words: str


def run(console: Console, full: bool = False) -> bool:
    """Print all; return whether every check passed. `full` tries torch.compile, too."""
    console.print(
        f"geosoftmax {geosoftmax.__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, {torch.get_num_threads()} threads",
        highlight=False,
    )
    console.print(_table("Installed", packages()))
    with console.status("Trying the backends"):
        found = backends(full)
    console.print(_table("Backends", found))
    with console.status("Solving"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gaps are printed
        found += (checked := self_check())
    console.print(
        _table(
            "Self-check: worst certified gap, time of a solve, error of the inverse of ∇Ω", checked
        )
    )
    console.print(compiled(found), soft_wrap=True, highlight=False)
    failed = [finding.name for finding in found if finding.passed is False]
    if failed:
        console.print(f"Failed: {', '.join(failed)}. Please report it with all of the above.")
    else:
        console.print("All is well.")
    return not failed


def packages() -> list[Finding]:
    """Return the version of each package, by what it is for."""
    found = []
    for purpose, names in PACKAGES.items():
        for name in names:
            try:
                words = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                words = "not installed"
            found.append(Finding(f"{name} ({purpose})", None, words))
    return found


def backends(full: bool = True) -> list[Finding]:
    """Try each backend on a problem of its own; torch.compile, which takes seconds, if `full`."""
    tries: dict[str, Callable[[], Finding]] = {
        "compiled CPU kernels (numba)": _try_numba,
        "GPU kernels (Triton, CUDA)": _try_gpu,
        "torch.compile": _try_compile if full else _skip_compile,
    }
    found = []
    for name, attempt in tries.items():
        try:
            found.append(attempt()._replace(name=name))
        except Exception as error:  # whatever it is, the others are still tried
            first = (str(error).strip().splitlines() or [""])[0]
            found.append(Finding(name, False, f"{type(error).__name__}: {first[:90]}"))
    return found


def _try_numba() -> Finding:
    if not numba_installed():
        return Finding("", None, "not installed: plain torch is used, slower")
    cost = LineCost(9, p=2) / 2
    request = Request("value", torch.device("cpu"), torch.float64, 1e-9)
    backend = choose(cost, request).backend
    waited = _seconds_of_compiling(lambda: solve(_scores(cost, 64), cost))
    gap = float(solve(_scores(cost, 64), cost).gap.max())
    words = f"works, worst gap {gap:.0e}{_first_use(waited)}"
    return Finding("", backend == "numba" and gap < 1e-12, words)


def _try_gpu() -> Finding:
    if not torch.cuda.is_available():
        return Finding("", None, "no CUDA device here")
    if not triton_installed():
        return Finding("", None, "Triton is not installed: plain torch is used, slower")
    cost = GridCost((28, 28), p=2) / 2
    found = solve(_scores(cost, 64).float().to("cuda"), cost.to("cuda"), tol=1e-3)
    done, gap = bool(found.converged.all()), float(found.gap.max())
    return Finding("", done, f"{torch.cuda.get_device_name()}, worst gap {gap:.0e}")


def _skip_compile() -> Finding:
    return Finding("", None, "not tried: geosoftmax doctor --full")


def _try_compile() -> Finding:
    cost = LineCost(5, p=2) / 2
    scores = _scores(cost, 4)
    target = torch.arange(4)

    def loss(f: Tensor) -> Tensor:
        return geometric_logistic_loss(f, target, cost)

    values, slopes = [], []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        f = scores.clone().requires_grad_()
        value = function(f)
        value.backward()
        values.append(value.detach())
        slopes.append(f.grad)
    same = torch.allclose(*values) and torch.allclose(*slopes)
    return Finding("", same, "one graph, as eager" if same else "differs from eager")


def problems() -> dict[str, Cost]:
    """Return a cost for each method of the table of solvers."""
    points = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return {
        "zero-one, 50 classes": ZeroOneCost(50) * 2,
        "line, 1,000 classes": LineCost(1000) / 20,
        "tree, 64 leaves": TreeCost([-1, *((k - 1) // 2 for k in range(1, 127))], outputs="leaves"),
        "ordered, 9 classes": LineCost(9, p=2) / 2,
        "drawings, 28×28": GridCost((28, 28), p=2) / 2,
        "pixels, 36×36, p = 1": GridCost((36, 36), p=1) * 2,
        "200 points in space": DenseCost.from_points(points, p=1) * 8,
    }


def self_check() -> list[Finding]:
    """Solve and certify random scores; recover distributions from their potentials."""
    return [_check(name, cost) for name, cost in problems().items()]


def compiled(found: list[Finding]) -> str:
    """Return what the first use of each kind of cost compiled, or that all was there."""
    if not numba_installed():
        return "Nothing is compiled: numba is not installed."
    first = [finding.name for finding in found if COMPILED in finding.words]
    if first:
        return (
            f"The first use compiled kernels for: {', '.join(first)}. They are stored with the "
            "installation; the next run takes them from there."
        )
    return (
        "The kernels were compiled before, and nothing was compiled now. After an update the first "
        "use of each kind of cost compiles for some seconds; geosoftmax.warm_up() does it ahead."
    )


def _first_use(waited: float) -> str:
    return f"; {COMPILED} {waited:.1f} s first" if waited > 0.05 else ""


def _seconds_of_compiling(action: Callable[[], object]) -> float:
    """Run something; return how long numba compiled for it. What it has in its cache is free."""
    if not numba_installed():
        action()
        return 0.0
    from numba.core import event

    with event.install_timer("numba:compile", lambda seconds: None) as timer:
        action()
    return timer.duration if timer.done else 0.0


def _check(name: str, cost: Cost) -> Finding:
    waited = _seconds_of_compiling(lambda: solve(_scores(cost, ROWS), cost))
    start = time.perf_counter()
    solution = solve(_scores(cost, ROWS), cost)
    milliseconds = (time.perf_counter() - start) / ROWS * 1e3
    gap = float(solution.gap.max())
    alpha = solution.alpha / solution.alpha.flatten(1).sum(1).reshape(-1, *[1] * len(cost.shape))
    back = geometric_softmax(sinkhorn_potential(alpha, cost), cost)
    error = float((back - alpha).abs().flatten(1).sum(1).max() / 2)
    return Finding(
        name,
        bool(solution.converged.all()) and gap < 1e-8 and error < 1e-5,
        f"{solution.method}, gap {gap:.0e}, {milliseconds:.2f} ms, inverse to {error:.0e}"
        + _first_use(waited),
    )


def _scores(cost: Cost, rows: int) -> Tensor:
    """Scores that vary smoothly, as those of models do: no kernel is too wide for them."""
    g = torch.randn(rows, *cost.shape, generator=torch.Generator().manual_seed(0)).double()
    return cost.log_matvec(g) + 0.3 * g


def _table(title: str, findings: list[Finding]) -> Table:
    marks = {True: "[green]ok[/]", False: "[red]FAILED[/]", None: ""}
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for finding in findings:
        table.add_row(finding.name, marks[finding.passed], finding.words)
    return table

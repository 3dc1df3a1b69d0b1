"""Costs with a structure: one exact method for each, on every backend.

- ``threshold``, for outputs that are all at the same distance: one sort, as for sparsemax.
- ``hull``, for lines with p = 1: the smallest concave majorant, in one scan.
- ``policy``, for trees: policy iteration over supports; a round is one elimination along the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.reference import Rows
from geosoftmax.costs.base import Cost
from geosoftmax.solvers.base import Plan, Request, Solver, SolveRows, without_numba, without_triton
from geosoftmax.solvers.fused import compiled_plan, launched_plan
from geosoftmax.solvers.plans import line_tables, shared, tree_tables
from geosoftmax.solvers.products import Products

#: What each method solves: `Cost.structure`, and its description.
_SOLVES = {
    "threshold": ("equal", "a ZeroOneCost"),
    "hull": ("line", "a LineCost with p=1"),
    "policy": ("tree", "a TreeCost"),
}


class Structured(Solver):
    """A method for costs of one structure, on one backend. `prepare` makes the plan.

    `limit` returns why a cost is too large, or None.
    """

    def __init__(
        self,
        method: str,
        backend: str,
        prepare: Callable[[Cost, Request], Plan],
        limit: Callable[[Cost], str | None] = lambda cost: None,
        row: tuple[str, str, str] | None = None,
    ) -> None:
        self.method, self.backend, self.row = method, backend, row  # pyright: ignore
        self._prepare, self._limit = prepare, limit

    def accepts(self, cost: Cost, request: Request) -> str | None:
        structure, what = _SOLVES[self.method]
        if cost.structure != structure:
            return f"it solves {what}"
        lacks = {"numba": without_numba, "triton": without_triton}.get(self.backend)
        return (lacks and lacks(request)) or self._limit(cost)

    def prepare(self, cost: Cost, request: Request) -> Plan:
        return self._prepare(cost, request)


# ------------------------------------------------------------------ numba: one compiled call


def _threshold_numba(cost: Cost, request: Request) -> Plan:
    """Drop outputs below the threshold of the remaining ones, until none is below."""
    from geosoftmax.backends.numba import tables, threshold

    kernel = threshold.kernel(tables.zero_one_tables(*cost.as_equal()), cost.size)
    return compiled_plan("threshold", kernel, cost, request)


def _hull_numba(cost: Cost, request: Request) -> Plan:
    """Keep a stack of vertices, from left to right."""
    from geosoftmax.backends.numba import hull

    return compiled_plan("hull", hull.kernel(line_tables(cost)), cost, request)


def _policy_numba(cost: Cost, request: Request) -> Plan:
    """Solve one row at a time."""
    from geosoftmax.backends.numba import policy

    return compiled_plan("policy", policy.kernel(tree_tables(cost)), cost, request)


# ------------------------------------------------------------------ Triton: one launch


def _hull_triton(cost: Cost, request: Request) -> Plan:
    """Prune by parallel scans."""
    from geosoftmax.backends.triton import hull

    kernel, line = Products(cost), cost.as_line()
    return launched_plan(
        "hull", cost, request, kernel, _pruning(kernel), lambda f, max_iter: hull.solve(line.x, f)
    )


def _long_line(cost: Cost) -> str | None:
    from geosoftmax.backends.triton.hull import LONGEST_LINE

    return f"its kernel is for up to {LONGEST_LINE} classes" if cost.size > LONGEST_LINE else None


def _policy_triton(cost: Cost, request: Request) -> Plan:
    """Solve a row in one program, level by level."""
    from geosoftmax.backends.triton import policy

    kernel, tree = Products(cost), cost.as_tree()
    arrays = tree.parents, tree.levels, tree.outputs, tree.r, tree.D
    made = shared(cost, "policy on GPUs", lambda: policy.make_tables(*arrays))
    return launched_plan(
        "policy", cost, request, kernel, _pruning(kernel), lambda f, max_iter: policy.solve(made, f)
    )


def _large_tree(cost: Cost) -> str | None:
    from geosoftmax.backends.triton.policy import DEEPEST, MOST_OUTPUTS

    if cost.size < MOST_OUTPUTS and len(cost.as_tree().levels) - 1 <= DEEPEST:
        return None
    return f"its kernel is for up to {DEEPEST} levels and {MOST_OUTPUTS - 1} outputs"


# ------------------------------------------------------------------ plain torch


def _threshold_reference(cost: Cost, request: Request) -> Plan:
    """Sort once; nothing is read back from a device."""
    kernel, equal = Products(cost), cost.as_equal()

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        return reference.threshold(kernel, *equal, b)

    return Plan("threshold", request, len(cost.shape), kernel, rows, waits=False)


def _pruning_reference(method: str, cost: Cost, request: Request) -> Plan:
    kernel = Products(cost)
    return Plan(method, request, len(cost.shape), kernel, _pruning(kernel))


def _pruning(kernel: Products) -> SolveRows:
    """Solve all rows on their supports; drop negative outputs, until there are none."""

    def rows(b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        return reference.policy(kernel, b)

    return rows


_LINES = ("``LineCost`` p = 1, ``GridCost`` 1-D p = 1", "any", "exact, O(d)")
_TREES = ("``TreeCost``", "any", "exact, O(d) a round")

#: All structured solvers, in the order of the registry.
STRUCTURED = [
    Structured("threshold", "numba", _threshold_numba),
    Structured(
        "threshold",
        "reference",
        _threshold_reference,
        row=("``ZeroOneCost``", "any", "exact, O(d)"),
    ),
    Structured("hull", "numba", _hull_numba),
    Structured("hull", "triton", _hull_triton, _long_line),
    Structured("hull", "reference", partial(_pruning_reference, "hull"), row=_LINES),
    Structured("policy", "numba", _policy_numba),
    Structured("policy", "triton", _policy_triton, _large_tree),
    Structured("policy", "reference", partial(_pruning_reference, "policy"), row=_TREES),
]

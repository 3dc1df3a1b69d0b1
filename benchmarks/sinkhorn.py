"""Sinkhorn potentials: how fast is ours, against POT and the paper's averaged fixed point?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.grid import load_drawings
from benchmarks.harness import Bench, Rival, product_operations
from benchmarks.report import Report, compare
from geosoftmax import Cost, GridCost, LineCost, sinkhorn_negentropy, sinkhorn_potential

#: All are run to this error, ‖v · Kv - α‖₁, and report the one that they reached.
ERROR = 1e-9
MOST_ITERATIONS = 1000


def run(bench: Bench) -> Report:
    report = Report("Sinkhorn potentials and negentropies")
    for title, cost, alpha in _cases(bench):
        bench.say(f"  {title}")
        few = alpha[: len(alpha) // 8]
        fewer = alpha[:2] if cost.size > 100 else few  # each row has a dense cost to go through
        measured = bench.measure(
            [
                _ours(cost, alpha),
                Rival(
                    "ours: sinkhorn_negentropy",
                    lambda cost=cost, alpha=alpha: sinkhorn_negentropy(alpha, cost),
                    len(alpha),
                    compiles=True,
                ),
                *bench.others(lambda cost=cost, rows=few: [_averaged(cost, rows)]),
                *bench.optional("ot", lambda cost=cost, rows=fewer: _pot(cost, rows)),
            ]
        )
        operations = product_operations(cost) + 20 * cost.size
        measured.append(bench.floor("one product, to check the answer", operations))
        section = compare(
            f"{title}, batch {len(alpha)}",
            measured,
            unit="µs/sample",
            scale=1e6,
            note="Gaps are errors ‖v · Kv - α‖₁ here, in float64.",
        )
        report.add(bench, section)
    return report


def _cases(bench: Bench) -> list[tuple[str, Cost, Tensor]]:
    torch.manual_seed(0)
    rows = 32 if bench.quick else 256
    ordinal, line = torch.randn(rows, 9), torch.randn(rows, 1000)
    drawings, source = load_drawings(28, rows)
    return [
        ("ordinal, d = 9", LineCost(9, p=2) / 2, torch.softmax(ordinal.double(), -1)),
        ("line p = 1, d = 1,000", LineCost(1000), torch.softmax(line.double(), -1)),
        (f"grid 28×28 ({source})", GridCost((28, 28), p=2) / 2, drawings),
    ]


def _ours(cost: Cost, alpha: Tensor) -> Rival:
    """The potential alone is the answer: f = 2 log(Kv), so v = α exp(-f/2)."""
    return Rival(
        "ours: sinkhorn_potential",
        lambda: sinkhorn_potential(alpha, cost),
        len(alpha),
        gaps=lambda f: _errors(cost, alpha, alpha * torch.exp(-f / 2)),
        compiles=True,
    )


def _averaged(cost: Cost, alpha: Tensor) -> Rival:
    """``log v ← (log v + log α - log Kv) / 2``, in the log domain, for the whole batch."""

    def call() -> tuple[Tensor, int]:
        g = log_alpha = torch.log(alpha)
        iterations = 0
        while True:
            iterations += 1
            potential = cost.log_matvec(g)
            error = (torch.exp(g + potential) - alpha).abs().flatten(1).sum(1)
            if bool((error <= ERROR).all()):
                return torch.exp(g), iterations
            g = (g + log_alpha - potential) / 2

    return Rival(
        "averaged fixed point (the paper's)",
        call,
        len(alpha),
        gaps=lambda answer: _errors(cost, alpha, answer[0]),
        iterations=lambda answer: answer[1],
    )


def _pot(cost: Cost, alpha: Tensor) -> Rival:
    """Row by row, with the dense cost of the support (zeros make its sums NaN).

    ``v`` is the geometric mean of its two scalings.
    """
    import ot

    C = cost.matrix().numpy()
    rows = alpha.flatten(1).numpy()
    supports = [np.flatnonzero(a) for a in rows]
    costs = [np.ascontiguousarray(C[np.ix_(s, s)]) for s in supports]
    masses = [a[s] for a, s in zip(rows, supports, strict=True)]

    def call() -> list[tuple[np.ndarray, dict[str, Any]]]:
        options = {"reg": 2.0, "stopThr": ERROR, "numItermax": MOST_ITERATIONS, "warn": False}
        pairs = zip(masses, costs, strict=True)
        return [ot.sinkhorn(a, a, c, log=True, **options) for a, c in pairs]

    def errors(answer: list[tuple[np.ndarray, dict[str, Any]]]) -> Tensor:
        v = np.zeros_like(rows)
        for row, support, (_, log) in zip(v, supports, answer, strict=True):
            row[support] = np.sqrt(log["u"] * log["v"]).ravel()
        return _errors(cost, alpha, torch.from_numpy(v).reshape(alpha.shape))

    return Rival(
        "POT sinkhorn, row by row",
        call,
        len(alpha),
        gaps=errors,
        iterations=lambda answer: [log["niter"] for _, log in answer],
        note=f"at most {MOST_ITERATIONS} iterations",
    )


def _errors(cost: Cost, alpha: Tensor, v: Tensor) -> Tensor:
    return (v * cost.matvec(v) - alpha).abs().flatten(1).sum(1)

"""``python -m benchmarks.tune_splitting``: how many steps, for which penalty, against the gradient?

Prints the mean steps to a gap of 1e-3 on drawings, for kernels from narrow to wide: the table from
which ``SPLIT_PENALTY`` in ``kernels/reference.py`` was taken. A minute.
"""

from __future__ import annotations

import torch

from benchmarks.grid import _fields, load_drawings
from geosoftmax import GridCost
from geosoftmax.kernels import reference

PENALTIES = (0.15, 0.3, 0.45, 0.7, 1.0)
SCALES = ((2, 2.0), (2, 0.5), (2, 0.125), (1, 1.0), (1, 0.2))
GAP, MOST = 1e-3, 1000


def main() -> None:
    drawings, source = load_drawings(28, 16)
    heads = ["28×28", "field", "λmax", "gradient", *(f"penalty {p:g}" for p in PENALTIES)]
    print(f"Mean steps to a gap of {GAP:g}, scores of {source}.\n")
    print("| " + " | ".join(heads) + " |\n|---|---|" + "--:|" * (len(heads) - 2))
    for p, scale in SCALES:
        cost = GridCost((28, 28), p=p) * scale
        largest = float(reference.spectrum(cost)[2].max())
        for field, scores in _fields(drawings, cost).items():
            b = reference.obstacle(cost, scores, reference.peaks(cost, scores))
            steps = [_steps(reference.accelerate, cost, b)]
            kept = reference.SPLIT_PENALTY
            for reference.SPLIT_PENALTY in PENALTIES:
                steps.append(_steps(reference.split, cost, b))
            reference.SPLIT_PENALTY = kept
            cells = [f"p={p}, × {scale:g}", field, f"{largest:.0f}", *map("{:.0f}".format, steps)]
            print("| " + " | ".join(cells) + " |", flush=True)


def _steps(solve, cost: GridCost, b: torch.Tensor) -> float:
    return float(solve(cost, b, None, GAP, MOST, torch.float64).iterations.double().mean())


if __name__ == "__main__":
    main()

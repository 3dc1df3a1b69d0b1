"""``python -m benchmarks.tune_gpu``: which warps, products and intervals suit each size of tile?

Prints the tables from which ``TUNING`` in ``backends/triton/grid.py``, ``WARPS`` in
``sinkhorn.py`` and ``row_warps`` in ``tiles.py`` were taken. Some minutes, on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.gpu import BATCH, GAP, SETS, device_time
from geosoftmax import DenseCost, GridCost
from geosoftmax.backends.triton import grid, rows, sinkhorn
from geosoftmax.backends.triton.grid import SplittingPlaneTables, Tuning
from geosoftmax.backends.triton.tiles import padded
from geosoftmax.solvers.plans import spectrum

SIDES = (16, 28, 64, 128)
CLASSES = (9, 120, 250, 500, 1000)
WARPS = (1, 2, 4, 8, 16)
INTERVALS = ((3, 30), (5, 20), (5, 30), (5, 40), (10, 40))


def main() -> None:
    _table("ms", [f"{w} warps" for w in WARPS], _warps())
    _table("ms", [f"look {c}, refresh {r}" for c, r in INTERVALS], _intervals())
    _table("ms", [f"{w} warps" for w in WARPS], _rows())


def _warps():
    for side in SIDES:
        cost, sets = _problem(side)
        tables = _plane_tables(cost)
        targets = [torch.softmax(x.flatten(1), 1).reshape(x.shape) for x in sets]
        scalings = sinkhorn.make_tables(spectrum(cost)[0])
        for left in (True, False):
            yield (
                f"solve {side}×{side}, {'from the left' if left else 'turned'}",
                [_solve(tables, sets, Tuning(w, left)) for w in WARPS],
            )
        yield (
            f"Sinkhorn {side}×{side}",
            [
                _clock(lambda a, w=w, t=scalings: sinkhorn.solve_plane(t, a, w), targets)
                for w in WARPS
            ],
        )


def _intervals():
    for side in SIDES:
        cost, sets = _problem(side)
        tables = _plane_tables(cost)
        known = grid.TUNING[padded(side) ** 2]
        tunings = [known._replace(check=c, refresh=r) for c, r in INTERVALS]
        yield f"solve {side}×{side}", [_solve(tables, sets, t) for t in tunings]


def _rows():
    for d in CLASSES:
        torch.manual_seed(d)
        cost = DenseCost.from_points(torch.randn(d, 16).double(), p=1).to("cuda")
        sets = [torch.randn(BATCH, d, device="cuda") for _ in range(SETS)]
        tables = rows.make_tables(*spectrum(cost))
        cells = [
            _clock(lambda x, w=w, t=tables: rows.solve(t, x, GAP, 2000, w), sets) for w in WARPS
        ]
        yield f"solve {d} classes", cells


def _problem(side: int) -> tuple[GridCost, list[Tensor]]:
    cost = (GridCost((side, side), p=2) / 2).to("cuda")
    torch.manual_seed(side)
    sets = [torch.randn(BATCH, side, side, device="cuda") for _ in range(SETS)]
    return cost, sets


def _plane_tables(cost: GridCost) -> SplittingPlaneTables:
    return grid.make_tables(*spectrum(cost), cost.p)


def _solve(tables: SplittingPlaneTables, sets: list[Tensor], tuning: Tuning) -> str:
    entries = tables.shape[0] * tables.shape[1] / tuning.warps
    if not 64 <= entries <= 4096:  # to a warp: nothing outside is fast
        return "–"
    return _clock(lambda x: grid.solve(tables, x, GAP, 2000, tuning), sets)


def _clock(call: Callable[[Tensor], object], sets: list[Tensor]) -> str:
    try:
        return f"{device_time(call, sets, repeats=12):.3f}"
    except Exception as error:  # out of registers or shared memory
        return type(error).__name__


def _table(unit: str, heads: list[str], lines) -> None:
    print("| " + " | ".join([unit, *heads]) + " |")
    print("|---|" + "--:|" * len(heads))
    for name, cells in lines:
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    print()


if __name__ == "__main__":
    main()

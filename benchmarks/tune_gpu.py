"""``python -m benchmarks.tune_gpu``: which warps and check interval suit each size of tile?

Prints the table from which ``WARPS`` in ``kernels/gpu`` was taken. A minute or two, on a GPU.
"""

from __future__ import annotations

import torch

from benchmarks.gpu import BATCH, GAP, SETS, device_time
from geosoftmax import GridCost
from geosoftmax.kernels.gpu import grid, sinkhorn

SIDES = (16, 28, 64, 128)
WARPS = (1, 2, 4, 8, 16)


def main() -> None:
    print("| tile | " + " | ".join(f"{w} warps" for w in WARPS) + " |")
    print("|---|" + "--:|" * len(WARPS))
    for side in SIDES:
        cost = (GridCost((side, side), p=2) / 2).to("cuda")
        sets = [torch.randn(BATCH, side, side, device="cuda") for _ in range(SETS)]
        targets = [torch.softmax(x.flatten(1), 1).reshape(x.shape) for x in sets]
        for name in ("solve", "Sinkhorn"):
            cells = [_try(name, cost, sets, targets, warps) for warps in WARPS]
            print(f"| {name} {side}×{side}, ms | " + " | ".join(cells) + " |", flush=True)


def _try(name: str, cost: GridCost, sets: list, targets: list, warps: int) -> str:
    side = cost.shape[0]
    if not 64 <= side * side / warps <= 4096:  # entries to a warp: nothing outside can be fast
        return "–"
    try:
        if name == "solve":
            return f"{device_time(lambda x: grid.split_grid(cost, x, GAP, 2000, warps), sets):.3f}"
        return f"{device_time(lambda a: sinkhorn.sinkhorn_grid(cost, a, warps), targets):.3f}"
    except Exception as error:  # out of registers or shared memory
        return type(error).__name__


if __name__ == "__main__":
    main()

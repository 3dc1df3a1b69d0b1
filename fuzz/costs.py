"""Random costs of every kind, their kernels in long double, and the code that makes them again."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fuzz.exact import Wide
from geosoftmax import Cost, DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost

#: What the library says where it refuses a matrix, or a multiple of one.
REFUSED = re.compile("not positive definite|cannot be multiplied|at cost 0 from each other")
#: Outputs of dense costs at most: their repair takes a thousand decompositions.
DENSE_OUTPUTS = 64


def power_of_ten(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10 ** rng.uniform(low, high))


def outputs(rng: np.random.Generator, most: int = 400) -> int:
    """Mostly few; all sizes at which methods change are reached."""
    high = rng.choice([12, 48, 130, most], p=[0.74, 0.2, 0.05, 0.01])
    return int(rng.integers(1, min(high, most) + 1))


# ------------------------------------------------------------------ one kind each


def line(rng: np.random.Generator, rows: int) -> Cost:
    return LineCost(_positions(rng, outputs(rng)), p=1)


def line_of_any_power(rng: np.random.Generator, rows: int) -> Cost:
    p = float(rng.choice([2.0, 2.0, 1.5, 0.5, rng.uniform(0.05, 2)]))
    return LineCost(_positions(rng, outputs(rng)), p=p)


def grid(rng: np.random.Generator, rows: int) -> Cost:
    sides = int(rng.choice([1, 2, 3], p=[0.2, 0.5, 0.3]))
    longest = {1: 60, 2: int(rng.choice([5, 12, 28], p=[0.8, 0.17, 0.03])), 3: 4}[sides]
    shape = tuple(int(n) for n in rng.integers(1, longest + 1, sides))
    spacing = [power_of_ten(rng, -2, 1) for _ in shape] if rng.random() < 0.5 else 1.0
    return GridCost(shape, p=float(rng.choice([1, 2])), spacing=spacing)


def tree(rng: np.random.Generator, rows: int) -> Cost:
    n = outputs(rng) + 1
    shape = rng.choice(["random", "path", "star", "binary", "comb"])
    parents = {
        "random": lambda i: int(rng.integers(0, i)),
        "path": lambda i: i - 1,
        "star": lambda i: 0,
        "binary": lambda i: (i - 1) // 2,
        "comb": lambda i: i - 1 if i % 2 else max(i - 2, 0),
    }[str(shape)]
    above = [-1] + [parents(i) for i in range(1, n)]
    low, high = [(0, 0), (-2, 1), (-9, 2)][rng.integers(3)]
    lengths = [power_of_ten(rng, low, high) for _ in range(n)]
    chosen: str | list[int] = str(rng.choice(["nodes", "leaves"]))
    if rng.random() < 0.2:
        chosen = [int(v) for v in rng.permutation(n)[: rng.integers(1, n + 1)]]
    return TreeCost(above, lengths, outputs=chosen)


def zero_one(rng: np.random.Generator, rows: int) -> Cost:
    return ZeroOneCost(outputs(rng))


def points(rng: np.random.Generator, rows: int) -> Cost:
    return DenseCost.from_points(_points(rng), p=float(rng.choice([1, 2, rng.uniform(0.1, 2)])))


def embeddings(rng: np.random.Generator, rows: int) -> Cost:
    return DenseCost.from_embeddings(_points(rng, least=2))


def repaired(rng: np.random.Generator, rows: int) -> Cost:
    return _repaired(_matrix(rng))


def repaired_at_every_scale(rng: np.random.Generator, rows: int) -> Cost:
    return _repaired(_matrix(rng), every_scale=True)


def other_powers(rng: np.random.Generator, rows: int) -> Cost:
    """Distances to a power above 2: some are usable, and few of their multiples."""
    x = _points(rng, most=12)
    distances = (x[:, None] - x).norm(dim=-1)
    return DenseCost(distances ** rng.uniform(2, 5) * power_of_ten(rng, -1, 2))


def single_precision(rng: np.random.Generator, rows: int) -> Cost:
    """A matrix in float32, which rounding makes slightly indefinite."""
    return DenseCost(points(rng, rows).matrix().float() * power_of_ten(rng, -2, 1))


def batched(rng: np.random.Generator, rows: int) -> Cost:
    """One matrix for each row."""
    d = outputs(rng, 24)
    x = torch.from_numpy(rng.normal(size=(rows, d, int(rng.integers(1, 4)))))
    squared = (x[:, :, None] - x[:, None]).square().sum(-1)
    scale = torch.from_numpy(10 ** rng.uniform(-1, 2, (rows, 1, 1)))
    return DenseCost(squared ** rng.choice([0.5, 1.0]) * scale)


KINDS: dict[str, Callable[[np.random.Generator, int], Cost]] = {
    "line, p = 1": line,
    "line, other p": line_of_any_power,
    "grid": grid,
    "tree": tree,
    "zero-one": zero_one,
    "points": points,
    "embeddings": embeddings,
    "repaired": repaired,
    "repaired at every scale": repaired_at_every_scale,
    "powers above 2": other_powers,
    "matrix in float32": single_precision,
    "one matrix per row": batched,
}


def _positions(rng: np.random.Generator, d: int) -> int | Tensor:
    kind = rng.integers(4)
    if kind == 0:
        return d
    if kind == 1:
        return torch.arange(d, dtype=torch.float64) * power_of_ten(rng, -3, 2)
    low, high = (-1, 1) if kind == 2 else (-9, 2)
    gaps = torch.from_numpy(10 ** rng.uniform(low, high, d))
    return gaps.cumsum(0)


def _points(rng: np.random.Generator, least: int = 1, most: int = DENSE_OUTPUTS) -> Tensor:
    d, n = outputs(rng, most), int(rng.integers(least, 6))
    x = torch.from_numpy(rng.normal(size=(d, n)))
    if rng.random() < 0.3:  # in clusters
        centres = torch.from_numpy(rng.normal(size=(3, n)))
        x = centres[torch.from_numpy(rng.integers(0, 3, d))] + x * power_of_ten(rng, -5, -1)
    return x


def _matrix(rng: np.random.Generator) -> np.ndarray:
    d = outputs(rng, 20)
    noise = rng.exponential(size=(d, d)) if rng.random() < 0.5 else rng.normal(size=(d, d))
    return noise * power_of_ten(rng, -1, 2)


def _repaired(matrix: np.ndarray, every_scale: bool = False) -> Cost:
    """Noise is far from any cost, so the warning that little of it is left is no news."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "repair changed an entry", UserWarning)
        return DenseCost.repair(matrix, every_scale=every_scale).cost


# ------------------------------------------------------------------ drawing


def draw(rng: np.random.Generator, rows: int) -> tuple[str, Cost | None, bool]:
    """Return the kind, a cost (None if the library refused it), and whether it refused anything."""
    kind = str(rng.choice(list(KINDS)))
    try:
        cost = KINDS[kind](rng, rows)
    except ValueError as error:
        if not REFUSED.search(str(error)):
            raise
        return kind, None, True
    refused = False
    if rng.random() < 0.6:
        try:
            cost = cost * power_of_ten(rng, *([-1, 1], [-5, 4])[rng.integers(2)])
        except ValueError as error:
            if not REFUSED.search(str(error)):
                raise
            refused = True
    if rng.random() < 0.15:
        cost = cost.float()
    return kind, cost, refused


# ------------------------------------------------------------------ what a cost is


def kernel(cost: Cost) -> np.ndarray:
    """Return ``K = exp(-C/2)`` in long double, from what the cost was made of, not by its code."""
    if isinstance(cost, DenseCost):
        return np.exp(-_wide(cost.C) / 2)
    scale = _wide(cost.parameter)
    if isinstance(cost, ZeroOneCost):
        return np.exp(-scale / 2 * (1 - np.eye(cost.size, dtype=Wide)))
    if isinstance(cost, LineCost):
        return np.exp(-scale / 2 * _distances(cost.positions, cost.p))
    if isinstance(cost, GridCost):
        K = np.ones((1, 1), Wide)
        for axis in cost.axes:
            K = np.kron(K, np.exp(-scale / 2 * _distances(axis.positions, cost.p)))
        return K
    if isinstance(cost, TreeCost):
        chosen = cost.outputs.numpy()
        return np.exp(-scale / 2 * _path_lengths(cost)[np.ix_(chosen, chosen)])
    raise TypeError(f"no kernel of {cost!r}")


def _wide(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy().astype(Wide)


def _distances(positions: Tensor, p: float) -> np.ndarray:
    x = _wide(positions)
    return np.abs(x[:, None] - x) ** Wide(p)


def _path_lengths(cost: TreeCost) -> np.ndarray:
    """Return the lengths of paths between all nodes; parents come before their children."""
    above, edges = cost.parents.tolist(), _wide(cost.lengths)
    C = np.zeros((len(above), len(above)), Wide)
    for node in range(1, len(above)):
        C[node, :node] = C[above[node], :node] + edges[node]
        C[:node, node] = C[node, :node]
    return C


def code(cost: Cost) -> str:
    """Return Python that makes the cost again."""
    cast = "" if cost.dtype == torch.float64 else f".to({cost.dtype})"
    if isinstance(cost, DenseCost):
        return f"DenseCost({literal(cost.C)}, validate=False)"
    scaled = f" * {float(cost.parameter)!r}){cast}"
    if isinstance(cost, ZeroOneCost):
        return f"(ZeroOneCost({cost.size}){scaled}"
    if isinstance(cost, LineCost):
        return f"(LineCost({literal(cost.positions.double())}, p={cost.p!r}){scaled}"
    if isinstance(cost, GridCost):
        spacing = cost.spacing.double().tolist()
        return f"(GridCost({cost.shape}, p={cost.p!r}, spacing={spacing}){scaled}"
    if isinstance(cost, TreeCost):
        parents = [-1, *cost.parents.tolist()[1:]]
        made = f"{parents}, {cost.lengths.double().tolist()}, outputs={cost.outputs.tolist()}"
        return f"(TreeCost({made}){scaled}"
    raise TypeError(f"no code for {cost!r}")


def literal(tensor: Tensor) -> str:
    """Return Python that makes a tensor again, to the last bit; it needs ``inf`` and ``torch``."""
    return f"torch.tensor({tensor.detach().cpu().tolist()}, dtype={tensor.dtype})"

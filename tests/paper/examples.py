"""One small cost of each kind, and scores and distributions over its outputs."""

import torch

from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost

F64 = torch.float64

POINTS = torch.tensor(
    [[0.0, 0.1, 0.9], [1.2, -0.4, 0.3], [0.7, 1.1, -0.8], [-1.0, 0.5, 0.2], [0.3, -1.3, -0.6]],
    dtype=F64,
)

COSTS = {
    "zero-one": ZeroOneCost(6) * 2.0,
    "line p=1": LineCost([0.0, 0.4, 1.5, 3.0, 3.7, 6.0]),
    "line p=2": LineCost(7, p=2) / 2,
    "tree": TreeCost([-1, 0, 0, 1, 1, 2, 2], [0.0, 1.0, 0.5, 2.0, 0.7, 1.0, 0.3]),
    "leaves": TreeCost.from_dict({"a": {"b": 1.0, "c": 2.0}, "d": ["x", "y", "z"]}),
    "grid": GridCost((3, 4), p=2) / 2,
    "grid p=1": GridCost((2, 3), p=1, spacing=(1.0, 0.5)),
    "dense": DenseCost.from_points(POINTS, p=1),
}

# Few enough outputs to enumerate the simplex.
TINY_COSTS = {
    "zero-one": ZeroOneCost(3) * 2.0,
    "line p=1": LineCost([0.0, 1.0, 2.5]),
    "line p=2": LineCost(3, p=2) / 2,
    "tree": TreeCost([-1, 0, 0], [0.0, 1.0, 0.5]),
    "grid": GridCost((2, 2), p=2) / 2,
    "dense": DenseCost.from_points(POINTS[:3], p=1.5),
}


def each(costs=COSTS):
    """Parametrise a test by ``cost``."""
    import pytest

    return pytest.mark.parametrize("cost", costs.values(), ids=costs.keys())


def draw_scores(cost, n=20, spread=2.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(n, *cost.shape, dtype=F64, generator=generator)


def draw_distributions(cost, n=20, sparse=True, seed=1):
    """Draw from the simplex; every second row has zeros if ``sparse``."""
    generator = torch.Generator().manual_seed(seed)
    weights = -torch.rand(n, cost.size, dtype=F64, generator=generator).log() + 1e-2
    if sparse:
        keep = torch.rand(n, cost.size, generator=generator) < 0.5
        keep[:, 0] |= ~keep.any(1)
        weights[::2] *= keep[::2]
    return (weights / weights.sum(1, keepdim=True)).reshape(n, *cost.shape)


def dot(x, y, cost):
    """``⟨x, y⟩`` of each sample."""
    return (x * y).flatten(-len(cost.shape)).sum(-1)


def quadratic(x, y, M):
    """``⟨x ⊗ y, M⟩`` of each sample, for flat rows."""
    return torch.einsum("...i,ij,...j->...", x, M, y)


def kernel(cost):
    return torch.exp(-cost.matrix() / 2)


def flat(signal, cost):
    return signal.flatten(-len(cost.shape))


def lattice(cost, steps):
    """Every distribution whose entries are multiples of ``1/steps``."""

    def compositions(parts, total):
        if parts == 1:
            yield (total,)
            return
        for first in range(total + 1):
            for rest in compositions(parts - 1, total - first):
                yield (first, *rest)

    rows = torch.tensor(list(compositions(cost.size, steps)), dtype=F64) / steps
    return rows.reshape(-1, *cost.shape)


def assert_close(actual, expected, atol=1e-10):
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)

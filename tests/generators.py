"""Problems whose answer is known in closed form, and an oracle for the others."""

import functools
from typing import NamedTuple

import numpy as np
import torch
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from geosoftmax import GridCost, LineCost, TreeCost, ZeroOneCost
from tests.conftest import data_file


class Problem(NamedTuple):
    """Scores, ``(*batch, *cost.shape)``, with their geometric softmax and log-sum-exp."""

    cost: object
    scores: torch.Tensor
    alpha: torch.Tensor
    value: torch.Tensor


def random_state(seed):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=random_state(seed), dtype=torch.float64)


def kernel(cost):
    """``K = exp(-C/2)``, dense, in float64."""
    return torch.exp(-cost.matrix().double() / 2)


def flat(signal, cost):
    return signal.reshape(*signal.shape[: signal.dim() - len(cost.shape)], cost.size)


def apply_dense(K, u, cost):
    """``K u`` by the dense matrix, for signals of any batch."""
    return (K @ flat(u, cost)[..., None])[..., 0].reshape(u.shape)


def total_variation(alpha, beta):
    return float((alpha.double() - beta.double()).flatten(1).abs().sum(1).max()) / 2


# ------------------------------------------------------------------ planted answers


def planted(cost, rows=5, density=0.5, slack=1.0, seed=0):
    """Pick a support and ``u > 0`` on it, and scores ``2 log(Ku)``, less a slack off the support.

    Then ``Ku = b`` on the support and ``Ku > b`` off it: ``u`` is the solution.
    """
    generator = random_state(seed)
    shape = (rows, *cost.shape)
    chosen = torch.rand(shape, generator=generator, dtype=torch.float64) < density
    flat(chosen, cost)[:, 0] |= ~flat(chosen, cost).any(-1)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    off = torch.rand(shape, generator=generator, dtype=torch.float64)
    u = torch.where(chosen, torch.exp(noise), 0.0)
    h = apply_dense(kernel(cost), u, cost)
    scores = 2 * torch.log(h) - torch.where(chosen, 0.0, slack * (0.1 + off))
    energy = flat(u * h, cost).sum(-1)
    alpha = u * h / energy.reshape(-1, *[1] * len(cost.shape))
    return Problem(cost, scores, alpha, torch.log(energy))


def potential_of(alpha, cost):
    """``2 log(Kv)`` with ``v · Kv = α``, by the averaged fixed point with the dense kernel."""
    K = kernel(cost)
    v = alpha.sqrt()
    for _ in range(120):  # the error halves each time
        v = torch.sqrt(v * alpha / apply_dense(K, v, cost))
    return 2 * torch.log(apply_dense(K, v, cost))


def exact_potential(alpha, cost):
    """The potential of distributions, which are its geometric softmax; its log-sum-exp is 0."""
    batch = alpha.shape[: alpha.dim() - len(cost.shape)]
    zero = torch.zeros(batch, dtype=torch.float64)
    return Problem(cost, potential_of(alpha, cost), alpha, zero)


def sparse_distributions(cost, rows=4, density=0.3, seed=0):
    generator = random_state(seed)
    shape = (rows, cost.size)
    weight = torch.rand(shape, generator=generator, dtype=torch.float64)
    chosen = torch.rand(shape, generator=generator) < density
    chosen[:, 0] |= ~chosen.any(-1)
    alpha = torch.where(chosen, weight, 0.0)
    return (alpha / alpha.sum(-1, keepdim=True)).reshape(rows, *cost.shape)


# ------------------------------------------------------------------ closed forms


def two_classes(c=0.7):
    """Two classes at cost c: both in the support when neither covers the other."""
    scores = torch.tensor([[0.0, 0.0], [0.3, 0.1], [2.0, 0.0], [-5.0, 1.0]], dtype=torch.float64)
    k = np.exp(-c / 2)
    b = torch.exp(scores / 2)
    high, low = b.amax(-1), b.amin(-1)
    alone = low <= k * high
    inner = (b - k * b.flip(-1)) * b
    alpha = torch.where(alone[:, None], (b == high[:, None]).double(), inner)
    alpha = alpha / alpha.sum(-1, keepdim=True)
    both = torch.log((high**2 + low**2 - 2 * k * high * low) / (1 - k * k))
    return Problem(ZeroOneCost(2) * c, scores, alpha, torch.where(alone, 2 * torch.log(high), both))


def equal_scores_zero_one(d=9, m=4, c=1.3):
    """The best m of d classes with one score, the others far below: uniform on the m."""
    scores = torch.full((1, d), -50.0, dtype=torch.float64)
    scores[:, :m] = 0
    k = np.exp(-c / 2)
    value = torch.tensor([np.log(m / (1 - k + k * m))])
    return Problem(ZeroOneCost(d) * c, scores, (scores == 0).double() / m, value)


def constant_line(positions=(0.0, 0.5, 2.0, 2.25, 6.0), c=1.0):
    """Constant scores on a line: each gap gives ``tanh(c gap / 4)`` to both its ends, plus one."""
    x = torch.tensor(positions, dtype=torch.float64)
    share = torch.tanh(c * x.diff() / 4) / 2
    u = torch.zeros_like(x)
    u[:-1] += share
    u[1:] += share
    u[0] += 0.5
    u[-1] += 0.5
    scores = torch.zeros(1, len(x), dtype=torch.float64)
    return Problem(LineCost(positions) * c, scores, (u / u.sum())[None], torch.log(u.sum())[None])


def star(leaves=6, length=0.4, seed=0):
    """Leaves of a star are all at cost 2·length: the zero-one problem, solved by its threshold."""
    scores = randn(3, leaves, seed=seed)
    k = np.exp(-length)
    b = torch.exp(scores / 2)
    ordered = b.sort(-1, descending=True).values
    counts = torch.arange(1, leaves + 1, dtype=b.dtype)
    tau = k * ordered.cumsum(-1) / (1 - k + k * counts)
    kept = (ordered > tau).sum(-1, keepdim=True)
    u = (b - tau.gather(-1, kept - 1)).clamp_min(0) / (1 - k)
    weighted = u * b
    total = weighted.sum(-1, keepdim=True)
    cost = TreeCost([-1] + [0] * leaves, length, outputs="leaves")
    return Problem(cost, scores, weighted / total, torch.log(total[:, 0]))


# ------------------------------------------------------------------ drawings


@functools.cache
def digits(count=4, side=28):
    """Scikit-learn's digits, enlarged, as distributions over a square grid."""
    from sklearn.datasets import load_digits

    small = torch.tensor(load_digits().images[:count])
    images = torch.nn.functional.interpolate(small[:, None], (side, side), mode="bilinear")[:, 0]
    return _normalised(torch.where(images < 4, 0.0, images))


def cats(count=4):
    """QuickDraw cats as distributions over a 28×28 grid; skips without the data."""
    images = np.load(data_file("quickdraw", "numpy_bitmap", "cat.npy"), mmap_mode="r")[:count]
    return _normalised(torch.tensor(np.array(images, dtype=np.float64)).reshape(-1, 28, 28))


def _normalised(images):
    return images / images.sum((-2, -1), keepdim=True)


DRAWING_COST = GridCost((28, 28), p=2) / 2


# ------------------------------------------------------------------ the oracle


def oracle(cost, scores):
    """Geometric softmax and log-sum-exp by ``nnls`` on the Cholesky factor, in float64."""
    K = kernel(cost).numpy()
    f = flat(scores.double(), cost).reshape(-1, cost.size)
    peak = f.amax(-1, keepdim=True)
    b = torch.exp((f - peak) / 2).numpy()
    shared = cholesky(K, lower=True) if K.ndim == 2 else None
    u = np.empty_like(b)
    for row, target in enumerate(b):
        L = shared if shared is not None else cholesky(K[row], lower=True)
        u[row], _ = nnls(L.T, solve_triangular(L, target, lower=True), maxiter=50 * cost.size)
    weighted = u * b
    total = weighted.sum(-1, keepdims=True)
    value = torch.from_numpy(np.log(total[:, 0])) + peak[:, 0]
    return torch.from_numpy(weighted / total).reshape(scores.shape), value

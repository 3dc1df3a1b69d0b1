"""Every compiled function against its plain definition, and the definitions against algebra."""

from typing import ClassVar

import pytest
import torch

from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.backends import reference, settings
from geosoftmax.backends.numba import active_set, hull, policy, tables, threshold
from geosoftmax.backends.numba.products import matvec
from geosoftmax.backends.numba.sinkhorn import sinkhorn as compiled_sinkhorn
from geosoftmax.backends.reference import splitting
from geosoftmax.backends.reference.accelerated import largest_eigenvalue
from geosoftmax.backends.reference.exact import smooth_start
from geosoftmax.backends.reference.sinkhorn import HELD_BY_SINGLE
from geosoftmax.solvers.products import Products
from geosoftmax.solvers.splitting import spectrum
from tests.conftest import TOLERANCES, assert_close
from tests.contracts.backend import BackendContract, plain_solution
from tests.generators import apply_dense, flat, kernel, oracle, randn, random_state


def uneven(d):
    return LineCost(torch.linspace(0.3, 1.7, d, dtype=torch.float64).cumsum(0))


def binary_tree(d):
    return TreeCost([(i - 1) // 2 if i else -1 for i in range(d)], 0.7)


def leaves(d):
    return TreeCost([-1] + [i // 3 for i in range(d + d // 2)], 0.5, outputs="leaves")


def tables_of(cost):
    """What the compiled functions need of a line or a tree."""
    if cost.structure == "line":
        line = cost.as_line()
        return tables.line_tables(line.gaps, line.even)
    tree = cost.as_tree()
    return tables.tree_tables(tree.r, tree.D, tree.parents, tree.outputs)


class TestThreshold(BackendContract):
    method = "threshold"
    costs: ClassVar = {"zero-one": ZeroOneCost, "zero-one-near": lambda d: ZeroOneCost(d) * 0.05}

    def solve(self, cost, b):
        return threshold.kernel(tables.zero_one_tables(*cost.as_equal()), cost.size).solve_rows(b)

    def reference(self, cost, b):
        return reference.threshold(Products(cost), *cost.as_equal(), b)


class TestHull(BackendContract):
    method = "hull"
    costs: ClassVar = {
        "line": LineCost,
        "line-uneven": uneven,
        "line-near": lambda d: LineCost(d) * 0.01,
        "grid-1d": lambda d: GridCost(d, p=1),
    }

    def solve(self, cost, b):
        return hull.kernel(tables_of(cost)).solve_rows(b)

    def reference(self, cost, b):
        return reference.policy(Products(cost), b)


class TestPolicy(BackendContract):
    method = "policy"
    costs: ClassVar = {"tree": binary_tree, "tree-leaves": leaves}

    def solve(self, cost, b):
        return policy.kernel(tables_of(cost)).solve_rows(b)

    def reference(self, cost, b):
        return reference.policy(Products(cost), b)


class TestActiveSet(BackendContract):
    method = "active_set"
    sizes = (1, 2, 3, 41)
    costs: ClassVar = {
        "line-p2": lambda d: LineCost(d, p=2) / 2,
        "dense": lambda d: DenseCost(uneven(d).matrix()),
        "grid": lambda d: GridCost((d, 2), p=2),
        "zero-one": ZeroOneCost,
        "tree": binary_tree,
    }

    def solve(self, cost, b):
        return active_set.kernel(tables.dense_tables(cost.kernel())).solve_rows(b)


class TestActiveSetPerSample(BackendContract):
    method = "active_set"
    sizes = (1, 3, 41)
    costs: ClassVar = {"per-sample": lambda d: DenseCost(LineCost(d).matrix().expand(7, d, d))}

    def solve(self, cost, b):
        return active_set.kernel(tables.dense_tables(cost.kernel())).solve_rows(b)

    @pytest.mark.parametrize("batch", [7])
    def test_it_agrees_with_the_reference(self, cost, batch):
        scales = torch.linspace(0.5, 2, 7, dtype=torch.float64)[:, None, None]
        scaled = cost.with_parameter(cost.parameter * scales)
        super().test_it_agrees_with_the_reference(scaled, batch)


class TestFusedSolves:
    """From scores to the distribution in one call: as step by step, whatever the batch."""

    costs: ClassVar = {
        "one": LineCost(1, p=2),
        "line": LineCost(5, p=2) / 2,
        "far": DenseCost(8 * LineCost(40).matrix()),  # supports beyond what rows share
        "points": DenseCost.from_points(randn(17, 3, seed=1), p=1),
        "grid": GridCost((4, 6), p=2) / 2,
    }

    def scores(self, cost, rows, dtype=torch.float64):
        f = 3 * randn(rows, *cost.shape, seed=cost.size).to(dtype)
        if cost.size > 2:
            f[1::3, ..., ::2] = -torch.inf
        return f

    def fused(self, cost, scores):
        shape = scores.shape[: scores.dim() - len(cost.shape)]
        rows = scores.reshape(*shape, cost.size)
        alpha, u, *others = active_set.kernel(tables.dense_tables(cost.kernel())).solve(rows)
        return alpha.reshape(scores.shape), u.reshape(scores.shape), *others

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("name", costs)
    def test_they_agree_with_the_reference(self, name, dtype):
        cost = self.costs[name]
        scores = self.scores(cost, 150, dtype)
        alpha, u, lower, upper, iterations = self.fused(cost, scores)
        peak = reference.peaks(scores, len(cost.shape))
        b = reference.obstacle(scores, peak, len(cost.shape))
        plain = plain_solution(cost, b)
        expected = reference.distribution(b, plain.u)
        tight = 1e-9 if dtype == torch.float64 else 1e-6
        assert alpha.dtype == u.dtype == dtype
        assert lower.dtype == torch.float64
        assert_close(alpha, expected, atol=tight, rtol=0)
        assert_close(u, plain.u.to(dtype), atol=tight, rtol=tight)
        assert (lower <= plain.upper + peak).all()
        assert (plain.lower + peak <= upper).all()
        assert (upper - lower <= 1e-12).all()
        assert (iterations >= 1).all()

    @pytest.mark.parametrize("name", costs)
    def test_rows_do_not_depend_on_their_neighbours(self, name):
        cost = self.costs[name]
        scores = self.scores(cost, 150)
        together = self.fused(cost, scores)
        for row in (0, 1, 70, 149):
            for a, b in zip(self.fused(cost, scores[row]), together, strict=True):
                assert torch.equal(a, b[row])

    def test_rows_without_a_solution_have_no_bracket(self):
        cost = LineCost(3, p=2)
        scores = torch.zeros(70, 3).double()
        scores[1, 2], scores[2], scores[68, 0] = torch.nan, -torch.inf, torch.inf
        _, _, lower, upper, _ = self.fused(cost, scores)
        bad = torch.isin(torch.arange(70), torch.tensor([1, 2, 68]))
        assert torch.equal(lower.isnan(), bad)
        assert torch.equal(upper.isnan(), bad)

    def test_a_singular_support_is_solved_one_by_one(self):
        nearly_one = DenseCost.from_points(torch.tensor([[0.0], [1e-8], [1.0]]).double(), p=2)
        scores = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]).double()
        alpha, _, lower, upper, _ = self.fused(nearly_one, scores)
        assert_close(alpha.sum(-1), torch.ones(2).double(), atol=1e-12, rtol=0)
        assert (upper - lower <= 1e-7).all()


class TestSplit:
    """Splitting against the accelerated gradient: two ways to the same gap."""

    costs: ClassVar = {
        "grid-p2": GridCost((41, 5), p=2) / 2,
        "grid-p1": GridCost((3, 41), p=1),
        "grid-3d": GridCost((2, 9, 3), p=2, spacing=(1.0, 1.5, 0.8)),
        "wide": GridCost((12, 11), p=2) / 16,
        "one": GridCost((1, 1)),
    }

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
    @pytest.mark.parametrize("warm", [False, True])
    @pytest.mark.parametrize("name", costs)
    def test_it_reaches_the_gap(self, name, warm, dtype):
        cost, tol = self.costs[name], 1e-4
        b = torch.exp(randn(7, *cost.shape, seed=3))
        if cost.size > 2:
            b[1, ..., ::3] = 0  # masked
        b = b / b.flatten(1).amax(1).reshape(-1, *[1] * len(cost.shape))
        K, first_steps = Products(cost), settings.SPLIT_FIRST_STEPS[cost.p]
        start = smooth_start(K, b) if warm else None
        split = reference.split(K, spectrum(cost), first_steps, b, start, tol, 2000, dtype)
        plain = reference.accelerate(K, b, start, tol, 2000, dtype)
        for rows in (split, plain):
            assert (rows.upper - rows.lower <= tol).all()
        assert (split.lower <= plain.upper).all()
        assert (plain.lower <= split.upper).all()
        assert not split.u[b == 0].any()
        # A gap of tol bounds the energy distance of u by tol · Z, so the distributions are close.
        one, two = ((r.u * b).flatten(1) for r in (split, plain))
        distance = (one / one.sum(1, keepdim=True) - two / two.sum(1, keepdim=True)).abs().sum(1)
        assert (distance <= 10 * tol**0.5).all()

    def test_a_solution_is_a_fixed_point(self):
        cost = GridCost((6, 7)) / 2
        b = torch.exp(randn(3, 6, 7, seed=5))
        u = plain_solution(cost, b).u
        again = reference.split(Products(cost), spectrum(cost), 20, b, u, 1e-10, 5, torch.float64)
        assert_close(again.u, u, atol=1e-9, rtol=1e-9)


PRODUCTS = {
    f"{name}-{size}": make(size)
    for name, make in {
        "line": LineCost,
        "line-uneven": uneven,
        "tree": binary_tree,
        "tree-leaves": leaves,
    }.items()
    for size in (1, 2, 3, 41, 401)
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("cost", PRODUCTS.values(), ids=PRODUCTS)
def test_compiled_products_are_the_dense_ones(cost, batch, dtype):
    u = randn(batch, cost.size, seed=2).abs().to(dtype)
    product = matvec(tables_of(cost), u)
    assert product.dtype == dtype
    expected = apply_dense(kernel(cost), u.double(), cost)
    assert_close(product, expected, **TOLERANCES[dtype]._asdict())


# ------------------------------------------------------------------ the definitions

CERTIFIED = {
    "line": LineCost(7),
    "grid": GridCost((3, 4)),
    "tree": binary_tree(9),
    "zero-one": ZeroOneCost(5),
    "dense": DenseCost(LineCost(6, p=2).matrix()),
}


@pytest.mark.parametrize("cost", CERTIFIED.values(), ids=CERTIFIED)
def test_bracket_is_true_for_any_start(cost):
    f = 3 * randn(20, *cost.shape)
    f = f - flat(f, cost).amax(-1).reshape(-1, *[1] * len(cost.shape))
    b = torch.exp(f / 2)
    _, value = oracle(cost, f)
    for seed, power in ((1, 0), (2, 1), (3, 6)):
        u, lower, upper = reference.certify(
            Products(cost), b, randn(*f.shape, seed=seed).abs() ** power
        )
        assert (lower <= value).all()
        assert (value <= upper).all()
        h = (kernel(cost) @ flat(u, cost)[..., None])[..., 0]
        left, right = (flat(b * u, cost)).sum(-1), (flat(u, cost) * h).sum(-1)
        torch.testing.assert_close(left, right, rtol=1e-12, atol=0)


@pytest.mark.parametrize("cost", CERTIFIED.values(), ids=CERTIFIED)
def test_largest_eigenvalue_is_bounded_tightly_from_above(cost):
    true = float(torch.linalg.eigvalsh(kernel(cost))[-1])
    bound = float(largest_eigenvalue(Products(cost), torch.ones(1, *cost.shape).double()))
    assert true <= bound * (1 + 1e-12) <= 1.2 * true


def test_exchange_ends_at_the_solution_from_any_support():
    cost = DenseCost(LineCost(12, p=2).matrix() / 2)
    f = 2 * randn(8, 12)
    f = f - f.amax(-1, keepdim=True)
    b = torch.exp(f / 2)
    alpha, _ = oracle(cost, f)
    for support in (b > 0, b == 1, randn(8, 12, seed=5) > 0):
        rows = reference.exchange(Products(cost), b, support, tol=1e-13, max_iter=100)
        found = rows.u * b
        torch.testing.assert_close(found / found.sum(-1, keepdim=True), alpha, atol=1e-9, rtol=0)


def plain_sinkhorn(cost, alpha, tol, max_iter):
    return reference.sinkhorn(Products(cost).matvec, alpha, tol, max_iter)


def compiled(cost, alpha, tol, max_iter):
    return compiled_sinkhorn(tables.dense_tables(cost.kernel()), alpha, tol, max_iter)


class TestSinkhorn:
    """Both ways to solve: v · Kv = α, to the last digits."""

    ways: ClassVar = {"plain": plain_sinkhorn, "compiled": compiled}
    costs: ClassVar = {
        "line": LineCost(128),
        "near": LineCost(30, p=2) * 1e-3,
        "far": LineCost(30, p=2) * 1e3,
        "grid": GridCost((9, 7)) / 2,
        "dense": DenseCost(uneven(21).matrix()),
        "tree": leaves(30),
        "zero-one": ZeroOneCost(12),
        "one": ZeroOneCost(1),
        "per sample": DenseCost(
            torch.stack([LineCost(6, p=p).matrix() * c for p, c in ((1, 1), (2, 1), (2, 0.1))])
        ),
    }

    @pytest.mark.parametrize("density", [1.0, 0.3])
    @pytest.mark.parametrize("cost", costs.values(), ids=costs.keys())
    @pytest.mark.parametrize("way", ways.values(), ids=ways.keys())
    def test_equations(self, way, cost, density):
        alpha = torch.softmax(3 * randn(3, *cost.shape).flatten(1), 1)
        alpha *= torch.rand(alpha.shape, generator=random_state(1)) < density
        alpha[:, 0] += 1e-6
        alpha /= alpha.sum(1, keepdim=True)
        found = way(cost, alpha.reshape(3, *cost.shape), 1e-14, 200)
        v, K = flat(found.v, cost), torch.exp(-cost.matrix() / 2)
        assert_close(v * (K @ v[..., None])[..., 0], alpha, rtol=1e-13, atol=0)
        assert found.v.dtype == torch.float64
        assert found.v.shape == (3, *cost.shape)
        assert (found.residual <= 1e-14).all()
        assert ((found.iterations >= 1) & (found.iterations <= 12)).all()

    @pytest.mark.parametrize(
        "share", [1.0, 1e-8, 2 * HELD_BY_SINGLE, HELD_BY_SINGLE / 2, 1e-120, 1e-280]
    )
    @pytest.mark.parametrize("scale", [0.01, 0.5, 5.0])
    @pytest.mark.parametrize("way", ways.values(), ids=ways.keys())
    def test_small_probabilities_have_all_digits(self, way, scale, share):
        cost = LineCost(128, p=2) * scale
        alpha = torch.rand(3, 128, dtype=torch.float64, generator=random_state(0)) + 0.01
        alpha[:, 30:90] = 0.0
        alpha[:, 90:] *= share  # far from the others, so that nothing else counts there
        alpha[:, 15:25] *= share  # among the others
        alpha /= alpha.sum(1, keepdim=True)
        found = way(cost, alpha, 1e-14, 200)
        inside = alpha > 0
        ratio = (found.v * (found.v @ torch.exp(-cost.matrix() / 2)))[inside] / alpha[inside]
        assert float((ratio - 1).abs().max()) <= 1e-12
        assert (found.v[~inside] == 0).all()
        assert int(found.iterations.max()) <= 30

    def test_rows_are_independent(self):
        cost = GridCost((5, 6), p=2)
        alpha = torch.softmax(2 * randn(40, 30), 1).reshape(40, 5, 6)
        together = self.ways["compiled"](cost, alpha, 1e-14, 200)
        for row in (0, 17, 39):
            alone = self.ways["compiled"](cost, alpha[row : row + 1], 1e-14, 200)
            assert torch.equal(alone.v[0], together.v[row])


def test_descent_ends_where_the_exact_solution_is():
    cost = LineCost(12, p=1)
    scores = 2 * randn(5, 12)
    K = kernel(cost)
    peak = scores.amax(-1, keepdim=True)
    b = torch.exp((scores - peak) / 2)
    start, step = torch.zeros_like(b), 1 / torch.linalg.eigvalsh(K)[-1]
    u = reference.descend(lambda y: y @ K - b, start, step, 3000)
    assert_close((u * b).sum(-1, keepdim=True).log() + peak, oracle(cost, scores)[1][:, None])


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("shape", [(6, 7), (3, 4, 5)])
def test_axes_that_are_merged_change_nothing(shape, warm, monkeypatch):
    cost = GridCost(shape, p=1) * 2
    axes = spectrum(cost)
    assert len(splitting.merge_axes(axes).bases) == 1
    b = randn(9, *shape, seed=3).exp()
    start = randn(9, *shape, seed=4).exp() if warm else None
    merged = reference.split(Products(cost), axes, 10, b, start, 1e-9, 2000, torch.float64)
    monkeypatch.setattr(splitting, "FEW_OUTPUTS", 0)
    assert splitting.merge_axes(axes) is axes
    each = reference.split(Products(cost), axes, 10, b, start, 1e-9, 2000, torch.float64)
    assert torch.equal(each.iterations, merged.iterations)
    assert_close(merged.u, each.u)
    assert_close(merged.lower, each.lower)

"""What the Triton kernels must do; run by test_triton.py on CPUs, by name on GPUs."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime import interpreter

from geosoftmax import (
    DenseCost,
    GridCost,
    LineCost,
    TreeCost,
    ZeroOneCost,
    potential_logistic_loss,
    sinkhorn_negentropy,
    sinkhorn_potential,
)
from geosoftmax.backends import reference, settings
from geosoftmax.backends.triton import (
    grid,
    hull,
    index_loss,
    policy,
    potential,
    predict,
    predict_batch,
    predict_rows,
    refine,
    rows,
    sinkhorn,
)
from geosoftmax.solvers.products import Products
from tests.contracts.backend import plain_solution
from tests.generators import randn

_plain_patch = interpreter._patch_lang_tensor


def _patch_with_loops(tensor, scope):
    """Triton's interpreter makes an int of an array with one entry, which numpy 2.4 refuses."""
    _plain_patch(tensor, scope)
    scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))


interpreter._patch_lang_tensor = _patch_with_loops

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy's, on masked lanes

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOL = 1e-3

PLANES = {
    "3x5": GridCost((3, 5), p=2) / 2,
    "28x28": GridCost((28, 28), p=2) / 2,
    "31x17": GridCost((31, 17), p=1),
    "2x2": GridCost((2, 2)),
    "1x1": GridCost((1, 1)),
    "1x9": GridCost((1, 9)),
    "40x4": GridCost((40, 4), spacing=(1.0, 1.5)) / 2,
}
ROWS = {
    "one": LineCost(1, p=2),
    "ordinal": LineCost(5, p=2) / 2,
    "points": DenseCost.from_points(randn(40, 3, seed=1), p=1),
    "3-d": GridCost((2, 5, 3)),
    "300": DenseCost.from_points(randn(300, 4, seed=2), p=1),
    "zero-one": DenseCost(ZeroOneCost(17).matrix()),
}
LINES = {
    "one": LineCost(1),
    "few": LineCost(7) / 3,
    "uneven": LineCost(torch.tensor([0.0, 0.1, 2.0, 2.5, 9.0], dtype=torch.float64)),
    "near": LineCost(100) * 1e-3,
    "grid": GridCost(33, p=1),
}
TREES = {
    "one": TreeCost([-1]),
    "root alone": TreeCost([-1, 0, 0], outputs=[0]),
    "leaves": TreeCost([-1] + [(i - 1) // 3 for i in range(1, 40)], 0.5, outputs="leaves"),
    "all nodes": TreeCost([2, 2, -1, 0, 0, 1, 3, 3, 3], [1, 2, 0, 0.1, 3, 1e-3, 1, 1, 1]),
    "path": TreeCost([-1, *range(8)], 0.3),
    "star": TreeCost([-1] + [0] * 30, outputs="leaves"),
    "families in several blocks": TreeCost([-1, 0, 0, 0] + [1] * 40 + [3] * 5 + [4] * 70, 0.3),
}
SOLIDS = {"2x5x3": GridCost((2, 5, 3)), "3x4x9": GridCost((3, 4, 9), p=2) / 2}


def slow(names, *costly):
    """Mark what takes seconds in the interpreter, and follows the code of other cases."""
    return [pytest.param(one, marks=pytest.mark.slow) if one in costly else one for one in names]


def pairs(names, others, quick):
    """All pairs; those that `quick` does not choose are slow."""
    return [
        pytest.param(one, other, marks=() if quick(one, other) else pytest.mark.slow)
        for one in names
        for other in others
    ]


# ------------------------------------------------------------------ tables, from a cost


def axes_of(cost):
    return cost.axes if isinstance(cost, GridCost) else [cost]


def kernel_of(cost):
    return torch.exp(-cost.matrix().double() / 2)


def spectrum(cost):
    """Kernels along the axes, their eigenvectors, and the eigenvalues of the product."""
    kernels = [kernel_of(axis) for axis in axes_of(cost)]
    values, bases = torch.ones((), dtype=torch.float64, device=DEVICE), []
    for K in kernels:
        one, vectors = torch.linalg.eigh(K)
        values = values[..., None] * one.clamp_min(0)
        bases.append(vectors)
    return kernels, bases, values


def plane_tables(cost):
    return grid.make_tables(*spectrum(cost), cost.p)


def split_plane(cost, f, tol, max_iter):
    return grid.solve(plane_tables(cost), f, tol, max_iter)


def split_rows(cost, f, tol, max_iter):
    return rows.solve(rows.make_tables(*spectrum(cost)), f, tol, max_iter)


def predicted(cost, f, tol, max_iter):
    kernel = predict if cost.is_separable and len(cost.shape) == 2 else predict_rows
    return kernel.solve(kernel.make_tables(*spectrum(cost)), f, tol, max_iter)


def predicted_together(cost, f, tol, max_iter):
    return predict_batch.solve(predict_batch.make_tables(*spectrum(cost)), f, tol, max_iter)


def solve_line(cost, f, tol, max_iter):
    half_distances = axes_of(cost)[0].matrix()[0].double() / 2  # positions are sorted
    return hull.solve(half_distances, f)


def solve_tree(cost, f, tol, max_iter):
    tree = cost.as_tree()
    tables = policy.make_tables(tree.parents, tree.levels, tree.outputs, tree.r, tree.D)
    if DEVICE == "cpu":  # the interpreter scans entry by entry
        tables = tables._replace(block=16)
    return policy.solve(tables, f)


def sinkhorn_tables(cost):
    return sinkhorn.make_tables(
        [kernel_of(axis) for axis in cost.axes], [axis.matrix() for axis in cost.axes]
    )


def solve_sinkhorn(cost, alpha):
    if len(cost.shape) == 2:
        return sinkhorn.solve_plane(sinkhorn_tables(cost), alpha)
    return sinkhorn.solve_rows(sinkhorn.make_row_tables(kernel_of(cost)), alpha)


# ------------------------------------------------------------------ solves


def scores_for(cost, batch, dtype=torch.float32):
    f = 2 * randn(batch, *cost.shape, seed=cost.size)
    if cost.size > 2:
        f[1:2, ..., ::3] = -torch.inf
    return f.to(dtype).to(DEVICE)


def compare(cost, f, found, tol):
    """A true bracket of the gap that was asked for, and a distribution near the exact one."""
    alpha, u, lower, upper, iterations = found
    double = f.double()
    peak = reference.peaks(double, len(cost.shape))
    b = reference.obstacle(double, peak, len(cost.shape))
    exact = plain_solution(cost, b)
    assert alpha.shape == u.shape == f.shape
    assert alpha.dtype == u.dtype == f.dtype
    assert (upper - lower <= tol).all()
    assert (lower <= exact.upper + peak).all()
    assert (exact.lower + peak <= upper).all()
    assert (iterations >= 0).all()
    _, low, high = reference.certify(Products(cost), b, u.double())
    assert (high - low <= tol).all()
    weighted = (exact.u * b).flatten(1)
    expected = weighted / weighted.sum(1, keepdim=True)
    total = alpha.double().flatten(1).sum(1)
    assert torch.allclose(total, torch.ones_like(total), atol=1e-5)
    distance = (alpha.double().flatten(1) - expected).abs().sum(1)
    assert (distance <= 10 * tol**0.5).all()
    assert not alpha[torch.isneginf(f)].any()


@pytest.mark.parametrize(
    ("name", "batch"),
    pairs(
        PLANES,
        [1, 3],
        lambda name, batch: name == "3x5" or (batch == 1 and name not in ("28x28", "40x4")),
    ),
)
def test_planes(name, batch):
    cost = PLANES[name].to(DEVICE)
    f = scores_for(cost, batch)
    compare(cost, f, split_plane(cost, f, TOL, 1000), TOL)


@pytest.mark.parametrize("solve", [split_plane, split_rows])
def test_tolerances_above_one(solve):
    """A kernel begins with a gap of 1, which is no reason to stop, or never to."""
    cost = (GridCost((8, 8)) / 16).to(DEVICE)
    f = (20 * randn(3, 8, 8, seed=5)).to(torch.float32).to(DEVICE)
    alpha, _, lower, upper, iterations = solve(cost, f, 5.0, 100)
    assert (iterations > 0).all()
    assert (upper - lower <= 5.0).all()
    assert torch.allclose(alpha.flatten(1).sum(1), torch.ones(3, device=DEVICE), atol=1e-5)


@pytest.mark.parametrize("most", slow([5, 30, 70], 70))
@pytest.mark.parametrize("solve", [split_plane, split_rows])
def test_iterations_end_when_they_should(solve, most):
    cost = (GridCost((8, 8)) / 2).to(DEVICE)
    f = (3 * randn(3, 8, 8, seed=5)).to(torch.float32).to(DEVICE)
    _, _, lower, upper, iterations = solve(cost, f, 1e-12, most)  # which is not reached
    first = settings.SPLIT_FIRST_STEPS[2.0]
    assert (iterations >= most).all()
    assert (iterations < max(most, first) + settings.SPLIT_CHECK_EVERY).all()
    assert (upper > lower).all()


@pytest.mark.parametrize("solve", [split_plane, split_rows])
def test_iterates_may_vanish_on_the_way(solve, monkeypatch):
    monkeypatch.setitem(settings.SPLIT_FIRST_STEPS, 2.0, 5)  # a look while two of these have
    cost = (GridCost((4, 4)) / 2).to(DEVICE)
    f = (3 * randn(48, 4, 4, seed=4))[[3, 4, 22]].to(torch.float32).to(DEVICE)
    compare(cost, f, solve(cost, f, TOL, 1000), TOL)


@pytest.mark.parametrize(
    ("name", "batch"),
    pairs(ROWS, [1, 7, 17], lambda name, batch: batch == (1 if name == "300" else 7)),
)
def test_rows(name, batch):
    cost = ROWS[name].to(DEVICE)
    f = scores_for(cost, batch)
    compare(cost, f, split_rows(cost, f, TOL, 1000), TOL)


@pytest.mark.parametrize(
    ("solve", "entry"),
    pairs(
        [split_rows, predicted, predicted_together],
        [0.2, -0.2],
        lambda solve, entry: solve is not predicted_together,
    ),
)
def test_brackets_hold_where_the_diagonal_is_not_one(solve, entry):
    """As of a matrix that gradient steps have moved."""
    C = 3 * DenseCost.from_points(randn(12, 3, seed=1), p=1).matrix()  # far from singular
    cost = DenseCost(C + entry * torch.eye(12), validate=False).to(DEVICE)
    f = scores_for(cost, 7)
    _, u, lower, upper, _ = solve(cost, f, 1e-12, 5)  # which is not reached
    double = f.double()
    peak = reference.peaks(double, len(cost.shape))
    b = reference.obstacle(double, peak, len(cost.shape))
    h = u.double() @ kernel_of(cost)
    v = (b - h).clamp_min(0) / cost.diagonal.clamp(max=1)
    w = u.double() + v  # feasible: Kw ≥ b
    feasible = torch.log((w * (w @ kernel_of(cost))).sum(1)) + peak
    exact = plain_solution(cost, b)
    assert (upper >= feasible - 1e-5).all()
    assert (lower <= exact.upper + peak).all()
    assert (exact.lower + peak <= upper).all()


SMALL = {name: ROWS[name] for name in ("one", "ordinal", "points", "3-d", "zero-one")}
REFINED = {**SMALL, "3x5": PLANES["3x5"], "2x2": PLANES["2x2"]}


@pytest.mark.parametrize("name", slow([*REFINED, "1x9", "31x17"], "31x17", "2x2", "1x9"))
def test_predicted(name):
    """To the digits of float32, in the distribution too."""
    cost = {**REFINED, **PLANES}[name].to(DEVICE)
    f = scores_for(cost, 2)
    found = predicted(cost, f, 1e-6, 1000)
    compare(cost, f, found, 1e-6)
    assert distance_from_exact(cost, f, found.alpha) <= 1e-4


def distance_from_exact(cost, f, alpha):
    """The largest total variation."""
    peak = reference.peaks(f.double(), len(cost.shape))
    b = reference.obstacle(f.double(), peak, len(cost.shape))
    weights = (plain_solution(cost, b).u * b).flatten(1)
    moved = alpha.double().flatten(1) - weights / weights.sum(1, keepdim=True)
    return float(moved.abs().sum(1).max() / 2)


@pytest.mark.parametrize("name", slow(SMALL, "one", "ordinal", "3-d", "zero-one"))
def test_predicted_together(name):
    cost = SMALL[name].to(DEVICE)
    f = scores_for(cost, 3)
    found = predicted_together(cost, f, 1e-6, 5000)
    compare(cost, f, found, 1e-6)
    assert distance_from_exact(cost, f, found.alpha) <= 1e-4


@pytest.mark.slow
def test_predicted_together_in_several_blocks():
    """Of rows and of outputs, neither of which end with a block."""
    cost = DenseCost.from_points(randn(70, 4, seed=3), p=1).to(DEVICE)
    f = scores_for(cost, 67)
    found = predicted_together(cost, f, TOL, 120)
    compare(cost, f, found, TOL)
    few = predicted_together(cost, f[60:], TOL, 120)
    assert torch.allclose(few.alpha, found.alpha[60:], atol=1e-5)


@pytest.mark.slow
def test_predictions_together_end_when_they_should():
    cost = SMALL["points"].to(DEVICE)
    f = scores_for(cost, 2)
    rounds = [predict_batch.STEPS * len(parts) for parts in predict_batch.ROUNDS]
    for most, expected in ((1, rounds[0]), (rounds[0] + 1, rounds[0] + rounds[1])):
        found = predicted_together(cost, f, 0.0, most)  # which is not reached
        assert (found.iterations == expected).all()


@pytest.mark.parametrize("name", slow(["3x5", "ordinal"], "3x5"))
def test_predictions_of_bad_rows_are_nan_and_of_their_neighbours_are_not(name):
    cost = REFINED[name].to(DEVICE)
    f = scores_for(cost, 3)
    expected = predicted(cost, f, 1e-6, 1000).alpha
    f[1].view(-1)[0] = float("nan")
    alpha = predicted(cost, f, 1e-6, 1000).alpha
    assert alpha[1].isnan().all()
    assert torch.equal(alpha[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize("name", slow(REFINED, "3x5"))
def test_solves_on_a_support(name):
    cost = REFINED[name].to(DEVICE)
    rhs = randn(3, *cost.shape, seed=4).to(torch.float32).to(DEVICE)
    support = rhs > -0.5
    found = refine.solve_on(refine.make_tables(*spectrum(cost)), rhs, support, 1000)
    exact = cost.solve(rhs.double(), support)
    assert not found[~support].any()
    assert torch.allclose(found.double(), exact, atol=1e-5 * float(exact.abs().max()))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("name", "batch"),
    pairs(LINES, [1, 7], lambda name, batch: name in ("few", "uneven") or batch == 1),
)
def test_lines(name, batch, dtype):
    cost = LINES[name].to(DEVICE)
    f = scores_for(cost, batch, dtype)
    tol = 1e-10 if dtype == torch.float64 else 1e-5
    compare(cost, f, solve_line(cost, f, tol, 1000), tol)


@pytest.mark.parametrize("dtype", slow([torch.float64, torch.float32], torch.float32))
@pytest.mark.parametrize(
    ("name", "batch"),
    pairs(TREES, [1, 3], lambda name, batch: batch == 1 or name == "root alone"),
)
def test_trees(name, batch, dtype):
    cost = TREES[name].to(DEVICE)
    f = scores_for(cost, batch, dtype)
    tol = 1e-10 if dtype == torch.float64 else 1e-5
    compare(cost, f, solve_tree(cost, f, tol, 1000), tol)


@pytest.mark.parametrize(
    "name", slow([*PLANES, *ROWS], "28x28", "31x17", "2x2", "1x1", "1x9", "40x4", "300")
)
def test_sinkhorn(name):
    cost = {**PLANES, **ROWS}[name].to(DEVICE)
    alpha = torch.exp(randn(3, *cost.shape, seed=2)).to(DEVICE)
    if cost.size > 2:
        alpha[1, ..., ::2] = 0
    alpha = alpha / alpha.flatten(1).sum(1).reshape(-1, *[1] * len(cost.shape))
    v = solve_sinkhorn(cost, alpha)
    exact = reference.sinkhorn(Products(cost).matvec, alpha, 1e-13, 200).v
    assert torch.equal(v > 0, alpha > 0)
    # v itself is ill-conditioned; what matters is the potential
    potential, expected = (torch.log(cost.matvec(x.double())) for x in (v, exact))
    assert (potential - expected)[alpha > 0].abs().max() <= 1e-5


@pytest.mark.parametrize("name", slow(PLANES, *set(PLANES) - {"31x17"}))
def test_potential_and_value(name):
    """Of distributions with holes, which are far from some outputs: the potential is there too."""
    cost = PLANES[name].to(DEVICE)
    alpha = torch.exp(3 * randn(3, *cost.shape, seed=2)).to(DEVICE)
    if cost.size > 2:
        alpha[1, ..., ::2] = 0
        alpha[2] = 0
        alpha[2, 0, 0] = 1
    alpha = alpha / alpha.flatten(1).sum(1).reshape(-1, 1, 1)
    tables = sinkhorn_tables(cost)
    expected = sinkhorn_potential(alpha.double(), cost)
    potential = sinkhorn.potential_plane(tables, alpha.float()).double()
    assert ((potential - expected).abs() <= 1e-5 * (1 + expected.abs())).all()
    value = sinkhorn.negentropy_plane(tables, alpha.float()).double()
    assert torch.allclose(value, sinkhorn_negentropy(alpha.double(), cost), atol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss_of_class_indices(reduction):
    alpha, f = torch.softmax(randn(6, 40), 1).to(DEVICE), randn(6, 40, seed=1).to(DEVICE)
    lower = (f + randn(6, 40, seed=2).to(DEVICE)).amax(1).double()
    target = torch.tensor([3, -100, 39, 0, 40, -1], device=DEVICE)
    real = torch.tensor([1, 1, 1, 1, 0, 0], device=DEVICE).bool()
    each = (lower - f.double().gather(1, target.clamp(0, 39)[:, None])[:, 0]).clamp_min(0)
    each[1] = 0
    slope = alpha - torch.nn.functional.one_hot(target.clamp(0, 39), 40)
    slope[1] = 0
    share = 1 / 5 if reduction == "mean" else 1.0
    loss, found = index_loss.finish(alpha.clone(), lower, f, target, -100, reduction)
    assert torch.allclose(found[real], (share * slope).to(f.dtype)[real], atol=1e-6)
    assert found[~real].isnan().all()
    if reduction == "none":
        assert torch.allclose(loss[real], each.to(f.dtype)[real], atol=1e-6)
    else:
        real_alone = torch.where(real, target, -100)
        loss, _ = index_loss.finish(alpha, lower, f, real_alone, -100, reduction)
        share = 1 / 3 if reduction == "mean" else 1.0
        assert float(loss) == pytest.approx(float(share * each[real].sum()), rel=1e-5)


@pytest.mark.parametrize("name", slow(SOLIDS, *SOLIDS))
def test_three_dimensions(name):
    cost = SOLIDS[name].to(DEVICE)
    f = scores_for(cost, 3)
    found = split_plane(cost, f, TOL, 1000)
    compare(cost, f, found, TOL)
    target = torch.softmax(randn(3, cost.size, seed=3).float(), 1).reshape(f.shape).to(DEVICE)
    f = torch.where(torch.isneginf(f), -3.0, f)
    alpha, _, lower, _, _ = split_plane(cost, f, TOL, 1000)
    loss, slope = grid.loss(plane_tables(cost), f, target, TOL, 1000)
    linear = (target * f).flatten(1).sum(1)
    expected = lower + sinkhorn_negentropy(target.double(), cost) - linear
    assert torch.allclose(loss.double(), expected, atol=1e-4)
    assert torch.allclose(slope, alpha - target, atol=1e-5)


@pytest.mark.parametrize("name", slow(["3x5", "31x17", "1x9"], "31x17", "1x9"))
def test_loss(name):
    cost = PLANES[name].to(DEVICE)
    f = scores_for(cost, 3) + 100
    target = torch.softmax(f.flatten(1) / 2, 1).reshape(f.shape)
    alpha, _, lower, _, _ = split_plane(cost, f, TOL, 1000)
    loss, slope = grid.loss(plane_tables(cost), f, target, TOL, 1000)
    double = target.double()
    linear = torch.where(double > 0, double * f, 0.0).flatten(1).sum(1)
    mass = double.flatten(1).sum(1)
    expected = (mass * lower + sinkhorn_negentropy(double, cost) - linear).clamp_min(0)
    assert torch.allclose(loss.double(), expected, atol=1e-4)
    assert torch.allclose(slope, alpha - target, atol=1e-5)


@pytest.mark.parametrize("name", ["3x5", "31x17", "1x9"])
@pytest.mark.parametrize("width", [1.0, 20.0, 300.0])
def test_loss_of_the_potential_layer(name, width):
    cost = PLANES[name].to(DEVICE)
    g = (width * randn(4, *cost.shape, seed=3)).float().to(DEVICE)
    target = torch.softmax(3 * randn(4, cost.size, seed=4), 1).reshape(g.shape).to(DEVICE)
    target[1, ..., ::2] = 0
    target = (target / target.flatten(1).sum(1)[:, None, None]).float()
    tables = potential.make_tables([axis.matrix() for axis in cost.axes])
    loss, slope = potential.loss(tables, g, target, share=0.5)
    exact = g.double().requires_grad_()
    expected = potential_logistic_loss(exact, target.double(), cost, reduction="none") / 2
    (expected_slope,) = torch.autograd.grad(expected.sum(), exact)
    assert torch.allclose(loss.double(), expected, rtol=1e-5, atol=1e-5)
    if width < 300:  # float32 has no slope where the products underflow
        assert torch.allclose(slope.double(), expected_slope, atol=1e-6)
    assert slope.isfinite().all()


@pytest.mark.parametrize(
    "kernel",
    slow(["planes", "rows", "lines", "trees", "predicted", "together"], "trees", "together"),
)
def test_rows_without_a_solution_show_it_and_spoil_no_other(kernel):
    cost, solve = {
        "planes": (PLANES["3x5"], split_plane),
        "rows": (ROWS["ordinal"], split_rows),
        "lines": (LINES["few"], solve_line),
        "predicted": (ROWS["ordinal"], predicted),
        "together": (ROWS["ordinal"], predicted_together),
        "trees": (TREES["all nodes"], solve_tree),
    }[kernel]
    cost = cost.to(DEVICE)
    f = scores_for(cost, 5)
    clean = solve(cost, f, TOL, 100)
    f[2].view(-1)[1] = torch.nan
    f[3] = -torch.inf
    f[4].view(-1)[0] = torch.inf
    alpha, _, lower, upper, _ = solve(cost, f, TOL, 100)
    assert (lower.isnan() | upper.isnan()).tolist() == [False, False, True, True, True]
    assert torch.equal(alpha[:2], clean[0][:2])


def test_non_contiguous_scores_and_many_batch_dimensions():
    cost = PLANES["3x5"].to(DEVICE)
    f = scores_for(cost, 4).reshape(2, 2, 3, 5).transpose(0, 1)
    found = split_plane(cost, f, TOL, 1000)
    again = split_plane(cost, f.contiguous().reshape(4, 3, 5), TOL, 1000)
    for one, two in zip(found, again, strict=True):
        assert torch.equal(one.reshape(two.shape), two)


class Allocated(TorchDispatchMode):
    """Counts the bytes of the tensors that are made."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        known = {t.data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.bytes += sum(t.nbytes for t in made if t.data_ptr() not in known)
        return result


@pytest.mark.slow
def test_memory_beyond_input_and_output_is_at_most_the_input():
    cost = PLANES["3x5"].to(DEVICE)
    f = scores_for(cost, 2)
    target = torch.softmax(f.flatten(1) / 2, 1).reshape(f.shape)
    tables = plane_tables(cost)
    with Allocated() as loss:
        output, _ = grid.loss(tables, f, target, TOL, 1000)
    assert output.nbytes < loss.bytes <= output.nbytes + f.nbytes
    with Allocated() as solve:
        outputs = grid.solve(tables, f, TOL, 1000)
    assert solve.bytes == sum(t.nbytes for t in outputs)

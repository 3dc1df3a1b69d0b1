"""One function per object of the paper: dtypes, shapes, masks, extremes, and hand computation."""

import inspect
import warnings

import pytest
import torch

import geosoftmax as gs
from geosoftmax import ConvergenceWarning, DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from tests.conftest import TOLERANCES, assert_close
from tests.generators import (
    apply_dense,
    flat,
    kernel,
    oracle,
    planted,
    randn,
    sparse_distributions,
    total_variation,
)

COSTS = {
    "zero-one": ZeroOneCost(6),
    "line": LineCost(7),
    "ordinal": LineCost(7, p=2) / 2,
    "tree": TreeCost([-1, 0, 0, 1, 1, 2], [9.0, 1.0, 0.5, 2.0, 0.3, 1.0], outputs="leaves"),
    "grid": GridCost((3, 4), p=2) / 2,
    "large-grid": GridCost((9, 8), p=2) / 2,
    "dense": DenseCost.from_points(randn(6, 2)),
}
every_cost = pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)


def distribution(cost, *batch, seed=0):
    weights = torch.softmax(flat(randn(*batch, *cost.shape, seed=seed), cost), -1)
    return weights.reshape(*batch, *cost.shape)


# ------------------------------------------------------------------ dtypes and shapes

SIGNAL = {
    "geometric_softmax": gs.geometric_softmax,
    "extrapolate": gs.extrapolate,
    "potential_softmax": gs.potential_softmax,
    "smooth_scores": gs.smooth_scores,
    "sinkhorn_potential": lambda s, c: gs.sinkhorn_potential(s.softmax(-1), c),
    "c_transform": lambda s, c: gs.c_transform(s, s.softmax(-1), c),
}
PER_SAMPLE = {
    "geometric_logsumexp": gs.geometric_logsumexp,
    "sinkhorn_negentropy": lambda s, c: gs.sinkhorn_negentropy(s.softmax(-1), c),
    "hausdorff_divergence": lambda s, c: gs.hausdorff_divergence(
        s.softmax(-1), s.flip(-1).softmax(-1), c
    ),
    "loss": lambda s, c: gs.geometric_logistic_loss(s, s.flip(-1).softmax(-1), c, reduction="none"),
    "potential-loss": lambda s, c: gs.potential_logistic_loss(
        s, s.flip(-1).softmax(-1), c, reduction="none"
    ),
}
ALL = SIGNAL | PER_SAMPLE


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("function", ALL.values(), ids=ALL)
def test_results_have_the_dtype_of_the_input_and_its_precision(function, dtype):
    cost = LineCost(7, p=2) / 2
    signal = randn(4, 7).to(dtype)
    result = function(signal, cost)
    assert result.dtype == dtype
    expected = function(signal.double(), cost)
    slack = {"atol": 20 * TOLERANCES[dtype].atol}  # softmax(signal) was rounded to the dtype too
    assert_close(result.double(), expected, dtype, **slack)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_single(dtype):
    scores = randn(5, 9).to(dtype)
    cost = LineCost(9, p=2) / 2
    single = gs.geometric_softmax(scores.float(), cost)
    assert torch.equal(gs.geometric_softmax(scores, cost), single.to(dtype))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@every_cost
def test_any_batch_dimensions_lead(cost, batch):
    scores = randn(6, *cost.shape)
    few = scores[: max(1, torch.Size(batch).numel())]
    shaped = few.reshape(*batch, *cost.shape)
    for function in (gs.geometric_softmax, gs.extrapolate, gs.potential_softmax):
        result = function(shaped, cost)
        assert result.shape == shaped.shape
        assert_close(result.reshape(few.shape), function(few, cost), atol=1e-8)
    value = gs.geometric_logsumexp(shaped, cost)
    assert value.shape == batch
    solution = gs.solve(shaped, cost)
    assert solution.alpha.shape == solution.u.shape == shaped.shape
    assert solution.lower.shape == solution.gap.shape == solution.iterations.shape == batch


def test_arguments_may_be_named():
    cost, scores, y = LineCost(3), randn(2, 3), torch.tensor([0, 2])
    alpha = gs.geometric_softmax(scores=scores, cost=cost)
    assert torch.equal(alpha, gs.geometric_softmax(scores, cost))
    loss = gs.geometric_logistic_loss(scores=scores, target=y, cost=cost)
    assert torch.equal(loss, gs.geometric_logistic_loss(scores, y, cost))
    divergence = gs.hausdorff_divergence(beta=alpha, alpha=alpha.flip(-1), cost=cost)
    assert torch.equal(divergence, gs.hausdorff_divergence(alpha.flip(-1), alpha, cost))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gs.geometric_softmax(scores=scores, cost=cost).dtype == scores.dtype
        half = gs.geometric_logistic_loss(scores=scores.bfloat16(), target=y, cost=cost)
    assert half.dtype == torch.float32
    with pytest.raises(TypeError, match="scores"):
        gs.geometric_softmax(cost=cost)


# ------------------------------------------------------------------ softmax, log-sum-exp


@every_cost
def test_softmax_and_logsumexp_are_right(cost):
    scores = 2 * randn(5, *cost.shape)
    alpha, value = oracle(cost, scores)
    assert total_variation(gs.geometric_softmax(scores, cost), alpha) <= 1e-5
    assert_close(gs.geometric_logsumexp(scores, cost), value, atol=2e-9)


@every_cost
def test_masked_outputs_have_probability_exactly_zero(cost):
    scores = randn(3, *cost.shape)
    flat(scores, cost)[:, 1] = -torch.inf
    flat(scores, cost)[1, 2:] = -torch.inf
    alpha = flat(gs.geometric_softmax(scores, cost), cost)
    assert not alpha[:, 1].any()
    assert not alpha[1, 2:].any()
    assert alpha[1, 0] == 1
    assert_close(alpha.sum(-1), torch.ones(3))


@every_cost
@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("size", [1.0, 1e2, 1e4])
def test_extreme_scores_and_costs_are_right_or_warned_of(cost, factor, size):
    """The known value lies in the bracket; a gap that was not reached is named."""
    cost = cost * factor
    problem = planted(cost, rows=4, slack=size)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = gs.solve(problem.scores, cost, max_iter=300)
    assert torch.isfinite(solution.alpha).all()
    assert (solution.lower <= problem.value + 1e-12).all()
    assert (solution.upper >= problem.value - 1e-12).all()
    assert_close(flat(solution.alpha, cost).sum(-1), torch.ones(4))
    if not solution.converged.all():
        assert [w.category for w in caught] == [ConvergenceWarning]
        assert f"{float(solution.gap.max()):.1e}" in str(caught[0].message)
    else:
        assert not caught
    scores = (size * randn(3, *cost.shape)).clamp(-size, size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for dtype in (torch.float64, torch.float32):
            for function in (gs.geometric_softmax, gs.geometric_logsumexp, gs.extrapolate):
                assert torch.isfinite(function(scores.to(dtype), cost, max_iter=50)).all()
            assert torch.isfinite(gs.potential_softmax(scores.to(dtype), cost)).all()


@every_cost
def test_one_high_score_takes_all(cost):
    scores = torch.full((1, *cost.shape), -1e4, dtype=torch.float64)
    flat(scores, cost)[:, 2] = 1e4
    assert torch.equal(gs.geometric_softmax(scores, cost), (scores > 0).double())
    assert float(gs.geometric_logsumexp(scores, cost)) == pytest.approx(1e4, abs=1e-9)


# ------------------------------------------------------------------ warnings


def test_the_warning_names_rows_gap_iterations_and_the_remedy():
    cost = GridCost((12, 12), p=2) / 2
    scores = 3 * randn(4, 12, 12)
    with pytest.warns(ConvergenceWarning) as caught:
        solution = gs.solve(scores, cost, tol=1e-4, max_iter=2)
    message = str(caught[0].message)
    late = int((~solution.converged).sum())
    assert len(caught) == 1
    assert late > 0
    for words in (
        f"{late} of 4 rows",
        "tol=0.0001",
        f"{float(solution.gap.max()):.1e}",
        "splitting",
        "max_iter",
    ):
        assert words in message


@pytest.mark.parametrize("method", ["accelerated", "splitting", "growing_set"])
def test_no_more_iterations_are_advised_where_rounding_is_all_that_is_left(method):
    cost, scores = GridCost((20, 20)), randn(2, 20, 20)
    with pytest.warns(ConvergenceWarning, match="Rounding alone") as caught:
        solution = gs.solve(scores, cost, tol=1e-15, max_iter=500, method=method)
    message = str(caught[0].message)
    assert "max_iter" not in message
    enough = float(message.split("tol=")[-1].rstrip("."))  # what the message asks for is reached
    assert float(solution.gap.max()) < 2 * enough
    assert gs.solve(scores, cost, tol=enough, method=method).converged.all()
    with pytest.warns(ConvergenceWarning, match="Increase max_iter"):
        gs.solve(3 * scores, cost, tol=1e-15, max_iter=2, method="accelerated")


def test_the_tolerance_that_the_warning_names_holds():
    pixel = torch.arange(64.0, dtype=torch.float64)
    near = torch.exp(-((pixel - 20) ** 2) / 8)
    scores, cost = near[:, None] * near, GridCost((64, 64), p=2) / 2
    with pytest.warns(ConvergenceWarning, match=r"Increase max_iter, or use tol=") as caught:
        gs.solve(scores, cost)
    enough = float(str(caught[0].message).split("tol=")[-1].rstrip("."))
    assert gs.solve(scores, cost, tol=enough).converged.all()


def test_a_method_that_stops_by_itself_is_not_asked_for_more():
    scores, cost = randn(2, 28, 28).float(), GridCost((28, 28), p=2)
    with pytest.warns(ConvergenceWarning, match="no further progress") as caught:
        found = gs.solve(scores, cost, method="lbfgs")
    message = str(caught[0].message)
    assert "use method='auto'" in message
    assert "max_iter" not in message
    assert float(found.gap.max()) < float(message.split("tol=")[-1].rstrip(".")) < 0.1
    with pytest.warns(ConvergenceWarning, match=r"use method='auto'\.$"):
        found = gs.solve(scores, cost / 50, method="lbfgs")
    assert float(found.gap.max()) > 0.1


@pytest.mark.parametrize(
    "function",
    [gs.geometric_softmax, gs.geometric_logsumexp, gs.extrapolate],
    ids=lambda f: f.__name__,
)
def test_every_function_warns(function):
    with pytest.warns(ConvergenceWarning, match="gap"):
        function(3 * randn(2, 12, 12), GridCost((12, 12)) / 2, tol=1e-4, max_iter=1)


# ------------------------------------------------------------------ names of arguments

NAMED = [
    function
    for function in (getattr(gs.functional, name) for name in gs.functional.__all__)
    if "cost" in inspect.signature(function).parameters
]


@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
@pytest.mark.parametrize("function", NAMED, ids=lambda f: f.__name__)
def test_every_argument_can_be_named(function, autocast):
    cost, scores = LineCost(4), randn(3, 4)
    named = {"cost": cost}
    for name in inspect.signature(function).parameters:
        if name in ("scores", "logits", "f", "alpha", "beta"):
            named[name] = scores.softmax(-1)
        elif name == "target":
            named[name] = torch.tensor([0, 3, 1])
    signals = [value for name, value in named.items() if name != "cost"]
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found, expected = function(**named), function(*signals, cost)
    if function is gs.solve:
        found, expected = found.alpha, expected.alpha
    assert torch.equal(found, expected)


# ------------------------------------------------------------------ loss


@every_cost
def test_loss_is_its_definition(cost):
    scores, target = randn(4, *cost.shape), distribution(cost, 4, seed=1)
    value = gs.geometric_logsumexp(scores, cost) + gs.sinkhorn_negentropy(target, cost)
    expected = value - flat(target * scores, cost).sum(-1)
    loss = gs.geometric_logistic_loss(scores, target, cost, reduction="none")
    assert_close(loss, expected, atol=1e-8)
    assert (loss > 0).all()


@every_cost
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_loss_is_zero_at_its_own_softmax_and_never_negative(cost, dtype):
    scores = (2 * randn(20, *cost.shape)).to(dtype)
    target = gs.geometric_softmax(scores, cost)
    at_target = gs.geometric_logistic_loss(scores, target, cost, reduction="none")
    elsewhere = gs.geometric_logistic_loss(scores, target.flip(0), cost, reduction="none")
    assert (at_target >= 0).all()
    assert (at_target <= (1e-8 if dtype == torch.float64 else 2e-4)).all()
    assert (elsewhere >= 0).all()


LOSSES = [gs.geometric_logistic_loss, gs.potential_logistic_loss]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)


@every_cost
@every_loss
def test_class_indices_are_one_hot_targets(cost, loss):
    scores = randn(5, *cost.shape)
    index = torch.tensor([0, 1, cost.size - 1, 2, 1])
    one_hot = torch.nn.functional.one_hot(index, cost.size).double().reshape(scores.shape)
    expected = loss(scores, one_hot, cost, reduction="none")
    assert_close(loss(scores, index, cost, reduction="none"), expected, atol=1e-8)
    assert_close(loss(scores, index.int(), cost, reduction="none"), expected, atol=1e-8)


@every_loss
def test_reductions(loss):
    scores, index = randn(2, 3, 5), torch.tensor([[0, 1, 2], [3, 4, 0]])
    each = loss(scores, index, LineCost(5), dim=-1, reduction="none")
    assert each.shape == (2, 3)
    assert_close(loss(scores, index, LineCost(5), dim=-1, reduction="sum"), each.sum())
    assert_close(loss(scores, index, LineCost(5), dim=-1, reduction="mean"), each.mean())
    assert_close(loss(scores, index, LineCost(5), dim=-1), each.mean())


WEIGHT = torch.tensor([1.0, 2.0, 0.5, 4.0, 0.0], dtype=torch.float64)


def each_loss(scores, target, **options):
    return gs.geometric_logistic_loss(scores, target, LineCost(5), reduction="none", **options)


def test_weights_and_ignored_samples_by_hand():
    scores, index = randn(5, 5), torch.tensor([0, 3, -100, 1, 4])
    plain = each_loss(scores, index.clamp_min(0))
    weights = torch.tensor([1.0, 4.0, 0.0, 2.0, 0.0], dtype=torch.float64)
    options = {"weight": WEIGHT}
    assert_close(each_loss(scores, index, **options), weights * plain)
    mean = gs.geometric_logistic_loss(scores, index, LineCost(5), **options)
    assert_close(mean, (weights * plain).sum() / weights.sum())
    counted = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0])
    mean = gs.geometric_logistic_loss(scores, index, LineCost(5))
    assert_close(mean, (counted * plain).sum() / 4)
    mean = gs.geometric_logistic_loss(scores, index.clamp_min(0), LineCost(5), ignore_index=3)
    assert_close(mean, plain[[0, 2, 3, 4]].mean())


def test_weights_of_distributions_by_hand():
    scores, target = randn(3, 5), distribution(LineCost(5), 3)
    weights = target @ WEIGHT
    plain = each_loss(scores, target)
    assert_close(each_loss(scores, target, weight=WEIGHT), weights * plain)
    mean = gs.geometric_logistic_loss(scores, target, LineCost(5), weight=WEIGHT)
    assert_close(mean, (weights * plain).sum() / weights.sum())


def test_label_smoothing_mixes_with_the_uniform():
    scores, index = randn(3, 5), torch.tensor([0, 4, 2])
    one_hot = torch.nn.functional.one_hot(index, 5).double()
    expected = each_loss(scores, 0.7 * one_hot + 0.3 / 5)
    assert_close(each_loss(scores, index, label_smoothing=0.3), expected)
    assert_close(each_loss(scores, one_hot, label_smoothing=0.3), expected)


def test_smoothed_and_weighted_indices_are_one_hot_targets():
    """A sample weighs ``Σ target weight``, whichever way its target is written."""
    scores, index = randn(3, 5), torch.tensor([0, 3, 2])
    options = {"label_smoothing": 0.3, "weight": WEIGHT}
    one_hot = torch.nn.functional.one_hot(index, 5).double()
    assert_close(each_loss(scores, index, **options), each_loss(scores, one_hot, **options))


def test_a_target_without_a_finite_score_costs_infinitely_much():
    scores = torch.tensor([[0.0, -torch.inf, 1.0]])
    assert gs.geometric_logistic_loss(scores, torch.tensor([1]), LineCost(3)) == torch.inf
    on_the_rest = torch.tensor([[0.5, 0.0, 0.5]])
    assert torch.isfinite(gs.geometric_logistic_loss(scores, on_the_rest, LineCost(3)))


# ------------------------------------------------------------------ the solver-free sibling


@every_cost
def test_potential_layer_is_the_geometric_one_of_its_potential(cost):
    logits, target = randn(4, *cost.shape), distribution(cost, 4, seed=1)
    f = 2 * torch.log(apply_dense(kernel(cost), torch.exp(logits / 2), cost))
    alpha = gs.potential_softmax(logits, cost)
    assert total_variation(alpha, gs.geometric_softmax(f, cost)) <= 1e-5
    loss = gs.potential_logistic_loss(logits, target, cost, reduction="none")
    geometric = gs.geometric_logistic_loss(f, target, cost, reduction="none")
    assert_close(loss, geometric, atol=1e-8)
    assert_close(loss, gs.hausdorff_divergence(target, alpha, cost), atol=1e-9)


@pytest.mark.parametrize(
    ("dtype", "low", "c"), [(torch.float64, -1e4, 1e6), (torch.float32, -300.0, 1e3)], ids=str
)
def test_potential_loss_of_far_logits_is_right(dtype, low, c):
    """At cost c ≫ |low| classes do not interact: the loss is that of the softmax."""
    logits = torch.tensor([[0.0, low]], dtype=dtype)
    loss = gs.potential_logistic_loss(logits, torch.tensor([1]), ZeroOneCost(2) * c)
    assert float(loss) == pytest.approx(-low)


# ------------------------------------------------------------------ Sinkhorn side


@every_cost
def test_smooth_scores_are_means(cost):
    scores = randn(3, *cost.shape)
    weights = torch.exp(-cost.matrix())
    means = flat(scores, cost) @ (weights / weights.sum(1, keepdim=True)).T
    assert_close(flat(gs.smooth_scores(scores, cost), cost), means)
    level = torch.full_like(scores, 7.0)
    assert_close(gs.smooth_scores(level, cost), level)


@every_cost
def test_smooth_scores_under_transforms(cost):
    cost, scores = cost * 1.0, randn(3, *cost.shape)  # a cost that remembers nothing

    def smooth(f):
        return gs.smooth_scores(f, cost)

    assert_close(torch.func.vmap(smooth)(scores), smooth(scores))
    assert torch.autograd.gradcheck(smooth, scores.requires_grad_())
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(smooth(scores.detach().float()), smooth(scores.detach()), torch.float32)


def test_smooth_scores_of_a_cost_for_each_sample():
    cost = DenseCost(torch.stack([LineCost(4).matrix(), 3 * LineCost(4).matrix()]))
    scores = randn(2, 4)
    each = [gs.smooth_scores(f, DenseCost(C)) for f, C in zip(scores, cost.C, strict=True)]
    assert_close(gs.smooth_scores(scores, cost), torch.stack(each))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_infinite_scores_are_not_smoothed(bad):
    with pytest.raises(ValueError, match="Smooth first, then mask"):
        gs.smooth_scores(torch.tensor([0.0, bad, 1.0]), LineCost(3))


@every_cost
def test_predicting_first_does_not_forbid_to_train(cost):
    """What a cost keeps is made for training, also where inference mode asked for it first."""
    cost = cost * 1.0  # one that remembers nothing
    scores = randn(2, *cost.shape)
    functions = (gs.potential_softmax, gs.smooth_scores, gs.geometric_softmax)
    with torch.inference_mode():
        predictions = [function(scores, cost) for function in functions]
    for function, prediction in zip(functions, predictions, strict=True):
        f = scores.clone().requires_grad_()
        result = function(f, cost)
        result.square().sum().backward()
        assert_close(result.detach(), prediction)
        assert bool(torch.isfinite(f.grad).all())


@every_cost
def test_potential_solves_the_sinkhorn_equations(cost):
    alpha = sparse_distributions(cost, density=0.5)
    f = gs.sinkhorn_potential(alpha, cost)
    v = alpha * torch.exp(-f / 2)
    assert torch.isfinite(f).all()
    assert_close(apply_dense(kernel(cost), v, cost), torch.exp(f / 2), rtol=1e-8)
    assert_close(gs.sinkhorn_negentropy(alpha, cost), flat(alpha * f, cost).sum(-1), rtol=1e-8)
    assert total_variation(gs.geometric_softmax(f, cost), alpha) <= 1e-5


@every_cost
def test_divergence_is_its_definition_and_zero_on_the_diagonal(cost):
    alpha, beta = sparse_distributions(cost), sparse_distributions(cost, seed=1)
    forth, back = (
        gs.sinkhorn_negentropy(x, cost) - flat(x * gs.sinkhorn_potential(y, cost), cost).sum(-1)
        for x, y in ((alpha, beta), (beta, alpha))
    )
    result = gs.hausdorff_divergence(alpha, beta, cost)
    assert_close(result, forth, atol=1e-9)
    assert (result > 0).all()
    both = gs.hausdorff_divergence(alpha, beta, cost, symmetric=True)
    assert_close(both, (forth + back) / 2, atol=1e-9)
    assert (gs.hausdorff_divergence(alpha, alpha, cost).abs() <= 1e-12).all()


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3, 1e6])
@every_cost
def test_sinkhorn_side_is_finite_for_extreme_costs(cost, factor):
    alpha, beta = sparse_distributions(cost), distribution(cost, 4)
    f = gs.sinkhorn_potential(alpha, cost * factor)
    assert torch.isfinite(f).all()
    divergence = gs.hausdorff_divergence(beta, alpha, cost * factor)
    assert torch.isfinite(divergence).all()
    assert (divergence >= 0).all()


def test_potential_of_one_output_is_minus_its_cost():
    for cost in (LineCost(5) * 1e6, ZeroOneCost(4), GridCost((2, 3))):
        alpha = torch.zeros(1, *cost.shape, dtype=torch.float64)
        flat(alpha, cost)[:, 0] = 1
        assert_close(flat(gs.sinkhorn_potential(alpha, cost), cost)[0], -cost.matrix()[0])
        assert float(gs.sinkhorn_negentropy(alpha, cost)) == 0


# ------------------------------------------------------------------ extrapolation, C-transform


@every_cost
def test_extrapolation_lies_above_and_touches_on_the_support(cost):
    scores = 2 * randn(4, *cost.shape)
    envelope = gs.extrapolate(scores, cost)
    alpha = gs.geometric_softmax(scores, cost)
    assert (envelope >= scores).all()
    touching = alpha > 1e-6
    assert_close(envelope[touching], scores[touching], atol=1e-5, rtol=0)
    again = gs.geometric_softmax(envelope, cost)
    assert total_variation(again, alpha) <= 1e-4
    # f^E - Ω*(f) is the potential of α: unchanged by a second extrapolation.
    value = gs.geometric_logsumexp(scores, cost)
    shifted = envelope - value.reshape(-1, *[1] * len(cost.shape))
    assert_close(shifted, gs.sinkhorn_potential(alpha, cost), atol=1e-4, rtol=0)
    assert_close(gs.extrapolate(envelope, cost), envelope, atol=1e-4, rtol=0)


def test_extrapolation_reaches_masked_outputs_from_far_ones():
    """The masked class hangs on its neighbour, whose weight underflows, not on the best class."""
    scores = torch.tensor([0.0, -1e4, -torch.inf], dtype=torch.float64)
    envelope = gs.extrapolate(scores, LineCost([0.0, 1e6, 1e6 + 1]))
    assert_close(envelope, torch.tensor([0.0, -1e4, -1e4 - 1], dtype=torch.float64))


@every_cost
def test_c_transform_is_its_definition(cost):
    f, alpha = 3 * randn(4, *cost.shape), sparse_distributions(cost)
    inside = torch.log(flat(alpha, cost)) + flat(f, cost) / 2
    expected = -2 * torch.logsumexp(inside[:, None, :] - cost.matrix() / 2, -1)
    assert_close(gs.c_transform(f, alpha, cost), expected.reshape(f.shape))


@every_cost
def test_c_transform_leaves_potentials_in_place(cost):
    alpha = distribution(cost, 3)
    f = gs.sinkhorn_potential(alpha, cost)
    assert_close(gs.c_transform(-f, alpha, cost), -f, atol=1e-8)


def test_c_transform_of_far_values_is_right():
    f = torch.tensor([0.0, -1e4], dtype=torch.float64)
    half = torch.full((2,), 0.5, dtype=torch.float64)
    expected = -f + 2 * torch.log(torch.tensor(2.0, dtype=torch.float64))
    assert_close(gs.c_transform(f, half, ZeroOneCost(2) * 1e6), expected)


# ------------------------------------------------------------------ the public face


def test_the_table_of_solvers_is_documented():
    table = gs.solvers.__doc__
    assert table.count("====") > 10
    for word in (*gs.solvers.methods(), "TreeCost"):
        assert word in table


def test_public_names_are_there_and_documented():
    for public in gs.__all__:
        assert getattr(gs, public).__doc__ or public == "__version__"
    for function in gs.functional.__all__:
        assert "Examples" in getattr(gs, function).__doc__

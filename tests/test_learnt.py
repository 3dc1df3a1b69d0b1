"""Costs that are learnt: points and embeddings in modules, and what must not be learnt."""

import copy
import io
import itertools
import pickle
import warnings

import pytest
import torch
from scipy.spatial import distance

from geosoftmax import (
    DenseCost,
    LineCost,
    c_transform,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    nn,
    potential_logistic_loss,
    potential_softmax,
    sinkhorn_negentropy,
    smooth_scores,
)
from tests.conftest import assert_close, compiles
from tests.generators import randn

F64 = torch.float64


def learnt(kind, seed=0):
    if kind is nn.LearntPoints:
        return nn.LearntPoints(randn(5, 2, seed=seed), p=1, scale=1.5)
    return nn.LearntEmbeddings(randn(5, 3, seed=seed), scale=4.0)


def matrix_of(module):
    """The cost by scipy."""
    if isinstance(module, nn.LearntPoints):
        return 1.5 * distance.cdist(*[module.points.detach().double().numpy()] * 2)
    return 4 * distance.cdist(*[module.embeddings.detach().double().numpy()] * 2, "cosine")


each_kind = pytest.mark.parametrize("kind", [nn.LearntPoints, nn.LearntEmbeddings])
each_module = pytest.mark.parametrize(
    "module", [getattr(nn, name) for name in nn.__all__ if not name.startswith("Learnt")]
)


def arguments(module, rows=3, dtype=F64):
    first, second = (randn(rows, 5, seed=s).to(dtype) for s in (1, 2))
    if module is nn.HausdorffDivergence:
        return first.softmax(-1), second.softmax(-1)
    return (first, second.softmax(-1)) if "Loss" in module.__name__ else (first,)


# ------------------------------------------------------------------ batches of points


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0])
def test_batches_of_points_and_embeddings(p):
    X = randn(2, 3, 5, 4)
    cost, cosine = DenseCost.from_points(X, p=p), DenseCost.from_embeddings(X)
    assert cost.batch_shape == cosine.batch_shape == (2, 3)
    scores = randn(2, 3, 5, seed=1)
    alpha = geometric_softmax(scores, cost)
    for i in range(2):
        for j in range(3):
            apart = torch.from_numpy(distance.cdist(X[i, j], X[i, j]) ** p)
            assert_close(cost.matrix()[i, j], apart, atol=1e-10)
            angle = torch.from_numpy(distance.cdist(X[i, j], X[i, j], "cosine"))
            assert_close(cosine.matrix()[i, j], angle, atol=1e-10)
            one = geometric_softmax(scores[i, j], DenseCost.from_points(X[i, j], p=p))
            assert_close(alpha[i, j], one)


@pytest.mark.parametrize("batch", [(), (2,), (2, 1)])
def test_gradients_against_finite_differences(batch):
    X, f = randn(*batch, 4, 3), randn(*batch, 4, seed=1)
    alpha = randn(*batch, 4, seed=2).softmax(-1)
    for make in (lambda X: DenseCost.from_points(X, p=1), DenseCost.from_embeddings):
        for function in (
            lambda X, make=make: geometric_softmax(f, make(X)),
            lambda X, make=make: geometric_logsumexp(f, make(X)),
            lambda X, make=make: sinkhorn_negentropy(alpha, make(X)),
            lambda X, make=make: geometric_logistic_loss(f, alpha, make(X)),
        ):
            assert torch.autograd.gradcheck(function, (X.clone().requires_grad_(),))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DenseCost.from_points(torch.zeros(2, 2, 2)), "outputs 0 and 1"),
        (lambda: DenseCost.from_points([[0.0], [float("nan")]]), "NaN"),
        (lambda: DenseCost.from_points(torch.tensor(1.0)), r"\(d, n\)"),
        (lambda: DenseCost.from_points(torch.zeros(0, 2)), r"\(d, n\)"),
        (lambda: DenseCost.from_embeddings(torch.tensor([[[1.0, 2.0], [2.0, 4.0]]])), "0 and 1"),
        (lambda: DenseCost.from_embeddings(torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])), "zero"),
        (lambda: nn.LearntPoints(torch.zeros(2, 2)), "outputs 0 and 1"),
        (lambda: nn.LearntPoints(torch.eye(2), p=3), "0 < p <= 2"),
        (lambda: nn.LearntPoints(torch.eye(2), scale=-1.0), "positive"),
        (lambda: nn.LearntEmbeddings(torch.zeros(2, 2)), "zero"),
    ],
)
def test_places_without_a_geometry_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# ------------------------------------------------------------------ modules


@each_kind
@each_module
def test_a_module_learns_what_its_cost_is_made_of(kind, module):
    places = learnt(kind)
    layer = module(places)
    assert [name for name, _ in layer.named_parameters()] == [
        f"learnt_cost.{places.parameter_name}"
    ]
    fixed = module(DenseCost(matrix_of(places)))
    assert_close(layer(*arguments(module)), fixed(*arguments(module)), rtol=1e-8, atol=1e-8)
    before = places.cost.matrix().detach().clone()
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        layer(*arguments(module)).square().sum().backward()
        optimiser.step()
    after = places.cost.matrix().detach()
    assert (before - after).abs().max() > 0.01
    assert_close(after, torch.from_numpy(matrix_of(places)), atol=1e-8)
    assert not after.diagonal().any()
    assert torch.equal(after, after.mT)
    with torch.no_grad():  # what is predicted with follows
        fixed = module(DenseCost(matrix_of(places)))
        assert_close(layer(*arguments(module)), fixed(*arguments(module)), rtol=1e-8, atol=1e-8)


@each_kind
def test_gradients_of_a_module_against_finite_differences(kind):
    layer = nn.GeometricSoftmax(learnt(kind), learn_scale=True).double()
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(*values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), scores)

    (scores,) = arguments(nn.GeometricSoftmax)
    assert torch.autograd.gradcheck(call, tuple(v.detach().requires_grad_() for v in values))


def test_places_are_recovered_from_distributions():
    """Hidden points on a line; only distributions are seen."""
    hidden = torch.tensor([0.0, 2.0, 0.5, 3.0, 1.0], dtype=F64)[:, None]
    scores = 2 * randn(200, 5)
    right = DenseCost.from_points(hidden, p=1)
    places = nn.LearntPoints(randn(5, 2, seed=3), p=1)
    loss = nn.GeometricLogisticLoss(places)
    optimiser = torch.optim.LBFGS(loss.parameters(), max_iter=60, line_search_fn="strong_wolfe")
    target = geometric_softmax(scores, right)

    def closure():
        optimiser.zero_grad()
        value = loss(scores, target)
        value.backward()
        return value

    optimiser.step(closure)
    assert_close(places.cost.matrix().detach(), right.matrix(), atol=0.05)


def test_a_parameter_is_shared_not_copied():
    words = torch.nn.Embedding(5, 3)
    places = nn.LearntEmbeddings(words.weight)
    first, second = nn.GeometricSoftmax(places), nn.GeometricLogisticLoss(places)
    both = torch.nn.ModuleList([words, first, second])
    assert list(both.parameters()) == [words.weight]
    given = randn(5, 2)
    copied = nn.LearntPoints(given)
    with torch.no_grad():
        copied.points.zero_()
    assert given.any()


@each_kind
def test_states_and_copies(kind):
    layer, other = (nn.GeometricSoftmax(learnt(kind, seed)) for seed in (0, 1))
    (scores,) = arguments(nn.GeometricSoftmax)
    expected = layer(scores)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    assert not torch.allclose(other(scores), expected)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(scores), expected)
    with torch.no_grad():  # with what is kept where no gradients are asked for
        layer(scores)
        again, loaded = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
        for one in (again, loaded):
            assert torch.equal(one(scores), layer(scores))
            next(one.parameters()).mul_(torch.linspace(1, 2, 5, dtype=F64)[:, None]).add_(0.3)
            assert not torch.allclose(one(scores), expected)
        assert_close(layer(scores), expected.detach())


def test_states_of_other_costs_are_refused():
    state = nn.GeometricSoftmax(nn.LearntPoints(randn(5, 2), p=1)).state_dict()
    others = (nn.LearntPoints(randn(5, 2)), nn.LearntPoints(randn(5, 2), p=1, scale=2.0))
    for other in (*others, nn.LearntEmbeddings(randn(5, 2)), LineCost(5)):
        with pytest.raises(RuntimeError, match="another kind of cost"):
            nn.GeometricSoftmax(other).load_state_dict(state)


@each_kind
def test_moving_and_casting(kind):
    layer = nn.GeometricSoftmax(learnt(kind))
    (scores,) = arguments(nn.GeometricSoftmax)
    with torch.no_grad():
        expected = layer(scores)
        assert torch.equal(layer.half()(scores), expected)  # the geometry stays exact
        rounded = layer.float()(scores)
        assert next(layer.parameters()).dtype == torch.float32
        assert not torch.equal(rounded, expected)
        assert_close(rounded, expected, torch.float32)
    assert next(layer.to("meta").parameters()).is_meta


def test_costs_are_kept_while_nothing_changes():
    places = learnt(nn.LearntPoints)
    with torch.no_grad():
        assert places.cost is places.cost
        kept = places.cost
        places.points.add_(torch.linspace(0, 1, 5, dtype=F64)[:, None])
        assert places.cost is not kept
    assert places.cost is not places.cost
    with torch.inference_mode():
        frozen = nn.LearntPoints(torch.eye(3))
        assert frozen.cost.matrix().shape == (3, 3)


def test_repr():
    text = repr(nn.GeometricSoftmax(nn.LearntPoints(torch.eye(3), p=1, scale=2), learn_scale=True))
    assert "learn_scale=True" in text
    assert "LearntPoints(points of shape (3, 3), scale=2, p=1)" in text


@compiles
def test_compiled():
    layer = nn.GeometricSoftmax(learnt(nn.LearntEmbeddings))
    (scores,) = arguments(nn.GeometricSoftmax)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    slopes = []
    for call in (layer, compiled):
        layer.zero_grad()
        call(scores).square().sum().backward()
        slopes.append([p.grad.clone() for p in layer.parameters()])
    assert_close(compiled(scores), layer(scores))
    assert_close(slopes[0][0], slopes[1][0])


# ------------------------------------------------------------------ what must not be learnt


@each_module
def test_a_matrix_is_not_learnt(module):
    cost = DenseCost(LineCost(5).matrix())
    with pytest.raises(ValueError, match="LearntPoints"):
        module(cost.with_parameter(torch.nn.Parameter(cost.C.clone())))
    with pytest.raises(ValueError, match="LearntPoints"):
        module(DenseCost.from_points(torch.nn.Parameter(randn(5, 2))))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_a_matrix_that_leaves_the_costs_is_refused(scale):
    """An optimiser moves the matrix of a cost; its diagonal was 0.64 at the end."""
    C = torch.nn.Parameter(LineCost(4).matrix() * scale)
    cost = DenseCost(C.detach()).with_parameter(C)
    optimiser = torch.optim.Adam([C], lr=0.02)
    scores, target = randn(20, 4), randn(20, 4, seed=1).softmax(-1)

    def train():
        for _ in range(20):
            optimiser.zero_grad()
            geometric_logistic_loss(scores, target, cost).backward()
            optimiser.step()

    with pytest.raises(ValueError, match=r"no longer valid.*LearntPoints"):
        train()
    with torch.no_grad():
        C.copy_(LineCost(4).matrix())
        geometric_softmax(scores, cost)
        C[0, 1] += 0.1
        with pytest.raises(ValueError, match="asymmetric"):
            geometric_softmax(scores, cost)
        C.copy_(-LineCost(4).matrix())
        with pytest.raises(ValueError, match="negative"):
            geometric_softmax(scores, cost)


WITHOUT_A_SOLVER = {
    "potential_softmax": potential_softmax,
    "potential_logistic_loss": lambda g, c: potential_logistic_loss(g, torch.arange(4), c),
    "smooth_scores": smooth_scores,
    "c_transform": lambda f, c: c_transform(f, torch.full((4, 4), 0.25, dtype=F64), c),
}


@pytest.mark.parametrize("name", WITHOUT_A_SOLVER)
def test_functions_without_a_solver_refuse_it_too(name):
    function, C = WITHOUT_A_SOLVER[name], torch.nn.Parameter(LineCost(4).matrix())
    cost = DenseCost(C.detach()).with_parameter(C)
    function(randn(4, 4), cost)
    with torch.no_grad():
        C += 0.64 * torch.eye(4)
    with pytest.raises(ValueError, match=r"no longer valid.*LearntPoints"):
        function(randn(4, 4), cost)
    scale = torch.nn.Parameter(torch.tensor(1.0, dtype=F64))
    line = LineCost(4).with_parameter(scale)
    function(randn(4, 4), line)
    with torch.no_grad():
        scale.fill_(-0.5)
    with pytest.raises(ValueError, match="learn_scale=True"):
        function(randn(4, 4), line)


def test_a_scale_below_zero_is_refused():
    scale = torch.tensor(1.0, dtype=F64)
    cost = LineCost(4).with_parameter(scale)
    geometric_softmax(randn(4), cost)
    scale.fill_(-0.5)
    with pytest.raises(ValueError, match="learn_scale=True"):
        geometric_softmax(randn(4), cost)


# ------------------------------------------------------------------ collapse


@pytest.mark.parametrize("cost", [LineCost(5), LineCost(5, p=2) / 2, LineCost(5) * 0.03])
def test_the_loss_of_a_class_rises_with_the_scale(cost):
    """Why the warning: whatever the scores are, the slope in the scale is at least 0."""
    scores = 3 * randn(50, 5)
    for y in range(5):
        scale = torch.tensor(1.0, dtype=F64, requires_grad=True)
        target = torch.full((50,), y)
        losses = [
            geometric_logistic_loss(scores, target, cost * factor, reduction="none")
            for factor in (scale, 1.1, 2.0, 10.0)
        ]
        assert torch.autograd.grad(losses[0].sum(), scale)[0] >= 0
        for low, high in itertools.pairwise(losses):
            assert (high - low.detach() >= -1e-9).all()


LOSSES = pytest.mark.parametrize("loss", [nn.GeometricLogisticLoss, nn.PotentialLogisticLoss])


@LOSSES
@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_learning_a_cost_from_classes_warns_once(loss, one_hot, places):
    made = learnt(nn.LearntPoints) if places else LineCost(5)
    module = loss(made, learn_scale=not places)
    scores, y = randn(6, 5), torch.tensor([0, 1, 2, 3, 4, 0])
    target = torch.eye(5, dtype=F64)[y] if one_hot else y
    with torch.no_grad():
        module(scores, target)  # says nothing: nothing is learnt
    with pytest.warns(UserWarning, match="shrink to zero") as caught:
        module(scores, target)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(scores, target)


@LOSSES
def test_no_warning_without_a_reason(loss):
    scores, y = randn(6, 5), torch.tensor([0, 1, 2, 3, 4, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(LineCost(5))(scores.requires_grad_(), y)
        loss(LineCost(5), learn_scale=True)(scores, randn(6, 5).softmax(-1))
        frozen = loss(LineCost(5), learn_scale=True).requires_grad_(False)
        frozen(scores, y)
        nn.GeometricLogisticLoss(LineCost(5), label_smoothing=0.1, learn_scale=True)(scores, y)


def test_a_scale_does_collapse_from_classes():
    """The case that went without a word: from 0.03, to a fraction of it."""
    scores, y = 3 * randn(40, 5), torch.arange(40) % 5
    loss = nn.GeometricLogisticLoss(LineCost(5) * 0.03, learn_scale=True)
    optimiser = torch.optim.Adam(loss.parameters(), lr=0.1)

    def train():
        for _ in range(40):
            optimiser.zero_grad()
            loss(scores, y).backward()
            optimiser.step()

    with pytest.warns(UserWarning, match="class indices"):
        train()
    assert float(loss.log_scale.detach().exp()) < 0.2


@compiles
@pytest.mark.filterwarnings("default:the cost is learnt")
def test_compiled_losses_warn_where_they_are_traced():
    loss = nn.GeometricLogisticLoss(LineCost(5), learn_scale=True)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    with pytest.warns(UserWarning, match="shrink to zero"):
        compiled(randn(6, 5), torch.zeros(6, dtype=torch.int64))

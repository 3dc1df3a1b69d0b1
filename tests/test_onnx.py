"""Models that end in the geometric softmax, exported to ONNX and run by onnxruntime."""

import onnx
import onnxruntime
import pytest
import torch

from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost, geometric_softmax, nn
from tests.generators import oracle

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning"),
]

#: What is promised for the distributions of an exported model.
AGREEMENT = 1e-5

COSTS = {
    "zero-one": ZeroOneCost(7) * 1.5,
    "uneven line": LineCost([0.0, 0.01, 1.0, 1.5, 30.0]) * 0.3,
    "one output": LineCost(1),
    "squared": LineCost(9, p=2) / 2,
}
MORE = {
    "nearly equal": ZeroOneCost(5) / 1000,
    "one zero-one": ZeroOneCost(1),
    "long": LineCost(300) / 10,
    "one squared": LineCost(1, p=2),
    "ill-conditioned": LineCost(9, p=2) / 100,
    "points": DenseCost.from_points(torch.linspace(0, 9, 36).cos().reshape(12, 3).double(), p=1),
    "grid": GridCost((2, 3), p=2) / 2,
    "cube": GridCost((2, 3, 4), p=1),
    "tree": TreeCost.from_dict({"a": ["b", "c"], "d": {"e": ["f", "g"]}}),
    "long squared": LineCost(128, p=2) / 2,
}


class Heads(torch.nn.Module):
    """One geometric softmax for each cost: many in one export, which takes seconds."""

    def __init__(self, costs):
        super().__init__()
        self.heads = torch.nn.ModuleList(nn.GeometricSoftmax(cost) for cost in costs.values())

    def forward(self, scores):
        costs = [head.cost for head in self.heads]
        parts = scores.split([cost.size for cost in costs], -1)
        return [
            head(part.unflatten(-1, cost.shape))
            for head, part, cost in zip(self.heads, parts, costs, strict=True)
        ]


class Exported:
    """An exported model, run by onnxruntime."""

    def __init__(self, model, *inputs, **options):
        options = {"verbose": False, **options}
        self.proto = torch.onnx.export(model.eval(), inputs, **options).model_proto
        self.session = onnxruntime.InferenceSession(self.proto.SerializeToString())

    def __call__(self, *inputs):
        names = [x.name for x in self.session.get_inputs()]
        given = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return [torch.from_numpy(x) for x in self.session.run(None, given)]


def export_heads(costs):
    scores = torch.randn(3, sum(cost.size for cost in costs.values()))
    return Exported(Heads(costs), scores, dynamic_shapes=({0: torch.export.Dim("batch")},))


def run(exported, scores):
    return exported(torch.cat([f.flatten(1) for f in scores], -1))


@pytest.fixture(scope="module")
def heads():
    return export_heads(COSTS)


def ranges(cost, rows):
    """Scores of every size, with ties and masks, and potentials of distributions."""
    plain = torch.randn(rows, *cost.shape)
    yield from (0.01 * plain, plain, 10 * plain, 1e3 * plain, 1e30 * plain)
    yield plain.round()
    yield torch.zeros_like(plain)
    yield torch.where(plain < plain.flatten(1).amax(1).min(), -torch.inf, plain)
    yield (2 * torch.log(cost.matvec(torch.exp(plain.double())))).float()


def check_agreement(exported, costs, rows):
    for scores in zip(*(ranges(cost, rows) for cost in costs.values()), strict=True):
        for f, cost, alpha in zip(scores, costs.values(), run(exported, scores), strict=True):
            expected = geometric_softmax(f, cost)
            assert alpha.dtype == torch.float32
            torch.testing.assert_close(alpha, expected, rtol=0, atol=AGREEMENT)
            assert (alpha >= 0).all()
            total = alpha.flatten(1).sum(1)
            torch.testing.assert_close(total, torch.ones(rows), rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 50])
def test_distributions_agree_for_any_batch_size(heads, rows):
    check_agreement(heads, COSTS, rows)


def test_distributions_are_those_of_nnls(heads):
    """They agree with what we did not write, too."""
    scores = [torch.randn(4, *cost.shape) for cost in COSTS.values()]
    for f, cost, alpha in zip(scores, COSTS.values(), run(heads, scores), strict=True):
        expected, _ = oracle(cost, f)
        torch.testing.assert_close(alpha.double(), expected, rtol=0, atol=AGREEMENT)


def test_what_has_no_solution_is_nan(heads):
    for bad in (torch.nan, torch.inf, -torch.inf):
        for alpha in run(heads, [torch.full((1, *cost.shape), bad) for cost in COSTS.values()]):
            assert torch.isnan(alpha).all()


def test_only_standard_operators_are_used(heads):
    onnx.checker.check_model(heads.proto, full_check=True)
    assert [opset.domain for opset in heads.proto.opset_import] == [""]
    assert not heads.proto.functions


@pytest.mark.slow
def test_more_costs_and_larger_ones():
    check_agreement(export_heads(MORE), MORE, 20)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_a_network_in_other_dtypes_with_more_batch_dimensions(dtype):
    network = torch.nn.Sequential(
        torch.nn.Linear(4, 6), nn.GeometricSoftmax(LineCost(6, p=2) / 2, learn_scale=True)
    ).to(dtype)
    x = torch.randn(2, 3, 4).to(dtype)
    dynamic = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("length")},)
    exported = Exported(network, x, dynamic_shapes=dynamic)
    other = torch.randn(5, 2, 4).to(dtype)
    (alpha,) = exported(other)
    assert alpha.dtype == dtype
    atol = AGREEMENT if dtype == torch.float64 else 1e-2  # the digits of the scores
    torch.testing.assert_close(alpha, network(other).detach(), rtol=0, atol=atol)


@pytest.mark.slow
def test_the_log_sum_exp_comes_with_it():
    cost = LineCost(6)
    exported = Exported(nn.GeometricLogSumExp(cost), torch.randn(2, 6))
    scores = 5 * torch.randn(2, 6)
    expected = nn.GeometricLogSumExp(cost, tol=1e-6)(scores)
    torch.testing.assert_close(exported(scores)[0], expected, rtol=0, atol=1e-5)


# ------------------------------------------------------------------ what does not export

LARGE = {
    "grid": GridCost((12, 12), p=2) / 2,
    "tree": TreeCost([-1, *(i // 3 for i in range(140))]),
    "long line": LineCost(1100),
    "squared line": LineCost(1100, p=2),
}


def refusal(export):
    """Return what is said, with what torch says around it."""
    with pytest.raises(torch.onnx.OnnxExporterError) as caught:
        export()
    return str(caught.value)


@pytest.mark.parametrize("name", ["grid", pytest.param("long line", marks=pytest.mark.slow)])
def test_large_costs_are_refused_and_the_way_out_is_named(name):
    cost = LARGE[name]
    said = refusal(lambda: Exported(nn.GeometricSoftmax(cost), torch.randn(2, *cost.shape)))
    assert "cannot be exported to ONNX: it has" in said
    assert "PotentialSoftmax" in said


@pytest.mark.slow
def test_one_cost_per_sample_is_refused():
    cost = DenseCost(torch.stack([LineCost(3).matrix(), LineCost(3, p=2).matrix()]))
    said = refusal(lambda: Exported(nn.GeometricSoftmax(cost), torch.randn(2, 3)))
    assert "there is one cost per sample" in said
    assert "PotentialSoftmax" in said


class Function(torch.nn.Module):
    """The function itself, with a cost that is no module's."""

    def __init__(self, cost, method):
        super().__init__()
        self.cost, self.method = cost, method

    def forward(self, scores):
        return geometric_softmax(scores, self.cost, method=self.method)


@pytest.mark.slow
def test_a_method_by_its_name():
    cost, scores = LineCost(4), torch.randn(2, 4)
    (alpha,) = Exported(Function(cost, "hull"), scores)(scores)
    torch.testing.assert_close(alpha, geometric_softmax(scores, cost), rtol=0, atol=AGREEMENT)
    said = refusal(lambda: Exported(Function(cost, "accelerated"), scores))
    assert "method 'accelerated' has no ONNX form for this cost" in said


@pytest.mark.slow
def test_a_captured_program_and_other_functions_are_refused():
    cost, scores = LineCost(4), torch.randn(2, 4)
    captured = torch.export.export(nn.GeometricSoftmax(cost), (scores,))
    said = refusal(lambda: torch.onnx.export(captured, verbose=False))
    assert "the operator geosoftmax::solve cannot be exported to ONNX" in said
    assert "the module itself" in said
    alpha = torch.softmax(scores, -1)
    said = refusal(lambda: Exported(nn.HausdorffDivergence(cost), alpha, alpha))
    assert "the operator geosoftmax::sinkhorn cannot be exported to ONNX" in said


@pytest.mark.parametrize(
    "name",
    [name if name == "grid" else pytest.param(name, marks=pytest.mark.slow) for name in LARGE],
)
def test_the_potential_softmax_exports_for_every_cost(name):
    cost = LARGE[name]
    model = nn.PotentialSoftmax(cost)
    dynamic = ({0: torch.export.Dim("batch")},)
    exported = Exported(model, torch.randn(2, *cost.shape), dynamic_shapes=dynamic)
    logits = 5 * torch.randn(5, *cost.shape)
    torch.testing.assert_close(exported(logits)[0], model(logits), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of much that it uses
@pytest.mark.parametrize("kind", [nn.GeometricSoftmax, nn.PotentialSoftmax])
def test_the_old_exporter_is_refused(kind, tmp_path):
    with pytest.raises(TypeError, match="dynamo=True"):
        torch.onnx.export(
            kind(LineCost(4)), (torch.randn(2, 4),), tmp_path / "model.onnx", dynamo=False
        )

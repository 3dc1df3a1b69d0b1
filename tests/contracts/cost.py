"""What every cost must do. A subclass gives constructors, with the dense C that each means."""

import pickle
from typing import ClassVar

import pytest
import torch

from geosoftmax import (
    Cost,
    geometric_logistic_loss,
    geometric_softmax,
    hausdorff_divergence,
    potential_logistic_loss,
    potential_softmax,
    sinkhorn_negentropy,
    sinkhorn_potential,
    smooth_scores,
)
from geosoftmax.solvers import plans
from geosoftmax.solvers.products import Products
from tests.conftest import assert_close
from tests.generators import apply_dense, flat, kernel, randn

DTYPES = [torch.float64, torch.float32]
CALLS = {
    "softmax": lambda f, alpha, cost: geometric_softmax(f, cost).square(),
    "loss": lambda f, alpha, cost: geometric_logistic_loss(f, alpha, cost),
    "negentropy": lambda f, alpha, cost: sinkhorn_negentropy(alpha, cost),
    "potential": lambda f, alpha, cost: sinkhorn_potential(alpha, cost),
    "divergence": lambda f, alpha, cost: hausdorff_divergence(alpha, alpha.detach().flip(0), cost),
    "potential softmax": lambda f, alpha, cost: potential_softmax(f, cost).square(),
    "potential loss": lambda f, alpha, cost: potential_logistic_loss(f, alpha, cost),
    "smoothing": lambda f, alpha, cost: smooth_scores(f, cost),
}


def coarser(*dtypes):
    """The dtype that limits a computation: K is as exact as the cost that it was made from."""
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps)


class CostContract:
    #: name -> (constructor of the cost, constructor of the dense C that it stands for)
    variants: ClassVar = {}

    def pytest_generate_tests(self, metafunc):
        if "make" in metafunc.fixturenames:
            makes = {name: v[0] for name, v in metafunc.cls.variants.items()}
            metafunc.parametrize("make", makes.values(), ids=makes)
        if "variant" in metafunc.fixturenames:
            variants = metafunc.cls.variants
            metafunc.parametrize("variant", variants.values(), ids=variants)

    def signal(self, cost, *batch, seed=0, dtype=torch.float64):
        return randn(*batch, *cost.batch_shape, *cost.shape, seed=seed).to(dtype)

    # ------------------------------------------------------- the matrix

    def test_matrix_is_the_cost_it_stands_for(self, variant):
        make, expected = variant
        cost = make()
        expected = torch.as_tensor(expected()).double()
        assert cost.matrix().shape == (*cost.batch_shape, cost.size, cost.size)
        assert_close(cost.matrix().double(), expected, cost.matrix().dtype)

    def test_matrix_is_symmetric_nonnegative_and_zero_on_the_diagonal_only(self, make):
        C = make().matrix()
        off = C + torch.eye(C.shape[-1], dtype=C.dtype)
        assert torch.equal(C, C.mT)
        assert not C.diagonal(dim1=-2, dim2=-1).any()
        assert (off > 0).all()

    def test_kernel_is_positive_definite(self, make):
        cost = make()
        smallest = torch.linalg.eigvalsh(kernel(cost)).amin()
        assert smallest > -1e-13 * cost.size

    def test_expected_costs_are_those_of_the_matrix(self, make):
        cost = make()
        alpha = self.signal(cost, 4).flatten(-len(cost.shape)).softmax(-1)
        C = cost.matrix().to(torch.float64)
        expected = (C @ alpha[..., None])[..., 0].reshape(4, *cost.batch_shape, *cost.shape)
        actual = cost.expected(alpha.reshape(expected.shape))
        assert_close(actual, expected, coarser(torch.float64, cost.dtype))

    # ------------------------------------------------------- products

    def test_products_have_all_digits_of_what_a_cost_in_single_precision_says(self, make):
        """Its parameters were rounded, once; certificates are of what they then say."""
        rounded = make().float()
        exact = rounded.double()
        u = self.signal(rounded, 3).abs()
        support = u < 1
        assert_close(rounded.matrix().double(), exact.matrix(), torch.float64)
        assert_close(rounded.matvec(u), exact.matvec(u))
        assert_close(rounded.log_matvec(u), exact.log_matvec(u))
        assert_close(rounded.solve(u, support), exact.solve(u, support))

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
    def test_matvec_is_the_dense_product(self, make, batch, dtype):
        cost = make()
        u = self.signal(cost, *batch, dtype=dtype).abs()
        before = u.clone()
        product = cost.matvec(u)
        assert product.dtype == dtype
        expected = apply_dense(kernel(cost), u.double(), cost)
        assert_close(product, expected, coarser(dtype, cost.matrix().dtype))
        assert torch.equal(u, before)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_average_has_weights_that_sum_to_one(self, make, dtype):
        cost = make()
        u = self.signal(cost, 3, dtype=dtype).abs()
        K = kernel(cost)
        expected = apply_dense(K / K.sum(-1, keepdim=True), u.double(), cost)
        for _ in range(2):  # what is kept serves again
            assert_close(cost.average(u), expected, coarser(dtype, cost.matrix().dtype))

    @pytest.mark.parametrize("size", [1.0, 1e4])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_log_matvec_is_stable_for_large_values_and_masks(self, make, size, dtype):
        cost = make()
        g = (size * self.signal(cost, 4, dtype=dtype)).clamp(-size, size)
        flat(g, cost)[0, ..., 0] = -torch.inf
        flat(g, cost)[1, ..., 1:] = -torch.inf
        dense = flat(g, cost).double()[..., None, :] - cost.matrix().double() / 2
        expected = torch.logsumexp(dense, -1).reshape(g.shape)
        result = cost.log_matvec(g)
        assert result.dtype == dtype
        assert_close(result, expected)

    def test_log_matvec_of_nothing_is_minus_infinity(self, make):
        cost = make()
        g = torch.full_like(self.signal(cost, 2), -torch.inf)
        assert torch.equal(cost.log_matvec(g), g)

    def test_solve_inverts_the_kernel_on_the_support(self, make):
        cost = make()
        rhs = torch.exp(self.signal(cost, 3))
        support = self.signal(cost, 3, seed=1) > 0
        support[0] = False
        x = cost.solve(rhs, support)
        assert not x[~support].any()
        product = apply_dense(kernel(cost), x, cost)
        scale = 1 + flat(x, cost).abs().sum(-1).amax()  # rounding grows with x, so with cond(K)
        rounding = 1e3 * torch.finfo(cost.matrix().dtype).eps
        assert ((product - rhs)[support].abs() <= rounding * scale).all()

    def test_signals_that_are_not_contiguous_are_read_right(self, make):
        cost = make()
        u = self.signal(cost, 2).abs()
        strided = torch.stack([u, -u], -1)[..., 0]
        assert_close(cost.matvec(strided), cost.matvec(u))
        assert_close(cost.log_matvec(strided), cost.log_matvec(u))

    # ------------------------------------------------------- scaling, moving

    @pytest.mark.parametrize(
        ("scale", "factor"),
        [
            (lambda c: c * 3, 3),
            (lambda c: 3.0 * c, 3),
            (lambda c: c / 4, 0.25),
            (lambda c: c * torch.tensor(0.5), 0.5),
        ],
        ids=["times", "times-from-the-left", "over", "times-tensor"],
    )
    def test_scaling_multiplies_the_matrix_and_its_kernel(self, make, scale, factor):
        cost = make()
        scaled = scale(cost)
        u = self.signal(cost, 2).abs()
        dtype = cost.matrix().dtype
        assert type(scaled) is type(cost)
        assert_close(scaled.matrix(), factor * cost.matrix(), dtype)
        assert_close(scaled.matvec(u), apply_dense(kernel(cost) ** factor, u, cost), dtype)

    def test_moving_and_casting_return_a_new_cost(self, make):
        cost = make()
        before = cost.dtype
        single = cost.to(torch.float32)
        assert (single.dtype, cost.dtype, single.shape) == (torch.float32, before, cost.shape)
        u = self.signal(cost, 2).abs()
        assert_close(single.matvec(u), cost.matvec(u), torch.float32)
        assert cost.to("meta").device.type == "meta"
        assert cost.device.type == "cpu"

    def test_what_it_has_already_is_itself(self, make):
        cost = make().to(torch.float64)
        assert cost.to(dtype=cost.dtype) is cost
        assert cost.to(cost.device) is cost
        assert cost.with_parameter(cost.parameter) is cost
        assert cost.to(dtype=cost.dtype, copy=True) is not cost

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_nothing_is_derived_twice(self, make, call, monkeypatch):
        """Kernels, their factors and the like are made in the first call, and kept."""
        cost = make().to(dtype=torch.float64)
        if cost.batch_shape:
            pytest.skip("one cost per sample: its parts are made as they are needed")
        scores = self.signal(cost, 3).requires_grad_()
        alpha = torch.softmax(flat(self.signal(cost, 3, seed=1), cost), -1).reshape(scores.shape)
        alpha.requires_grad_()
        call(scores, alpha, cost).sum().backward()
        made = []
        get = plans.PlanCache.get

        def spy(cache, cost, key, make):
            return get(cache, cost, key, lambda: (made.append(key), make())[1])

        monkeypatch.setattr(plans.PlanCache, "get", spy)
        monkeypatch.setattr(Products, "kernels", property(lambda self: made.append("kernels")))
        call(scores, alpha, cost).sum().backward()
        assert not made

    def test_signature_and_tensors_are_the_whole_cost(self, make):
        cost = make() * 1.5
        again = Cost.from_signature(cost.signature, cost.tensors)
        assert type(again) is type(cost)
        assert again.shape == cost.shape
        assert torch.equal(again.matrix(), cost.matrix())

    # ------------------------------------------------------- a value

    def test_costs_are_frozen(self, make):
        with pytest.raises(AttributeError, match="frozen"):
            make().shape = (1,)

    def test_pickling_keeps_every_bit(self, make):
        cost = make() * 0.7
        u = self.signal(cost, 2).abs()
        product = cost.matvec(u)
        before = pickle.dumps(cost)
        geometric_softmax(u, cost)  # plans are no part of a cost
        assert pickle.dumps(cost) == before
        again = pickle.loads(before)
        assert torch.equal(again.matvec(u), product)
        assert repr(again) == repr(cost)

    def test_repr_names_the_kind_and_the_size(self, make):
        cost = make()
        for c in (cost, cost * 2):
            assert repr(c).startswith(f"{type(cost).__name__}(")
            assert str(cost.shape[0]) in repr(c)

    def test_parameter_is_what_gradients_reach(self, make):
        cost = make()
        theta = cost.parameter.detach().clone().requires_grad_()
        u = self.signal(cost, 2).abs() + 1
        if cost.size > 1:  # K = (1) does not depend on anything
            cost.with_parameter(theta).matvec(u).sum().backward()
            assert (theta.grad != 0).any()
        assert not cost.with_parameter(theta).detach().parameter.requires_grad

"""The array functions of the numba backend against plain algebra; nothing here knows a cost."""

import functools
import gc
import os
import subprocess
import sys
import time
from decimal import Decimal
from typing import ClassVar

import numba
import numpy as np
import pytest
import torch
from scipy.optimize import nnls

from geosoftmax.backends import numba as nb
from geosoftmax.backends.numba import elementary, runtime
from tests.conftest import assert_close
from tests.generators import randn

D = 7


def line_distances(d=D):
    x = torch.linspace(0.3, 1.7, d, dtype=torch.float64).cumsum(0)
    return (x[:, None] - x).abs()


def tree(d=D):
    """Parents, decays and the kernel of a binary tree, all of whose nodes are outputs."""
    parents = torch.tensor([(i - 1) // 2 if i else -1 for i in range(d)])
    r = torch.full((d,), 0.7, dtype=torch.float64)
    K = torch.eye(d, dtype=torch.float64)
    for i in range(1, d):
        for j in range(i):
            K[i, j] = K[j, i] = r[i] * K[parents[i], j]
    return r, parents, K


def line_method():
    C = line_distances()
    gaps = torch.cat([C.new_zeros(1), C.diagonal(1)]) / 2
    return nb.hull.kernel, nb.line_tables(gaps, even=False), torch.exp(-C / 2)


def even_line_method():
    gaps = torch.full((D,), 0.4, dtype=torch.float64)
    x = torch.arange(D, dtype=torch.float64)
    return nb.hull.kernel, nb.line_tables(gaps, even=True), torch.exp(-0.4 * (x[:, None] - x).abs())


def tree_method():
    r, parents, K = tree()
    return nb.policy.kernel, nb.tree_tables(r, 1 - r**2, parents, torch.arange(D)), K


def zero_one_method():
    K = torch.full((D, D), 0.6, dtype=torch.float64).fill_diagonal_(1.0)
    return functools.partial(nb.threshold.kernel, d=D), nb.zero_one_tables(0.6, 0.4), K


def dense_method():
    K = torch.exp(-(line_distances() ** 2) / 4)
    return nb.active_set.kernel, nb.dense_tables(K), K


def perturbed_method():
    """A kernel whose diagonal is not exactly one."""
    noise = randn(D, D, seed=4) * 1e-2
    K = torch.exp(-(line_distances() ** 2) / 4 + (noise + noise.T) / 2)
    return nb.active_set.kernel, nb.dense_tables(K), K


METHODS = {
    "hull": line_method(),
    "hull-even": even_line_method(),
    "policy": tree_method(),
    "threshold": zero_one_method(),
    "active_set": dense_method(),
    "perturbed": perturbed_method(),
}
methods = pytest.mark.parametrize(
    ("kernel", "K"), [(make(tables), K) for make, tables, K in METHODS.values()], ids=METHODS
)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


@pytest.fixture(params=[1, 2])
def one_or_two_threads(request, threads):
    threads(request.param)


def scores(rows, d=D, dtype=torch.float64, masked=True):
    f = 2 * randn(rows, d, seed=rows)
    if masked:
        f[1::3, ::2] = -torch.inf
    return f.to(dtype)


def oracle(K, f):
    """``alpha, u, log⟨b,u⟩`` by non-negative least squares: minimise ½uᵀKu - bᵀu."""
    L = np.linalg.cholesky(K.numpy())
    alphas, us, values = [], [], []
    for row in f.double().reshape(-1, f.shape[-1]).numpy():
        b = np.exp((row - row.max()) / 2)
        u, _ = nnls(L.T, np.linalg.solve(L, b))
        alphas.append(u * b / (u @ b))
        us.append(u)
        values.append(np.log(u @ b) + row.max())
    return (torch.from_numpy(np.array(x)) for x in (alphas, us, values))


# ------------------------------------------------------------------ solves


@methods
@both_dtypes
@pytest.mark.parametrize("rows", [1, 5, 100])
def test_solve_agrees_with_least_squares(kernel, K, rows, dtype):
    f = scores(rows, dtype=dtype)
    alpha, u, lower, upper, iterations = kernel.solve(f)
    expected, weights, value = oracle(K, f)
    tight = 1e-8 if dtype == torch.float64 else 1e-6
    assert alpha.dtype == u.dtype == dtype
    assert lower.dtype == upper.dtype == torch.float64
    assert iterations.dtype == torch.int64
    assert alpha.shape == u.shape == f.shape
    assert lower.shape == upper.shape == iterations.shape == (rows,)
    assert_close(alpha.double(), expected, atol=tight, rtol=0)
    assert_close(u.double(), weights, atol=tight, rtol=tight)
    assert (lower <= value + 1e-12).all()
    assert (value - 1e-12 <= upper).all()
    assert (upper - lower <= 1e-12).all()
    assert (iterations >= 1).all()


@methods
@both_dtypes
def test_softmax_is_that_of_the_solve(kernel, K, dtype):
    for rows in (1, 100):
        f = scores(rows, dtype=dtype)
        alpha, gap = kernel.softmax(f)
        solved, _, lower, upper, _ = kernel.solve(f)
        assert torch.equal(alpha, solved)
        assert gap == float((upper - lower).max())


@methods
def test_rows_have_the_same_bits_alone_and_in_any_batch(kernel, K, one_or_two_threads):
    f = scores(3000)
    together = kernel.solve(f)
    parts = kernel.solve(f[:40])
    for found, part in zip(together, parts, strict=True):
        assert torch.equal(found[:40], part)
    for row in (0, 1, 77, 2999):
        for found, alone in zip(together, kernel.solve(f[row]), strict=True):
            assert torch.equal(found[row], alone)


@methods
def test_bits_do_not_depend_on_threads(kernel, K, threads):
    f, target = scores(3000, masked=False), torch.arange(3000) % D
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append((*kernel.solve(f), *kernel.loss(f, target, -100, "mean")[:2]))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@methods
@pytest.mark.parametrize("rows", [5, 200])
def test_rows_without_a_solution_are_nan(kernel, K, rows):
    f = scores(rows, masked=False)
    f[1, 2], f[2], f[4, 0] = torch.nan, -torch.inf, torch.inf
    bad = torch.isin(torch.arange(rows), torch.tensor([1, 2, 4]))
    alpha, u, lower, upper, _ = kernel.solve(f)
    for bound in (lower, upper, alpha[:, 0], u[:, -1]):
        assert torch.equal(bound.isnan(), bad)
    good, gap = kernel.softmax(f)
    assert np.isnan(gap)
    assert torch.equal(good[~bad], alpha[~bad])
    assert np.isnan(kernel.softmax(f[1])[1])


@methods
@both_dtypes
def test_empty_batches(kernel, K, dtype):
    f = torch.empty(0, 3, D, dtype=dtype)
    alpha, u, lower, upper, iterations = kernel.solve(f)
    assert alpha.shape == u.shape == f.shape
    assert lower.shape == upper.shape == iterations.shape == (0, 3)
    assert kernel.softmax(f)[0].shape == f.shape
    loss, slope, _, bad = kernel.loss(f[:, 0], torch.empty(0, dtype=torch.int64), -1, "sum")
    assert (float(loss), slope.shape, bad) == (0.0, (0, D), 0)


@methods
def test_batches_of_any_shape_and_layout(kernel, K):
    f = scores(12, masked=False).reshape(3, 4, D)
    expected = kernel.solve(f)
    assert expected[2].shape == (3, 4)
    strided = torch.empty(D, 4, 3, dtype=torch.float64).permute(2, 1, 0).copy_(f)
    assert not strided.is_contiguous()
    before = strided.clone()
    for found, plain in zip(kernel.solve(strided), expected, strict=True):
        assert torch.equal(found, plain)
    assert torch.equal(kernel.softmax(strided)[0], expected[0])
    assert torch.equal(strided, before)
    one = kernel.solve(f[1, 2])
    assert one[2].shape == ()
    assert torch.equal(one[0], expected[0][1, 2])


@methods
def test_rows_are_solved_from_b_too(kernel, K):
    f = scores(30)
    b = torch.exp((f - f.amax(1, keepdim=True)) / 2)
    expected, weights, _ = oracle(K, f)
    for start in (None, weights):
        rows = kernel.solve_rows(b, start)
        assert_close(rows.u, weights, atol=1e-8, rtol=1e-8)
        assert (rows.upper - rows.lower <= 1e-12).all()
    assert_close(rows.u * b / (rows.u * b).sum(1, keepdim=True), expected, atol=1e-8, rtol=0)


def test_one_kernel_per_row():
    C = line_distances() ** 2
    K = torch.exp(-C * torch.linspace(0.2, 1.0, 30, dtype=torch.float64)[:, None, None] / 4)
    f = scores(30)
    alpha, _, lower, _, _ = nb.active_set.kernel(nb.dense_tables(K)).solve(f)
    for row in range(30):
        expected, _, value = oracle(K[row], f[row : row + 1])
        assert_close(alpha[row], expected[0], atol=1e-8, rtol=0)
        assert abs(float(lower[row] - value)) < 1e-12


def test_large_and_singular_supports_are_solved_one_by_one():
    d = 60  # independent outputs: all are in the support
    far = nb.dense_tables(torch.exp(-line_distances(d) * 20))
    f = 0.1 * randn(50, d)
    alpha, _, lower, upper, _ = nb.active_set.kernel(far).solve(f)
    assert_close(alpha, torch.softmax(f, 1), atol=1e-2, rtol=0)
    assert (upper - lower <= 1e-12).all()
    x = torch.tensor([0.0, 1e-8, 1.0], dtype=torch.float64)
    singular = nb.dense_tables(torch.exp(-((x[:, None] - x) ** 2) / 2))
    f = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], dtype=torch.float64).repeat(20, 1)
    few, many = nb.active_set.kernel(singular).solve(f[:2]), nb.active_set.kernel(singular).solve(f)
    assert (many[3] - many[2] <= 1e-7).all()
    assert all(torch.equal(a, b[:2]) for a, b in zip(few, many, strict=True))


def test_singular_supports_of_many_outputs_are_built_one_by_one():
    points = torch.linspace(0, 12, 45, dtype=torch.float64)
    twins = torch.cat([points, points + 1e-8])  # one of two suffices: K_SS with both is singular
    K = torch.exp(-((twins[:, None] - twins) ** 2) / 2)
    f = 0.3 * randn(40, 90)
    alpha, u, lower, upper, steps = nb.active_set.kernel(nb.dense_tables(K)).solve(f)
    assert (steps > 8).sum() > 30  # blocks end after four rounds, or are given up at once
    b = torch.exp((f - f.amax(1, keepdim=True)) / 2)
    assert (u @ K >= b * (1 - 1e-7)).all()
    assert (upper - lower <= 1e-9).all()
    assert_close(alpha.sum(1), torch.ones_like(lower))


def test_tensors_that_kernels_cannot_read_are_refused():
    make, tables, _ = METHODS["hull"]
    kernel = make(tables)
    with pytest.raises(TypeError, match="CPU"):
        kernel.softmax(torch.empty(2, D, device="meta"))
    with pytest.raises(KeyError):
        kernel.softmax(torch.zeros(2, D, dtype=torch.float16))


def test_scores_of_another_size_are_refused():
    make, tables, _ = METHODS["active_set"]
    with pytest.raises(ValueError, match=rf"\(\*batch, {D}\)"):
        make(tables).solve(torch.zeros(2, D // 2, 2))


@methods
def test_results_are_in_the_memory_of_the_host_whatever_the_default_device_is(kernel, K):
    f, target = scores(41, masked=False), torch.arange(41) % D
    with torch.device("meta"):  # first: room that is kept must not be of that device either
        found = (*kernel.solve(f), *kernel.loss(f, target, -100, "none")[:2])
    expected = (*kernel.solve(f), *kernel.loss(f, target, -100, "none")[:2])
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def test_slices_have_ended_when_a_call_fails(threads):
    """As after Ctrl-C: other threads must not write to memory that is freed."""
    threads(2)
    ended = []

    def kernel(first, last):
        if first == 0:
            raise KeyboardInterrupt
        time.sleep(0.2)
        ended.append(first)

    with pytest.raises(KeyboardInterrupt):
        runtime.spread(kernel, 2, runtime.WORTH_A_THREAD)
    assert ended == [1]


# ------------------------------------------------------------------ losses


class TestLoss:
    """lse(f) - f[y], its slope, and what reductions and ignored rows make of them."""

    reductions: ClassVar = ("none", "sum", "mean")

    @methods
    @both_dtypes
    @pytest.mark.parametrize("rows", [1, 100])
    def test_values_and_slopes(self, kernel, K, rows, dtype):
        f, target = scores(rows, dtype=dtype, masked=False), torch.arange(rows) % D
        alpha, _, value = oracle(K, f)
        each = (value - f.double()[range(rows), target]).clamp_min(0)
        onehot = torch.nn.functional.one_hot(target, D)
        tight = 1e-8 if dtype == torch.float64 else 1e-5
        loss, slope, gap, bad = kernel.loss(f, target, -100, "none")
        assert loss.dtype == slope.dtype == dtype
        assert gap <= 1e-12
        assert bad == 0
        assert (loss >= 0).all()
        assert_close(loss.double(), each, atol=tight, rtol=tight)
        assert_close(slope.double(), alpha - onehot, atol=tight, rtol=0)
        for reduction, share in (("sum", 1), ("mean", 1 / rows)):
            loss, slope, _, _ = kernel.loss(f, target, -100, reduction)
            assert loss.shape == ()
            assert_close(loss.double(), each.sum() * share, atol=tight, rtol=tight)
            assert_close(slope.double(), (alpha - onehot) * share, atol=tight, rtol=0)

    @methods
    def test_slopes_against_differences(self, kernel, K):
        f, target = scores(40, masked=False), torch.arange(40) % D
        direction, eps = randn(40, D, seed=3), 1e-6
        _, slope, _, _ = kernel.loss(f, target, -100, "mean")
        ahead, back = (
            kernel.loss(f + sign * eps * direction, target, -100, "mean")[0] for sign in (1, -1)
        )
        expected = (float(ahead) - float(back)) / (2 * eps)
        assert float((slope * direction).sum()) == pytest.approx(expected, rel=1e-6)

    @methods
    @pytest.mark.parametrize("rows", [9, 100])
    def test_ignored_rows_do_not_count(self, kernel, K, rows, one_or_two_threads):
        f, target = scores(rows, masked=False), torch.arange(rows) % D
        target[::3] = -7
        counted = target != -7
        for reduction in self.reductions:
            loss, slope, _, bad = kernel.loss(f, target, -7, reduction)
            part, part_slope, _, _ = kernel.loss(f[counted], target[counted], -7, reduction)
            assert bad == 0
            assert not slope[~counted].any()
            assert_close(slope[counted], part_slope, atol=1e-15, rtol=1e-12)
            whole = loss[counted] if reduction == "none" else loss
            assert_close(whole, part, atol=1e-15, rtol=1e-12)
            if reduction == "none":
                assert not loss[~counted].any()

    def test_the_mean_of_nothing_is_that_of_torch(self):
        make, tables, _ = METHODS["active_set"]
        kernel = make(tables)
        f, target = scores(3, masked=False), torch.full((3,), -100)
        loss, slope, _, bad = kernel.loss(f, target, -100, "mean")
        assert loss.isnan()
        assert torch.nn.functional.cross_entropy(f, target).isnan()
        assert not slope.any()
        assert bad == 0

    @methods
    def test_targets_out_of_range_are_counted(self, kernel, K):
        f = scores(40, masked=False)
        target = torch.zeros(40, dtype=torch.int64)
        target[3], target[5], target[9], target[11] = D, -1, -100, 10**12
        assert kernel.loss(f, target, -100, "mean")[3] == 3

    def test_a_masked_target_is_infinitely_wrong(self):
        make, tables, _ = METHODS["active_set"]
        kernel = make(tables)
        f = scores(2, masked=False)
        f[1, 0] = -torch.inf
        loss, slope, _, _ = kernel.loss(f, torch.tensor([0, 0]), -100, "none")
        assert loss.isinf().tolist() == [False, True]
        assert slope.isfinite().all()

    def test_targets_of_another_dtype_are_refused(self):
        make, tables, _ = METHODS["active_set"]
        kernel = make(tables)
        with pytest.raises(TypeError, match="int64"):
            kernel.loss(scores(2), torch.zeros(2, dtype=torch.int32), -100, "mean")


# ------------------------------------------------------------------ other kernels


@pytest.mark.parametrize("name", ["hull", "hull-even", "policy"])
@both_dtypes
def test_products(name, dtype):
    _, tables, K = METHODS[name]
    u = randn(4, 3, D).to(dtype)
    h = nb.matvec(tables, u)
    assert h.dtype == dtype
    assert_close(h.double(), u.double() @ K, atol=1e-5 if dtype == torch.float32 else 1e-13, rtol=0)


def test_trees_are_solved_on_a_support(one_or_two_threads):
    _, tables, K = METHODS["policy"]
    rhs, support = randn(40, D), randn(40, D, seed=1) > 0
    x = torch.from_numpy(nb.policy.solve_on(tables, support.numpy(), rhs.numpy()))
    assert (x[~support] == 0).all()
    for row, inside, found in zip(rhs, support, x, strict=True):
        expected = torch.linalg.solve(K[inside][:, inside], row[inside])
        assert_close(found[inside], expected, atol=1e-12, rtol=1e-12)


def test_exchange_on_a_product_of_kernels(one_or_two_threads):
    x = torch.arange(4, dtype=torch.float64)
    K1 = torch.exp(-((x[:, None] - x) ** 2) / 2)
    K2 = torch.exp(-(line_distances(5) ** 2) / 4)
    f = scores(40, 20, masked=False)
    b = torch.exp((f - f.amax(1, keepdim=True)) / 2).reshape(40, 4, 5)
    _, weights, _ = oracle(torch.kron(K1, K2), f)
    rows = nb.exchange(nb.factor_tables([K1, K2]), b, b > 0, 1e-12, 200)
    assert_close(rows.u.reshape(40, 20), weights, atol=1e-8, rtol=1e-8)
    assert (rows.upper - rows.lower <= 1e-11).all()


def test_sinkhorn_solves_its_equations():
    _, tables, K = METHODS["active_set"]
    alpha = torch.softmax(randn(6, D), 1)
    found = nb.sinkhorn(tables, alpha, 1e-14, 200)
    assert_close(found.v * (found.v @ K), alpha, atol=0, rtol=1e-13)


def test_the_bracket_holds_for_any_weights():
    """Kernels with a diagonal above and below one too."""
    from geosoftmax.backends.numba.certificate import bracket, diagonal_of

    @numba.njit
    def bounds(K, b, u):
        diagonal, largest = diagonal_of(K, np.empty(len(b)))
        return bracket(b, u, K @ u, diagonal, largest)

    rng = np.random.default_rng(0)
    for name in ("active_set", "perturbed", "hull"):
        K = METHODS[name][2].numpy()
        for shift in (-0.05, 0.0, 0.05):
            kernel = np.exp(shift) * K
            f = scores(20, masked=False)
            _, _, value = oracle(torch.from_numpy(kernel), f)
            for row, exact in zip(f, value, strict=True):
                b = torch.exp((row - row.max()) / 2).numpy()
                u = rng.uniform(size=D) ** rng.integers(0, 8)
                energy, lower, upper = bounds(kernel, b, u)
                assert lower <= exact - float(row.max()) <= upper
                assert energy == pytest.approx(u @ b)
                assert energy == pytest.approx(u @ kernel @ u)


def test_exponential_and_logarithm_are_right_to_the_last_bit_or_so():
    @numba.njit
    def exponentials(x):
        return np.array([elementary.exponential(v) for v in x])

    @numba.njit
    def logarithms(x):
        return np.array([elementary.logarithm(v) for v in x])

    x = -np.geomspace(1e-18, 708, 6396)
    exact = np.array([float(Decimal(v).exp()) for v in x])
    assert (abs(exponentials(x) - exact) <= 1.0 * np.spacing(exact)).all()
    ends = exponentials(np.array([0.0, -709.0, -1e9, -np.inf]))
    assert list(ends) == [1.0, 0.0, 0.0, 0.0]
    x = np.concatenate([np.geomspace(1e-300, 1e300, 2001), np.linspace(0.5, 2.0, 3000)])
    exact = np.array([float(Decimal(v).ln()) for v in x])
    assert (abs(logarithms(x) - exact) <= 2.0 * np.spacing(abs(exact)) + 1e-30).all()
    assert np.isnan(logarithms(np.array([0.0, -1.0, np.inf, np.nan]))).all()


# ------------------------------------------------------------------ compiling

FIRST_CALL = """
import sys, torch
from geosoftmax.backends import numba as nb
from geosoftmax.backends.numba import runtime
tables = nb.zero_one_tables(0.6, 0.4)
kernel = nb.threshold.kernel(tables, 3)
kernel.softmax(torch.zeros(1, 3))
kernel.softmax(torch.zeros(1, 3))
"""


@pytest.mark.slow
def test_a_notice_is_printed_once_while_compiling(tmp_path):
    """Not where everything comes from the cache."""
    quick = FIRST_CALL.replace("tables =", "runtime.NOTICES.patience = 0.01\ntables =")

    def stderr(script):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stderr.splitlines()

    assert stderr(quick) == [runtime.NOTICE]
    assert stderr(quick) == []


def test_compilations_of_others_are_not_noticed(capsys):
    notices = runtime.CompileNotice(patience=0.0)
    numba.core.event.register("numba:compile", notices)
    numba.njit(lambda x: x + 1)(1)
    numba.core.event.unregister("numba:compile", notices)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_kernels_compile(collects):
    """Afterwards all is as it was, after an error too."""
    during = []

    class Watch(numba.core.event.Listener):
        def on_start(self, event):
            during.append(gc.isenabled())

        def on_end(self, event):
            pass

    def ours(x):
        return x + 1

    ours.__module__ = "geosoftmax.backends.numba.made_up"
    watch = Watch()
    numba.core.event.register("numba:compile", watch)
    (gc.enable if collects else gc.disable)()
    try:
        kernel = numba.njit(ours)
        kernel(1)
        assert gc.isenabled() == collects
        with pytest.raises(numba.TypingError):
            kernel("text")
        assert gc.isenabled() == collects
    finally:
        gc.enable()
        numba.core.event.unregister("numba:compile", watch)
    assert during
    assert not any(during)


ALL_KERNELS = """
import importlib, pkgutil, torch
from numba import types
from numba.core.dispatcher import Dispatcher
from geosoftmax import GridCost, solve, warm_up
from geosoftmax.backends import numba as nb
warm_up()
assert len(nb.policy._rows.overloads) == 2, "one for trees with short edges, and one for others"
solve(torch.randn(1, 12, 12), GridCost((12, 12), p=1))
for module in pkgutil.iter_modules(nb.__path__):
    for function in vars(importlib.import_module(f"{nb.__name__}.{module.name}")).values():
        if isinstance(function, Dispatcher) and not function.targetoptions.get("_nrt", True):
            for compiled in function.overloads.values():
                result = compiled.signature.return_type
                parts = list(result) if isinstance(result, types.BaseTuple) else [result]
                print(any(isinstance(part, types.Array) for part in parts), function.__name__)
"""


@pytest.mark.slow
def test_functions_that_count_no_references_return_no_arrays(tmp_path):
    """Their caller would free such an array once too often."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}  # where nothing is compiled yet
    lines = subprocess.run(
        [sys.executable, "-c", ALL_KERNELS], capture_output=True, text=True, env=environment,
        check=True,
    ).stdout.splitlines()  # fmt: skip
    assert len(lines) > 40
    assert not [line for line in lines if line.startswith("True")]


def test_what_other_sources_compiled_is_removed(tmp_path):
    """Numba itself would run it: it looks at the file of the outermost function alone."""
    old = tmp_path / "hull.solve.nbi"
    old.touch()
    runtime.discard_stale(str(tmp_path))
    assert not old.exists()
    old.touch()
    runtime.discard_stale.__wrapped__(str(tmp_path))
    assert old.exists()  # the sources are the same
    runtime.discard_stale(str(tmp_path / "nowhere" / "deep"))

"""Threads, forks, pickles and imports."""

import multiprocessing
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import geosoftmax as gs
from geosoftmax import DenseCost, GridCost, LineCost, TreeCost, ZeroOneCost
from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV
from tests.contracts.solver import same_bits
from tests.generators import randn

PROBLEMS = {
    "threshold": ZeroOneCost(40),
    "hull": LineCost(200),
    "policy": TreeCost([-1, *(i // 2 for i in range(60))]),
    "active_set": LineCost(20, p=2) / 2,
    "splitting": GridCost((12, 12), p=2) / 2,
}
ROWS = 64  # enough work to be spread over threads


def scores(cost):
    return 2 * randn(ROWS, *cost.shape)


def solutions():
    return {name: gs.solve(scores(cost), cost) for name, cost in PROBLEMS.items()}


# ------------------------------------------------------------------ threads, forks


@pytest.mark.parametrize("cost", PROBLEMS.values(), ids=PROBLEMS)
def test_many_threads_at_once_get_the_same_bits(cost):
    f = scores(cost)
    expected = gs.solve(f, cost)
    with ThreadPoolExecutor(8) as pool:
        for solution in pool.map(lambda _: gs.solve(f, cost), range(24)):
            assert same_bits(solution, expected)


def test_threads_may_share_a_cost_that_was_never_used():
    f = randn(8, 30)
    for cost in (LineCost(30, p=1.5), DenseCost(LineCost(30).matrix())):
        with ThreadPoolExecutor(8) as pool:
            first, *others = pool.map(lambda _, c=cost: gs.solve(f, c), range(8))
        assert all(same_bits(first, other) for other in others)


fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_solves_as_its_parent_does():
    """As a data loader's worker: with one torch thread, because torch's own pools do not fork."""
    expected = solutions()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            found = solutions()
            right = all(same_bits(found[name], expected[name]) for name in expected)
            os.write(write, b"same" if right else b"other bits")
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    assert _read_within(read, child, seconds=60) == b"same"


POOLS = """
import os, torch, geosoftmax as gs
from geosoftmax.backends.numba import active_set, tables
torch.set_num_threads(2)
b = torch.rand(900, 5, dtype=torch.float64)
b[:, 2] = 1
made = tables.dense_tables(gs.LineCost(5, p=2).kernel())
solve = lambda: active_set.kernel(made).solve_rows(b).u
expected = solve()  # spread over our threads; no operation is large enough for those of torch
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(solve(), expected) else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@fork
def test_our_own_thread_pool_survives_a_fork():
    run(POOLS)


def _read_within(pipe, child, seconds):
    """Read what the child says; end it if it hangs."""
    import select
    import signal

    ready, _, _ = select.select([pipe], [], [], seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    answer = os.read(pipe, 10_000) if ready else b"the child hangs"
    os.close(pipe)
    os.waitpid(child, 0)
    return answer


def _softmax(arguments):
    return gs.geometric_softmax(*arguments)


@pytest.mark.slow
def test_a_spawned_process_gives_the_same_bits():
    cost = LineCost(6)
    f = scores(cost)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (found,) = pool.map(_softmax, [(f, cost)])
    assert torch.equal(found, gs.geometric_softmax(f, cost))


# ------------------------------------------------------------------ pickling


def test_solutions_are_pickled_whole():
    for solution in solutions().values():
        again = pickle.loads(pickle.dumps(solution))
        assert same_bits(again, solution)
        assert again.method == solution.method
        assert torch.equal(again.gap, solution.gap)


def test_costs_can_be_saved_by_torch(tmp_path):
    cost = PROBLEMS["hull"]
    torch.save((cost.signature, cost.tensors), tmp_path / "cost.pt")
    again = gs.Cost.from_signature(*torch.load(tmp_path / "cost.pt", weights_only=True))
    f = scores(cost)
    assert same_bits(gs.solve(f, again), gs.solve(f, cost))


# ------------------------------------------------------------------ imports


def run(script):
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_import_brings_in_torch_and_numpy_alone():
    script = """
import sys, torch, numpy
before = set(sys.modules)
import geosoftmax
heavy = {"numba", "triton", "sklearn", "scipy", "llvmlite", "matplotlib", "pandas"}
print(*(heavy & {name.partition(".")[0] for name in set(sys.modules) - before}), "end")
"""
    assert run(script).split() == ["end"]


@pytest.mark.slow
def test_import_takes_a_tenth_of_the_time_of_torch_at_most():
    script = """
import time
start = time.perf_counter()
import torch, numpy
middle = time.perf_counter()
import geosoftmax
print((time.perf_counter() - middle) / (middle - start))
"""
    assert min(float(run(script)) for _ in range(3)) < 0.1


WITHOUT_NUMBA = """
import sys

sys.modules["numba"] = None  # as if it were not installed
import torch
import geosoftmax as gs
from tests.test_process import PROBLEMS, classify, scores, slope
found = {name: gs.solve(scores(cost), cost).alpha for name, cost in PROBLEMS.items()}
slopes = {name: slope(cost) for name, cost in PROBLEMS.items()}
torch.save((found, slopes, classify()), sys.argv[1])
assert sys.modules["numba"] is None
"""


def slope(cost):
    """The gradient of a loss plus a function of the softmax."""
    f = scores(cost)[:4].requires_grad_()
    gs.geometric_logistic_loss(f, torch.arange(4), cost).backward()
    gs.geometric_softmax(f, cost).square().sum().backward()
    return f.grad


def classify():
    """Probabilities of estimators with every kind of cost."""
    X, y = randn(60, 3).numpy(), torch.arange(60).numpy() % 4
    tree = TreeCost([-1, 0, 0, 1, 1, 2, 2], outputs="leaves")
    models = [GeometricClassifier(cost) for cost in ("squared", "absolute", "zero-one", tree)]
    models.append(GeometricClassifierCV(scales=[0.5], alphas=[1.0, 0.1], cv=3))
    return torch.stack([torch.from_numpy(m.fit(X, y).predict_proba(X)) for m in models])


def test_everything_works_without_numba(tmp_path):
    """The reference path solves, differentiates and fits, as well as the compiled one."""
    path = tmp_path / "alphas.pt"
    command = [sys.executable, "-c", WITHOUT_NUMBA, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    found, slopes, probabilities = torch.load(path, weights_only=True)
    for name, solution in solutions().items():
        distance = (found[name] - solution.alpha).flatten(1).abs().sum(1).max() / 2
        assert distance <= (1e-5 if name == "splitting" else 1e-9)
        torch.testing.assert_close(slopes[name], slope(PROBLEMS[name]), rtol=0, atol=1e-5)
    torch.testing.assert_close(probabilities, classify(), rtol=0, atol=1e-3)

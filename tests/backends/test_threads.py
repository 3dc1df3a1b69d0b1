"""Small problems on a CPU take one thread of torch, and leave the number of threads as it was."""

import pytest
import torch

from geosoftmax import GridCost, solve
from geosoftmax.backends import reference, threads
from geosoftmax.backends.reference import splitting


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("entries", "wanted"), [(threads.WORTH_THREADS, 1), (1 << 16, 2)])
def test_small_batches_take_one_thread(entries, wanted):
    with threads.few_threads(torch.empty(entries)):
        assert torch.get_num_threads() == wanted
    assert torch.get_num_threads() == 2


def test_an_error_gives_the_threads_back():
    def fail(v):
        assert torch.get_num_threads() == 1
        raise RuntimeError("no product")

    with pytest.raises(RuntimeError, match="no product"):
        reference.sinkhorn(fail, torch.full((1, 3), 1 / 3, dtype=torch.float64), 1e-9, 10)
    assert torch.get_num_threads() == 2


def test_products_of_a_small_solve_take_one_thread(monkeypatch):
    cost, scores = GridCost((16, 16), p=1), torch.randn(4, 16, 16)
    expected = solve(scores, cost, tol=1e-4, method="splitting").alpha
    seen, multiply = [], splitting.along_axes

    def watched(*args):
        seen.append(torch.get_num_threads())
        return multiply(*args)

    monkeypatch.setattr(splitting, "along_axes", watched)
    assert torch.equal(solve(scores, cost, tol=1e-4, method="splitting").alpha, expected)
    assert len(seen) > 10
    assert set(seen) == {1}
    assert torch.get_num_threads() == 2

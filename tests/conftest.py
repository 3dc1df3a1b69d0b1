"""What all tests share: the seed, the tolerances, and the way to the data sets."""

import os
from pathlib import Path
from typing import NamedTuple

import pytest
import torch


class Tolerance(NamedTuple):
    """How close two computations of one number are, as for `torch.testing.assert_close`."""

    rtol: float
    atol: float


#: The one table of tolerances, by the dtype of the input. Loosening one needs a reason beside it.
TOLERANCES = {
    torch.float64: Tolerance(rtol=1e-10, atol=1e-12),
    torch.float32: Tolerance(rtol=2e-5, atol=2e-6),
    torch.float16: Tolerance(rtol=2e-3, atol=2e-3),
    torch.bfloat16: Tolerance(rtol=2e-2, atol=2e-2),
}


#: torch.compile instantiates rules of autograd, and warns of it itself.
compiles = pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
needs_torch_2_7 = pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7),
    reason="torch 2.6 compiles neither gradients of a learnt cost nor dynamic=True",
)


def assert_close(actual, expected, dtype=None, **kwargs):
    """`torch.testing.assert_close` with the tolerance of a dtype (by default that of `actual`)."""
    tolerance = TOLERANCES[dtype or actual.dtype]._asdict()
    torch.testing.assert_close(actual, expected, **{**tolerance, "check_dtype": False, **kwargs})


def data_file(*parts: str) -> Path:
    """Return a file of $GEOSOFTMAX_DATA, or skip the test and say what is missing."""
    root = os.environ.get("GEOSOFTMAX_DATA")
    if not root:
        pytest.skip("GEOSOFTMAX_DATA is not set: it names the folder of the data sets")
    path = Path(root).joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is missing from GEOSOFTMAX_DATA")
    return path


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def threads():
    """Set the number of torch threads; it is put back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)

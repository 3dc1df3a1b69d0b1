"""The GPU kernels on CPU tensors, in Triton's interpreter, against the plain definition.

The interpreter must be chosen before triton is imported: the tests run in their own process.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

CHECKS = Path(__file__).parent / "triton_checks.py"


@pytest.mark.parametrize("marks", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_kernels_agree_with_the_reference_in_the_interpreter(marks):
    """The quick cases run each kernel at least once."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    command += ["-m", marks]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]

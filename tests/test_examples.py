"""The examples do what they say."""

import runpy
from pathlib import Path

import pytest
import torch

from geosoftmax.continuous import hausdorff_divergence

EXAMPLE = Path(__file__).parent.parent / "examples" / "plot_15_score_function.py"


def test_a_score_function_is_learnt():
    """A short training already beats the network that it started from by far."""
    example = runpy.run_path(str(EXAMPLE))
    t = torch.linspace(0, 0.9, 10, dtype=torch.float64)

    def divergence(network):
        predicted = example["predict"](network, t)
        return float(hausdorff_divergence(example["answer"](t), predicted, example["COST"]).mean())

    torch.manual_seed(0)
    before = divergence(example["ScoreFunction"]())
    network, losses = example["train"](steps=60, batch=16)
    assert sum(losses[-5:]) < 0.3 * sum(losses[:5])
    assert divergence(network) < 0.3 * before


@pytest.mark.slow
def test_the_whole_example_runs(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    assert float(printed.split("new inputs: ")[1].split()[0]) < 0.05

"""The continuous part on a GPU: the same answers as on the CPU."""

import pytest
import torch

from geosoftmax.continuous import PowerCost, geometric_softmax, sinkhorn_potential
from geosoftmax_experiments.superres.emitters import Settings, localise
from geosoftmax_experiments.superres.guesses import guess_background
from tests.continuous.examples import in_order, separated_spikes, unit_box
from tests.experiments.superres.test_emitters import PSF, scene

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_spikes(dim):
    spikes, cost = separated_spikes(4, 5, dim, 0.15), PowerCost(scale=200.0)
    field = sinkhorn_potential(spikes.to("cuda"), cost)
    measure, solution = geometric_softmax(field, unit_box(dim).to("cuda"), cost)
    assert measure.points.is_cuda
    assert bool(solution.converged.all())
    torch.testing.assert_close(
        in_order(measure.to("cpu"))[0], in_order(spikes)[0], rtol=0, atol=1e-6
    )


def test_emitters():
    _, frames = scene()
    settings = Settings(psf=PSF, threshold=500.0, polish_steps=20)
    here, _ = localise(frames, guess_background(frames), settings)
    there, _ = localise(frames.cuda(), guess_background(frames.cuda()), settings)
    torch.testing.assert_close(there.points.cpu(), here.points, rtol=0, atol=1e-6)

"""Emitters off the grid: exact recovery, noise, empty frames, derivatives."""

import numpy as np
import pytest
import torch

from geosoftmax_experiments.superres.emitters import (
    Settings,
    localise,
    minimise,
    violation,
)
from geosoftmax_experiments.superres.frames import FrameProblem, slide
from geosoftmax_experiments.superres.gridded import read_off, solve_on_grid
from geosoftmax_experiments.superres.guesses import guess_background
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.matching import compare
from geosoftmax_experiments.superres.measures import Emitters, distances, merge, model, prune
from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.windows import Windows

PSF = Gaussian(1.1)
DOUBLE = torch.float64


def scene(frames=2, count=6, side=24, *, psf=PSF, seed=0):
    """Frames with emitters on a jittered lattice, at least two pixels apart."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, dtype=DOUBLE, generator=generator)

    cells = torch.stack([torch.randperm(25, generator=generator)[:count] for _ in range(frames)])
    lattice = torch.stack([cells % 5, cells // 5], -1).to(DOUBLE)
    points = 2.5 + 4.5 * lattice + 2.5 * (draw(frames, count, 2) - 0.5)
    truth = Emitters(
        points, 3000 + 2000 * draw(frames, count), torch.full((frames,), 100.0).double()
    )
    return truth, model(truth, torch.zeros(frames, side, side, dtype=DOUBLE), psf)


def sorted_points(state, frame):
    points = state.points[frame][state.counts[frame] > 0]
    return points[points[:, 0].argsort()]


@pytest.mark.parametrize("psf", [PSF, Gaussian(1.1, sampled=True)], ids=["integrated", "sampled"])
def test_profiles_sum_to_one_and_derive(psf):
    centres = torch.tensor([7.3, 8.0], dtype=DOUBLE, requires_grad=True)
    values, slopes = (one[:, 0] for one in psf.across(centres, 16))
    torch.testing.assert_close(values.sum(-1), torch.ones(2, dtype=DOUBLE), rtol=0, atol=1e-9)
    energy = values.detach().square().sum(-1).square()
    torch.testing.assert_close(energy, torch.full_like(energy, psf.energy), rtol=0.1, atol=0)
    for pixel in (6, 9):
        (slope,) = torch.autograd.grad(values[:, pixel].sum(), centres, retain_graph=True)
        torch.testing.assert_close(slope, slopes[:, pixel])


@pytest.mark.parametrize("sampled", [False, True])
def test_without_noise_positions_are_exact(sampled):
    psf = Gaussian(1.1, sampled)
    truth, frames = scene(psf=psf)
    settings = Settings(psf=psf, threshold=500.0, polish_steps=20)
    found, _ = localise(frames, guess_background(frames), settings)
    for frame in range(2):
        assert int((found.counts[frame] > 0).sum()) == 6
        torch.testing.assert_close(
            sorted_points(found, frame), sorted_points(truth, frame), rtol=0, atol=1e-6
        )
    torch.testing.assert_close(found.background, truth.background, rtol=0, atol=1e-4)


def test_noise_moves_positions_by_what_photons_allow():
    """The precision of a count of N photons is about σ/√N; here 0.02 pixels."""
    truth, frames = scene(frames=3, seed=1)
    generator = torch.Generator().manual_seed(0)
    noisy = torch.poisson(frames, generator=generator)
    level = guess_background(noisy)
    found, _ = localise(noisy, level, Settings(psf=PSF, threshold=600.0))
    for frame in range(3):
        assert int((found.counts[frame] > 0).sum()) == 6
        error = (sorted_points(found, frame) - sorted_points(truth, frame)).square().mean().sqrt()
        assert float(error) < 0.06


def test_two_emitters_closer_than_the_spread_are_told_apart():
    truth = Emitters(
        torch.tensor([[[8.0, 8.2], [9.4, 8.0]]], dtype=DOUBLE),
        torch.tensor([[4000.0, 5000.0]], dtype=DOUBLE),
        torch.tensor([50.0], dtype=DOUBLE),
    )
    frames = model(truth, torch.zeros(1, 17, 17, dtype=DOUBLE), PSF)
    settings = Settings(psf=PSF, threshold=500.0, polish_steps=40)
    found, _ = localise(frames, guess_background(frames), settings)
    torch.testing.assert_close(sorted_points(found, 0), sorted_points(truth, 0), rtol=0, atol=1e-4)


def test_empty_frames_are_empty_and_do_not_disturb_others():
    _, frames = scene(frames=1)
    generator = torch.Generator().manual_seed(0)
    dark = 100 + 3 * torch.randn(1, 24, 24, dtype=DOUBLE, generator=generator)
    settings = Settings(psf=PSF, threshold=500.0)
    both = torch.cat([dark, frames])
    found, _ = localise(both, guess_background(both), settings)
    assert int((found.counts[0] > 0).sum()) == 0
    assert int((found.counts[1] > 0).sum()) == 6
    constant = torch.full((1, 24, 24), 7.0, dtype=DOUBLE)
    assert float(localise(constant, guess_background(constant), settings)[0].counts.max()) == 0


def test_slope_against_finite_differences():
    truth, frames = scene(frames=1, count=2)
    state = Emitters(truth.points + 0.2, truth.counts * 0.9, truth.background + 3)
    weights = 0.5 + torch.rand(frames.shape, dtype=DOUBLE)
    for weight in (None, weights):
        view = FrameProblem(frames, PSF, 0.3, weight).view(state.spikes())
        slope = view.backward(view.residual)[0]
        slope[:2] -= 0.3
        for index, step in [(0, "counts"), (2, "x"), (5, "y"), (6, "background")]:
            moved = [state.points.clone(), state.counts.clone(), state.background.clone()]
            tiny = 1e-4
            if step == "counts":
                moved[1][0, 0] += tiny
            elif step == "background":
                moved[2][0] += tiny
            else:
                which = index % 2
                moved[0][0, which, 0 if step == "x" else 1] += tiny / float(state.counts[0, which])
            problem = FrameProblem(frames, PSF, 0.3, weight)
            after = problem.view(Emitters(*moved).spikes()).objective
            numeric = float((view.objective - after) / tiny)
            torch.testing.assert_close(
                torch.tensor(numeric), slope[index].float(), rtol=2e-3, atol=2e-1
            )


def dense_slide(frames, state, penalty, weights, steps):
    """Gauss–Newton with the whole matrix, as a check: damped until the loss falls."""
    for _ in range(steps):
        view = FrameProblem(frames, PSF, penalty, weights).view(state.spikes())
        size = 3 * state.counts.shape[1] + 1
        columns = [view.forward(row.expand(len(frames), size)) for row in torch.eye(size).double()]
        J = torch.stack([c.flatten(1) for c in columns], -1)
        weight = torch.ones_like(frames) if weights is None else weights
        bend = J.mT @ (weight.flatten(1)[..., None] * J)
        pull = view.backward(view.residual)
        pull[:, : state.counts.shape[1]] -= penalty
        step = torch.linalg.solve(bend, pull)
        counts, x, y, level = step.split([*[state.counts.shape[1]] * 3, 1], -1)
        shift = torch.stack([x, y], -1) / state.counts[..., None]
        state = Emitters(
            state.points + shift, state.counts + counts, state.background + level[:, 0]
        )
    return state


@pytest.mark.parametrize("weighted", [False, True])
def test_sliding_ends_where_the_whole_matrix_does(weighted):
    truth, frames = scene(frames=2, count=12)
    noisy = torch.poisson(frames, generator=torch.Generator().manual_seed(0))
    weights = 50 / frames if weighted else None
    ours = slide(noisy, truth, PSF, 2.0, steps=25, weights=weights)
    theirs = dense_slide(noisy, truth, 2.0, weights, 10)
    torch.testing.assert_close(ours.points, theirs.points, rtol=0, atol=1e-5)
    torch.testing.assert_close(ours.counts, theirs.counts, rtol=1e-5, atol=0)


def test_grid_start_explains_most_of_the_frame():
    truth, frames = scene(frames=2)
    u, background = solve_on_grid(frames, guess_background(frames), PSF, 1.0, 300)
    start = read_off(u, background, 50.0)
    rest = (frames - model(start, frames, PSF)).square().sum((1, 2))
    light = (frames - 100).square().sum((1, 2))
    assert bool((rest < 0.02 * light).all())
    nearest = torch.cdist(truth.points, start.points).amin(-1)
    assert float(nearest.max()) < 0.3


def test_violation_says_what_is_missing():
    """Nothing at the solution; about its counts if an emitter is taken away."""
    truth, frames = scene(frames=1, count=6)
    settings = Settings(psf=PSF, threshold=500.0, seek=0.01, keep=0.005, penalty=1e-6, rounds=20)
    found, uncovered = minimise(frames, guess_background(frames), settings)
    assert float(violation(frames, found, settings)) < 0.02 * 500
    assert torch.equal(uncovered, violation(frames, found, settings))
    without = Emitters(truth.points, truth.counts.clone(), truth.background)
    without.counts[0, 0] = 0
    missing = float(violation(frames, without, settings))
    assert missing == pytest.approx(float(truth.counts[0, 0]), rel=0.1)


def test_crowded_frames_reach_what_was_sought():
    """Violations stay below what an emitter at `seek` makes, in float32 as in float64."""
    generator = torch.Generator().manual_seed(3)
    points = 2 + 20 * torch.rand(2, 40, 2, dtype=DOUBLE, generator=generator)
    truth = Emitters(points, torch.full((2, 40), 4000.0).double(), torch.full((2,), 100.0).double())
    frames = model(truth, torch.zeros(2, 24, 24, dtype=DOUBLE), PSF)
    noisy = torch.poisson(frames, generator=generator)
    settings = Settings(psf=PSF, threshold=800.0, rounds=12)
    values = []
    for dtype in (torch.float64, torch.float32):
        light = noisy.to(dtype)
        found, uncovered = minimise(light, guess_background(light), settings)
        assert float(uncovered.max()) < 1.3 * settings.seek * 800
        problem = FrameProblem(light, PSF, settings.weight)
        values.append(problem.view(found.spikes()).objective)
    # Not convex in positions: other ends, of nearly the same value.
    torch.testing.assert_close(values[0], values[1], rtol=0.02, atol=0)


def test_frames_do_not_depend_on_those_beside_them():
    """One frame is done after the first round, the other takes more."""
    _, simple = scene(frames=1)
    generator = torch.Generator().manual_seed(3)
    points = 2 + 20 * torch.rand(1, 40, 2, dtype=DOUBLE, generator=generator)
    crowd = Emitters(points, torch.full((1, 40), 4000.0).double(), torch.full((1,), 100.0).double())
    frames = torch.cat([simple, model(crowd, torch.zeros(1, 24, 24, dtype=DOUBLE), PSF)])
    frames = torch.poisson(frames, generator=generator)
    settings = Settings(psf=PSF, threshold=800.0)
    level = guess_background(frames)
    together, _ = minimise(frames, level, settings)
    for row in range(2):
        alone, _ = minimise(frames[[row]], level[[row]], settings)
        assert int((together.counts[row] > 0).sum()) == int((alone.counts > 0).sum())
        torch.testing.assert_close(
            sorted_points(together, row), sorted_points(alone, 0), rtol=0, atol=1e-6
        )


def test_merging_joins_pairs_at_their_centre():
    state = Emitters(
        torch.tensor([[[1.0, 1.0], [2.0, 1.0], [9.0, 9.0], [3.0, 1.0]]]).double(),
        torch.tensor([[30.0, 10.0, 5.0, 0.0]]).double(),
        torch.zeros(1).double(),
    )
    fewer = prune(merge(state, distances(state) < 1.5), 1.0)
    assert fewer.counts.tolist() == [[40.0, 5.0]]
    torch.testing.assert_close(fewer.points[0, 0], torch.tensor([1.25, 1.0]).double())
    torch.testing.assert_close(fewer.points[0, 1], torch.tensor([9.0, 9.0]).double())


def test_windows_share_out_the_frame():
    """Every point is in the own part of one window, and has at least the margin around it there."""
    frames = torch.zeros(2, 150, 64)
    windows = Windows(frames, 1.1)
    sizes = {tuple(p.shape) for p in windows.pixels}
    assert sizes == {(64, 64)}
    y = torch.linspace(0, 149.99, 400)
    points = torch.stack([torch.full_like(y, 30.0), y], -1)
    owners = torch.zeros(2, 400)
    for number in range(len(windows.pixels)):
        corner = windows.corner(torch.tensor([number]), points)
        padded = (points - corner).expand(len(windows.pixels), -1, -1)
        state = Emitters(padded, torch.ones(padded.shape[:2]), torch.zeros(len(padded)))
        frame, window, emitter = windows.own(state)
        mine = window == number
        owners[frame[mine], emitter[mine]] += 1
        inside = padded[0, emitter[mine], 1]
        border = (points[emitter[mine], 1] < 7) | (points[emitter[mine], 1] > 143)
        assert bool(((inside >= 6) & (inside <= 58) | border).all())
    assert bool((owners == 1).all())


def test_large_frames_are_found_window_by_window():
    generator = torch.Generator().manual_seed(0)
    lattice = torch.cartesian_prod(torch.arange(14.0), torch.arange(11.0))
    points = 5 + 10 * lattice + 4 * torch.rand(154, 2, generator=generator)
    truth = Emitters(points[None], torch.full((1, 154), 3000.0), torch.full((1,), 50.0))
    frames = model(truth, torch.zeros(1, 117, 147), PSF)
    noisy = torch.poisson(frames, generator=generator).double().numpy()
    settings = Settings(psf=PSF, threshold=800.0)
    rows = find_emitters(noisy, settings, method="sliding", pixel=100.0)
    assert len(rows) == 154
    true = torch.cat([torch.ones(154, 1), 100 * points], 1).double().numpy()
    agreement = compare(rows[:, 1:4], true, 50.0)
    assert agreement.jaccard == 1
    assert agreement.rmse < 5


@pytest.mark.parametrize(
    ("emitters", "photons"),
    [
        pytest.param(0, 1000, marks=pytest.mark.slow),
        pytest.param(1, 800, marks=pytest.mark.slow),
        pytest.param(5, 5000, marks=pytest.mark.slow),
        (24, 2000),
    ],
)
def test_sparse_frames_are_not_filled_with_noise(emitters, photons):
    """All emitters are found, and nothing else, with what is guessed from the frames."""
    generator = torch.Generator().manual_seed(emitters)
    points = 3 + 58 * torch.rand(4, emitters, 2, generator=generator)
    counts = torch.full((4, emitters), float(photons))
    truth = Emitters(points, counts, torch.full((4,), 20.0))
    light = model(truth, torch.zeros(4, 64, 64), PSF)
    frames = (100 + 2 * torch.poisson(light, generator=generator)).numpy()
    settings = choose_settings(
        frames, PSF, threshold=None, base=100.0, background=None, alike=None, device="cpu"
    )
    rows = find_emitters(frames, settings, method="sliding", pixel=100.0, gain=2.0)
    places = [(k + 1, 100 * x, 100 * y) for k in range(4) for x, y in points[k].tolist()]
    found = compare(rows[:, 1:4], np.array(places).reshape(-1, 3), 100.0)
    assert found.missed <= 1
    assert found.spurious <= 1

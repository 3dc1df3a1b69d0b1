"""Emitters off the grid: exact recovery, noise, empty frames, derivatives."""

import torch

from geosoftmax_experiments.superres.emitters import (
    Emitters,
    Settings,
    _system,
    guess_background,
    guess_threshold,
    localise,
    model,
    profiles,
)

DOUBLE = torch.float64


def scene(frames=2, count=6, side=24, *, sigma=1.1, seed=0):
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
    return truth, model(truth, torch.zeros(frames, side, side, dtype=DOUBLE), sigma)


def sorted_points(state, frame):
    points = state.points[frame][state.counts[frame] > 0]
    return points[points[:, 0].argsort()]


def test_profiles_sum_to_one_and_derive():
    centres = torch.tensor([7.3, 8.0], dtype=DOUBLE, requires_grad=True)
    values, slopes = profiles(centres, 16, 1.1)
    torch.testing.assert_close(values.sum(-1), torch.ones(2, dtype=DOUBLE))
    for pixel in (6, 9):
        (slope,) = torch.autograd.grad(values[:, pixel].sum(), centres, retain_graph=True)
        torch.testing.assert_close(slope, slopes[:, pixel])


def test_without_noise_positions_are_exact():
    truth, frames = scene()
    settings = Settings(sigma=1.1, threshold=500.0, rounds=6, steps=12)
    found = localise(frames, guess_background(frames), settings)
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
    threshold = guess_threshold(noisy, level, 1.1)
    assert 100 < threshold < 3000
    found = localise(noisy, level, Settings(sigma=1.1, threshold=threshold, rounds=6))
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
    frames = model(truth, torch.zeros(1, 17, 17, dtype=DOUBLE), 1.1)
    settings = Settings(sigma=1.1, threshold=500.0, steps=30)
    found = localise(frames, guess_background(frames), settings)
    torch.testing.assert_close(sorted_points(found, 0), sorted_points(truth, 0), rtol=0, atol=1e-4)


def test_empty_frames_are_empty_and_do_not_disturb_others():
    _, frames = scene(frames=1)
    generator = torch.Generator().manual_seed(0)
    dark = 100 + 3 * torch.randn(1, 24, 24, dtype=DOUBLE, generator=generator)
    settings = Settings(sigma=1.1, threshold=500.0, rounds=6)
    both = torch.cat([dark, frames])
    found = localise(both, guess_background(both), settings)
    assert int((found.counts[0] > 0).sum()) == 0
    assert int((found.counts[1] > 0).sum()) == 6
    constant = torch.full((1, 24, 24), 7.0, dtype=DOUBLE)
    assert float(localise(constant, guess_background(constant), settings).counts.max()) == 0


def test_slope_against_finite_differences():
    truth, frames = scene(frames=1, count=2)
    state = Emitters(truth.points + 0.2, truth.counts * 0.9, truth.background + 3)
    weights = 0.5 + torch.rand(frames.shape, dtype=DOUBLE)
    for weight in (None, weights):
        loss, slope, bend = _system(frames, state, 1.1, 0.3, weight)
        assert bool((torch.linalg.eigvalsh(bend) > 0).all())
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
            after = _system(frames, Emitters(*moved), 1.1, 0.3, weight)[0]
            numeric = float((loss - after) / tiny)
            torch.testing.assert_close(
                torch.tensor(numeric), slope[0, index].float(), rtol=2e-3, atol=2e-1
            )

"""``python -m benchmarks.tune_splitting``: how many steps, for which penalty, against the gradient?

Prints steps to a gap of 1e-3 on drawings: for penalties and kernels from narrow to wide, then for
the number of first steps, also on scores of networks that learn. The tables from which
``SPLIT_PENALTY`` and ``SPLIT_FIRST_STEPS`` in ``backends/settings.py`` were taken. A minute.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.grid import _fields, load_drawings
from geosoftmax import GridCost, geometric_logistic_loss, smooth_scores
from geosoftmax.backends import reference, settings
from geosoftmax.solvers.plans import spectrum
from geosoftmax.solvers.products import Products

PENALTIES = (0.15, 0.3, 0.45, 0.7, 1.0)
FIRST = (10, 15, 20, 30)
SCALES = ((2, 2.0), (2, 0.5), (2, 0.125), (1, 1.0), (1, 0.2))
GAP, MOST = 1e-3, 1000
#: Drawings to learn, the steps of doing so, and how many of them give scores.
LEARNT, TRAINING, SHOWN = 256, 300, 32


def main() -> None:
    drawings, source = load_drawings(28, 16)
    print(f"Mean steps to a gap of {GAP:g}, scores of {source}.\n")
    _head("28×28", "field", "λmax", "gradient", *(f"penalty {p:g}" for p in PENALTIES))
    for p, scale in SCALES:
        cost = GridCost((28, 28), p=p) * scale
        largest = float(spectrum(cost).eigenvalues.max())
        for field, scores in _fields(drawings, cost).items():
            b = reference.obstacle(scores, reference.peaks(scores, 2), 2)
            steps = [_gradient_steps(cost, b)]
            before = settings.SPLIT_PENALTY
            for settings.SPLIT_PENALTY in PENALTIES:
                steps.append(_splitting_steps(cost, b, settings.SPLIT_FIRST_STEPS[p]))
            settings.SPLIT_PENALTY = before
            means = (f"{found.mean():.0f}" for found in steps)
            _row(f"p={p}, × {scale:g}", field, f"{largest:.0f}", *means)
    print("\nMean and most steps, by the number of steps with the first penalty.\n")
    _head("28×28", "field", *(f"first {n}" for n in FIRST))
    for p, scale in SCALES:
        cost = GridCost((28, 28), p=p) * scale
        fields = _fields(drawings, cost)
        if (p, scale) == (2, 0.5):
            fields |= _learnt(cost)
        for field, scores in fields.items():
            b = reference.obstacle(scores, reference.peaks(scores, 2), 2)
            cells = []
            for n in FIRST:
                steps = _splitting_steps(cost, b, n)
                cells.append(f"{steps.mean():.0f}, {steps.max():.0f}")
            _row(f"p={p}, × {scale:g}", field, *cells)


def _learnt(cost: GridCost) -> dict[str, Tensor]:
    """Scores of variational auto-encoders, as they are or smoothed, before and after learning."""
    drawings = load_drawings(28, LEARNT)[0].float()
    found = {}
    for smoothed in (False, True):
        torch.manual_seed(0)
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 200))
        decoder = nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 784))
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
        for step in range(TRAINING + 1):
            mean, log_variance = encoder(drawings).chunk(2, -1)
            code = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
            scores = decoder(code).reshape(drawings.shape)
            if smoothed:
                scores = smooth_scores(scores, cost)
            if step in (0, TRAINING):
                name = f"{'smoothed scores' if smoothed else 'VAE'}, {step} steps learnt"
                found[name] = scores[:SHOWN].detach().double()
            loss = geometric_logistic_loss(scores, drawings, cost, tol=GAP)
            rate = -(1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean() / 2
            optimizer.zero_grad()
            (loss * cost.size + rate).backward()
            optimizer.step()
    return found


def _gradient_steps(cost: GridCost, b: Tensor) -> Tensor:
    rows = reference.accelerate(Products(cost), b, None, GAP, MOST, torch.float64)
    return rows.iterations.double()


def _splitting_steps(cost: GridCost, b: Tensor, first_steps: int) -> Tensor:
    parts = Products(cost), spectrum(cost), first_steps
    rows = reference.split(*parts, b, None, GAP, MOST, torch.float64)
    return rows.iterations.double()


def _head(*cells: str) -> None:
    _row(*cells)
    print("|---|---|" + "--:|" * (len(cells) - 2))


def _row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

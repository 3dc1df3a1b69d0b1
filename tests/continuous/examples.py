"""Scores and measures that the tests of the continuous part share."""

import torch

from geosoftmax.continuous import Box, Measure


def unit_box(dim):
    return Box([0.0] * dim, [1.0] * dim)


def waves(rows, dim, *, seed=0, frequency=6.0, height=2.0, terms=6):
    """Random smooth scores: sums of plane waves, one for each row."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    direction, phase, size = draw(rows, terms, dim), draw(rows, 1, terms), draw(rows, 1, terms)
    return lambda x: (height * size * torch.sin(frequency * x @ direction.mT + 6 * phase)).sum(-1)


def separated_spikes(rows, count, dim, apart, *, seed=0):
    """Random measures of mass 1 in the unit box, with points at least `apart` from each other.

    Points that leave no room for the next are drawn again, all of them.
    """
    generator = torch.Generator().manual_seed(seed)
    measures = []
    for _ in range(rows):
        points, tries = torch.zeros(0, dim, dtype=torch.float64), 0
        while len(points) < count:
            tries += 1
            if tries > 1000:
                points, tries = points[:0], 0
            point = 0.03 + 0.94 * torch.rand(1, dim, dtype=torch.float64, generator=generator)
            if not bool(((points - point).norm(dim=-1) < apart).any()):
                points = torch.cat([points, point])
        weights = 0.3 + torch.rand(count, dtype=torch.float64, generator=generator)
        measures.append(Measure(points, weights / weights.sum()))
    return Measure.stack(measures)


def in_order(measure):
    """Return the points and weights of a batch of measures on a line or more, by coordinates."""
    order = measure.points[..., 0].argsort(-1)
    index = order[..., None].expand(measure.points.shape)
    return measure.points.gather(-2, index), measure.weights.gather(-1, order)

"""Draw the pictures of the README and of the site's first page into ``docs/images``.

``python docs/draw_front.py``; a minute. The drawings are QuickDraw's, from the stored results.
"""

from pathlib import Path

import entmax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from geosoftmax import GridCost, LineCost, geometric_softmax, sinkhorn_potential
from geosoftmax import peaks as find_peaks
from geosoftmax.continuous import Box, Measure, PowerCost
from geosoftmax.continuous import geometric_softmax as continuous_softmax
from geosoftmax.continuous import sinkhorn_potential as continuous_potential
from geosoftmax_experiments.figures.stored import read_stored

matplotlib.use("Agg")
FOLDER = Path(__file__).parent / "images"
GREEN, BLUE, ORANGE = "#009e73", "#0072b2", "#d55e00"
NOISE = 0.05


def front() -> Figure:
    """Drawings, their fields with noise, and what each link makes of them."""
    drawings = torch.from_numpy(read_stored("drawings").drawings[[9, 8]]).double()
    cost = GridCost((64, 64), p=1)
    generator = torch.Generator().manual_seed(0)
    titles = ["a drawing", "its distance field,\nwith noise", "geometric softmax\nof the field"]
    titles += ["softmax\nof the field", "sparsemax\nof the field"]
    figure, axes = plt.subplots(2, 5, figsize=(10, 4.5), layout="constrained")
    for line, drawing in zip(axes, drawings, strict=True):
        alpha = drawing / drawing.sum()
        field = sinkhorn_potential(alpha, cost)
        field += NOISE * torch.randn(field.shape, generator=generator, dtype=field.dtype)
        found = [geometric_softmax(field, cost, tol=1e-6)]
        found += [link(field.flatten(), 0) for link in (torch.softmax, entmax.sparsemax)]
        line[0].imshow(alpha, cmap="gray_r")
        line[1].imshow(field, cmap="cividis")
        for axis, beta in zip(line[2:], found, strict=True):
            axis.imshow(beta.reshape(64, 64), cmap="gray_r", vmin=0, vmax=float(alpha.max()))
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=11)
    return without_ticks(figure)


def classes() -> Figure:
    """Probabilities of ordered classes: the geometric softmax is sparse, and knows the order."""
    scores = torch.tensor([-1.0, 0.6, 1.4, 1.3, 0.2, -1.2], dtype=torch.float64)
    figure, axis = plt.subplots(figsize=(4, 3), layout="constrained")
    places = np.arange(1, 7)
    links = {
        "geometric softmax": (GREEN, geometric_softmax(scores, LineCost(6))),
        "softmax": (BLUE, torch.softmax(scores, 0)),
    }
    for k, (name, (colour, alpha)) in enumerate(links.items()):
        axis.bar(places + 0.4 * (k - 0.5), alpha.numpy(), 0.38, color=colour, label=name)
    axis.set(xlabel="rating", ylabel="probability", xticks=places, ylim=(0, 0.68))
    axis.legend(frameon=False, loc="upper right")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def peaks() -> Figure:
    """A heat map with noise: both peaks are found; softmax's mean lies between them."""
    side = 32
    cost = GridCost((side, side), p=1)
    rows, columns = torch.meshgrid(*[torch.arange(side).double()] * 2, indexing="ij")
    points = torch.zeros(side, side, dtype=torch.float64)
    points[8, 9] = points[21, 23] = 0.5
    field = sinkhorn_potential(points, cost)
    field += 0.2 * torch.randn(side, side, generator=torch.Generator().manual_seed(1))
    alpha, soft = geometric_softmax(field, cost), torch.softmax(field.flatten(), 0)
    figure, axis = plt.subplots(figsize=(4, 3), layout="constrained")
    axis.imshow(field, cmap="cividis")
    found = find_peaks(alpha)
    for (row, column), mass in zip(found.points.tolist(), found.mass.tolist(), strict=True):
        axis.plot(column, row, "o", color="white", ms=12, mec="black", mew=1.5)
        axis.annotate(f"{mass:.2f}", (column, row), (10, 6), textcoords="offset points",
                      color="black", fontsize=11, weight="bold")  # fmt: skip
    mean = [float((soft.reshape(side, side) * axis_of).sum()) for axis_of in (columns, rows)]
    axis.plot(*mean, "x", color=ORANGE, ms=12, mew=3)
    axis.set_title("○ peaks of the geometric softmax, × soft-argmax", fontsize=10)
    return without_ticks(figure)


def points() -> Figure:
    """Spikes that lie between pixels, recovered from a field that is known anywhere."""
    truth = torch.tensor(
        [[0.15, 0.3], [0.31, 0.62], [0.38, 0.57], [0.6, 0.2], [0.71, 0.33], [0.8, 0.75]],
        dtype=torch.float64,
    )
    cost = PowerCost(p=2, scale=150)
    field = continuous_potential(Measure(truth, torch.full((6,), 1 / 6)), cost)
    measure, _ = continuous_softmax(field, Box([0, 0], [1, 1]), cost)
    line = (torch.arange(16).double() + 0.5) / 16
    grid = torch.cartesian_prod(line, line)
    pixels = field(grid).exp().reshape(16, 16).T
    figure, axis = plt.subplots(figsize=(4, 3), layout="constrained")
    axis.imshow(pixels, cmap="cividis", extent=(0, 1, 0, 1), origin="lower")
    axis.plot(*truth.T, "+", color="white", ms=12, mew=2, label="true")
    axis.plot(*measure.points.T, "o", mfc="none", color=ORANGE, ms=11, mew=2, label="found")
    axis.legend(loc="lower right", fontsize=9)
    return without_ticks(figure)


def without_ticks(figure: Figure) -> Figure:
    """Take the ticks away from all axes."""
    for axis in figure.axes:
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def main() -> None:
    """Draw all."""
    for draw in (front, classes, peaks, points):
        draw().savefig(FOLDER / f"{draw.__name__}.png", dpi=130)
        print(FOLDER / f"{draw.__name__}.png")


if __name__ == "__main__":
    main()

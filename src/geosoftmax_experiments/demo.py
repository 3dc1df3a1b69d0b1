"""``geosoftmax demo digits``: the link function inverts distance fields, and stands noise.

A drawing is a distribution over pixels; its Sinkhorn potential is a distance field. The geometric
softmax turns the field back into the drawing, exactly; with noise on the field, it stays close in
the geometry of the pixels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import entmax
import matplotlib
import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor

from geosoftmax import GridCost, Solution, hausdorff_divergence, sinkhorn_potential, solve
from geosoftmax_experiments.report import save

matplotlib.use("Agg")  # pictures go to files: no screen is needed

COST = GridCost((8, 8), p=2) * 2
LINKS = ("geometric", "softmax", "sparsemax")


@dataclass(frozen=True)
class Recovery:
    """A drawing that a link recovered from a field."""

    link: str
    alpha: Tensor
    seconds: float
    solution: Solution | None = None  # None where the link has a closed form


@dataclass(frozen=True)
class Row:
    """One digit: the drawing, its field, the noisy field, and what each link makes of them."""

    digit: int
    drawing: Tensor
    exact: Tensor
    noisy: Tensor
    from_exact: list[Recovery]
    from_noisy: list[Recovery]


def run(output: Path, digits: list[int], noise: float, seed: int, console: Console) -> None:
    """Solve, print the table, save the picture, and say where it is."""
    generator = torch.Generator().manual_seed(seed)
    with console.status("Compiling the kernels (once for an installation)"):
        recover(torch.zeros(COST.shape, dtype=torch.float64))
    rows = [solve_digit(digit, noise, generator) for digit in digits]
    console.print(table(rows))
    save(draw(rows, noise), output)
    console.print(f"Picture saved to {output.resolve()}", soft_wrap=True)


def solve_digit(digit: int, noise: float, generator: torch.Generator) -> Row:
    """Make the fields of a digit and recover the drawing from both."""
    drawing = load_drawing(digit)
    exact = sinkhorn_potential(drawing, COST)
    noisy = exact + noise * torch.randn(exact.shape, generator=generator, dtype=exact.dtype)
    return Row(digit, drawing, exact, noisy, recover(exact), recover(noisy))


def load_drawing(digit: int) -> Tensor:
    """Return the first such digit of scikit-learn's, without its faint ink, as a distribution."""
    data: Any = load_digits()
    image = torch.from_numpy(data.images[(data.target == digit).argmax()])
    ink = (image - 0.4 * image.max()).clamp_min(0)
    return ink / ink.sum()


def recover(field: Tensor) -> list[Recovery]:
    """Apply each link to a field."""
    start = time.perf_counter()
    solution = solve(field, COST)
    found = [Recovery(LINKS[0], solution.alpha, time.perf_counter() - start, solution)]
    for name, link in (("softmax", torch.softmax), ("sparsemax", entmax.sparsemax)):
        start = time.perf_counter()
        alpha = link(field.flatten(), 0)
        found.append(Recovery(name, alpha.reshape(field.shape), time.perf_counter() - start))
    return found


def table(rows: list[Row]) -> Table:
    """Tabulate certificates, times and errors."""
    result = Table(
        "digit",
        "field",
        "link",
        "gap",
        "steps",
        "ms",
        "pixels",
        "TV",
        "Haus.",
        title="Drawings recovered from their distance fields",
        caption="gap: certified (– closed form). pixels: used / in the drawing.\n"
        "TV: total variation to the drawing. Haus.: Hausdorff divergence from it.",
    )
    for row in rows:
        fields = (("exact", row.from_exact), ("noisy", row.from_noisy))
        for name, recoveries in fields:
            for recovery in recoveries:
                result.add_row(str(row.digit), name, *_cells(recovery, row.drawing))
        result.add_section()
    return result


def _cells(recovery: Recovery, drawing: Tensor) -> list[str]:
    alpha, solution = recovery.alpha, recovery.solution
    divergence = hausdorff_divergence(drawing, alpha / alpha.sum(), COST)
    variation = (alpha - drawing).abs().sum() / 2
    return [
        recovery.link,
        "–" if solution is None else f"{float(solution.gap):.0e}",
        "–" if solution is None else str(int(solution.iterations)),
        f"{1e3 * recovery.seconds:.2f}",
        f"{int((alpha > 1e-9).sum())} / {int((drawing > 0).sum())}",
        f"{float(variation):.3f}",
        f"{float(divergence):.4f}",
    ]


def draw(rows: list[Row], noise: float) -> Figure:
    """Draw one line of pictures for each digit."""
    titles = [
        "drawing α",
        "∇Ω(α): minus the\ndistance to the ink",
        "its geometric\nsoftmax",
        f"the field, with\nnoise {noise:g}",
        *(f"its {link}\nsoftmax" if link == "geometric" else f"its {link}" for link in LINKS),
    ]
    figure, axes = plt.subplots(
        len(rows),
        len(titles),
        figsize=(1.75 * len(titles), 1.85 * len(rows) + 0.4),
        squeeze=False,
        layout="constrained",
    )
    for row, line in zip(rows, axes, strict=True):
        pictures = [row.drawing, row.exact, row.from_exact[0].alpha, row.noisy]
        pictures += [recovery.alpha for recovery in row.from_noisy]
        for k, (axis, picture) in enumerate(zip(line, pictures, strict=True)):
            field = k in (1, 3)
            axis.imshow(
                picture.numpy(),
                cmap="viridis" if field else "gray_r",
                vmin=float(row.exact.min()) if field else 0.0,
                vmax=float(row.exact.max()) if field else 1.2 * float(row.drawing.max()),
            )
            axis.set_xticks([])
            axis.set_yticks([])
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set_title(title, fontsize=10)
    return figure

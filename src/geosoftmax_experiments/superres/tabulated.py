"""A point-spread function from a table of its values."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.superres.measured import MeasuredPsf, basis, knots
from geosoftmax_experiments.superres.positions import read_numbers

__all__ = ["read_psf_table"]

#: The columns of a table: of a function of the distance alone, or of the place.
RADIAL, PLANE = ("r [nm]", "value"), ("x [nm]", "y [nm]", "value")
#: Most rows of a table, and fewest values along a side.
ROWS, FEWEST = 10**6, 5
#: How far the function is taken, in standard deviations of the Gaussian that is most alike.
REACH = 6.0
#: Places between knots, along a side, at which the spline is fitted.
BETWEEN = 4
#: Samples within a pixel, along a side, whose mean is the integral over it.
SAMPLES = 8

#: Values at all pairs of rows ``y`` and columns ``x`` of places, in nm.
Function = Callable[[np.ndarray, np.ndarray], np.ndarray]


def read_psf_table(path: Path, pixel: float, *, sampled: bool) -> MeasuredPsf:
    """Return the function of a table, ``r [nm]`` or ``x [nm]`` and ``y [nm]``, and ``value``.

    The table has what the lens shows, and pixels of so many nm integrate it, unless it is
    `sampled`. Beyond the table the function is 0.
    """
    rows = read_numbers(
        path, [RADIAL, PLANE], "A table of --psf has r [nm], or x [nm] and y [nm], and value."
    )
    if not 0 < len(rows) <= ROWS or rows[:, -1].max() <= 0 or np.abs(rows).max() > 1e12:
        raise UserError(
            f"{path} is no point-spread function: {len(rows):,} rows.",
            f"It needs 1 to {ROWS:,} rows, some positive values, and none beyond 1e12.",
        )
    function, reach, area = (_radial if rows.shape[1] == 2 else _plane)(path, rows)
    # A Gaussian is above half of its maximum on a disc of 2 log 2 variances.
    sigma = math.sqrt(area / (2 * math.pi * math.log(2))) / pixel
    half = min(reach / pixel, REACH * sigma)
    if not sampled:
        sigma, half = math.hypot(sigma, math.sqrt(1 / 12)), half + 0.5
    if not 0.3 <= sigma <= 100:
        raise UserError(
            f"{path} has a standard deviation of some {sigma:.3g} pixels.",
            "Lengths are in nm; check them and --pixel.",
        )
    spacing, count = knots(sigma, half)
    fine = np.arange(-BETWEEN * (count + 2), BETWEEN * (count + 2) + 1) * (spacing / BETWEEN)
    within = (np.arange(SAMPLES) + 0.5) / SAMPLES - 0.5 if not sampled else np.zeros(1)
    places = (fine[:, None] + within).ravel() * pixel
    shape = (len(fine), len(within))
    values = function(places, places).reshape(*shape, *shape).mean((1, 3))
    inverse = np.linalg.pinv(basis(fine, spacing, count))
    return MeasuredPsf(inverse @ values @ inverse.T, spacing)


def _radial(path: Path, rows: np.ndarray) -> tuple[Function, float, float]:
    """Return a function of the distance, how far it reaches, and the area above half of it."""
    from scipy.interpolate import PchipInterpolator

    order = np.argsort(rows[:, 0])
    distance, value = rows[order].T
    if len(rows) < FEWEST or distance[0] < 0 or (np.diff(distance) <= 0).any():
        raise UserError(
            f"{path} must have {FEWEST} or more different r [nm], none of them negative.",
            "As in r [nm], value: 0, 1; 20, 0.98; ...",
        )
    along = PchipInterpolator(np.append(distance, 2 * distance[-1]), np.append(value, 0.0))

    def function(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        place = np.hypot(y[:, None], x)
        return np.where(place <= distance[-1], along(np.maximum(place, distance[0])), 0.0)

    fine = np.linspace(0, distance[-1], 10_000)
    above = along(np.maximum(fine, distance[0])) >= value.max() / 2
    return function, float(distance[-1]), float(2 * np.pi * (fine * above).mean() * distance[-1])


def _plane(path: Path, rows: np.ndarray) -> tuple[Function, float, float]:
    """Return a function of the place, how far it reaches, and the area above half of it."""
    from scipy.interpolate import RegularGridInterpolator

    x, y = np.unique(rows[:, 0]), np.unique(rows[:, 1])
    if min(len(x), len(y)) < FEWEST or len(x) * len(y) != len(rows):
        raise UserError(
            f"{path} must have one value for each pair of {FEWEST} or more x [nm] and y [nm]; got "
            f"{len(rows):,} rows for {len(x):,} x and {len(y):,} y.",
            "Write the function on a regular grid, a row for each place.",
        )
    grid = np.full((len(y), len(x)), np.nan)
    grid[np.searchsorted(y, rows[:, 1]), np.searchsorted(x, rows[:, 0])] = rows[:, 2]
    if np.isnan(grid).any():
        raise UserError(f"{path} has two rows for the same place.", "Leave one of them.")
    along = RegularGridInterpolator((y, x), grid, "cubic", bounds_error=False, fill_value=0.0)
    row, column = np.unravel_index(grid.argmax(), grid.shape)

    def function(down: np.ndarray, across: np.ndarray) -> np.ndarray:
        places = np.stack(np.meshgrid(down + y[row], across + x[column], indexing="ij"), -1)
        return along(places)

    cell = (y[-1] - y[0]) * (x[-1] - x[0]) / grid.size
    reach = max(y[-1] - y[row], y[row] - y[0], x[-1] - x[column], x[column] - x[0])
    return function, float(reach), float((grid >= grid.max() / 2).sum() * cell)

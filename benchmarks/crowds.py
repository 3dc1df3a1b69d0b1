"""Microscopy: emitters from sparse to crowded, against Picasso and others, and the bound."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target
from geosoftmax_experiments.superres.discovery import LEAST
from geosoftmax_experiments.superres.guesses import guess_noise
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.matching import compare, flat_distance
from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.precision import deviations
from geosoftmax_experiments.superres.psf import Gaussian

#: The camera: nm of a pixel, pixels of a side, counts without light and for each photon.
PIXEL, SIDE, BASE, GAIN = 100.0, 64, 100.0, 2.2
#: Pixels along the border without emitters: some rivals do not look there.
RIM = 6
#: The point-spread function that pixels integrate, and photons of a pixel without emitters.
PSF, BACKGROUND = Gaussian(1.1), 20.0
#: Emitters for each square micrometre, with the number of frames; mean photons of an emitter.
DENSITIES = {0.5: 16, 1.0: 12, 3.0: 6, 6.0: 4}
PHOTONS = (300.0, 1000.0, 3000.0)
#: Photons are anywhere between these shares of their mean.
DIFFER = (0.5, 1.5)
TOLERANCE, SCALE = 100.0, 250.0
#: An emitter is isolated if the next one is so far, in widths of the spread function.
ALONE = 6.0
OURS, PICASSO = "localize", "Picasso"
METHODS = {OURS: "sliding", "plain Frank–Wolfe": "plain", "local maxima": "maxima"}
#: The Python that has Picasso (picassosr on the package index).
VARIABLE = "GEOSOFTMAX_PICASSO"
#: Picasso's sides of a box, in pixels, and the least gradient of a spot: so low that it finds more
#: than there are. Which box, and which spots, count is decided by the truth, in its favour.
BOXES, GRADIENT = (5, 7), 50
_DUMP = """
import sys, h5py, numpy
with h5py.File(sys.argv[1]) as file:
    locs = file["locs"][()]
numpy.save(sys.argv[2], numpy.stack([locs[n] for n in ("frame", "x", "y", "net_gradient")], -1))
"""


@dataclasses.dataclass(frozen=True)
class Stack:
    """Frames, rows of frame, x and y in nm, and the bound of each, whether alone or not."""

    density: float
    photons: float
    frames: np.ndarray
    truth: np.ndarray
    bounds: np.ndarray
    alone: np.ndarray


def run(bench: Bench) -> Report:
    report = Report("Emitters from sparse to crowded")
    densities = {0.5: 2, 3.0: 1} if bench.quick else DENSITIES
    photons = PHOTONS[1:2] if bench.quick else PHOTONS
    stacks = [draw_stack(*one, light) for one in densities.items() for light in photons]
    found: dict[str, list[np.ndarray]] = {}
    for name, method in METHODS.items():
        if method == "sliding" or not bench.own:
            bench.say(f"  {name}")
            found[name] = [_found(stack, method) for stack in stacks]
    if not bench.own:
        _add_picasso(bench, stacks, found)
    rows = [
        _row(stack, {name: one[k] for name, one in found.items()}) for k, stack in enumerate(stacks)
    ]
    note = (
        f"Frames of {SIDE}×{SIDE} pixels of {PIXEL:g} nm, a rim of {RIM} pixels empty, "
        f"{BACKGROUND:g} photons a pixel without emitters, a spread function of "
        f"{PSF.sigma * PIXEL:g} nm, {GAIN:g} counts for a photon; "
        f"photons between {DIFFER[0]:g} and {DIFFER[1]:g} times the mean. Within {TOLERANCE:g} nm. "
        "'Bound': of Cramér and Rao, for both coordinates of an isolated emitter. Of what rivals "
        "find, in each row that counts whose light, or gradient with Picasso, is above the "
        "threshold which is best for their Jaccard index, by the truth, as is Picasso's box of "
        f"{' or '.join(map(str, BOXES))} pixels; localize sets its own."
    )
    report.add(bench, Section("Jaccard index and error", rows, note))
    ratios = {name: _over_bound(stacks, one) for name, one in found.items()}
    report.add(
        bench,
        Section(
            "Isolated emitters",
            [{"": name, "RMSE ÷ bound": value} for name, value in ratios.items()],
            "Root mean square of the errors over their bounds, of all stacks.",
        ),
    )
    report.targets.append(Target("isolated emitters: RMSE ÷ bound", ratios[OURS], 1.15))
    if PICASSO in found:
        for density in densities:
            ahead = [
                row[f"{OURS}: Jaccard"] - row[f"{PICASSO}: Jaccard"]
                for row in rows
                if row["emitters/µm²"] == density
            ]
            name = f"Jaccard index above Picasso's at {density:g} emitters/µm²"
            report.targets.append(Target(name, min(ahead), 0.0, at_most=False))
    return report


def draw_stack(density: float, count: int, photons: float) -> Stack:
    """Draw frames of emitters anywhere, with the noise of photons."""
    inner = SIDE - 2 * RIM
    number = round(density * (inner * PIXEL / 1000) ** 2)
    generator = torch.Generator().manual_seed(int(10 * density + photons))
    points = RIM + inner * torch.rand(count, number, 2, generator=generator)
    share = DIFFER[0] + (DIFFER[1] - DIFFER[0]) * torch.rand(count, number, generator=generator)
    state = Emitters(points, photons * share, torch.full((count,), BACKGROUND))
    light = model(state, torch.zeros(count, SIDE, SIDE), PSF)
    frames = BASE + GAIN * torch.poisson(light, generator=generator)
    near = torch.cdist(points, points).diagonal_scatter(
        torch.full((count, number), torch.inf), dim1=1, dim2=2
    )
    alone = near.amin(-1) > ALONE * PSF.sigma
    place = torch.arange(1, count + 1)[:, None, None].expand(count, number, 1)
    return Stack(
        density,
        photons,
        frames.round().double().numpy(),
        torch.cat([place, PIXEL * points], -1).flatten(0, 1).double().numpy(),
        (PIXEL * deviations(state, light, PSF)).flatten().numpy(),
        alone.flatten().numpy(),
    )


def _found(stack: Stack, method: str) -> np.ndarray:
    """Return rows of frame, x and y. Only `localize` sets its threshold by itself."""
    if method == "sliding":
        settings = choose_settings(stack.frames, PSF, base=BASE)
    else:
        light = torch.from_numpy(stack.frames).float()
        least = LEAST * guess_noise(light, PSF)
        settings = choose_settings(stack.frames, PSF, base=BASE, alike=False, threshold=least)
    rows = find_emitters(stack.frames, settings, method=method, pixel=PIXEL, gain=GAIN)
    return rows[:, 1:4] if method == "sliding" else _best(stack, rows[:, 1:4], rows[:, 5])


def _best(stack: Stack, rows: np.ndarray, strength: np.ndarray) -> np.ndarray:
    """Return the rows above the threshold that the truth says is best."""
    levels = np.quantile(strength, np.linspace(0, 0.98, 50)) if len(rows) else np.zeros(1)
    scores = [compare(rows[strength >= one], stack.truth, TOLERANCE).jaccard for one in levels]
    return rows[strength >= levels[int(np.argmax(scores))]]


def _row(stack: Stack, found: dict[str, np.ndarray]) -> dict[str, Any]:
    scores = {name: compare(one, stack.truth, TOLERANCE) for name, one in found.items()}
    row: dict[str, Any] = {"emitters/µm²": stack.density, "photons": stack.photons}
    row |= {f"{name}: Jaccard": score.jaccard for name, score in scores.items()}
    row |= {f"{name}: RMSE, nm": score.rmse for name, score in scores.items()}
    row |= {
        f"{name}: flat, nm": flat_distance(one, stack.truth, SCALE) for name, one in found.items()
    }
    lone = stack.bounds[stack.alone]
    row["bound, nm"] = float(np.sqrt(2 * np.square(lone).mean())) if len(lone) else None
    return row


def _over_bound(stacks: list[Stack], found: list[np.ndarray]) -> float:
    """Return how large the errors of isolated emitters are, in units of their bounds."""
    squares = []
    for stack, rows in zip(stacks, found, strict=True):
        for place in np.flatnonzero(stack.alone):
            frame, x, y = stack.truth[place]
            mine = rows[rows[:, 0] == frame, 1:]
            square = np.square(mine - [x, y]).sum(-1).min(initial=np.inf)
            if square < SCALE**2:
                squares.append(square / (2 * stack.bounds[place] ** 2))
    return float(np.sqrt(np.mean(squares))) if squares else float("nan")


# ------------------------------------------------------------------ Picasso


def _add_picasso(bench: Bench, stacks: list[Stack], found: dict[str, list[np.ndarray]]) -> None:
    python = os.environ.get(VARIABLE)
    if not python:
        bench.missing.add(f"Picasso (${VARIABLE} names a Python that has picassosr)")
        return
    bench.say(f"  {PICASSO}")
    movie = np.concatenate([stack.frames for stack in stacks])
    tables = [_spots(python, movie, box) for box in BOXES]
    found[PICASSO], start = [], 0
    for stack in stacks:
        tried = []
        for spots in tables:
            mine = spots[(spots[:, 0] >= start) & (spots[:, 0] < start + len(stack.frames))]
            mine = mine - np.array([start - 1, 0, 0, 0])  # frames are counted from 1
            tried.append(_best(stack, mine[:, :3], mine[:, 3]))
        start += len(stack.frames)
        found[PICASSO].append(
            max(tried, key=lambda rows: compare(rows, stack.truth, TOLERANCE).jaccard)
        )


def _spots(python: str, frames: np.ndarray, box: int) -> np.ndarray:
    """Return rows of frame from 0, x, y in nm and gradient that ``picasso localize`` finds."""
    import tifffile

    with tempfile.TemporaryDirectory() as folder:
        movie, table = Path(folder) / "movie.tif", Path(folder) / "table.npy"
        tifffile.imwrite(movie, frames.astype(np.uint16), photometric="minisblack")
        camera = ["-bl", BASE, "-s", 1 / GAIN, "-ga", 1, "-qe", 1, "-px", PIXEL]
        fit = ["-b", box, "-a", "mle", "-g", GRADIENT, "-d", 0]
        # It takes whole numbers of counts, and writes its settings to the home folder.
        words = [
            f"{value:g}" if isinstance(value, float) else str(value) for value in [*camera, *fit]
        ]
        home = {**os.environ, "HOME": folder, "PYTHONPATH": ""}
        commands = (
            [python, "-m", "picasso", "localize", str(movie), *words],
            [python, "-c", _DUMP, str(movie.with_name("movie_locs.hdf5")), str(table)],
        )
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, env=home, cwd=folder)
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise SystemExit(f"Picasso failed: {last}. Does ${VARIABLE} name a Python with it?")
        spots = np.load(table)
    spots[:, 1:3] = PIXEL * (spots[:, 1:3] + 0.5)  # from the corner, not the centre, of a pixel
    return spots.astype(float)


# ------------------------------------------------------------------ picture


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw the Jaccard index and the error against the density, a column for each brightness."""
    from matplotlib.figure import Figure

    rows = result["sections"][0]["rows"]
    lights = sorted({row["photons"] for row in rows})
    figure = Figure(figsize=(3.2 * len(lights) + 1, 5.6), layout="constrained")
    axes = figure.subplots(2, len(lights), sharex=True, sharey="row", squeeze=False)
    names = [key.removesuffix(": Jaccard") for key in rows[0] if key.endswith(": Jaccard")]
    for column, light in enumerate(lights):
        mine = [row for row in rows if row["photons"] == light]
        density = [row["emitters/µm²"] for row in mine]
        for name in names:
            style = {"marker": "o", "label": name, "lw": 2.4 if name == OURS else 1.4}
            axes[0, column].plot(density, [row[f"{name}: Jaccard"] for row in mine], **style)
            axes[1, column].plot(density, [row[f"{name}: RMSE, nm"] for row in mine], **style)
        bound = [row["bound, nm"] for row in mine if row["bound, nm"] is not None]
        axes[1, column].axhline(bound[0], color="grey", ls="--", label="bound, isolated")
        axes[0, column].set_title(f"{light:g} photons")
        axes[1, column].set_xlabel("emitters/µm²")
    for row, label in zip(axes, ("Jaccard index", "RMSE, nm"), strict=True):
        row[0].set_ylabel(label)
        for one in row:
            one.set_xscale("log")
            one.set_xticks(density, [f"{value:g}" for value in density])
            one.minorticks_off()
            one.grid(alpha=0.3)
    axes[0, 0].set_ylim(0, 1.02)
    axes[1, 0].set_ylim(0, None)
    axes[1, -1].legend(fontsize=8)
    figure.savefig(path, dpi=110)

"""Microscopy: how fast and how well are emitters found, against what is common?"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target
from geosoftmax_experiments.superres.emitters import Settings
from geosoftmax_experiments.superres.localisation import choose_settings, find_emitters
from geosoftmax_experiments.superres.matching import compare, within
from geosoftmax_experiments.superres.measures import Emitters, model
from geosoftmax_experiments.superres.positions import COLUMNS
from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.stacks import read_stack
from geosoftmax_experiments.superres.views import INNER

#: What the simulation says: nm, counts without light, counts for each photon.
PIXEL, SPREAD, BASE, GAIN = 100.0, 110.0, 100.0, 2.0
TOLERANCE = 100.0
#: Defaults were set on the first ten frames of the stack with positions; the others are reported.
SET_ON, REPORTED = (1, 10), (11, 20)
#: Name, method, and whether emitters are taken to be alike (None: as the frames show).
WAYS = (
    ("sliding", "sliding", None),
    ("sliding, any brightness", "sliding", False),
    ("plain Frank–Wolfe, 1000 rounds", "plain", False),
    ("local maxima, Gaussian fits", "maxima", False),
)
REPEATS = 3


@dataclasses.dataclass(frozen=True)
class Stack:
    """Frames, and rows of frame, x and y in nm where the emitters are known."""

    frames: np.ndarray
    truth: np.ndarray | None
    source: str


def run(bench: Bench) -> Report:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report = Report("Point emitters in camera frames")
    known, long = _known(bench), _long(bench)
    rows = []
    for name, method, alike in [way for way in WAYS if way[1] == "sliding" or not bench.own]:
        bench.say(f"  {name}")
        settings = _settings(known, alike, device, method)
        scores = _quality(bench, known, settings, method, device)
        few = long.frames if method == "sliding" and device == "cuda" else long.frames[:32]
        few = few[:4] if bench.quick else few
        settings = _settings(long, alike, device, method)
        speed = _speed(few, settings, method, device)
        rows.append({"": name, "frames/s": speed, "frames timed": len(few), **scores})
    ours = rows[0]
    seconds = {row[""]: 1 / row["frames/s"] for row in rows}
    rows.append(dict.fromkeys(ours) | _floor(bench, settings, device))
    note = (
        f"On {'the GPU' if device == 'cuda' else f'{torch.get_num_threads()} CPU threads'}, in "
        f"float32. Speed, from frames to a table: {long.source}. Quality within "
        f"{TOLERANCE:g} nm: {known.source}; defaults were set on its frames "
        f"{SET_ON[0]} to {SET_ON[1]}, recall, precision and RMSE are of frames {REPORTED[0]} to "
        f"{REPORTED[1]}. 'Uncovered': the strongest emitter that a fit leaves out, in photons, as "
        "a grid twice as fine as that of the search shows; the worst of all frames."
    )
    title = "Frames of 64×64, about 250 emitters each"
    report.add(bench, Section(title, rows, note, seconds))
    least = 100.0 if device == "cuda" else 1.0
    report.targets.append(
        Target(f"localize, {device}", ours["frames/s"], least, at_most=False, unit="frames/s")
    )
    if ours["RMSE, nm"] is not None:
        jaccard = ours[f"Jaccard {REPORTED[0]}–{REPORTED[1]}"]
        report.targets += [
            Target(f"localize, {device}: Jaccard index", jaccard, 0.85, at_most=False),
            Target(f"localize, {device}: lateral RMSE", ours["RMSE, nm"], 25.0, unit="nm"),
        ]
    return report


def _settings(stack: Stack, alike: bool | None, device: str, method: str) -> Settings:
    """Return what `localize` chooses; others get the threshold of the first row: a higher one."""
    psf = Gaussian(SPREAD / PIXEL, sampled=True)
    choose = functools.partial(choose_settings, stack.frames, psf, base=BASE, device=device)
    if method == "sliding":
        return choose(alike=alike)
    return choose(alike=False, threshold=choose().threshold)


def _quality(
    bench: Bench, stack: Stack, settings: Settings, method: str, device: str
) -> dict[str, Any]:
    names = [f"Jaccard {a}–{b}" for a, b in (SET_ON, REPORTED)]
    scores = dict.fromkeys([*names, "recall", "precision", "RMSE, nm", "uncovered"])
    rows = _find(stack.frames, settings, method, device)
    uncovered = rows[:, COLUMNS.index("uncovered [photon]")]
    if len(rows) and not np.isnan(uncovered).any():
        scores["uncovered"] = float(uncovered.max())
    if importlib.util.find_spec("scipy") is None:
        bench.missing.add("scipy (for the matching)")
        return scores
    assert stack.truth is not None
    found = rows[:, 1:4]
    for name, (first, last) in zip(names, (SET_ON, REPORTED), strict=True):
        result = compare(within(found, first, last), within(stack.truth, first, last), TOLERANCE)
        scores[name] = result.jaccard
    return scores | {
        "recall": result.recall,
        "precision": result.precision,
        "RMSE, nm": result.rmse,
    }


def _speed(frames: np.ndarray, settings: Settings, method: str, device: str) -> float:
    """Return frames a second, the median of some runs."""
    seconds = []
    _find(frames[:8], settings, method, device)  # warms up
    for _ in range(REPEATS if device == "cuda" else 1):
        start = time.perf_counter()
        _find(frames, settings, method, device)  # its answer is on the CPU: nothing is pending
        seconds.append(time.perf_counter() - start)
    return len(frames) / statistics.median(seconds)


def _find(frames: np.ndarray, settings: Settings, method: str, device: str) -> np.ndarray:
    return find_emitters(frames, settings, method=method, pixel=PIXEL, gain=GAIN, device=device)


def _floor(bench: Bench, settings: Settings, device: str) -> dict[str, Any]:
    """The multiplications of all rounds with 300 emitters, at the rate of a large product."""
    emitters, side = 300, 64
    product = 2 * 2 * emitters * side * side  # down and its derivative, times an image
    steps = settings.rounds * settings.steps + settings.polish * settings.polish_steps
    operations = steps * (2 * INNER + 4) * product
    fine = 3 * side
    operations += settings.start * 2 * 2 * fine * side * (side + fine)
    rate = bench.rates.flops32 if device == "cpu" else _gpu_rate()
    return {"": "floor: the multiplications of sliding", "frames/s": rate / operations}


def _gpu_rate() -> float:
    """Measure float32 operations a second of a large product."""
    a = torch.ones(8192, 8192, device="cuda")
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.mm(a, a)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2 * 8192**3 / min(seconds)


# ------------------------------------------------------------------ frames


def _known(bench: Bench) -> Stack:
    path = _file("ArtificialDataset_demo1")
    positions = _folder() / "positions_demo1.csv"
    if path is None or not positions.is_file():
        return _simulated(20)
    truth = np.loadtxt(positions, delimiter=",", skiprows=1, usecols=(1, 2, 3))
    return Stack(read_stack(path)[0], truth, "20 artificial frames with positions (Deep-STORM)")


def _long(bench: Bench) -> Stack:
    path = _file("testStack_SimulatedMicrotubules")
    if path is None:
        return _simulated(32 if bench.quick else 361)
    frames = read_stack(path)[0]
    return Stack(frames, None, f"{len(frames)} frames of simulated microtubules (Deep-STORM)")


def _folder() -> Path:
    return Path(os.environ.get("GEOSOFTMAX_DATA", "")) / "smlm"


def _file(name: str) -> Path | None:
    """Return a stack, as NumPy saved it or, where tifffile is installed, as it was published."""
    suffixes = [".npy", ".tif"] if importlib.util.find_spec("tifffile") else [".npy"]
    paths = [_folder() / (name + suffix) for suffix in suffixes]
    return next((path for path in paths if path.is_file()), None)


def _simulated(count: int) -> Stack:
    """Emitters anywhere, 2000 to 2500 photons each, as in the published stack; Poisson noise."""
    generator = torch.Generator().manual_seed(0)
    shape = (count, 250)
    state = Emitters(
        64 * torch.rand(*shape, 2, generator=generator),
        2000 + 500 * torch.rand(shape, generator=generator),
        torch.full((count,), 20.0),
    )
    light = model(state, torch.zeros(count, 64, 64), Gaussian(SPREAD / PIXEL, sampled=True))
    frames = BASE + GAIN * torch.poisson(light, generator=generator)
    number = torch.arange(1, count + 1)[:, None, None].expand(*shape, 1)
    truth = torch.cat([number, PIXEL * state.points], -1).flatten(0, 1)
    return Stack(frames.double().numpy(), truth.double().numpy(), "frames simulated here")

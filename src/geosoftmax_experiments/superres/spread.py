"""The point-spread function that ``--psf`` names: a length, ``auto``, or a file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.runs import one_thread
from geosoftmax_experiments.superres.beads import measure_psf
from geosoftmax_experiments.superres.guesses import guess_background
from geosoftmax_experiments.superres.localisation import check_width, find_width, shows_another
from geosoftmax_experiments.superres.measured import MeasuredPsf
from geosoftmax_experiments.superres.psf import Gaussian, Psf
from geosoftmax_experiments.superres.stacks import read_length, read_stack
from geosoftmax_experiments.superres.tabulated import read_psf_table
from geosoftmax_experiments.superres.width import Width

__all__ = ["Camera", "choose_psf", "is_file"]

#: What names of files end with: stacks of beads, and tables.
STACKS, TABLES = (".tif", ".tiff", ".npy"), (".csv",)


@dataclass(frozen=True)
class Camera:
    """Nanometres of a pixel, counts without light (None: not given), and how pixels see."""

    pixel: float
    base: float | None
    sampled: bool | None
    device: str = "cpu"

    @property
    def dark(self) -> float:
        """Counts without light."""
        return self.base or 0.0


def is_file(text: str) -> bool:
    """Return whether ``--psf`` names a file."""
    return Path(text).suffix.lower() in STACKS + TABLES


def is_beads(text: str) -> bool:
    """Return whether ``--psf`` names a stack of beads."""
    return Path(text).suffix.lower() in STACKS


def check_kind(text: str, sampled: bool | None) -> None:
    """Refuse to be told how pixels see a function which they were measured with."""
    if sampled is not None and (text == "auto" or is_beads(text)):
        raise UserError(
            f"--psf {text} measures what pixels see.", "Leave --sampled or --integrated out."
        )


def choose_psf(text: str, frames: np.ndarray, camera: Camera, memory: int, console: Console) -> Psf:
    """Read or measure the point-spread function; warn where the frames show another width."""
    if text == "auto":
        return _measured_here(frames, camera, console)
    if is_beads(text):
        given = _of_beads(Path(text), camera, memory, console)
    elif is_file(text):
        given = read_psf_table(Path(text), camera.pixel, sampled=bool(camera.sampled))
        console.print(f"{text} is {_shape(given, camera)}.", soft_wrap=True)
    else:
        given = Gaussian(read_length("--psf", text) / camera.pixel, bool(camera.sampled))
    if isinstance(given, MeasuredPsf):
        kind = "sampled" if camera.sampled else "integrated"
        given.source = f"{hashlib.sha256(Path(text).read_bytes()).hexdigest()} {kind}"
    check_width(frames, given)
    found = find_width(frames, camera.dark, roughly=True, device=camera.device)
    if found is None or not found.differs(given):
        return given
    # Of a shape that is no Gaussian, the width alone does not tell.
    if not isinstance(given, MeasuredPsf) or shows_another(
        frames, found, given, camera.dark, camera.device
    ):
        console.print(_warning(text, frames, given, found, camera), soft_wrap=True)
    return given


def _measured_here(frames: np.ndarray, camera: Camera, console: Console) -> Psf:
    found = find_width(frames, camera.dark, device=camera.device)
    if found is None:
        raise UserError(
            "--psf auto finds too few emitters that stand alone.",
            "Measure it on beads: --psf beads.tif.",
        )
    console.print(f"The point-spread function is {_wide(found, camera.pixel)}.", soft_wrap=True)
    return found.psf


def _of_beads(path: Path, camera: Camera, memory: int, console: Console) -> MeasuredPsf:
    beads, saturated = read_stack(path, memory)
    if saturated:
        raise UserError(
            f"{path} holds saturated pixels in {saturated} of {len(beads)} frames.",
            "Saturated beads have no shape: take them with less light.",
        )
    with one_thread():
        psf, number = measure_psf(torch.from_numpy(beads).float(), camera.dark)
    console.print(f"{path}: by {number} beads, {_shape(psf, camera)}.", soft_wrap=True)
    return psf


def _shape(psf: MeasuredPsf, camera: Camera) -> str:
    return (
        f"as wide as a Gaussian of {psf.sigma * camera.pixel:.0f} nm, which differs from it by "
        f"{100 * psf.unlike:.0f} %"
    )


def _wide(found: Width, pixel: float) -> str:
    """Say how wide emitters are, and how sure that is."""
    width = f"{found.sigma * pixel:.0f} ± {max(1.0, found.error * pixel):.0f} nm wide"
    by = f"by {found.number} emitters that stand alone"
    if found.sampled is not None:
        return f"{width}, and pixels {'sample' if found.sampled else 'integrate'} it, {by}"
    other = found.sigma_if(sampled=True) * pixel
    return (
        f"{width} if pixels integrate it, which is assumed, or {other:.0f} nm if they sample it, "
        f"{by}, too dim to tell which"
    )


def _warning(text: str, frames: np.ndarray, given: Psf, found: Width, camera: Camera) -> str:
    """Say that emitters are wider, or narrower; or that --base is missing, where that is why."""
    pixel = camera.pixel
    said = (
        f"Warning: --psf {text} does not fit the frames. Emitters that stand alone are "
        f"{found.sigma_if(sampled=given.sampled) * pixel:.0f} nm wide ({found.number} of them)."
    )
    if camera.base is None:
        dark = float(guess_background(torch.from_numpy(frames).flatten()[None])[0])
        other = find_width(frames, dark, roughly=True, device=camera.device)
        if other is not None and not other.differs(given):
            return (
                f"Warning: --base is not given. If a pixel without light counts about {dark:.0f}, "
                f"as the darkest do, emitters are "
                f"{other.sigma_if(sampled=given.sampled) * pixel:.0f} nm wide, and --psf {text} "
                f"fits; if it counts 0, they are "
                f"{found.sigma_if(sampled=given.sampled) * pixel:.0f} nm wide, and it does not."
            )
    return f"{said} Try --psf auto, or a stack of beads."

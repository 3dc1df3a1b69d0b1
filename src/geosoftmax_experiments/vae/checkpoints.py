"""Checkpoints: a folder with weights as safetensors, and Lightning's own state beside them.

A folder is filled under another name and then moved into place, and only then is the one before it
removed: whenever a run is killed, or its disk is full, a whole checkpoint is there.
"""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import CheckpointIO
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError, hold_signals
from geosoftmax_experiments.vae.models import VAE

__all__ = ["FolderIO", "forget_state", "latest", "load_weights"]

WEIGHTS = "weights.safetensors"
STATE = "state.pt"
#: What Lightning goes on from.
STATE_KEYS = {"epoch", "global_step", "loops", "callbacks", "optimizer_states"}
_AGAIN = "Remove {}, then train again: from the start, with the same command."
#: What Lightning calls the network inside its module.
PREFIX = "net."


class FolderIO(CheckpointIO):
    """How Lightning writes and reads a checkpoint."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike, storage_options: Any = None
    ) -> None:
        """Write a checkpoint whole or not at all, then remove those before it."""
        # An interrupt inside torch.save would come out of it as an error of the disk.
        with hold_signals():
            self._save(checkpoint, Path(path))

    def _save(self, checkpoint: dict[str, Any], folder: Path) -> None:
        partial = folder.with_name(f"{files.PARTIAL}{folder.name}")
        state = {key: value for key, value in checkpoint.items() if key != "state_dict"}
        weights = {
            name.removeprefix(PREFIX): value.detach().cpu().contiguous()
            for name, value in checkpoint["state_dict"].items()
        }
        files.make_folder(folder.parent)
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            save_file(weights, partial / WEIGHTS)
            with (partial / STATE).open("wb") as file:
                torch.save(state, file)
            for name in (WEIGHTS, STATE):
                _sync(partial / name)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
            _sync(folder.parent)
        except (OSError, RuntimeError, SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            raise UserError(
                f"Could not write the checkpoint {folder}: {error}",
                "Free some space; the checkpoint before is kept, and the same command continues.",
            ) from None
        for other in _folders(folder.parent):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)

    def load_checkpoint(
        self, path: str | os.PathLike, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Read a checkpoint: nothing in it can run code."""
        folder = Path(path)
        try:
            _check_archive(folder / STATE)
            state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
        except Exception as error:  # whatever a damaged file makes of the reader
            raise UserError(
                f"{folder / STATE} is damaged: {_first_line(error)}", _AGAIN.format(folder)
            ) from None
        weights = _read_weights(folder / WEIGHTS)
        if not isinstance(state, dict) or STATE_KEYS - state.keys():
            raise UserError(f"{folder / STATE} is not Lightning's.", _AGAIN.format(folder))
        return {**state, "state_dict": {PREFIX + name: value for name, value in weights.items()}}

    def remove_checkpoint(self, path: str | os.PathLike) -> None:
        """Remove a checkpoint."""
        shutil.rmtree(path, ignore_errors=True)


def latest(run: Path) -> Path | None:
    """Return the folder of the last checkpoint of a run, None where there is none."""
    found = _folders(run / "checkpoints")
    return found[-1] if found else None


def load_weights(build: Callable[[], VAE], run: Path) -> VAE:
    """Return a network with the weights of the last checkpoint of a run, on the CPU.

    It takes no memory before its sizes, which ``run.json`` says, agree with those of the weights.
    """
    folder = latest(run)
    if folder is None:
        raise UserError(
            f"{run} has no checkpoint.", "Train it first: `geosoftmax vae train -o FOLDER`."
        )
    path = folder / WEIGHTS
    weights = _read_weights(path)
    with torch.device("meta"):
        planned = build().state_dict()
    for name in sorted(planned.keys() | weights.keys()):
        wanted, found = (_describe(tensors.get(name)) for tensors in (planned, weights))
        if wanted != found:
            raise UserError(
                f"{path} is of another architecture: {name} is {found}, expected {wanted}.",
                "Give the checkpoint of the run, or train again.",
            )
    net = build()
    net.load_state_dict(weights)
    return net


def forget_state(run: Path) -> None:
    """Keep the weights of a run that is complete, not what training needs to go on."""
    folder = latest(run)
    if folder is not None:
        (folder / STATE).unlink(missing_ok=True)


def _folders(parent: Path) -> list[Path]:
    """Return the whole checkpoints, the last at the end."""
    return sorted(path for path in parent.glob("epoch-*") if (path / WEIGHTS).exists())


def _read_weights(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} is damaged: {error}", _AGAIN.format(path.parent)) from None


def _check_archive(path: Path) -> None:
    """Refuse what torch.save does not write: formats of old, and archives that unpack to more."""
    with zipfile.ZipFile(path) as file:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in file.infolist()):
            raise ValueError("its entries are compressed")


def _describe(tensor: torch.Tensor | None) -> str:
    """Say what a tensor is, its precision aside."""
    if tensor is None:
        return "missing"
    kind = "floats" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
    return f"{kind} of shape {tuple(tensor.shape)}"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _first_line(error: Exception) -> str:
    lines = [text.strip() for text in str(error).splitlines() if text.strip()] or [repr(error)]
    return lines[0]

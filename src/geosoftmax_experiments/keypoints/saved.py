"""A trained network on disk: weights as safetensors, all else as JSON, nothing that could run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.decoders import DECODERS
from geosoftmax_experiments.keypoints.losses import LOSSES, Setting
from geosoftmax_experiments.keypoints.model import Model

__all__ = ["Description", "load_model", "save_model"]

#: Raised when the files change their meaning.
VERSION = 1
#: Sides of maps, channels and points of a model, at most: what a file may ask memory for.
MOST_SIDE, MOST_WIDTH, MOST_PARTS = 1024, 512, 1000


@dataclass(frozen=True)
class Description:
    """All about a model but its weights."""

    loss: str
    setting: Setting
    decoder: str
    shape: tuple[int, int]
    width: int
    parts: tuple[str, ...]

    def build(self) -> Model:
        """Return the model with random weights."""
        return Model(self.loss, self.setting, self.shape, len(self.parts), self.width)


def save_model(model: Model, description: Description, folder: Path) -> None:
    """Write ``model.safetensors`` and ``model.json``."""
    weights = save({name: value.cpu().contiguous() for name, value in model.tensors().items()})
    words = {"version": VERSION, "sha256": hashlib.sha256(weights).hexdigest()}
    words |= asdict(description)
    files.write(folder / "model.safetensors", lambda path: path.write_bytes(weights))
    files.write_text(folder / "model.json", json.dumps(words, indent=1, ensure_ascii=False))


def load_model(folder: Path) -> tuple[Model, Description]:
    """Read a model; what is damaged or does not fit together is refused."""
    again = "Train it again with `geosoftmax keypoints train`."
    try:
        words = files.read_json(folder / "model.json")
        weights = (folder / "model.safetensors").read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder} is not a model: {error.filename} is missing.",
            "Give the folder that `geosoftmax keypoints train -o FOLDER` wrote.",
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / 'model.json'} cannot be read: {error}", again) from None
    description = _read(words, folder, again)
    if hashlib.sha256(weights).hexdigest() != words.get("sha256"):
        raise UserError(f"{folder / 'model.safetensors'} is damaged: its checksum is wrong.", again)
    model = description.build()
    own = model.tensors()
    try:
        found = load(weights)
    except SafetensorError as error:
        raise UserError(f"{folder / 'model.safetensors'} is damaged: {error}.", again) from None
    fits = found.keys() == own.keys() and all(
        found[name].shape == own[name].shape and found[name].dtype == own[name].dtype
        for name in own
    )
    if not fits:
        raise UserError(f"{folder} holds weights that do not fit its model.json.", again)
    for name, tensor in own.items():
        tensor.data.copy_(found[name])
    return model.eval(), description


def _read(words: Any, folder: Path, again: str) -> Description:
    try:
        if words["version"] != VERSION:
            raise UserError(
                f"{folder / 'model.json'} has version {words['version']}; this geosoftmax reads "
                f"version {VERSION}.",
                "Use the geosoftmax that wrote it, or train it again.",
            )
        height, width = words["shape"]
        found = Description(
            words["loss"],
            words["setting"],
            words["decoder"],
            (height, width),
            words["width"],
            tuple(words["parts"]),
        )
        whole = (
            found.loss in LOSSES
            and found.setting in LOSSES[found.loss][1]
            and (found.decoder in DECODERS or found.decoder == "offset")
            and all(type(n) is int and 8 <= n <= MOST_SIDE and n % 4 == 0 for n in found.shape)
            and type(found.width) is int
            and 1 <= found.width <= MOST_WIDTH
            and 1 <= len(found.parts) <= MOST_PARTS
            and all(isinstance(part, str) for part in found.parts)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"{folder / 'model.json'} does not describe a model.", again)
    return found

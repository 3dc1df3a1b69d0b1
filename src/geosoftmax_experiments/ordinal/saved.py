"""A fitted model on disk: numbers as safetensors, all else as JSON, nothing that could run code."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from geosoftmax import LineCost, geometric_softmax
from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.decisions import Prediction
from geosoftmax_experiments.ordinal.encoding import MOST_CLASSES, Column

__all__ = ["OrdinalModel", "load_model", "save_model"]

#: Raised when the files change their meaning.
VERSION = 1
DECISIONS = ("mode", "median", "mean", "scores")
ARRAYS = ("coef", "intercept", "mean", "spread")


@dataclass(frozen=True)
class OrdinalModel:
    """Linear scores of standardised features, and what turns them into classes.

    Probabilities are the geometric softmax with ``C = scale (ŷ-y)²``; `decision` says which class
    they choose.
    """

    target: str
    classes: list[Any]
    columns: list[Column]
    scale: float
    alpha: float
    decision: str
    coef: np.ndarray
    intercept: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    def predict(self, X: np.ndarray) -> Prediction:
        """Return probabilities and scores of encoded samples."""
        scores = (X - self.mean) / self.spread @ self.coef.T + self.intercept
        cost = LineCost(len(self.classes), p=2) * self.scale
        return Prediction(geometric_softmax(torch.from_numpy(scores), cost).numpy(), scores)


def save_model(model: OrdinalModel, folder: Path) -> None:
    """Write ``model.safetensors`` and ``model.json``, which holds the checksums of both."""
    numbers = save({name: np.ascontiguousarray(getattr(model, name)) for name in ARRAYS})
    words = {key: value for key, value in asdict(model).items() if key not in ARRAYS}
    words = {"version": VERSION, "tensors_sha256": hashlib.sha256(numbers).hexdigest(), **words}
    words = json.loads(json.dumps(words))
    files.write(folder / "model.safetensors", lambda path: path.write_bytes(numbers))
    text = json.dumps({**words, "sha256": _checksum(words)}, indent=1, ensure_ascii=False)
    files.write_text(folder / "model.json", text)


def load_model(folder: Path) -> OrdinalModel:
    """Read a model; damaged ones, and those of another version, are refused."""
    again = "Fit it again with `geosoftmax ordinal fit`."
    path = folder / "model.json"
    try:
        words = files.read_json(path)
        numbers = (folder / "model.safetensors").read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{folder} is not a model: {error.filename} is missing.",
            "Give the folder that `geosoftmax ordinal fit -o FOLDER` wrote.",
        ) from None
    except OSError as error:
        raise UserError(f"Could not read {path}: {error.strerror}.", "Check the folder.") from None
    except ValueError:
        raise UserError(f"{path} is damaged: it is not JSON.", again) from None
    if not isinstance(words, dict) or "version" not in words:
        raise UserError(f"{path} is damaged: it has no version.", again)
    if words["version"] != VERSION:
        raise UserError(
            f"{path} has version {words['version']}; this geosoftmax reads version {VERSION}.",
            "Use the geosoftmax that wrote it, or fit it again.",
        )
    if words.pop("sha256", None) != _checksum(words):
        raise UserError(f"{path} is damaged: its checksum is wrong.", again)
    if hashlib.sha256(numbers).hexdigest() != words.get("tensors_sha256"):
        raise UserError(f"{folder / 'model.safetensors'} is damaged: its checksum is wrong.", again)
    try:
        arrays = load(numbers)
    except SafetensorError as error:
        raise UserError(f"{folder / 'model.safetensors'} is damaged: {error}.", again) from None
    try:
        columns = [
            Column(c["name"], None if c["categories"] is None else tuple(c["categories"]))
            for c in words["columns"]
        ]
        kept: dict[str, Any] = {
            key: words[key] for key in ("target", "classes", "scale", "alpha", "decision")
        }
        kept |= {name: arrays[name] for name in ARRAYS}
        model = OrdinalModel(columns=columns, **kept)
        whole = _is_whole(model)
    except (KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"{folder} holds parts that do not make up a model.", again)
    return model


def _is_whole(model: OrdinalModel) -> bool:
    """Whether the parts of a model fit each other: checksums do not tell who wrote them."""
    classes = len(model.classes)
    features = sum(1 if c.categories is None else len(c.categories) for c in model.columns)
    shapes = {"coef": (classes, features), "intercept": (classes,), "mean": (features,)}
    shapes["spread"] = shapes["mean"]
    arrays = {name: getattr(model, name) for name in ARRAYS}
    words = [model.target, *(c.name for c in model.columns)]
    words += [word for c in model.columns for word in c.categories or ()]
    return (
        2 <= classes <= MOST_CLASSES
        and all(isinstance(label, (bool, int, float, str)) for label in model.classes)
        and all(isinstance(word, str) for word in words)
        and model.decision in DECISIONS
        and all(0 < float(number) < math.inf for number in (model.scale, model.alpha))
        and all(array.shape == shapes[name] for name, array in arrays.items())
        and all(array.dtype == np.float64 for array in arrays.values())
        and all(np.isfinite(array).all() for array in arrays.values())
        and bool((model.spread > 0).all())
    )


def _checksum(words: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()

"""A fitted model on disk: numbers as safetensors, all else as JSON, nothing that could run code."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save

from geosoftmax import LineCost, geometric_softmax
from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.classes import MOST_CLASSES
from geosoftmax_experiments.ordinal.decisions import Prediction
from geosoftmax_experiments.ordinal.encoding import DATES, Column
from geosoftmax_experiments.ordinal.options import Decision, Missing

__all__ = ["OrdinalModel", "load_model", "save_model"]

#: Raised when the files change their meaning. Version 1 knew numbers and categories alone, and not
#: what fills in missing values.
VERSION = 2
ARRAYS = ("coef", "intercept", "mean", "spread")


@dataclass(frozen=True)
class OrdinalModel:
    """Linear scores of standardised features, and what turns them into classes.

    Probabilities are the geometric softmax with ``C = scale (ŷ-y)²``; `decision` says which class
    they choose. `id` is the column that named the samples, and `missing` what was done about
    missing values.
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
    id: str = ""
    missing: str = "refuse"

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
    """Read a model; damaged ones, and those of a later version, are refused."""
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
    if words["version"] not in range(1, VERSION + 1):
        raise UserError(
            f"{path} has version {words['version']}; this geosoftmax reads versions up to "
            f"{VERSION}.",
            "Use the geosoftmax that wrote it, or fit it again.",
        )
    if words.pop("sha256", None) != _checksum(words):
        raise UserError(f"{path} is damaged: its checksum is wrong.", again)
    if hashlib.sha256(numbers).hexdigest() != words.pop("tensors_sha256", None):
        raise UserError(f"{folder / 'model.safetensors'} is damaged: its checksum is wrong.", again)
    try:
        arrays = load(numbers)
    except SafetensorError as error:
        raise UserError(f"{folder / 'model.safetensors'} is damaged: {error}.", again) from None
    try:
        words["columns"] = [_column(**column) for column in words["columns"]]
        del words["version"]
        words |= {name: arrays[name] for name in ARRAYS}
        model = OrdinalModel(**words)
        whole = _is_whole(model)
    except (KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise UserError(f"{folder} holds parts that do not make up a model.", again)
    return model


def _column(name: str, categories: list[str] | None, **rest: Any) -> Column:
    """Return a column; those of version 1 do not say what kind they are."""
    known = {"kind": "number" if categories is None else "category"} | rest
    return Column(name, categories=None if categories is None else tuple(categories), **known)


def _is_whole(model: OrdinalModel) -> bool:
    """Whether the parts of a model fit each other: checksums do not tell who wrote them."""
    classes = len(model.classes)
    features = sum(len(column.features) for column in model.columns)
    shapes = {"coef": (classes, features), "intercept": (classes,), "mean": (features,)}
    shapes["spread"] = shapes["mean"]
    arrays = {name: getattr(model, name) for name in ARRAYS}
    return (
        2 <= classes <= MOST_CLASSES
        and all(isinstance(label, (bool, int, float, str)) for label in model.classes)
        and all(isinstance(word, str) for word in (model.target, model.id))
        and all(map(_is_whole_column, model.columns))
        and len({column.name for column in model.columns}) == len(model.columns) > 0
        and model.decision in get_args(Decision)[:-1]
        and model.missing in get_args(Missing)
        and all(0 < float(number) < math.inf for number in (model.scale, model.alpha))
        and all(array.shape == shapes[name] for name, array in arrays.items())
        and all(array.dtype == np.float64 for array in arrays.values())
        and all(np.isfinite(array).all() for array in arrays.values())
        and bool((model.spread > 0).all())
    )


def _is_whole_column(column: Column) -> bool:
    fill: Any = column.fill
    if column.kind == "category":
        known = column.categories or ()
        return (
            all(isinstance(word, str) for word in (column.name, *known))
            and 0 < len(set(known)) == len(known)
            and (fill is None or fill in known)
        )
    return (
        isinstance(column.name, str)
        and column.categories is None
        and column.kind in ("number", "date")
        and (column.dates in DATES) == (column.kind == "date")
        and (fill is None or math.isfinite(fill))
    )


def _checksum(words: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(words, sort_keys=True).encode()).hexdigest()

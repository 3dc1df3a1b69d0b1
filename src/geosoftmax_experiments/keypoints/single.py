"""One model of one's own: trained on a project, saved, and used to predict frames."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from geosoftmax_experiments import files
from geosoftmax_experiments.data.keypoints import Frames, unlabelled
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.decoders import DECODERS
from geosoftmax_experiments.keypoints.losses import LOSSES
from geosoftmax_experiments.keypoints.measures import NEAR
from geosoftmax_experiments.keypoints.model import Recipe
from geosoftmax_experiments.keypoints.network import STRIDE
from geosoftmax_experiments.keypoints.saved import Description, load_model, save_model
from geosoftmax_experiments.keypoints.training import (
    Prediction,
    device_of,
    predict,
    train,
)
from geosoftmax_experiments.runs import progress_bar

__all__ = ["predict_frames", "train_model", "write_predictions"]

#: What DeepLabCut's tables have in their first row.
SCORER = "geosoftmax"


def train_model(
    frames: Frames,
    shape: tuple[int, int],
    recipe: Recipe,
    folder: Path,
    console: Console,
    *,
    loss: str,
    decoder: str | None,
    hold_out: int,
    seed: int,
    device: str,
) -> None:
    """Train on a project but for some frames, say the error on those, and save the model."""
    if loss not in LOSSES:
        raise UserError(f"There is no loss {loss!r}.", f"Take one of {', '.join(LOSSES)}.")
    refined = loss == "deeplabcut"
    decoder = decoder or ("offset" if refined else "local mean 5")
    known = [*DECODERS, *(["offset"] if refined else [])]
    if decoder not in known:
        raise UserError(f"There is no decoder {decoder!r} for {loss}.", f"Take {', '.join(known)}.")
    if hold_out > len(frames) - 2:
        raise UserError(
            f"--hold-out {hold_out} leaves nothing of {len(frames)} frames to train on.",
            "Hold out fewer.",
        )
    held = np.unique(np.linspace(0, len(frames) - 1, hold_out).round().astype(int))
    used = np.setdiff1d(np.arange(len(frames)), held)
    setting, where = LOSSES[loss][1][0], device_of(device)
    with progress_bar(console) as bar:
        task = bar.add_task("training", total=recipe.steps)
        model = train(
            frames.pictures[used],
            frames.to_grid(shape)[used],
            shape,
            loss,
            setting,
            recipe,
            seed=seed,
            device=where,
            then=lambda step, _: bar.update(task, completed=step),
        )
        bar.update(task, completed=recipe.steps)
    if hold_out:
        found = predict(model, frames.pictures[held], where)
        apart = frames.from_grid(_all_frames(found.points[decoder], held, len(frames)), shape)
        error = np.linalg.norm((apart - frames.labels.points)[held], axis=-1)
        error = error[~np.isnan(error)]
        console.print(
            f"On {len(held)} frames that were held out: mean error {error.mean():.2f}, median "
            f"{np.median(error):.2f} pixels, {100 * (error <= NEAR).mean():.0f} % within "
            f"{NEAR:g}."
        )
    description = Description(loss, setting, decoder, shape, recipe.width, frames.labels.parts)
    save_model(model, description, folder)
    console.print(f"Model saved in {folder.resolve()}", soft_wrap=True)


def _all_frames(points: np.ndarray, held: np.ndarray, count: int) -> np.ndarray:
    every = np.full((count, *points.shape[1:]), np.nan)
    every[held] = points
    return every


def predict_frames(
    model_folder: Path,
    folder: Path,
    output: Path,
    pictures: Path | None,
    count: int,
    device: str,
    console: Console,
) -> None:
    """Predict the frames of a folder; write the table, and draw the least sure ones."""
    model, description = load_model(model_folder)
    where, shape = device_of(device), description.shape
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder.", "Give a folder of frames.")
    frames = unlabelled(folder, description.parts, (STRIDE * shape[0], STRIDE * shape[1]))
    model.to(where)
    found = predict(model, frames.pictures, where)
    points = frames.from_grid(found.points[description.decoder], shape)
    write_predictions(output, frames, points, found)
    console.print(f"{len(frames)} frames; table saved to {output.resolve()}", soft_wrap=True)
    if pictures is not None:
        from geosoftmax_experiments.keypoints.pictures import draw_least_sure
        from geosoftmax_experiments.report import save

        with torch.no_grad():
            figure = draw_least_sure(model, frames, points, found, count, where)
        save(figure, pictures)
        console.print(f"Picture saved to {pictures.resolve()}", soft_wrap=True)


def write_predictions(path: Path, frames: Frames, points: np.ndarray, found: Prediction) -> None:
    """Write x, y and likelihood of each part, a frame a row, as DeepLabCut's tables have them."""
    parts = frames.labels.parts
    rows: list[list[str]] = [
        ["scorer", *[SCORER] * (3 * len(parts))],
        ["bodyparts", *(part for part in parts for _ in range(3))],
        ["coords", *["x", "y", "likelihood"] * len(parts)],
    ]
    for k, name in enumerate(frames.labels.paths):
        cells = [name]
        for (row, column), sure in zip(points[k], found.likelihood[k], strict=True):
            cells += [f"{column:.3f}", f"{row:.3f}", f"{sure:.4f}"]
        rows.append(cells)

    def fill(partial: Path) -> None:
        with partial.open("w", newline="", encoding="utf8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)

    files.write(path, fill)

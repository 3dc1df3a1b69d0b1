"""The report of ``geosoftmax ordinal fit``: scores, confusions, probabilities and coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix

from geosoftmax_experiments.ordinal.measures import MEASURES
from geosoftmax_experiments.ordinal.samples import Samples
from geosoftmax_experiments.ordinal.saved import OrdinalModel
from geosoftmax_experiments.report import Report, escape, plain_label, write_csv

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["COEFFICIENTS", "Validation", "coefficients", "score_table", "write_own_report"]

EXPLAINED = {
    "mae": "by how many classes the prediction is wrong, on average",
    "amae": "the same, averaged over classes: a rare class counts as much as a frequent one",
    "accuracy": "share of samples whose class is predicted",
    "kappa": "agreement beyond chance, where far misses count more: 1 is perfect, 0 is chance",
    "hausdorff": "how far the predicted distribution lies from the true class: about half the "
    "squared distance in classes, 0 is perfect",
    "rps": "squared error of the cumulative probabilities: 0 is perfect",
    "log_loss": "minus the logarithm of the probability of the true class, on average; each "
    "probability of 0 adds 36",
    "zero_share": "share of samples whose true class was given the probability 0",
}
#: The file of all coefficients, beside the report.
COEFFICIENTS = "coefficients.csv"
#: Features that a table or a figure shows.
MOST_FEATURES = 25


class Validation(NamedTuple):
    """Measures by model and fold; and what the geometric model says of each sample, unseen."""

    scores: pd.DataFrame
    probabilities: np.ndarray
    labels: np.ndarray


def score_table(validation: Validation) -> pd.DataFrame:
    """Return mean and standard deviation over the folds, a row for each measure.

    Some are undefined in folds with one class only: these do not count, and a note says so.
    """
    groups = validation.scores.groupby("model", sort=False)
    rows = []
    for name, meaning in EXPLAINED.items():
        measure = MEASURES[name]
        row = {"measure": f"{measure.label} {'↓' if measure.lower_is_better else '↑'}"}
        for model, scores in groups[name]:
            known = scores.dropna()
            some = f" ({len(known)} folds)" if len(known) < len(scores) else ""
            row[str(model)] = f"{known.mean():.3f} ± {known.std():.3f}{some}"
        rows.append({**row, "what it is": meaning})
    return pd.DataFrame(rows)


def coefficients(model: OrdinalModel) -> pd.DataFrame:
    """Return the coefficients of standardised features, the most telling feature first.

    ``upwards`` is their slope along the classes: a feature with a positive one speaks for higher
    classes.
    """
    names = [name for column in model.columns for name in column.features]
    place = np.arange(len(model.classes)) - (len(model.classes) - 1) / 2
    table = pd.DataFrame({"feature": names, "upwards": place @ model.coef / (place @ place)})
    for label, row in zip(model.classes, model.coef, strict=True):
        table.insert(len(table.columns), str(label), row, allow_duplicates=True)
    return table.sort_values("upwards", key=np.abs, ascending=False, kind="stable")


def write_own_report(
    folder: Path, source: str, model: OrdinalModel, samples: Samples, validation: Validation
) -> None:
    """Write ``report.md`` and ``report.html`` with their pictures, and ``coefficients.csv``."""
    names = [escape(label) for label in model.classes]
    labels = [plain_label(label) for label in model.classes]
    counts = confusion_matrix(samples.y, validation.labels, labels=np.arange(len(names)))
    confusion = pd.DataFrame(counts, columns=names)
    confusion.insert(0, "true \\ predicted", names)
    found = coefficients(model)
    write_csv(folder / COEFFICIENTS, found)
    folds = validation.scores["fold"].nunique()
    kinds = [column.kind for column in model.columns]

    report = Report(folder, f"Ordinal regression of {model.target}")
    report.add(
        f"{len(samples.y)} samples of {escape(source)}, {len(kinds)} columns "
        f"({kinds.count('category')} of categories, {kinds.count('date')} of dates), classes in "
        f"order: {', '.join(names)}.",
        *(["\n".join(f"- {escape(note)}" for note in samples.notes)] if samples.notes else []),
        f"Penalty {model.alpha:g}, scale {model.scale:g}, decision: {model.decision}; chosen by "
        "MAE in cross-validation.",
        "## On samples not seen",
        f"Mean ± standard deviation over {folds} folds; all parameters are chosen, and all "
        "encodings learnt, inside each training part. ↓: lower is better, ↑: higher is better.",
    )
    report.add_table(score_table(validation))
    report.add(_compare(validation), "## Confusion matrix")
    report.add_table(confusion)
    report.add_figure(
        "confusion", _draw_confusion(counts, labels, plain_label(model.target)), "Confusion matrix"
    )
    report.add("## Probabilities")
    report.add_figure(
        "probabilities",
        _draw_probabilities(validation.probabilities, samples.y, labels),
        "Predicted probabilities and true classes",
    )
    report.add(
        "Samples are sorted by their predicted mean class; dots show their true class.",
        "## Coefficients",
        "What a feature adds to the score of each class when it grows by one standard deviation. "
        "*Upwards* is the slope along the classes: positive where the feature speaks for higher "
        "ones. Features that go together share their effect. "
        + (
            f"The first {MOST_FEATURES} of {len(found)}; all"
            if len(found) > MOST_FEATURES
            else "All"
        )
        + " are in `coefficients.csv`.",
    )
    shown = found.head(MOST_FEATURES)
    report.add_table(
        shown.assign(feature=[escape(name) for name in shown["feature"]]).set_axis(
            ["feature", "upwards", *names], axis=1
        )
    )
    report.add_figure("coefficients", _draw_coefficients(shown, labels), "Coefficients")
    report.write()


def _compare(validation: Validation) -> str:
    """Say how clear the difference in MAE is."""
    by_fold: Any = validation.scores.pivot(index="fold", columns="model", values="mae")
    better = int((by_fold["g-logistic"] < by_fold["logistic regression"]).sum())
    worse = int((by_fold["g-logistic"] > by_fold["logistic regression"]).sum())
    return (
        f"In MAE, g-logistic is ahead of logistic regression in {better} of {len(by_fold)} folds, "
        f"and behind in {worse}."
    )


def _draw_confusion(counts: np.ndarray, names: list[str], target: str) -> Figure:
    size = 2.2 + 0.5 * len(names)
    figure, axis = plt.subplots(figsize=(size + 0.6, size), layout="constrained")
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (i, j), count in np.ndenumerate(counts):
        colour = "white" if shares[i, j] > 0.6 else "black"
        axis.text(j, i, str(count), ha="center", va="center", color=colour, fontsize=9)
    _label_classes(axis, names)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    axis.set_title(f"{target}: samples not seen", fontsize=10)
    return figure


def _label_classes(axis: Axes, names: list[str]) -> None:
    long = max(map(len, names)) > 4
    axis.set_xticks(
        range(len(names)), names, rotation=45 if long else 0, ha="right" if long else "center"
    )


def _draw_probabilities(p: np.ndarray, y: np.ndarray, names: list[str]) -> Figure:
    """Draw the distribution of each sample as a column, the true class as a dot on it."""
    order = np.argsort(p @ np.arange(len(names)), kind="stable")
    figure, axis = plt.subplots(figsize=(8, 1.6 + 0.3 * len(names)), layout="constrained")
    image = axis.imshow(
        p[order].T,
        aspect="auto",
        origin="lower",
        cmap="Blues",
        vmin=0,
        vmax=1,
        interpolation="none",
    )
    axis.plot(np.arange(len(y)), y[order], ".", color="#d62728", markersize=2.5, label="true class")
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("samples, by their predicted mean class")
    figure.colorbar(image, ax=axis, label="probability")
    figure.legend(loc="outside upper right", fontsize=9, frameon=False)
    return figure


def _draw_coefficients(table: pd.DataFrame, names: list[str]) -> Figure:
    """Draw the coefficients as colours: features from top to bottom, classes from left to right."""
    values = table.iloc[:, 2:].to_numpy()
    features = [plain_label(name) for name in table["feature"]]
    width = 2 + 0.45 * len(names) + 0.09 * max(map(len, features))
    height = max(2.2, 1 + 0.26 * len(values) + 0.06 * max(map(len, names)))
    figure, axis = plt.subplots(figsize=(width, height), layout="constrained")
    most = max(np.abs(values).max(), 1e-9)
    image = axis.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    axis.set_yticks(range(len(values)), features)
    _label_classes(axis, names)
    figure.colorbar(image, ax=axis, label="added to the score")
    return figure

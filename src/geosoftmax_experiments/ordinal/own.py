"""Ordinal regression for one's own table: ``geosoftmax ordinal fit`` and ``predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from sklearn.metrics import confusion_matrix
from sklearn.preprocessing import StandardScaler

from geosoftmax.estimators import GeometricClassifierCV
from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal import encoding
from geosoftmax_experiments.ordinal.decisions import Prediction, decide, predict
from geosoftmax_experiments.ordinal.measures import (
    MEASURES,
    measure_labels,
    measure_probabilities,
)
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.saved import OrdinalModel, load_model, save_model
from geosoftmax_experiments.ordinal.selection import best, inner_splits, search
from geosoftmax_experiments.pages import (
    as_markdown,
    escape,
    html_page,
    plain_label,
    save,
    write_csv,
)
from geosoftmax_experiments.runs import one_thread

matplotlib.use("Agg")  # pictures go to files: no screen is needed

__all__ = ["fit_table", "predict_table"]

#: How many folds the scores of the report are validated on, and the parameters within.
FOLDS = 5
INNER = 3


# ------------------------------------------------------------------ fit


def fit_table(
    path: Path,
    target: str,
    output: Path,
    console: Console,
    *,
    order: list[str] | None = None,
    ignore: tuple[str, ...] = (),
    skip_missing: bool = False,
    decision: str = "chosen",
) -> OrdinalModel:
    """Fit a model to a table, save it, and report how well it does on samples not seen."""
    table = encoding.read_table(path)
    for name in (target, *ignore):
        if name not in table.columns:
            raise UserError(
                f"{path} has no column {name!r}.", f"It has {', '.join(table.columns)}."
            )
    table = table.drop(columns=list(ignore))
    complete = encoding.complete_rows(table, path, skip_missing)
    table = table.loc[complete]
    classes, y = encoding.read_classes(table[target], order)
    columns = encoding.learn_columns(table.drop(columns=target))
    X = encoding.encode(table, columns, path)
    if len(y) < 2 * FOLDS:
        raise UserError(f"{path} holds {len(y)} samples.", f"At least {2 * FOLDS} are needed.")
    with one_thread():
        scores, validated = _validate(X, y, len(classes), decision, console)
        model = _fit_all(X, y, classes, columns, target, decision)
    save_model(model, output)
    _write_report(output, path, model, y, scores, validated, int((~complete).sum()))
    console.print(f"Model and report saved to {output.resolve()}", soft_wrap=True)
    return model


def _fit_all(
    X: np.ndarray,
    y: np.ndarray,
    classes: list[Any],
    columns: list[encoding.Column],
    target: str,
    decision: str,
) -> OrdinalModel:
    """Choose parameters by validation on all samples, and fit to all of them."""
    scaler: Any = StandardScaler().fit(X)
    found = _chosen(scaler.transform(X), y, len(classes), decision, FOLDS)
    return OrdinalModel(
        target=target,
        classes=classes,
        columns=columns,
        decision=found.decision_,
        coef=found.coef_,
        intercept=found.intercept_,
        mean=scaler.mean_,
        spread=scaler.scale_,
        alpha=found.alpha_,
        scale=found.scale_,
    )


def _chosen(
    X: np.ndarray, y: np.ndarray, classes: int, decision: str, folds: int
) -> GeometricClassifierCV:
    """Fit with penalty, scale and, where it is not given, decision chosen by the least MAE."""
    model = MODELS["g-scale"]
    return GeometricClassifierCV(
        scales=model.scales,
        alphas=model.alphas,
        decision=model.decisions if decision == "chosen" else decision,
        scoring="neg_mean_absolute_error",
        classes=np.arange(classes),
        cv=inner_splits(y, folds),
    ).fit(X, y)


def _validate(
    X: np.ndarray, y: np.ndarray, classes: int, decision: str, console: Console
) -> tuple[pd.DataFrame, tuple[Prediction, np.ndarray]]:
    """Measure on samples not seen, with logistic regression beside it.

    Returns the scores, and the predictions of the geometric model.
    """
    names = ("g-scale", "lr")
    probabilities = {name: np.empty((len(y), classes)) for name in names}
    labels = {name: np.empty(len(y), dtype=int) for name in names}
    for train, out in track(inner_splits(y, FOLDS), "validating", console=console):
        scaler: Any = StandardScaler().fit(X[train])
        seen, held = scaler.transform(X[train]), scaler.transform(X[out])
        geometric = _chosen(seen, y[train], classes, decision, INNER)
        table = search(MODELS["lr"], seen, y[train], classes, inner_splits(y[train], INNER))
        if decision in MODELS["lr"].decisions:
            table = table[table["decision"] == decision]
        choice = best(table, "mae")
        logistic = MODELS["lr"].fit(seen, y[train], classes, choice["alpha"])
        rules = geometric.decision_, choice["decision"]
        for name, model, rule in zip(names, (geometric, logistic), rules, strict=True):
            found = predict(model, held, classes)
            probabilities[name][out] = found.probabilities
            labels[name][out] = decide(found, rule)
    rows = []
    for name in names:
        of_labels = measure_labels(y, labels[name], classes)
        of_probabilities = measure_probabilities(y, Prediction(probabilities[name]))
        values = {**of_labels, **of_probabilities}
        rows.append({"model": MODELS[name].label} | {m: values[m] for m in MEASURES})
    return pd.DataFrame(rows), (Prediction(probabilities["g-scale"]), labels["g-scale"])


# ------------------------------------------------------------------ its report


def _write_report(
    folder: Path,
    path: Path,
    model: OrdinalModel,
    y: np.ndarray,
    scores: pd.DataFrame,
    validated: tuple[Prediction, np.ndarray],
    skipped: int,
) -> None:
    prediction, labels = validated
    shown = [plain_label(label) for label in model.classes]
    counts = confusion_matrix(y, labels, labels=np.arange(len(shown)))
    figures = {
        "confusion.png": _draw_confusion(counts, shown, plain_label(model.target)),
        "probabilities.png": _draw_probabilities(prediction, y, shown),
    }
    for name, figure in figures.items():
        save(figure, folder / name)
    names = [escape(label) for label in model.classes]
    scores = scores.rename(columns={name: measure.label for name, measure in MEASURES.items()})
    confusion = pd.DataFrame(counts, columns=names)
    confusion.insert(0, "true \\ predicted", names)
    words = [column.name for column in model.columns if column.categories is not None]
    text = "\n\n".join(
        [
            f"# Ordinal regression of {escape(model.target)}",
            f"{len(y)} samples of {escape(path.name)} ({skipped} left out for missing values), "
            f"{len(model.columns)} columns ({len(words)} of them categories), classes in order: "
            f"{', '.join(names)}.",
            f"Penalty {model.alpha:g}, scale {model.scale:g}, decision: {model.decision}; chosen "
            f"by MAE in {FOLDS}-fold validation.",
            "## On samples not seen",
            f"{FOLDS}-fold validation; parameters chosen inside each training fold.",
            as_markdown(scores),
            "## Confusion matrix",
            as_markdown(confusion),
            "![Confusion matrix](confusion.png)",
            "## Probabilities",
            "![Predicted probabilities and true classes](probabilities.png)",
            "Samples are sorted by their predicted mean class; dots show their true class.",
        ]
    )
    files.write_text(folder / "report.md", text + "\n")
    page = html_page(f"Ordinal regression of {model.target}", text, folder, figures)
    files.write_text(folder / "report.html", page)


def _draw_confusion(counts: np.ndarray, names: list[str], target: str) -> Figure:
    size = 2.2 + 0.5 * len(names)
    figure, axis = plt.subplots(figsize=(size + 0.6, size), layout="constrained")
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (i, j), count in np.ndenumerate(counts):
        colour = "white" if shares[i, j] > 0.6 else "black"
        axis.text(j, i, str(count), ha="center", va="center", color=colour, fontsize=9)
    long = max(map(len, names)) > 4
    axis.set_xticks(
        range(len(names)), names, rotation=45 if long else 0, ha="right" if long else "center"
    )
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    axis.set_title(f"{target}: samples not seen", fontsize=10)
    return figure


def _draw_probabilities(prediction: Prediction, y: np.ndarray, names: list[str]) -> Figure:
    """Draw the distribution of each sample as a column, the true class as a dot on it."""
    p = prediction.probabilities
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


# ------------------------------------------------------------------ predict


def predict_table(
    folder: Path, path: Path, output: Path, console: Console, *, skip_missing: bool = False
) -> pd.DataFrame:
    """Predict the rows of a table; rows that miss values stay empty where that is allowed."""
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise UserError(f"{output} is neither CSV nor Parquet.", "Let it end in .csv or .parquet.")
    model = load_model(folder)
    table = encoding.read_table(path)
    used = [column.name for column in model.columns if column.name in table.columns]
    complete = encoding.complete_rows(table.loc[:, used], path, skip_missing)
    X = encoding.encode(table.loc[complete], model.columns, path)
    prediction = model.predict(X)
    labels = pd.Series([model.classes[k] for k in decide(prediction, model.decision)])
    result = pd.DataFrame({"prediction": labels.set_axis(np.flatnonzero(complete))})
    for k, label in enumerate(model.classes):
        result[f"p({label})"] = prediction.probabilities[:, k]
    result = result.reindex(range(len(table)))

    if output.suffix.lower() == ".csv":
        write_csv(output, result)
    else:
        files.write(output, lambda partial: result.to_parquet(partial, index=False))
    skipped = int((~complete).sum())
    left = f" ({skipped} left empty for missing values)" if skipped else ""
    console.print(f"{len(table)} rows{left} predicted to {output.resolve()}", soft_wrap=True)
    return result

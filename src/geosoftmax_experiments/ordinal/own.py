"""Ordinal regression for one's own table: ``geosoftmax ordinal fit`` and ``predict``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track
from rich.table import Table as ConsoleTable
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from geosoftmax.estimators import GeometricClassifierCV
from geosoftmax_experiments import files
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.decisions import decide, predict
from geosoftmax_experiments.ordinal.encoding import Encoder
from geosoftmax_experiments.ordinal.measures import measure_labels, measure_probabilities
from geosoftmax_experiments.ordinal.models import MODELS
from geosoftmax_experiments.ordinal.options import FitOptions, PredictOptions
from geosoftmax_experiments.ordinal.own_report import (
    COEFFICIENTS,
    Validation,
    score_table,
    write_own_report,
)
from geosoftmax_experiments.ordinal.samples import (
    Samples,
    check_columns,
    read_features,
    read_samples,
)
from geosoftmax_experiments.ordinal.saved import OrdinalModel, load_model, save_model
from geosoftmax_experiments.ordinal.selection import best, inner_splits, search
from geosoftmax_experiments.report import write_csv
from geosoftmax_experiments.runs import one_thread
from geosoftmax_experiments.tables import read_table

__all__ = ["fit_table", "predict_table"]

#: How many folds the scores of the report are validated on, and the parameters within.
FOLDS = 5
INNER = 3


def _say(console: Console, notes: list[str]) -> None:
    for note in notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def _check_output(output: Path, table: Path) -> None:
    """Refuse to write over the table that is read."""
    if output.exists() and table.exists() and output.samefile(table):
        raise UserError(f"{output} is the table that is read.", "Choose another --output.")


#: What is predicted, by the decision of a model; not always what is most probable.
RULE_LINES = {
    "mode": "Predictions are the most probable classes.",
    "median": "Predictions are the medians of the probabilities.",
    "mean": "Predictions are the means of the probabilities, rounded.",
    "scores": "Predictions are the classes with the largest score, not always the most probable.",
}


# ------------------------------------------------------------------ fit


def fit_table(options: FitOptions, console: Console) -> OrdinalModel:
    """Fit a model to a table, save it, and report how well it does on samples not seen."""
    _check_output(options.output / COEFFICIENTS, options.table)
    samples = read_samples(
        options.table,
        options.target,
        order=options.classes,
        ignore=options.no_features,
        missing=options.missing or "refuse",
        form=options.form,
    )
    _say(console, samples.notes)
    _check_sizes(samples, options)
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)  # NaN, where a fold has one class
        validation = _validate(samples, options.decision, console)
        model = _fit_all(samples, options)
    if (options.output / "model.json").exists():
        _say(console, ["Replacing the model that was in this folder."])
    save_model(model, options.output)
    write_own_report(options.output, options.table.name, model, samples, validation)
    _print_scores(validation, console)
    _say(console, [RULE_LINES[model.decision]])
    console.print(f"Model and report saved to {options.output.resolve()}", soft_wrap=True)
    return model


def _check_sizes(samples: Samples, options: FitOptions) -> None:
    """Refuse tables that are too small to be split twice."""
    number = len(samples.y)
    if number < 2 * FOLDS:
        raise UserError(
            f"{options.table} holds {number} samples.", f"At least {2 * FOLDS} are needed."
        )
    if np.sort(np.bincount(samples.y))[-2] < 3:
        raise UserError(
            f"Only one class of {options.target!r} has three samples or more.",
            "Give more samples of a second class: validation splits them.",
        )


def _validate(samples: Samples, decision: str, console: Console) -> Validation:
    """Measure on samples not seen, with logistic regression beside it.

    All that is learnt, categories and medians too, is learnt from the other folds.
    """
    X, y, classes = samples.X, samples.y, len(samples.classes)
    probabilities, labels = np.zeros((len(y), classes)), np.zeros(len(y), dtype=int)
    rows = []
    splits = inner_splits(y, FOLDS)
    for fold, (train, out) in enumerate(track(splits, "validating", console=console)):
        encoder = make_pipeline(Encoder(samples.columns), StandardScaler())
        known: Any = encoder.fit_transform(X.iloc[train])
        inner = inner_splits(y[train], INNER)
        for name, fit in {
            "g-logistic": _fit_geometric,
            "logistic regression": _fit_logistic,
        }.items():
            fitted, rule = fit(known, y[train], classes, decision, inner)
            found = predict(fitted, encoder.transform(X.iloc[out]), classes)
            chosen = decide(found, rule)
            if fit is _fit_geometric:
                probabilities[out], labels[out] = found.probabilities, chosen
            measured = measure_labels(y[out], chosen, classes)
            measured |= measure_probabilities(y[out], found)
            rows.append({"model": name, "fold": fold, **measured})
    return Validation(pd.DataFrame(rows), probabilities, labels)


def _fit_geometric(
    X: np.ndarray, y: np.ndarray, classes: int, decision: str, splits: Any
) -> tuple[GeometricClassifierCV, str]:
    """Choose penalty, scale and decision by the mean absolute error, and fit."""
    model = MODELS["g-scale"]
    fitted = GeometricClassifierCV(
        "squared",
        scales=model.scales,
        alphas=model.alphas,
        cv=splits,
        decision=model.decisions if decision == "chosen" else decision,
        scoring=None if decision == "chosen" else "neg_mean_absolute_error",
        classes=np.arange(classes),
    ).fit(X, y)
    return fitted, fitted.decision_


def _fit_logistic(
    X: np.ndarray, y: np.ndarray, classes: int, decision: str, splits: Any
) -> tuple[Any, str]:
    """Do the same for logistic regression, which has no scores to decide by."""
    model = MODELS["lr"]
    found = search(model, X, y, classes, splits)
    if decision in model.decisions:
        found = found[found["decision"] == decision]
    choice = best(found, "mae")
    return model.fit(X, y, classes, alpha=choice["alpha"]), choice["decision"]


def _fit_all(samples: Samples, options: FitOptions) -> OrdinalModel:
    """Choose by validation on all samples, and fit to all of them."""
    encoder = Encoder(samples.columns)
    scaler: Any = StandardScaler()
    X: Any = scaler.fit_transform(encoder.fit_transform(samples.X))
    splits = inner_splits(samples.y, FOLDS)
    fitted, rule = _fit_geometric(X, samples.y, len(samples.classes), options.decision, splits)
    return OrdinalModel(
        target=options.target,
        classes=samples.classes,
        columns=encoder.columns_,
        scale=fitted.scale_,
        alpha=fitted.alpha_,
        decision=rule,
        coef=fitted.coef_,
        intercept=fitted.intercept_,
        mean=scaler.mean_,
        spread=scaler.scale_,
        id=options.id,
        missing=options.missing or "refuse",
    )


def _print_scores(validation: Validation, console: Console) -> None:
    scores = score_table(validation)
    shown = ConsoleTable(
        title="On samples not seen: mean ± standard deviation over "
        f"{validation.scores['fold'].nunique()} folds",
        title_justify="left",
    )
    for name in scores.columns[:-1]:
        shown.add_column(name)
    for row in scores.itertuples(index=False):
        shown.add_row(*row[:-1])
    console.print(shown)
    if validation.scores["zero_share"].gt(0).to_numpy().any():
        note = "A true class with the probability 0 adds 36 to the log-loss of its sample."
        console.print(note, highlight=False, soft_wrap=True)


# ------------------------------------------------------------------ predict


def predict_table(options: PredictOptions, console: Console) -> pd.DataFrame:
    """Predict the rows of a table; rows that miss values stay empty where these are dropped."""
    output = options.output
    if output.suffix.lower() not in (".csv", ".parquet"):
        raise UserError(f"{output} is neither CSV nor Parquet.", "Let it end in .csv or .parquet.")
    _check_output(output, options.table)
    if output.resolve() == (options.model / COEFFICIENTS).resolve():
        raise UserError(f"{output} belongs to the model.", "Choose another --output.")
    model = load_model(options.model)
    missing = options.missing or model.missing
    if missing == "impute" and any(column.fill is None for column in model.columns):
        raise UserError(
            f"{options.model} was fitted by an older geosoftmax, and does not know what to impute.",
            "Fit it again, or take --missing drop.",
        )
    table = read_table(options.table, options.form, keep_empty=True)
    name = options.id or model.id
    check_columns(options.table, table, [options.id] if options.id else [])
    X, complete, notes = read_features(
        options.table, table, model.columns, missing, options.unknown
    )
    _say(console, [*table.notes, *notes, RULE_LINES[model.decision]])
    prediction = model.predict(Encoder.restore(model.columns).transform(X))
    labels = [model.classes[k] for k in decide(prediction, model.decision)]
    result = pd.DataFrame({"prediction": labels}, index=np.flatnonzero(complete))
    result = result.convert_dtypes()  # whole numbers stay so beside rows that are left empty
    for k, label in enumerate(model.classes):
        result[f"p({label})"] = prediction.probabilities[:, k]
    result = result.reindex(range(len(complete)))
    if name in table.cells.columns:
        new = f"{name} (id)" if name in result.columns else name
        result.insert(0, new, table.cells[name].to_numpy())
    elif name:
        _say(console, [f"There is no column {name!r}, which named the samples of the fit."])

    if output.suffix.lower() == ".csv":
        shown = result.copy()
        for label in model.classes:
            shown[f"p({label})"] = [float(f"{share:.6g}") for share in result[f"p({label})"]]
        # With the marks of the table, so that one program reads both.
        write_csv(output, shown, separator=table.separator, decimal=table.decimal)
    else:
        files.write(output, lambda partial: result.to_parquet(partial, index=False))
    skipped = int((~complete).sum())
    left = f" ({skipped} left empty for missing values)" if skipped else ""
    console.print(f"{len(result)} rows{left} predicted to {output.resolve()}", soft_wrap=True)
    return result

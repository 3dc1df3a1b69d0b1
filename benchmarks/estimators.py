"""Linear classifiers: how long does a geometric fit take, against logistic regressions?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from benchmarks.harness import Bench, Measurement, Rival
from benchmarks.report import Report, Section, Target, medians, number
from geosoftmax.estimators import GeometricClassifier, GeometricClassifierCV

#: All fits: the same penalty, and the same bound on the gradient of the mean objective.
ALPHA, TOL, MAX_ITER = 1.0, 1e-4, 10_000
PATH = (100.0, 10.0, 1.0, 0.1, 0.01)
OURS, PAPER, LINE = "ours", "ours, the paper's scale", "ours, absolute cost"
LR, AT = "LogisticRegression", "mord LogisticAT"
#: Sides of the growth, around (samples, features, classes) = (2000, 20, 5).
GROWTH = {
    "samples": [(n, 20, 5) for n in (1_000, 10_000, 100_000)],
    "features": [(2_000, p, 5) for p in (10, 100, 1_000)],
    "classes": [(2_000, 20, d) for d in (3, 9, 27, 81)],
}

Samples = tuple[np.ndarray, np.ndarray]


def run(bench: Bench) -> Report:
    report = Report("Linear classifiers: time to fit")
    sets = _ordinal_sets()
    if not sets:
        bench.missing.add("the ordinal sets (GEOSOFTMAX_DATA)")
    elif bench.quick:
        sets = {name: sets[name] for name in list(sets)[:3]}
    if sets:
        _real_sets(bench, report, sets)
        _penalties(bench, report, sets)
    for side, sizes in GROWTH.items():
        most = 2 if bench.quick else 3 if bench.own else len(sizes)
        _growth(bench, report, side, sizes[:most])
    return report


def _real_sets(bench: Bench, report: Report, sets: dict[str, Samples]) -> None:
    """One fit per set: who takes how long, and in how many iterations."""
    rows, times, seconds, cpu = [], {}, {}, {}
    for name, data in sets.items():
        bench.say(f"  {name}")
        measured = bench.measure(_fits(bench, data))
        times[name] = {m.name: 1e3 * m.median for m in measured}
        rows.append(_row(name, data, measured))
        _note(name, measured, seconds, cpu)
    total = {key: sum(found[key] for found in times.values()) for key in times[name]}
    rows.append({key: total.get(key) for key in rows[0]} | {"": "all"})
    note = (
        f"Fold 0, standardised, milliseconds. Penalty {ALPHA:g}, gradient below {TOL:g}, "
        "iterations in brackets."
    )
    report.add(bench, Section(f"{len(sets)} ordinal sets: one fit", rows, note, seconds, cpu))
    if bench.own:
        return
    worst = max(total[OURS], total[PAPER])
    report.targets.append(
        Target(f"fits of {len(sets)} ordinal sets / {LR}", worst / total[LR], 1.5, unit="×")
    )
    if AT in total:
        report.targets.append(
            Target(f"fits of {len(sets)} ordinal sets / {AT}", worst / total[AT], 1.0, unit="×")
        )


def _penalties(bench: Bench, report: Report, sets: dict[str, Samples]) -> None:
    """The penalty by cross-validation: a warm-started path against a grid search."""
    rows, total, seconds, cpu = [], {}, {}, {}
    for name, (X, y) in sets.items():
        if np.bincount(y).min() < 5:  # each of 5 folds gets one of each class
            continue
        bench.say(f"  {name}, penalty chosen")
        measured = bench.measure(
            [
                _rival(OURS, GeometricClassifierCV(alphas=PATH), X, y),
                *bench.others(lambda X=X, y=y: _searches(X, y)),
            ]
        )
        rows.append({"": name} | {m.name: 1e3 * m.median for m in measured})
        _note(name, measured, seconds, cpu)
        for m in measured:
            total[m.name] = total.get(m.name, 0.0) + 1e3 * m.median
    if not rows:
        return
    rows.append({"": "all"} | total)
    note = f"{len(PATH)} penalties, 5 folds, and the fit to all samples, in milliseconds."
    report.add(bench, Section("Penalty by cross-validation", rows, note, seconds, cpu))
    if bench.own:
        return
    ratio = total["ours, by GridSearchCV"] / total[OURS]
    report.targets.append(
        Target("penalty by GridSearchCV / GeometricClassifierCV", ratio, 1.0, False, "×")
    )


def _searches(X: np.ndarray, y: np.ndarray) -> list[Rival]:
    """Other ways to choose the penalty."""
    ours = GridSearchCV(GeometricClassifier(), {"alpha": PATH}, scoring="neg_mean_absolute_error")
    theirs = LogisticRegressionCV(
        Cs=[1 / alpha for alpha in PATH],
        max_iter=MAX_ITER,
        scoring="accuracy",
        l1_ratios=(0.0,),
        use_legacy_attributes=False,
    )
    return [
        _rival("ours, by GridSearchCV", ours, X, y),
        _rival("LogisticRegressionCV", theirs, X, y),
    ]


def _growth(bench: Bench, report: Report, side: str, sizes: list[tuple[int, int, int]]) -> None:
    rows, slow, seconds, cpu = [], set(), {}, {}
    for n, p, d in sizes:
        bench.say(f"  {n} samples, {p} features, {d} classes")
        data = _ordinal_samples(n, p, d)
        rivals = [fit for fit in _fits(bench, data) if fit.name not in slow]
        measured = bench.measure(rivals)
        slow |= {m.name for m in measured if 5 * m.median > bench.patience and m.name == AT}
        name = f"{n:,} × {p:,}, {d} classes"
        rows.append(_row(name, data, measured))
        _note(name, measured, seconds, cpu)
    note = "A latent line with noise; milliseconds, iterations in brackets."
    keys = dict.fromkeys(key for row in rows for key in row)
    rows = [{key: row.get(key) for key in keys} for row in rows]
    report.add(bench, Section(f"Growth in {side}", rows, note, seconds, cpu))


def _fits(bench: Bench, data: Samples) -> list[Rival]:
    X, y = data
    fits = [
        _rival(OURS, GeometricClassifier(alpha=ALPHA, tol=TOL, max_iter=MAX_ITER), X, y),
        _rival(
            PAPER, GeometricClassifier(scale=0.5, alpha=ALPHA, tol=TOL, max_iter=MAX_ITER), X, y
        ),
        _rival(
            LINE, GeometricClassifier("absolute", alpha=ALPHA, tol=TOL, max_iter=MAX_ITER), X, y
        ),
    ]
    theirs = LogisticRegression(C=1 / ALPHA, tol=TOL, max_iter=MAX_ITER)
    fits += bench.others(lambda: [_rival(LR, theirs, X, y)])
    return fits + bench.optional("mord", lambda: _rival(AT, _all_threshold(), X, y))


def _all_threshold() -> Any:
    import mord

    return mord.LogisticAT(alpha=ALPHA, max_iter=MAX_ITER)


def _rival(name: str, model: Any, X: np.ndarray, y: np.ndarray) -> Rival:
    return Rival(
        name=name,
        call=lambda: model.fit(X, y),
        samples=len(X),
        iterations=lambda fitted: int(np.max(getattr(fitted, "n_iter_", 0))),
        compiles=True,
    )


def _row(name: str, data: Samples, measured: list[Measurement]) -> dict[str, Any]:
    X, y = data
    row: dict[str, Any] = {"": name, "samples": len(X), "features": X.shape[1]}
    row["classes"] = len(np.unique(y))
    for m in measured:
        row[m.name] = number(1e3 * m.median) + (f" ({m.iterations:.0f})" if m.iterations else "")
    return row


def _note(
    name: str, measured: list[Measurement], seconds: dict[str, float], cpu: dict[str, float]
) -> None:
    """Add the times of one set."""
    found = medians(measured, f"{name}: ")
    seconds.update(found[0])
    cpu.update(found[1])


# ------------------------------------------------------------------ samples


def _ordinal_sets() -> dict[str, Samples]:
    """Training parts of fold 0 of the published sets: features, then the label, 1 … Q."""
    folder = Path(os.environ.get("GEOSOFTMAX_DATA", "")) / "ordinal-regression"
    sets = {}
    for file in sorted(folder.glob("*/matlab/train_*.0")):
        table = np.loadtxt(file)
        y = np.unique(table[:, -1], return_inverse=True)[1]
        sets[file.stem.removeprefix("train_")] = StandardScaler().fit_transform(table[:, :-1]), y
    return sets


def _ordinal_samples(n: int, p: int, d: int) -> Samples:
    """Equally many samples of each class, along one direction, with noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    latent = X @ rng.normal(size=p) / np.sqrt(p) + 0.5 * rng.normal(size=n)
    y = np.searchsorted(np.quantile(latent, np.arange(1, d) / d), latent)
    return StandardScaler().fit_transform(X), y

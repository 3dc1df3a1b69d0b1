"""Linear classifiers: how long does a geometric fit take, against logistic regressions?"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler, normalize

from benchmarks.harness import Bench, Measurement, Rival
from benchmarks.report import Report, Section, Target, medians, number
from geosoftmax import TreeCost, ZeroOneCost, geometric_logistic_loss
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
#: Taxonomies: samples, features, words of a sample (None: dense), groups and classes in each.
TAXONOMIES = {
    "text, 100,000 words, 20 classes": (4_000, 100_000, 100, 5, 4),
    "1,000 features, 81 classes": (2_000, 1_000, None, 9, 9),
}
TREE, EQUAL = "ours, tree", "ours, zero-one"
#: How near the best objective fits of taxonomies stop, relative to it, and bounds that are tried.
NEAR, BOUNDS, TIGHT = 1e-4, (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5), 1e-6

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
        _growth(bench, report, side, sizes[:2] if bench.quick else sizes)
    if not bench.own:  # what is asked there is how long rivals take to come equally near
        _taxonomies(bench, report)
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
        samples=X.shape[0],
        iterations=lambda fitted: int(np.max(getattr(fitted, "n_iter_", 0))),
        compiles=True,
    )


def _row(name: str, data: Samples, measured: list[Measurement]) -> dict[str, Any]:
    X, y = data
    row: dict[str, Any] = {"": name, "samples": X.shape[0], "features": X.shape[1]}
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


# ------------------------------------------------------------------ taxonomies


def _taxonomies(bench: Bench, report: Report) -> None:
    """Classes in a tree, many features or classes: fits that stop equally near the optimum."""
    rows, seconds, cpu = [], {}, {}
    for name, sizes in list(TAXONOMIES.items())[: 1 if bench.quick else None]:
        bench.say(f"  {name}")
        n, p, words, groups, each = sizes
        X, y = _tree_samples(n // 4 if bench.quick else n, p, words, groups * each, each)
        tree = TreeCost.from_dict(
            {f"g{g}": [f"c{g * each + k}" for k in range(each)] for g in range(groups)}
        )
        labels = np.array(tree.names)[y]
        models: dict[str, Any] = {
            TREE: GeometricClassifier(tree, scale=1.0),
            EQUAL: GeometricClassifier(ZeroOneCost(len(tree.names)), scale=4.0, classes=tree.names),
        }
        models[LR] = LogisticRegression(max_iter=MAX_ITER)
        fits = [_rival(key, _near(model, X, labels), X, labels) for key, model in models.items()]
        measured = bench.measure(fits)
        rows.append(_row(name, (X, y), measured))
        _note(name, measured, seconds, cpu)
        times = {m.name: m.median for m in measured}
        worst = max(times[TREE], times[EQUAL]) / times[LR]
        report.targets.append(Target(f"fit, {name} / {LR}", worst, 2.0, unit="×"))
    note = (
        f"Milliseconds, iterations in brackets. Penalty {ALPHA:g}; each fit has the loosest bound "
        f"on the gradient with which its objective comes within {NEAR:g} of its least value."
    )
    report.add(bench, Section("Taxonomies", rows, note, seconds, cpu))


def _near(model: Any, X: Any, labels: np.ndarray) -> Any:
    """Return the model with the loosest bound on the gradient that comes near the optimum."""
    best = _objective(model.set_params(tol=TIGHT).fit(X, labels), X, labels)
    for bound in BOUNDS:
        if _objective(model.set_params(tol=bound).fit(X, labels), X, labels) <= (1 + NEAR) * best:
            break
    return model


def _objective(model: Any, X: Any, labels: np.ndarray) -> float:
    """Return the sum of the losses, with the penalty."""
    scores = np.asarray(X @ model.coef_.T) + model.intercept_
    target = np.searchsorted(model.classes_, labels)
    if hasattr(model, "cost_"):
        order = np.searchsorted(model.classes_, model.order_)  # columns in the order of the cost
        place = np.argsort(order)[target]
        found = geometric_logistic_loss(
            torch.from_numpy(scores[:, order]), torch.from_numpy(place), model.cost_,
            reduction="sum",
        ).item()  # fmt: skip
    else:
        found = float((logsumexp(scores, axis=1) - scores[np.arange(len(scores)), target]).sum())
    return found + ALPHA / 2 * float(np.sum(model.coef_**2))


# ------------------------------------------------------------------ samples


def _tree_samples(n: int, p: int, words: int | None, d: int, each: int) -> tuple[Any, np.ndarray]:
    """Classes near those of their group: frequencies of words, as rows of length 1, or means."""
    rng = np.random.default_rng(0)
    y = rng.integers(d, size=n)
    if words is None:
        means = np.repeat(rng.normal(size=(d // each, p)), each, 0) + rng.normal(size=(d, p))
        return rng.normal(size=(n, p)) + 0.06 * means[y], y
    # Zipf's law for most words; a few are of the class, and a few of its group.
    usual = np.minimum(rng.zipf(1.2, size=(n, words)) + 10 * d * 2, p) - 1
    topic = np.where(rng.random((n, words)) < 0.5, y[:, None], d + y[:, None] // each)
    own = 10 * topic + rng.integers(10, size=(n, words))
    column = np.where(rng.random((n, words)) < 0.04, own, usual)
    X = sparse.csr_array(
        (np.ones(n * words), (np.repeat(np.arange(n), words), column.ravel())), shape=(n, p)
    )
    return normalize(X), y


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

"""Tables in the pages hold the numbers of the stored reports."""

from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"


def tables(path, heading=""):
    """Return the tables of a page or of one section: lists of rows, by their first cell."""
    text = path.read_text(encoding="utf8")
    if heading:
        found = text.split(f"\n{heading}\n")[1]
        level = heading.split(" ")[0]
        text = found.split(f"\n{level} ")[0]
    found, rows = [], {}
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            first, *cells = [cell.strip(" *") for cell in line.strip().strip("|").split(" | ")]
            if not first.startswith("--"):
                rows[first.strip()] = cells
        elif rows:
            found.append(rows)
            rows = {}
    return found


ORDINAL = {
    "LR": "LR",
    "LR, decision among the candidates": "LR, chosen",
    "LR(AT)": "LR(AT)",
    "LR(IT)": "LR(IT)",
    "POM": "POM",
    "sparsemax (sparse, no geometry), decision among the candidates": "sparsemax, chosen",
    "g-logistic as in the paper (C = (ŷ−y)²/2, argmax of the scores)": "g-logistic, scores",
    "g-logistic; cost, scale and decision among the candidates": "g-logistic(scale), chosen",
}
MEASURES = ["Hausdorff divergence", "MAE", "accuracy", "ranked probability score"]


def test_the_comparison_of_linear_models():
    page, *_ = tables(DOCS / "ordinal.md", "## One procedure for all models")
    report, *_ = tables(DOCS / "results" / "ordinal" / "report.md", "## All methods")
    header = report["method"]
    assert page.pop("mean over sets and folds") == MEASURES
    assert set(page) == set(ORDINAL)
    for label, values in page.items():
        assert values == [report[ORDINAL[label]][header.index(name)] for name in MEASURES]


FITS = {
    "squared cost": "ours",
    "absolute cost": "ours, absolute cost",
    "logistic regression": "LogisticRegression",
}


def test_what_many_classes_cost():
    page = tables(DOCS / "ordinal.md", "## One procedure for all models")[1]
    results = DOCS.parent / "benchmarks" / "results" / "estimators.md"
    report, *_ = tables(results, "## Growth in classes")
    header = report[""]
    rows = [report[f"2,000 × 20, {count} classes"] for count in page.pop("classes")]
    assert set(page) == set(FITS)
    for label, values in page.items():
        assert values == [row[header.index(FITS[label])].split(" (")[0] for row in rows]


def test_the_comparison_of_small_networks():
    page, *_ = tables(DOCS / "ordinal.md", "## Small networks")
    report, *_ = tables(
        DOCS / "results" / "ordinal-deep" / "report.md", "## Means over sets and folds"
    )
    columns = [report["loss"].index(name) for name in page.pop("mean over sets and folds")]
    assert set(page) == set(report) - {"loss"}
    for label, values in page.items():
        assert values == [report[label][column] for column in columns]


TREES = {
    "cross-entropy": "LR",
    "hierarchical softmax": "hierarchical softmax",
    "soft labels": "soft labels",
    "HXE": "HXE",
    "geometric, zero-one: the control": "g, zero-one",
    "geometric, tree": "g, tree",
    "geometric, half tree, half zero-one": "g, tree + zero-one",
    "cross-entropy, weights shared along the tree": "LR, shared",
    "geometric, zero-one, weights shared along the tree": "g, zero-one, shared",
    "the same, along a tree whose names were shuffled": "g, zero-one, shuffled",
    "geometric, tree, weights shared along the tree": "g, tree, shared",
}


@pytest.mark.parametrize(
    ("heading", "folder"),
    [
        ("## What is the tree good for?", ""),
        ("### Labels that are wrong within their group", "noise"),
        ("### Leaves without a post", "unseen"),
    ],
)
def test_the_comparisons_on_newsgroups(heading, folder):
    page = tables(DOCS / "taxonomies.md", heading)[0]
    (head, names), *rows = page.items()
    sizes = head.split(" posts")[0].split(" / ")
    report = DOCS / "results" / "taxonomies" / folder / "report.md"
    found = {}
    for size in sizes:
        draws = 1 if size == "11,314" else 20
        found[size], *_ = tables(report, f"## {size} posts, draws: {draws}")
    assert len(rows) >= 8
    for label, cells in rows:
        for name, cell in zip(names, cells, strict=True):
            short = name.removesuffix(" class")
            stored = [
                found[size][TREES[label]][found[size]["model"].index(short)].replace("0.", ".", 1)
                if short != "tree distance, least cost"
                else found[size][TREES[label]][found[size]["model"].index(short)]
                for size in sizes
            ]
            assert cell.split(" / ") == stored, (label, name)


def test_what_the_readme_says_of_both():
    text = README.read_text(encoding="utf8")
    methods, *_ = tables(DOCS / "results" / "ordinal" / "report.md", "## All methods")
    error = {name: values[methods["method"].index("MAE")] for name, values in methods.items()}
    assert f"on 17 data sets, {error['g-logistic(scale), chosen']}, but" in text
    decision = float(error["LR"]) - float(error["LR, chosen"])
    assert decision > float(error["LR, chosen"]) - float(error["g-logistic(scale), chosen"])
    assert error["g-logistic(scale), chosen"] == min(v for k, v in error.items() if k != "method")
    posts, *_ = tables(DOCS / "results" / "taxonomies" / "report.md", "## 500 posts, draws: 20")
    group = posts["model"].index("group accuracy, least cost")
    alone, shared = posts["g, zero-one"][group], posts["g, zero-one, shared"][group]
    assert f"from {alone.lstrip('0')} to {shared.lstrip('0')} with 500 posts" in text

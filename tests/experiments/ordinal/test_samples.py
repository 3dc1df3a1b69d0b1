"""One's own table as samples: classes, missing values, kinds of columns, and an encoder."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.classes import read_classes
from geosoftmax_experiments.ordinal.encoding import Column, Encoder
from geosoftmax_experiments.ordinal.samples import read_features, read_samples
from geosoftmax_experiments.tables import Table, TextFormat

ORDER = ["bad", "fair", "good"]


def write(folder, *rows, name="data.csv"):
    path = folder / name
    path.write_text("\n".join(rows) + "\n", encoding="utf8")
    return path


# ------------------------------------------------------------------ classes


def test_classes_know_their_order():
    words = pd.Series(["good", "bad", "fair"], name="rating")
    with pytest.raises(UserError, match=r"order .* not known: good, bad, fair.*--order bad,fair"):
        read_classes(words, None)
    with pytest.raises(UserError, match="holds fair, which --order does not name"):
        read_classes(words, ["bad", "good"])
    with pytest.raises(UserError, match="a class twice"):
        read_classes(words, ["bad", "good", "fair", "bad"])
    classes, index = read_classes(words, ["bad", "fair", "good", "great"])
    assert classes == ["bad", "fair", "good", "great"]
    assert index.tolist() == [2, 0, 1]
    ordered = words.astype(pd.CategoricalDtype(ORDER, ordered=True))
    assert read_classes(ordered, None)[0] == ORDER
    assert read_classes(pd.Series([3, 1, 2, 1]), None)[1].tolist() == [2, 0, 1, 0]
    assert read_classes(pd.Series([3, 1]), ["3", "1"])[0] == [3, 1]
    with pytest.raises(UserError, match="60 values, which are not classes"):
        read_classes(pd.Series(range(60), name="price"), None)


@pytest.mark.parametrize("name", ["None", "NA", "null", "nan", "n/a"])
def test_classes_may_be_called_as_nothing(tmp_path, name):
    classes, y = read_classes(
        pd.Series([name, "mild", "", "severe", name]), [name, "mild", "severe"]
    )
    assert classes == [name, "mild", "severe"]
    assert y.tolist() == [0, 1, -1, 2, 0]
    path = write(tmp_path, "x,rating", f"1,{name}", "2,mild", f"3,{name}", "4,")
    found = read_samples(path, "rating", order=[name, "mild"], missing="drop")
    assert found.y.tolist() == [0, 1, 0]  # the empty cell alone is missing
    assert "Rows left out for missing values: 1." in found.notes


def test_among_numbers_na_is_missing_unless_the_order_names_it():
    text = pd.Series(["1", "NA", "2", "3"])
    assert read_classes(text, None)[0] == [1, 2, 3]
    assert read_classes(text, None)[1].tolist() == [0, -1, 1, 2]
    assert read_classes(text, ["NA", "1", "2", "3"])[0] == ["NA", "1", "2", "3"]
    assert read_classes(text, ["NA", "1", "2", "3"])[1].tolist() == [1, 0, 2, 3]
    with pytest.raises(UserError, match=r"order .* not known: NA, None"):
        read_classes(pd.Series(["NA", "None"]), None)


def test_numbers_and_truths_are_named_as_people_write_them():
    assert read_classes(pd.Series(["2.0", "1.0"]), ["1", "2", "3"])[0] == [1, 2, 3]
    assert read_classes(pd.Series(["1,5", "1"]), None, ",")[0] == ["1", "1,5"]
    assert read_classes(pd.Series(["TRUE", "FALSE"]), None)[0] == ["FALSE", "TRUE"]
    assert read_classes(pd.Series(["True", "False"]), None)[0] == [False, True]
    assert read_classes(pd.Series(["1.5", "0.5"]), None)[0] == [0.5, 1.5]
    assert read_classes(pd.Series([True, False]), ["True", "False"])[0] == [True, False]
    assert read_classes(pd.Series(["10", "9", "-1"]), None)[0] == [-1, 9, 10]


@pytest.mark.parametrize(
    ("words", "order"),
    [
        (["01", "02", "10"], None),
        (["01", "02", "03"], ["01", "02", "03"]),
        (["1.0", "2.0", "3.0"], None),
        (["1", "1.5", "2"], None),
    ],
)
def test_classes_are_called_as_in_the_table(words, order):
    """01 and 1.0 came back as 1."""
    classes, y = read_classes(pd.Series(words[::-1]), order)
    assert classes == words
    assert y.tolist() == [2, 1, 0]


def test_cells_of_one_number_are_one_class(tmp_path):
    path = write(tmp_path, "x,y", *(f"{k},{cell}" for k, cell in enumerate(["1", "1.0", "2"] * 2)))
    found = read_samples(path, "y")
    assert (found.classes, found.y.tolist()) == ([1, 2], [0, 0, 1] * 2)
    assert found.notes == ["In 'y', cells of one number are one class: 1.0 as 1."]


def test_na_among_numbers_is_mentioned(tmp_path):
    path = write(
        tmp_path, "x,y", *(f"{k / 7},{cell}" for k, cell in enumerate(["1", "2", "NA"] * 2))
    )
    with pytest.raises(UserError, match=r"missing in 'y'.*--order 1,2,NA makes it a class"):
        read_samples(path, "y")
    found = read_samples(path, "y", missing="drop")
    assert found.notes[0] == (
        "In 'y', NA counts as a missing value: --order 1,2,NA makes it a class."
    )
    assert read_samples(path, "y", order=["1", "2", "NA"]).classes == ["1", "2", "NA"]


@pytest.mark.parametrize(
    ("words", "order", "hint"),
    [
        (ORDER, ["bad", "fiar", "good"], "Did you mean fair by fiar in --order?"),
        ([*ORDER, "Bad"], ORDER, "Did you mean the same by bad and Bad?"),
        ([*ORDER, "Bad"], None, "Did you mean the same by bad and Bad?"),
        (["1,5 mm", "2 mm"], None, """--order '"1,5 mm",2 mm'"""),
    ],
)
def test_words_that_resemble_classes_are_named(words, order, hint):
    with pytest.raises(UserError) as caught:
        read_classes(pd.Series(words), order)
    assert hint in caught.value.hint


def test_a_class_without_samples_keeps_its_place(tmp_path):
    path = write(tmp_path, "x,rating", "1,1", "2,2", "3,4", "4,1", "5,2")
    found = read_samples(path, "rating", order=["1", "2", "3", "4", "5"])
    assert found.classes == [1, 2, 3, 4, 5]
    assert found.y.tolist() == [0, 1, 3, 0, 1]
    empty, single = found.notes
    assert empty == (
        "No samples: 3, 5. Such classes keep their place in the order; their probability may be 0."
    )
    assert single.startswith("One sample only: 4.")
    with pytest.raises(UserError, match="one class only"):
        read_samples(write(tmp_path, "x,rating", "1,1", "2,1"), "rating")
    with pytest.raises(UserError, match="'rating' has no values"):
        read_samples(write(tmp_path, "x,rating", "1,", "2,"), "rating", missing="impute")


# ------------------------------------------------------------------ columns


def test_words_that_mean_nothing_are_categories_among_words_alone(tmp_path):
    rows = ("age,smoker,rating", "30,NA,1", "NA,None,2", "40,yes,2", "50,,2")
    path = write(tmp_path, *rows)
    with pytest.raises(
        UserError, match=r"missing in 'age' \(1\), 'smoker' \(1\), the first in row 2"
    ):
        read_samples(path, "rating")
    found = read_samples(path, "rating", missing="impute")
    assert found.columns == [Column("age"), Column("smoker", "category")]
    assert found.X["smoker"].tolist()[:3] == ["NA", "None", "yes"]
    assert found.notes[0] == "Missing values are filled in: 'age' (1), 'smoker' (1)."
    without = write(tmp_path, *rows, "1,NA,")  # a class is never filled in
    found = read_samples(without, "rating", missing="impute")
    assert len(found.y) == 4
    assert "Rows left out for missing values: 1." in found.notes
    path = write(tmp_path, *rows)
    assert read_samples(path, "rating", missing="drop").X["smoker"].tolist() == ["NA", "yes"]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["1970-01-02", "1970-02-01"], "ISO8601"),
        (["1970-01-02 00:00", "1970-02-01 00:00:00"], "ISO8601"),
        (["02.01.1970", "01.02.1970"], "%d.%m.%Y"),
        (["02.01.1970 00:00", "01.02.1970 00:00"], "%d.%m.%Y %H:%M"),
        (["02/01/1970", "01/02/1970", "13/01/1970"], "%d/%m/%Y"),
        (["02-01-1970", "01-02-1970", "13-01-1970"], "%d-%m-%Y"),
        (["01/02/1970 00:00", "02/01/1970 00:00", "01/13/1970 00:00"], "%m/%d/%Y %H:%M"),
        (["01/02/1970", "02/01/1970", "01/13/1970"], "%m/%d/%Y"),
        (["01/02/1970 12:00 AM", "02/01/1970 12:00 am", "01/13/1970 3:05 PM"], "%m/%d/%Y %I:%M %p"),
    ],
)
def test_dates_become_days(tmp_path, cells, form):
    rows = [f"{cell},{k % 2}" for k, cell in enumerate([*cells, ""])]
    found = read_samples(write(tmp_path, "day,rating", *rows), "rating", missing="impute")
    assert found.columns == [Column("day", "date", form)]
    assert found.X["day"].tolist()[:2] == [1, 31]
    assert found.notes[0].startswith("Dates are read as numbers of days: 'day' (")


def test_dates_of_parquet(tmp_path):
    days = pd.to_datetime(["1970-01-02", "1970-01-04"])
    pd.DataFrame({"a": days, "b": days.date, "y": [0, 1]}).to_parquet(tmp_path / "d.parquet")
    found = read_samples(tmp_path / "d.parquet", "y")
    assert [column.kind for column in found.columns] == ["date", "date"]
    assert found.X["a"].tolist() == found.X["b"].tolist() == [1, 3]


def test_all_problems_are_reported_at_once(tmp_path):
    names = [f"n{k}" for k in range(150)]
    rows = [f"{name},{k / 7 if k else 'inf'},03/04/2020,,{k % 3}" for k, name in enumerate(names)]
    rows[4] = rows[4].replace("4/2020", "5/2020").replace(",,", ",7,")
    path = write(tmp_path, "name,x,when,gap,rating", *rows)
    with pytest.raises(UserError) as caught:
        read_samples(path, "rating")
    assert caught.value.message == (
        f"{path}: 'name' holds 150 different words; 'when' holds dates that may be day/month or "
        "month/day; 'x' must hold finite numbers, but row 1 holds 'inf'; values are missing in "
        "'gap' (149), the first in row 1."
    )
    for remedy in ("--ignore", "--id", "2026-01-31", "--missing impute", "--missing drop"):
        assert remedy in caught.value.hint
    with pytest.raises(UserError, match="no column 'a', 'b'"):
        read_samples(path, "a", ignore=["b"])
    path = write(tmp_path, "x;rating", "inf;1", "2,5;2")
    with pytest.raises(UserError, match=r"holds 'inf'.*Guessed: columns are separated by ';'"):
        read_samples(path, "rating")
    with pytest.raises(UserError, match=r"Is the --separator right\?"):
        read_samples(write(tmp_path, "x;rating", "1;1"), "rating", form=TextFormat(","))


def test_problems_of_the_target_hide_no_others(tmp_path):
    path = write(tmp_path, "x,rating", "inf,good", "2,bad")
    with pytest.raises(UserError) as caught:
        read_samples(path, "rating")
    assert caught.value.message == (
        f"{path}: the order of the target's values is not known: good, bad; 'x' must hold finite "
        "numbers, but row 1 holds 'inf'."
    )
    with pytest.raises(UserError, match=r"'inf'; .*one class only"):
        read_samples(write(tmp_path, "x,rating", "inf,1", "2,1"), "rating")
    with pytest.raises(UserError, match=r"'rating' is the target.*--id or --ignore"):
        read_samples(path, "rating", ignore=["rating"])


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        (["1,2", "1,2", "1,2", "1,2"], "All features are constant"),
        (["1,2", "1,3", "1,4", "1,9"], "Columns with one value only tell nothing: 'x'."),
    ],
)
def test_constant_columns_are_mentioned(tmp_path, rows, note):
    path = write(tmp_path, "x,z,y", *(f"{row},{k % 2}" for k, row in enumerate(rows)))
    assert read_samples(path, "y").notes[0].startswith(note)


def test_a_cell_that_is_no_date_is_named(tmp_path):
    """It made categories of all dates."""
    days = [f"{k % 28 + 1:02d}.{k // 28 + 1:02d}.2026,{k % 2}" for k in range(120)]
    days[3] = "31.02.2026,1"
    for few in (days[:40], days):
        with pytest.raises(UserError, match=r"'day' holds dates, but row 4 holds '31\.02\.2026'"):
            read_samples(write(tmp_path, "day,rating", *few), "rating")


@pytest.mark.parametrize("cell", ["~", "-", "#DIV/0!", "1,234.5", "n.d."])
def test_a_cell_that_is_no_number_is_named(tmp_path, cell):
    """It made categories of up to 100 numbers."""
    rows = [f"{k},{k % 3},{k % 2}" for k in range(60)]
    rows[7] = rows[3] = f'"{cell}",1,1'
    with pytest.raises(UserError, match=r"'x' holds numbers, but row 4 holds .* \(2 such cells: "):
        read_samples(write(tmp_path, "x,y,rating", *rows), "rating")
    rows[7] = rows[3] = f'1.5,"{cell}",1'
    path = write(tmp_path, "x,y,rating", *rows)
    if cell == "n.d.":  # few numbers beside words may be categories
        assert (
            "'y' is read as categories, not as numbers: row 4"
            in read_samples(path, "rating").notes[0]
        )
    else:
        with pytest.raises(UserError, match="'y' holds numbers, but row 4 holds"):
            read_samples(path, "rating")


def test_numbers_that_overflow_are_named(tmp_path):
    path = write(tmp_path, "x,rating", "1,1", "1e308,2", "-2e150,1", "4,2")
    with pytest.raises(UserError, match=r"row 2 holds '1e308' \(2 such cells.*end at 1e150"):
        read_samples(path, "rating")


def test_numbers_that_look_like_dates_are_mentioned(tmp_path):
    days = [f"2026{k:02d}31" for k in (1, 3, 5, 7)]
    path = write(tmp_path, "day,rating", *(f"{day},{k % 2}" for k, day in enumerate(days)))
    assert (
        "'day' is read as numbers; they look like dates, as 20260131"
        in read_samples(path, "rating").notes[0]
    )
    path = write(
        tmp_path, "day,rating", *(f"{day},{k % 2}" for k, day in enumerate([*days, "20260231"]))
    )
    assert not read_samples(path, "rating").notes


def test_columns_that_may_be_a_mistake_are_noted(tmp_path):
    rows = [f"{k / 7},w{k},,{k % 2}" for k in range(12)]
    found = read_samples(write(tmp_path, "x,name,empty,rating", *rows), "rating")
    assert found.notes == [
        "'name' has another word in each row: --id name leaves it out.",
        "Columns without values are left out: 'empty'.",
    ]
    with pytest.raises(UserError, match="no columns beside the target"):
        read_samples(write(tmp_path, "rating", "1", "2"), "rating")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("{}.5 kg", "numbers with units"),
        ("{}%", "numbers with units"),
        ("€ {}", "numbers with units"),
        ('"1,{}.5"', "thousands marks"),
        ("1'{}", "thousands marks"),
    ],
)
def test_words_that_look_like_numbers_or_dates_are_not_taken_for_names(tmp_path, cell, words):
    """Few became categories without a word; for many the hint was to use them as names."""
    rows = [f"{cell.format(k % 90 + 10)},{k % 2}" for k in range(40)]
    (note,) = read_samples(write(tmp_path, "x,rating", *rows), "rating").notes
    assert note.startswith("'x' is read as categories; its cells look like")
    assert words in note


@pytest.mark.parametrize(
    "form",
    [
        ["{0}. Mai 2026"],
        ["May {} 2026"],
        ["03-Okt-{}"],
        ["1.2.{}"],  # the century is not known
        ["12:{}"],
        ["12:{} pm"],
        ["2026-W{}"],
        ["2026-01-31 11:{} PM"],
        ["2026-01-{}", "{}.01.2026", "01/{}/2026", "{} Jan 2026"],
    ],
)
@pytest.mark.parametrize("number", [40, 360])
def test_dates_that_are_not_read_are_left_out(tmp_path, form, number):
    """They became categories."""
    cells = [form[k % len(form)].format(k % 18 + 11) for k in range(number)]
    rows = [f"{cell},{k / 7},{k % 2}" for k, cell in enumerate(cells)]
    found = read_samples(write(tmp_path, "day,x,rating", *rows), "rating")
    assert found.columns == [Column("x")]
    assert found.notes == [
        f"Columns that look like dates or times are left out: 'day' ({cells[0]}). Write dates as "
        "2026-01-31 to have them read."
    ]


def test_many_words_that_look_like_numbers_get_the_hint_of_numbers(tmp_path):
    rows = [f"{k} kg,{k % 2}" for k in range(150)]
    with pytest.raises(UserError) as caught:
        read_samples(write(tmp_path, "x,rating", *rows), "rating")
    assert "'x' look like numbers with units" in caught.value.message
    assert "1,234.5 kg as 1234.5" in caught.value.hint
    assert "--id" not in caught.value.hint


def test_words_of_usual_categories_are_not_alike(tmp_path):
    words = ["18-25", "A1", "grade 3", "mayor", "north", "<none>", "decile 3", "SEPT2", "marker 1"]
    words += ["3 decibels", "2026", "5more"]
    rows = [f"{words[k % 12]},{k % 2}" for k in range(48)]
    assert not read_samples(write(tmp_path, "x,rating", *rows), "rating").notes


def test_a_column_that_tells_the_class_is_noted(tmp_path):
    """A code of the target: scores would be perfect. Names of rows, and noise, tell nothing."""
    rows = [f"{'abc'[k % 3]},{k % 2},{k},{['low', 'mid', 'high'][k % 3]}" for k in range(30)]
    path = write(tmp_path, "code,even,row,y", *rows)
    notes = read_samples(path, "y", order=["low", "mid", "high"]).notes
    assert [note for note in notes if "belongs to one class" in note] == [
        "Each value of 'code' belongs to one class. If it was derived from the target, leave it "
        "out with --ignore code: scores would be too good to be true."
    ]


def test_a_copy_of_the_target_is_refused(tmp_path):
    path = write(tmp_path, "x,y,y", *[f"{k / 7},{k % 2},{k % 2}" for k in range(20)])
    with pytest.raises(UserError, match=r"'y.1' is a copy of the target\. .*--ignore y.1\."):
        read_samples(path, "y")
    assert list(read_samples(path, "y", ignore=["y.1"]).X) == ["x"]


def test_truths_need_no_order(tmp_path):
    path = write(tmp_path, "x,y", *[f"{k / 7},{k % 2 == 0}" for k in range(20)])
    found = read_samples(path, "y")
    assert found.classes == [False, True]
    assert not found.notes


# ------------------------------------------------------------------ rows to predict

COLUMNS = [
    Column("size", fill=2.0),
    Column("day", "date", "%d.%m.%Y", fill=0.0),
    Column("colour", "category", categories=("blue", "red"), fill="red"),
]


def rows(**changes):
    cells = {"size": ["1", "3"], "day": ["02.01.1970", "03.01.1970"], "colour": ["red", "blue"]}
    return Table(pd.DataFrame(cells | changes, dtype="str"), ".", [])


def test_rows_are_encoded_as_those_of_the_fit(tmp_path):
    X, complete, notes = read_features(tmp_path, rows(), COLUMNS, "refuse", "refuse")
    assert Encoder.restore(COLUMNS).transform(X).tolist() == [[1, 1, 0, 1], [3, 2, 1, 0]]
    assert complete.all()
    assert notes == []
    gaps = rows(size=["", "3"], colour=["red", ""])
    X, complete, notes = read_features(tmp_path, gaps, COLUMNS, "impute", "refuse")
    assert Encoder.restore(COLUMNS).transform(X).tolist() == [[2, 1, 0, 1], [3, 2, 0, 1]]
    assert notes == ["Missing values are filled in: 'size' (1), 'colour' (1)."]
    X, complete, _ = read_features(tmp_path, rows(size=["", "3"]), COLUMNS, "drop", "refuse")
    assert complete.tolist() == [False, True]
    assert len(X) == 1


def test_unknown_categories_are_ignored_or_refused(tmp_path):
    strange = rows(colour=["violet", "red"])
    X, _, notes = read_features(tmp_path, strange, COLUMNS, "refuse", "ignore")
    assert Encoder.restore(COLUMNS).transform(X).tolist() == [[1, 1, 0, 0], [3, 2, 0, 1]]
    assert notes == [
        "'colour' holds violet, unknown to the model (rows: 1): taken for no category."
    ]
    with pytest.raises(UserError, match=r"holds violet, unknown.*--unknown ignore"):
        read_features(tmp_path, strange, COLUMNS, "refuse", "refuse")


def test_rows_that_do_not_fit_are_named_at_once(tmp_path):
    cells = rows(size=["big", "inf"], day=["1", "2020-01-01"], colour=["red", "violet"]).cells
    table = Table(cells.assign(colour=["red", ""]), ".", [])
    with pytest.raises(UserError) as caught:
        read_features(tmp_path, table, [*COLUMNS, Column("age")], "refuse", "ignore")
    assert caught.value.message == (
        f"{tmp_path}: there is no column 'age'; 'size' must hold finite numbers, but row 1 holds "
        "'big' (2 such cells: 'big', 'inf'); 'day' must hold dates, day.month.year, but row 1 "
        "holds '1' (2 such cells: '1', '2020-01-01'); values are missing in 'colour' (1), the "
        "first in row 2."
    )
    with pytest.raises(UserError, match="every row misses a value"):
        read_features(tmp_path, rows(size=["", "NA"]), COLUMNS, "drop", "ignore")


# ------------------------------------------------------------------ the encoder


def test_an_encoder_learns_from_what_it_is_fitted_to():
    X = pd.DataFrame({"a": [1.0, 3.0, np.nan, 50.0], "c": ["x", "y", "y", "z"], "b": [1.0] * 4})
    columns = [Column("a"), Column("c", "category"), Column("b")]
    encoder = Encoder(columns).fit(X.iloc[:3])
    assert encoder.columns_ == [
        Column("a", fill=2.0),
        Column("c", "category", categories=("x", "y"), fill="y"),
        Column("b", fill=1.0),
    ]
    assert encoder.transform(X).tolist()[2:] == [[2, 0, 1, 1], [50, 0, 0, 1]]
    assert (Encoder.restore(encoder.columns_).transform(X) == encoder.transform(X)).all()


def test_an_encoder_works_in_a_validation():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "c": rng.choice(list("pqrstuvw"), 60)})
    y = (X["a"] > 0).astype(int)
    X.loc[rng.random(60) < 0.2, "a"] = np.nan
    X["c"] = X["c"].astype(object).where(rng.random(60) < 0.5)  # folds that lack some of them
    model = make_pipeline(Encoder([Column("a"), Column("c", "category")]), LogisticRegression())
    assert cross_val_score(model, X, y, cv=5).mean() > 0.7


# ------------------------------------------------------------------ what would be silent otherwise


def own_table(tmp_path, **columns):
    path = tmp_path / "table.csv"
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def test_a_column_that_numbers_the_rows_is_mentioned(tmp_path):
    path = own_table(tmp_path, id=range(7, 17), size=range(0, 100, 10), rating=[1, 2] * 5)
    samples = read_samples(path, "rating")
    assert [note for note in samples.notes if "numbers the rows" in note] == [
        "'id' numbers the rows, and is used as a feature: leave it out with --ignore."
    ]
    assert not read_samples(path, "rating", ignore=["id"]).notes


def test_classes_at_uneven_distances_are_mentioned(tmp_path):
    path = own_table(tmp_path, size=range(0, 80, 10), rating=[1, 2, 3, 5] * 2)
    (note,) = read_samples(path, "rating").notes
    assert "1, 2, 3, 5 are at uneven distances" in note
    assert not read_samples(path, "rating", order=["1", "2", "3", "5"]).notes
    even = own_table(tmp_path, size=range(0, 80, 10), rating=[2, 4, 6, 8] * 2)
    assert not read_samples(even, "rating").notes

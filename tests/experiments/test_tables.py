"""Tables as people have them: separators, decimal marks, encodings, headers, damage."""

import numpy as np
import pandas as pd
import pytest

from geosoftmax_experiments.cells import days, listed, numbers
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.tables import TextFormat, read_table

GERMAN = "Größe;Gewicht;Note\n1,75;70,5;gut\n1,62;58;mäßig\n"


def write(folder, text, encoding="utf-8", name="data.csv"):
    path = folder / name
    path.write_bytes(text.encode(encoding))
    return path


def test_a_usual_table_needs_no_note(tmp_path):
    table = read_table(write(tmp_path, "x,rating\n1.5,NA\n2,\n"))
    assert table.notes == []
    assert table.decimal == "."
    assert table.cells.to_dict("list") == {"x": ["1.5", "2"], "rating": ["NA", ""]}


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("utf-16", "read as utf-16 (--encoding)"),
        ("cp1252", "read as cp1252 (--encoding)"),
        ("latin-1", "read as cp1252 (--encoding)"),
    ],
)
def test_encodings_marks_and_separators_are_guessed(tmp_path, encoding, note):
    table = read_table(write(tmp_path, GERMAN, encoding))
    assert list(table.cells.columns) == ["Größe", "Gewicht", "Note"]
    assert table.cells["Note"].tolist() == ["gut", "mäßig"]
    assert numbers(table.cells["Größe"], table.decimal)[0].tolist() == [1.75, 1.62]
    assert table.notes[-2:] == [
        "Guessed: columns are separated by ';' (--separator).",
        "Guessed: the decimal mark is ',' (--decimal).",
    ]
    assert len(table.notes) == (2 if note is None else 3)
    assert note is None or note in table.notes[0]


def test_what_is_given_is_not_guessed(tmp_path):
    path = write(tmp_path, "a|b\n1,5|ä\n", "latin-1")
    table = read_table(path, TextFormat("|", ",", "latin-1"))
    assert (table.cells.to_dict("list"), table.notes) == ({"a": ["1,5"], "b": ["ä"]}, [])
    assert len(read_table(path).notes) == 3
    with pytest.raises(UserError, match=r"can't decode.*--encoding"):
        read_table(path, TextFormat("|", ",", "utf-8"))
    with pytest.raises(UserError, match=r"unknown encoding: klingon.*--encoding"):
        read_table(path, TextFormat("|", ",", "klingon"))
    bom = write(tmp_path, "a,b\n1,2\n", "utf-8-sig")
    assert list(read_table(bom, TextFormat("", "", "utf-8")).cells.columns) == ["a", "b"]
    assert "separated by tab" in read_table(write(tmp_path, "a\tb\n1\t2\n", name="t.tsv")).notes[0]


@pytest.mark.parametrize(
    ("text", "decimal"),
    [
        ('x,y\n"1,5",a\n"2,5",b\n', ","),  # quoted in a table with commas
        ("x;y\n1.5;a\n2.5;b\n", "."),
        ("x;y;z\n1,5;2.5;3.5\n", "."),  # more columns with points
        ("x;y\n1;05.01.2026\n2;06.01.2026\n", "."),
        ("x;y\n1;NA\n2;3,5\n", ","),
        ("x;y\n1.234;0,5\n5.678;1,5\n", ","),  # semicolons go with commas
        # A mark with three digits after it is decimal where another column makes it clear …
        ("x;y\n950;0.5\n1.050;1.5\n", "."),
        ("x;y\n950;0.5\n1,050;1.5\n", "."),
        ("x\ty\n950\t0,125\n1,050\t0,250\n", ","),
        # … or the column itself: other digits, a number from 1000 on, marks in all cells.
        ("x;y\n950;a\n1.050;b\n2.3;c\n", "."),
        ("x;y\n1500;a\n1.050;b\n", "."),
        ("x,y\n1.234,2\n2.345,3\n", "."),
        ("x\ty\n1.234\t2\nNA\t3\n", "."),
        ("x;y\n1,234;2\n2,345;3\n", ","),
        ("x,y\n" + "950,1\n" * 2000 + "1.050,1\n0.5,1\n", "."),
    ],
)
def test_the_decimal_mark_is_that_of_more_columns(tmp_path, text, decimal):
    assert read_table(write(tmp_path, text)).decimal == decimal


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x;y\n950;a\n1.050;b\n2.300;c\n", r"1\.050 may be 1\.050 or 1050; .*'x'.*--decimal \. "),
        ("x;y\n950;a\n1,050;b\n", r"1,050 may be 1\.050 or 1050.*--decimal , "),
        ("x\ty\n950\t1\n1,050\t2\n", "--decimal , "),
        ("x\ty\n3,950\t1\n1,050\t2\n", "--decimal , "),  # English thousands
        ('x,y\n"1,234",a\n999,b\n', "--decimal , "),
        ("x,y\n950,a\n1.050,b\n", r"--decimal \. "),
        ("x;y\n1.050;1,050\n2.050;2,050\n", "--decimal"),
        ("x,y\n" + "950,1\n" * 2000 + "1.050,1\n", r"--decimal \. "),
    ],
)
def test_a_mark_that_may_be_of_thousands_is_asked_for(tmp_path, text, words):
    """A thousand became one, without a word."""
    path = write(tmp_path, text)
    with pytest.raises(UserError, match=words):
        read_table(path)
    assert [read_table(path, TextFormat("", mark, "")).decimal for mark in ".,"] == [".", ","]


def test_headers_of_all_kinds(tmp_path):
    table = read_table(write(tmp_path, "x,x,rating, x.1 ,x\n1,2,3,4,5\n"))
    assert list(table.cells.columns) == ["x", "x.1", "rating", "x.1.1", "x.2"]
    assert table.notes[0] == "A second column is called 'x'; it is read as 'x.1'."
    assert len(table.notes) == 3
    index = read_table(write(tmp_path, ",x,y\n0,5,a\n1,6,b\n,,\n"))
    assert index.cells.to_dict("list") == {"x": ["5", "6"], "y": ["a", "b"]}
    assert index.notes == [
        "Empty rows are left out: 1.",
        "The first column has no name and numbers the rows; it is left out.",
    ]
    kept = read_table(write(tmp_path, ",x\n3,5\n9,6\n"))  # no name, but it does not count
    assert list(kept.cells.columns) == ["Unnamed: 0", "x"]
    shuffled = "\n".join(f"{7 * k % 12},5" for k in range(12))
    assert list(read_table(write(tmp_path, f",x\n{shuffled}\n")).cells.columns) == ["x"]


def test_rows_without_values_stay_where_they_are_asked_for(tmp_path):
    path = write(tmp_path, "\nx,y\n1,2\n,\n\n   \n3,4\n\n")
    table = read_table(path)
    assert table.cells["x"].tolist() == ["1", "3"]
    assert table.notes == ["Empty rows are left out: 4."]
    table = read_table(path, keep_empty=True)  # blank lines are no rows
    assert table.cells["x"].tolist() == ["1", "", "3"]
    assert table.cells.index.tolist() == [0, 1, 2]
    assert table.notes == ["Blank lines are left out: 3."]
    one = read_table(write(tmp_path, 'x\n1\n""\n\n2\n'), keep_empty=True)
    assert one.cells["x"].tolist() == ["1", "", "2"]


@pytest.mark.parametrize(
    "text",
    ["x,y\n1,2,\n3,4,\n", "x,y\n1,2\n3,4,\n", "x,y\n1,2,\n3,4\n", "x,y\n\n1,2,  \n3,4,\n"],
)
@pytest.mark.parametrize("separator", ",;\t")
def test_rows_may_end_with_a_separator(tmp_path, text, separator):
    cells = read_table(write(tmp_path, text.replace(",", separator))).cells
    assert cells.to_dict("list") == {"x": ["1", "3"], "y": ["2", "4"]}


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "\ufeffSEP=;", "\nsep=;\r"])
def test_a_first_line_may_name_the_separator(tmp_path, first):
    path = write(tmp_path, f"{first}\nx;y,z\n1;2\n3;4\n")
    table = read_table(path)
    assert table.cells.to_dict("list") == {"x": ["1", "3"], "y,z": ["2", "4"]}
    assert table.notes == ["The first line names the separator, ';', and is skipped."]
    given = read_table(path, TextFormat(",", "", ""))
    assert list(given.cells.columns) == ["x;y", "z"]
    assert given.notes == table.notes


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named(tmp_path, encoding):
    path = write(tmp_path, "größe,y\n1,2\n", encoding)
    with pytest.raises(UserError, match=rf"UTF-16 without a mark.*--encoding {encoding}"):
        read_table(path)
    table = read_table(path, TextFormat("", "", encoding))
    assert table.cells.to_dict("list") == {"größe": ["1"], "y": ["2"]}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xlsx", b"", "neither CSV nor Parquet"),
        ("a.csv", b"", "is empty"),
        ("a.csv", b"\n  \n", "is empty"),
        ("a.parquet", b"", "is empty"),
        ("a.csv", b"sep=;\n", "is empty"),
        ("a.csv", b"x,y\n1,2,\n3,4,5\n", "row 2 has 3 cells, its header 2 names"),
        ("a.csv", b"x,y\n", "holds no rows"),
        ("a.csv", b"x,y\n,\n", "holds no rows"),
        ("a.csv", b"x,y\n1,2\n3,4,5\n", "Could not read"),
        ("a.csv", b"x,y\n1,2,3\n4,5,6\n", "row 1 has 3 cells, its header 2 names"),
        ("a.parquet", b"PAR1 and no more", "Could not read"),
        ("none.csv", None, "There is no file"),
    ],
)
def test_tables_that_cannot_be_read_are_named(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=words) as caught:
        read_table(path)
    assert str(path) in caught.value.message


def test_cells_become_numbers():
    text = pd.Series(["1", " 2.5 ", "", "NA", "null", "None", "1e3", "n/a"])
    found, wrong = numbers(text)
    assert np.array_equal(found, [1, 2.5, *[np.nan] * 4, 1000, np.nan], equal_nan=True)
    assert not wrong.any()
    found, wrong = numbers(pd.Series(["1,5", "1.5", "x"]), ",")  # a point is no comma
    assert found[0] == 1.5
    assert wrong.tolist() == [False, True, True]
    assert numbers(pd.Series(["TRUE", "false", ""]))[0].tolist()[:2] == [1, 0]
    assert numbers(pd.Series(["true", "2"]))[1].tolist() == [True, False]
    assert numbers(pd.Series([1, None], dtype="Int64"))[0][0] == 1
    assert numbers(pd.Series(pd.to_datetime(["2020-01-01"])))[1].tolist() == [True]


def test_cells_become_days():
    found, wrong = days(
        pd.Series(["1970-01-03", "1970-01-03T12:00:00Z", "NA", "3.1.1970"]), "ISO8601"
    )
    assert found[:2].tolist() == [2, 2.5]
    assert wrong.tolist() == [False, False, False, True]
    stamps = pd.Series(pd.to_datetime(["1970-01-02", None])).dt.tz_localize("Europe/Berlin")
    assert days(stamps, "ISO8601")[0][0] == 23 / 24


def test_lists_in_messages_are_one_short_line():
    assert listed(["a", "b\nc", "\x1b[31m"]) == "a, b c, \N{REPLACEMENT CHARACTER}[31m"
    assert listed(range(1000), 2) == "0, 1, … (1000 in all)"

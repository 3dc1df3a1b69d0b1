"""The comparison of two libraries: what it reads from their runs."""

import json

import pytest

from benchmarks.beside import Row, Times, chance, geometric_mean, markdown, pair, times_in


def test_times_are_read_by_question_section_and_row(tmp_path):
    sections = [
        {"title": "d = 5", "seconds": {"a": 0.5, "b": 2.0}, "cpu_seconds": {"a": 0.4}},
        {"title": "d = 9", "seconds": {"a": 1.0}, "cpu_seconds": {}},
    ]
    (tmp_path / "line.json").write_text(json.dumps({"sections": sections}))
    found = times_in(tmp_path, ["line"])
    assert found.seconds == {"line: d = 5: a": 0.5, "line: d = 5: b": 2.0, "line: d = 9: a": 1.0}
    assert found.cpu_seconds == {"line: d = 5: a": 0.4}


def test_rows_are_paired_and_those_of_one_library_are_named():
    before = [Times({"a": 1.0, "old": 1.0}, {"a": 1.0}), Times({"a": 3.0, "old": 1.0}, {"a": 1.0})]
    now = [Times({"a": 2.0, "new": 1.0}, {"a": 0.5}), Times({"a": 1.5, "new": 1.0}, {"a": 0.5})]
    (row,), missing = pair(before, now)
    assert missing == ["old", "new"]
    assert row.ratio == pytest.approx(1.75 / 2.0)
    assert row.pairs == [2.0, 0.5]
    assert row.cpu_ratio == 0.5


def test_the_summary_has_the_mean_and_the_worst_row():
    rows = [Row("a", [1.0], [2.0]), Row("b", [2.0], [1.0], 0.9), Row("c", [1.0], [1.0])]
    assert geometric_mean([row.ratio for row in rows]) == pytest.approx(1.0)
    result = {"commit": "c" * 40, "working_tree": "d" * 40, "dirty": False, "runs": 1}
    result |= {"geometric_mean": 1.0, "geometric_mean_cpu": 0.9, "missing": ["x"]}
    text = markdown(rows, result)
    assert "over 3 rows: **1.000**; of CPU times, over 1 rows: **0.900**" in text
    assert "Worst row: a, **2.000**" in text
    assert "Worst row by CPU time: b, **0.900**" in text
    assert "Not in all runs: x." in text


def test_five_pairs_agree_by_chance_once_in_sixteen():
    assert chance(5) == 1 / 16

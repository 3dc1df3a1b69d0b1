"""What the tabs of `geosoftmax play` answer: right numbers, and words where a value is bad."""

import json
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play import fields, keypoints, ordinal, page, simplex

FIELD, SCORES = fields.MEANINGS
BOTH, ONE, TWO = fields.COSTS
EMPTY = json.dumps([0] * fields.SIDE**2)
GOOD = {
    fields.show_fields: (fields.digit(3), FIELD, 0.0, 0, TWO, 1.0),
    keypoints.show_keypoints: (9.3, 11.6, 1.0, 0.3, 0, ONE, 1.0),
    ordinal.show_ordinal: (json.dumps([0.5] * 10), 5, "squared distance", 0.5, 2),
    simplex.show_simplex: (2, -1.0, -1.5, "zero-one", 2),
}
anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.lists(st.floats(), max_size=4).map(str)
    | st.dictionaries(st.text(max_size=3), st.none(), max_size=2)
)


def rows(page):
    found = re.findall(r'<tr data-row="([^"]*)">.*?</th>(.*?)</tr>', page)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", cells) for name, cells in found}


def test_exact_field_is_undone_by_the_geometric_softmax_alone():
    found = rows(fields.show_fields(*GOOD[fields.show_fields]))
    gap, _, pixels, variation, divergence = found["geometric softmax"]
    assert float(gap) < 1e-6
    assert float(variation) < 0.01
    assert float(divergence) < 1e-4
    assert all(float(found[name][3]) > 0.05 for name in ("softmax", "sparsemax"))
    ink = sum(value > 0 for value in json.loads(fields.digit(3)))
    assert abs(int(pixels) - ink) < 0.1 * ink
    assert int(found["softmax"][2]) == fields.SIDE**2 or int(found["softmax"][2]) > 2 * ink


def test_noise_and_meaning_change_the_answer():
    ink, _, _, *rest = GOOD[fields.show_fields]
    pages = {fields.show_fields(ink, m, n, *rest) for m in (FIELD, SCORES) for n in (0, 0.3)}
    assert len(pages) == 4


def test_both_powers_are_shown_side_by_side():
    ink, meaning, noise, seed, _, scale = GOOD[fields.show_fields]
    found = rows(fields.show_fields(ink, meaning, noise, seed, BOTH, scale))
    for p in (1, 2):
        assert float(found[f"geometric softmax, p = {p}"][3]) < 0.01
    assert {"softmax, p = 2", "sparsemax, p = 2"} < set(found)


def test_key_points_are_read_between_pixels():
    """Without noise: the mean in the window is the place, and the peaks share the mass."""
    row, column = 9.3, 11.6
    exact = rows(keypoints.show_keypoints(row, column, 1.0, 0.0, 0, ONE, 1.0))
    r, c, error, confidence = map(float, exact["geometric softmax, window"])
    assert (r, c) == pytest.approx((row, column), abs=0.1)
    assert error < 0.1
    assert confidence == pytest.approx(1 / (1 + math.exp(-1.0)), abs=0.05)  # lower by 1
    assert float(exact["soft-argmax"][2]) > 3  # between the peaks


def test_every_tab_answers_its_first_values():
    for tab in page.TABS:
        values = {control.name: control.value for control in tab.controls}
        if tab.key == "fields":
            values["ink"] = fields.digit(3)
        shown = page.answer({"tab": tab.key, "values": values})
        assert "<table>" in shown, shown
        assert tab.title in page.render()


@pytest.mark.parametrize("request_", [None, [], {}, {"tab": 3}, {"tab": "fields", "values": []}])
def test_requests_that_are_none_are_refused(request_):
    with pytest.raises(UserError, match="cannot be read"):
        page.answer(request_)


def test_empty_sheet_is_answered_in_words():
    _, *rest = GOOD[fields.show_fields]
    assert "Draw on it, or pick a drawing" in fields.show_fields(EMPTY, *rest)


def test_ordinal_numbers():
    shown = ordinal.show_ordinal(json.dumps([0, 0, 9, 0, 0, *[0] * 5]), 5, "distance", 1.0, 3)
    found = rows(shown)
    assert found["geometric softmax"] == ["3", "3", "3", "0.000", "0.000"]  # 9 > c · 2: certain
    for words in (">probability</text>", ">class</text>", ">0.25</text>"):
        assert words in shown  # the axes have names and numbers
    alert = ordinal.show_ordinal(json.dumps([0] * 10), 5, "distance", 1.0, 6)
    assert "true class must be a number from 1 to 5" in alert
    assert found["softmax"][:3] == ["3", "3", "3"]
    assert float(found["softmax"][3]) == pytest.approx(0.0005, abs=5e-4)
    assert "<rect" in shown


def test_simplex_numbers():
    found = rows(simplex.show_simplex(3, 0, 0, "zero-one", 2))
    assert found["geometric softmax"] == ["1.000", "0.000", "0.000"]
    assert found["extrapolated fᴱ"] == ["3.00", "1.00", "1.00"]  # 3 - c
    found = rows(simplex.show_simplex(0, 0, 0, "zero-one", 2))
    assert found["geometric softmax"] == found["softmax"] == ["0.333", "0.333", "0.333"]


@pytest.mark.parametrize("show", GOOD)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_no_value_crashes_it(show, data):
    values = list(GOOD[show])
    place = data.draw(st.integers(0, len(values) - 1))
    values[place] = data.draw(anything)
    shown = show(*values)
    assert isinstance(shown, str)
    assert "<table>" in shown or 'role="alert"' in shown
    assert "<script" not in shown


def test_what_was_typed_is_escaped():
    values = list(GOOD[simplex.show_simplex])
    values[3] = "<img src=x onerror=alert(1)>"
    assert "<img" not in simplex.show_simplex(*values)

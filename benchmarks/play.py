"""The page to play with: how long does an answer take on this machine?"""

from __future__ import annotations

import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.chromium import CHROMIUM, launch
from benchmarks.harness import Bench
from benchmarks.report import Report, Section, Target
from geosoftmax_experiments.play import fields, ordinal, simplex
from geosoftmax_experiments.play.serve import open_page

FIELD, SCORES = fields.MEANINGS
*_, SQUARED = fields.COSTS
ANSWERS: dict[str, tuple[Callable[..., str], tuple[Any, ...]]] = {
    "field of a digit, exact": (
        fields.show_fields, (fields.digit(3), FIELD, 0.0, 0, SQUARED, 1.0)
    ),
    "field of a digit, noise": (
        fields.show_fields, (fields.digit(3), FIELD, 0.3, 0, SQUARED, 1.0)
    ),
    "scores of a digit": (
        fields.show_fields, (fields.digit(8), SCORES, 0.3, 0, SQUARED, 0.5)
    ),
    "ordered classes": (
        ordinal.show_ordinal, (json.dumps([0.5] * 10), 10, "squared distance", 0.5, 2)
    ),
    "three classes": (simplex.show_simplex, (2, -1.0, -1.5, "zero-one", 2)),
}  # fmt: skip

#: What is pressed in the browser: a tab, where its answer is, and a slider.
KEYS = {
    "noise on a drawing": ("Drawings", "#fields", "#fields-noise input[type=range]"),
    "scale of the cost": ("Drawings", "#fields", "#fields-scale input[type=range]"),
    "key points": ("Key points", "#keypoints", "#keypoints-row input[type=range]"),
    "ordered classes": ("Ordered classes", "#ordinal", "#scores label:nth-child(2) input"),
    "three classes": ("Three classes", "#simplex", "#simplex-score-2 input[type=range]"),
}
#: From the key to the frame that shows another answer, as the page itself sees it.
WATCH = """
([selector]) => {
  const root = document.querySelector(selector);
  const answer = () => root.querySelector(".g-answer")?.innerText;
  window.took = null;
  window.addEventListener("keydown", (event) => {
    const begun = event.timeStamp, before = answer();
    const look = () => {
      const now = answer();
      if (now && now !== before) window.took = performance.now() - begun;
      else requestAnimationFrame(look);
    };
    look();
  }, { once: true, capture: true });
}
"""


def run(bench: Bench) -> Report:
    report = Report("The page to play with")
    title = "An answer, without the way to the page and back"
    rows = _answers(bench)
    report.add(bench, Section(title, rows, seconds={row[""]: row["ms"] / 1e3 for row in rows}))
    rows = _in_the_browser(bench)
    if rows:
        note = "From the press of an arrow key on a slider to the frame that shows other numbers."
        report.add(bench, Section("In Chromium", rows, note, {r[""]: r["ms"] / 1e3 for r in rows}))
        worst = max(row["ms"] for row in rows)
        report.targets.append(Target("geosoftmax play, slowest answer", worst, 200.0, unit="ms"))
    return report


def _answers(bench: Bench) -> list[dict[str, Any]]:
    repeats = 3 if bench.quick else 21
    rows = []
    for name, (show, values) in ANSWERS.items():
        seconds = []
        for turn in range(repeats + 1):
            start = time.perf_counter()
            page = show(*values)
            if turn:  # the first builds tables
                seconds.append(time.perf_counter() - start)
            assert "alert" not in page
        rows.append(_row(name, [1e3 * s for s in seconds]))
    return rows


def _in_the_browser(bench: Bench) -> list[dict[str, Any]]:
    """Press keys on the page in Chromium, where it is installed."""
    if not importlib.util.find_spec("playwright"):
        bench.missing.add("playwright")
        return []
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        bench.missing.add("chromium")
        return []
    server, address = open_page(0)  # any port that is free
    try:
        with sync_playwright() as playwright:
            browser = launch(playwright)
            page = browser.new_page(viewport={"width": 1100, "height": 1000})
            page.goto(address)
            page.wait_for_selector("#bracket")
            rows = [_row(name, _press(bench, page, *key)) for name, key in KEYS.items()]
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    return rows


def _press(bench: Bench, page: Any, tab: str, answer: str, slider: str) -> list[float]:
    """Return the milliseconds of some presses, after a first one."""
    page.get_by_role("tab", name=tab).click()
    page.locator(slider).focus()
    found = []
    for turn in range(4 if bench.quick else 16):
        page.evaluate(WATCH, [answer])
        page.keyboard.press("ArrowRight")
        page.wait_for_function("window.took !== null")
        if turn:
            found.append(page.evaluate("window.took"))
    return found


def _row(name: str, milliseconds: list[float]) -> dict[str, Any]:
    return {"": name, "ms": statistics.median(milliseconds), "slowest": max(milliseconds)}

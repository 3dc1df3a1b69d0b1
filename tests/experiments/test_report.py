"""Reports of data whose names are an attack: nothing runs, nothing else is embedded."""

import base64
import csv
import json
import re
from html.parser import HTMLParser

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from geosoftmax_experiments.figures.stored import STORED
from geosoftmax_experiments.ordinal import own
from geosoftmax_experiments.ordinal.options import FitOptions, PredictOptions
from geosoftmax_experiments.report import (
    Report,
    escape,
    html_page,
    plain_label,
    save,
    say_saved,
    write_csv,
)
from geosoftmax_experiments.vae.report import rewrite_report
from tests.browser import open_browser, quiet_page
from tests.hostile import NAMES, picture

SAFE_TAGS = {
    "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "code", "img", "ul",
    "li", "table", "thead", "tbody", "tr", "th", "td", "strong", "em", "br",
}  # fmt: skip


class Page(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.pictures, self.text, self.policy = [], [], "", None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append((tag, found))
        if tag == "img":
            self.pictures.append(
                base64.b64decode(found["src"].removeprefix("data:image/png;base64,"))
            )
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]

    def handle_data(self, data):
        self.text += data


def check(path, pictures):
    """Parse a report; see that it holds these pictures and nothing that acts."""
    page = Page(path.read_text(encoding="utf8"))
    assert {tag for tag, _ in page.tags} <= SAFE_TAGS
    for _, attributes in page.tags:
        assert set(attributes) <= {"lang", "charset", "http-equiv", "content", "src", "alt"}
    wanted = [(path.parent / name).read_bytes() for name in pictures]
    assert page.pictures == wanted
    assert "default-src 'none'" in page.policy
    assert "script-src" not in page.policy
    return page


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A table in which everything that has a name is named by an attacker."""
    folder = tmp_path_factory.mktemp("attacked")
    picture(folder / "secret.png")
    names = [" ".join(NAMES), *(name for name in NAMES if name.startswith(("=", "-", "+")))]
    names.append(f"![s]({folder / 'secret.png'})")
    rng = np.random.default_rng(0)
    classes = np.array(names)[np.arange(50) % len(names)]
    table = pd.DataFrame({f"{name} column": rng.normal(size=len(classes)) for name in names[:2]})
    target = f"<script>alert('target')</script> ![s]({folder / 'secret.png'}) $x_$"
    table[target] = classes
    path = folder / "<img src=x onerror=alert(1)>`![s](secret.png)`.csv".replace("/", "")
    table.to_csv(path, index=False)
    console = Console(quiet=True)
    model = folder / "model"
    order = ",".join(sorted(names))
    own.fit_table(FitOptions(table=path, target=target, output=model, order=order), console)
    options = PredictOptions(model=model, table=path, output=folder / "predictions.csv")
    own.predict_table(options, console)
    return folder, names, target


def test_a_fit_with_hostile_names(attacked):
    folder, names, target = attacked
    pictures = ["confusion.png", "probabilities.png", "coefficients.png"]
    page = check(folder / "model" / "report.html", pictures)
    text = " ".join(page.text.split())
    for name in (*names, target):
        assert " ".join(name.split()) in text  # shown as they are
    secret = base64.b64encode((folder / "secret.png").read_bytes()).decode()
    assert secret[:40] not in (folder / "model" / "report.html").read_text()


def test_predictions_are_no_formulas(attacked):
    folder, names, _ = attacked
    with (folder / "predictions.csv").open(newline="", encoding="utf8") as file:
        rows = list(csv.reader(file))
    assert not [cell for row in rows for cell in row if re.match(r"[=+@\t\r]|-(?!\d)", cell)]
    predicted = {row[0].removeprefix("'") for row in rows[1:]}
    assert predicted <= set(names)
    assert [cell[2:-1] for cell in rows[0][1:]] == sorted(names)


@pytest.mark.slow
def test_a_browser_runs_nothing_of_it(attacked):
    """The policy holds too: a script that gets into the page by another way does not run."""
    folder, _, _ = attacked
    path = folder / "model" / "report.html"
    with open_browser() as browser:
        with quiet_page(browser, "file:") as page:
            page.on("dialog", lambda dialog: pytest.fail(dialog.message))
            page.goto(path.as_uri())
            assert page.evaluate("[...document.images].every(i => i.naturalWidth > 0)")
            assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none"
        broken = folder / "broken.html"
        script = "<script>document.title = 'it ran'</script></body>"
        broken.write_text(path.read_text(encoding="utf8").replace("</body>", script))
        page = browser.new_page()
        page.goto(broken.as_uri())
        assert page.title() != "it ran"


def test_report_embed_what_the_report_wrote(tmp_path):
    picture(tmp_path / "ours.png")
    picture(tmp_path / "other.png")
    (tmp_path / "sub").mkdir()
    picture(tmp_path / "sub" / "ours.png")
    text = (
        "![a <b>](ours.png) ![o](other.png) ![o](sub/ours.png) ![o](../x.png) "
        f"![o]({tmp_path}/ours.png) ![o](http://there/ours.png) <img src='ours.png'> "
        "<script>1</script>"
    )
    page = Page(html_page("<script>", text, tmp_path, {"ours.png"}))
    assert page.pictures == [(tmp_path / "ours.png").read_bytes()]
    assert [found["alt"] for tag, found in page.tags if tag == "img"] == ["a <b>"]
    assert "script" not in {tag for tag, _ in page.tags}


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(name, tmp_path):
    text = f"# {escape(name)}\n\n| {escape(name)} | b |\n| --- | --- |\n| {escape(name)} | c |"
    page = Page(html_page("t", text, tmp_path, set()))
    assert {tag for tag, _ in page.tags} <= SAFE_TAGS
    shown = " ".join(name.split())
    assert " ".join(page.text.split()).count(shown) == 3
    figure, axis = plt.subplots(figsize=(1, 1))
    axis.set_title(plain_label(name))
    save(figure, tmp_path / "figure.png")


def test_only_text_is_changed_in_a_csv(tmp_path):
    table = pd.DataFrame(
        {"=a": ["=1+1", "-1", "+x", "@y"], "n": [-1.5, 2, -3, np.nan], "k": ["'q", "a=b", "", None]}
    )
    write_csv(tmp_path / "out.csv", table)
    found = pd.read_csv(tmp_path / "out.csv")
    assert found.columns.tolist() == ["'=a", "n", "k"]
    assert found["'=a"].tolist() == ["'=1+1", "-1", "'+x", "'@y"]
    assert found["n"].tolist()[:3] == [-1.5, 2, -3]
    assert found["k"].tolist()[:2] == ["'q", "a=b"]
    write_csv(tmp_path / "index.csv", pd.DataFrame({"x": [1.0]}, index=["=1"]), index=True)
    assert (tmp_path / "index.csv").read_text().splitlines() == [",x", "'=1,1.0"]


@pytest.mark.slow
def test_a_comparison_with_hostile_words(tmp_path):
    """`vae report` of results that somebody else has sent."""
    source = STORED / "cats"
    results = json.loads((source / "results.json").read_text(encoding="utf8"))
    common, where = results["settings"]["common"], results["on"]
    rows = pd.DataFrame(results["rows"])  # some of them: it is drawn sooner
    rows = rows[(rows["seed"] == 0) & rows["loss"].isin(["softmax", "smoothed"])]
    results["rows"] = rows.to_dict("list")
    results["pictures_at_weight"] = {"softmax": 1.0, "smoothed": 1.0}
    attack = f"<script>alert(1)</script>![s]({tmp_path}/secret.png)$"
    for key in ("data", "precision", "start", "architecture"):
        common[key] = attack
    where["device"] = where["commit"] = where["versions"]["torch"] = attack
    results["commits"] = {attack: 3}
    picture(tmp_path / "secret.png")
    (tmp_path / "results.json").write_text(json.dumps(results))
    (tmp_path / "pictures.npz").write_bytes((source / "pictures.npz").read_bytes())
    page = check(
        rewrite_report(tmp_path, tmp_path / "report"),
        ["frontier.png", "ratio.png", "curves.png", "reconstructions.png", "samples.png"],
    )
    assert page.text.count(attack) >= 7


def test_the_console_names_the_pictures_of_a_report_and_no_others(tmp_path):
    (tmp_path / "stale.png").write_bytes(b"")
    report = Report(tmp_path, "title")
    for name in ("first", "second"):
        report.add_figure(name, plt.figure(), "caption")
    console = Console(width=200)
    with console.capture() as capture:
        say_saved(console, report.write())
    first, second = capture.get().splitlines()
    assert first == f"Report saved to {tmp_path / 'report.html'}"
    assert second == "Pictures beside it: first.png, second.png"


def test_the_console_names_no_pictures_where_there_are_none(tmp_path):
    console = Console(width=200)
    with console.capture() as capture:
        say_saved(console, Report(tmp_path, "title").write())
    assert capture.get() == f"Report saved to {tmp_path / 'report.html'}\n"

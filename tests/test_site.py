"""The site builds without a warning, its links lead somewhere, and it fetches nothing."""

import functools
import http.server
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.browser import open_browser, quiet_page

pytestmark = pytest.mark.slow  # building it, which `make docs` does, too

ROOT = Path(__file__).parent.parent


class Page(HTMLParser):
    """What a page links to, what it loads, and the names in it that can be linked to."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.names = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        elif tag in {"script", "img", "source", "iframe"} and found.get("src"):
            self.loads.add(found["src"])
        elif tag == "link" and found.get("rel") in {"stylesheet", "icon", "preload"}:
            self.loads.add(found["href"])


def build(folder, *options):
    """Build the site from a copy, so that nobody's own build is touched; return its pages."""
    made = shutil.ignore_patterns("_build", "api", "gallery", "generated")
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=made)
    for name in ("benchmarks", "examples"):
        (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *options, "-b", "html"]
    html = folder / "html"
    done = subprocess.run(
        [*command, folder / "docs", html], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return {path: Page(path.read_text(encoding="utf8")) for path in html.rglob("*.html")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site without the pictures of the gallery, which take half a minute."""
    pytest.importorskip("sphinx_gallery", reason="Sphinx is not installed: pip install .[docs]")
    return build(tmp_path_factory.mktemp("site"), "-D", "plot_gallery=0")


def test_examples_run_and_their_pages_are_whole(tmp_path):
    pytest.importorskip("sphinx_gallery", reason="Sphinx is not installed: pip install .[docs]")
    site = build(tmp_path)
    test_there_is_a_page_for_all(site)
    test_internal_links_lead_somewhere(site)
    test_nothing_is_fetched_from_elsewhere(site)
    pictures = {
        path.name for path in (tmp_path / "html" / "_images").glob("sphx_glr_plot_*_001.png")
    }
    assert len(pictures) == len(list((ROOT / "examples").glob("plot_*.py")))


def test_there_is_a_page_for_all(site):
    names = {path.name for path in site}
    assert {"index.html", "maths.html", "why.html", "costs.html", "faq.html", "api.html"} <= names
    examples = {name for name in names if name.startswith("plot_")}
    assert len(examples) >= 12
    assert len(examples) == len(list((ROOT / "examples").glob("plot_*.py")))


def test_internal_links_lead_somewhere(site):
    broken = []
    for path, page in site.items():
        for link in page.links:
            address, name = urldefrag(unquote(link))
            if re.match(r"(https?|mailto):", address):
                continue
            target = (path.parent / address).resolve() if address else path
            if not target.exists():
                broken.append(f"{path.name}: {link}")
            elif name and target in site and name not in site[target].names:
                broken.append(f"{path.name}: {link} (no such place)")
    assert broken == []


def test_nothing_is_fetched_from_elsewhere(site):
    loads = {load for page in site.values() for load in page.loads}
    assert [load for load in loads if re.match(r"(https?:)?//", load)] == []
    styles = {path for page in site for path in page.parent.glob("_static/**/*.css")}
    for style in styles:
        text = style.read_text(encoding="utf8", errors="ignore")
        assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)\s]*", text) == [], style


def test_previous_and_next_stand_once(site):
    costs = next(path for path in site if path.name == "costs.html")
    assert costs.read_text(encoding="utf8").count('class="prev-next-area"') == 1


def test_the_first_page_has_three_doors(site):
    index = next(path for path in site if path.name == "index.html" and path.parent.name == "html")
    doors = {"ordinal-table.html", "heatmaps.html", "continuous.html"}
    assert doors <= site[index].links
    assert {"classes.png", "peaks.png", "points.png"} <= {
        load.rsplit("/", 1)[-1] for load in site[index].loads
    }


def test_summaries_of_the_api_are_sentences(site):
    """Sphinx ends a summary at a full stop, also at that of an abbreviation."""
    api = next(path for path in site if path.name == "api.html")
    rows = re.findall(r"<td><p>(.*?)</p></td>\s*</tr>", api.read_text(encoding="utf8"), re.DOTALL)
    assert len(rows) > 20
    cut = r"\b(?:Prop|Fig|Sec|Eq|Thm|cf|no)\.\s*$"
    assert [row for row in rows if re.search(cut, re.sub(r"<.*?>", "", row))] == []


def test_formulas_are_set(site):
    """MathJax lies on the site; in the maths there is something to set."""
    maths = next(path for path in site if path.name == "maths.html")
    assert (maths.parent / "_static" / "mathjax" / "tex-chtml.js").exists()
    assert maths.read_text(encoding="utf8").count('class="math') > 100


def test_report_in_a_browser(site):
    """Formulas are set, pictures shown, nothing is fetched and nothing complains."""
    folder = next(path for path in site if path.name == "maths.html").parent
    handler = functools.partial(QuietHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, open_browser() as b:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        try:
            with quiet_page(b, address, viewport={"width": 390, "height": 844}) as page:
                for name in ("index.html", "why.html", "costs.html", "api.html", "maths.html"):
                    page.goto(address + name)
                    page.wait_for_load_state("networkidle")
                    unseen = "[...document.images].filter(i => !i.naturalWidth).length"
                    assert page.evaluate(unseen) == 0, name
                page.wait_for_selector("mjx-container")
                assert page.locator("mjx-container").count() > 100
                assert page.locator("mjx-merror").count() == 0
        finally:
            server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

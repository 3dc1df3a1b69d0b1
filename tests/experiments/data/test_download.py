"""Downloads: their sums are known, or recorded at the first time, and checked from then on."""

import functools
import hashlib
import http.server
import threading

import pytest

from geosoftmax_experiments.data import download
from geosoftmax_experiments.data.download import FILES, Published, find
from geosoftmax_experiments.errors import UserError

PLACE = "quickdraw/simplified/cat.ndjson"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    """A server that publishes one file; return its path there, and that of the cache."""
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").write_text("as published")
    handler = functools.partial(Quiet, directory=there)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/file"
        monkeypatch.setitem(FILES, PLACE, Published(url, None))
        yield there / "file", tmp_path / "cache" / "geosoftmax" / PLACE
        server.shutdown()


def test_the_first_download_is_recorded_and_checked_from_then_on(publisher):
    published, kept = publisher
    assert find(PLACE) == kept
    record = kept.with_name("cat.ndjson.sha256")
    assert record.read_text().split() == [hashlib.sha256(b"as published").hexdigest(), kept.name]
    kept.write_text("damaged")  # here: it is fetched again, and is the same
    assert find(PLACE).read_text() == "as published"
    kept.unlink()
    assert find(PLACE).read_text() == "as published"
    kept.write_text("changed here")
    published.write_text("changed there")
    with pytest.raises(UserError, match=r"Could not download .*hash") as changed:
        find(PLACE)
    assert f"remove {record}" in changed.value.hint
    assert kept.read_text() != "changed there"
    record.unlink()
    kept.unlink()
    assert find(PLACE).read_text() == "changed there"
    record.write_bytes(b"\xff\xfe nothing")
    with pytest.raises(UserError, match="holds no sha256"):
        find(PLACE)


def test_what_was_there_before_sums_were_recorded_counts_as_the_first(publisher):
    published, kept = publisher
    kept.parent.mkdir(parents=True)
    kept.write_text("from an older version")
    assert find(PLACE).read_text() == "from an older version"
    published.write_text("other")
    kept.unlink()
    with pytest.raises(UserError, match="Could not download"):
        find(PLACE)


def test_known_sums_are_not_recorded(publisher, monkeypatch):
    published, kept = publisher
    url, sha256 = FILES[PLACE].url, hashlib.sha256(b"as published").hexdigest()
    monkeypatch.setitem(FILES, PLACE, Published(url, sha256))
    find(PLACE)
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]
    published.write_text("other")
    kept.unlink()
    with pytest.raises(UserError, match="Could not download") as refused:
        find(PLACE)
    assert "remove" not in refused.value.hint


def test_the_pages_say_which_sums_are_known():
    """The README names the files whose first download is trusted."""
    from pathlib import Path

    text = (Path(__file__).parents[3] / "SECURITY.md").read_text(encoding="utf8")
    for place, published in download.FILES.items():
        if published.url:
            (row,) = [line for line in text.splitlines() if f"`{place}`" in line]
            assert ("first download" in row) == (published.sha256 is None)

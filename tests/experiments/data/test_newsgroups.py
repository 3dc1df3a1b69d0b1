"""20 newsgroups: what is read of the archive, what is refused, and the tree of the names."""

import gzip
import io
import lzma
import os
import tarfile

import numpy as np
import pytest
from sklearn.datasets._twenty_newsgroups import (
    strip_newsgroup_footer,
    strip_newsgroup_header,
    strip_newsgroup_quoting,
)

from geosoftmax import TreeCost
from geosoftmax_experiments.data import newsgroups
from geosoftmax_experiments.data.newsgroups import load_newsgroups, read_archive, tree_of_names
from geosoftmax_experiments.errors import UserError
from tests.experiments.taxonomy import posts

FULL = (
    "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware",
    "comp.sys.mac.hardware", "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles",
    "rec.sport.baseball", "rec.sport.hockey", "sci.crypt", "sci.electronics", "sci.med",
    "sci.space", "soc.religion.christian", "talk.politics.guns", "talk.politics.mideast",
    "talk.politics.misc", "talk.religion.misc",
)  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(newsgroups, "EXPECTED", posts.EXPECTED)
    monkeypatch.setattr(newsgroups, "GROUPS", len(posts.NAMES))


@pytest.mark.parametrize("mode", ["w:xz", "w:gz"])
def test_both_archives_are_read_and_stripped(mode, small, tmp_path):
    train, test = read_archive(posts.archive(tmp_path / "archive", mode=mode))
    assert train.names == test.names == posts.NAMES
    assert (len(train.texts), len(test.texts)) == (120, 40)
    assert np.bincount(train.labels).tolist() == [30] * 4
    raw = dict(posts.members())["20news-bydate-train/rec.autos/1000"].decode("latin1")
    stripped = strip_newsgroup_quoting(strip_newsgroup_footer(strip_newsgroup_header(raw)))
    assert train.texts[0] == stripped
    for gone in ("From:", "quoted", "me"):
        assert gone not in stripped.replace("more", "")
    assert train.digest() != test.digest()


@pytest.mark.parametrize("root", [None, "missing"])
def test_without_a_data_folder_the_hint_is_of_these_posts(root, tmp_path, monkeypatch):
    monkeypatch.delenv("GEOSOFTMAX_DATA", raising=False)
    if root:
        monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path / root))
    with pytest.raises(UserError, match=r"GEOSOFTMAX_DATA.*holds newsgroups/"):
        load_newsgroups()


def test_the_archive_of_the_data_folder_is_found(small, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    (tmp_path / "newsgroups").mkdir()
    with pytest.raises(UserError, match=r"neither 20news-bydate\.tar\.xz nor 20news-bydate"):
        load_newsgroups()
    posts.archive(tmp_path / "newsgroups" / "20news-bydate.tar.gz", mode="w:gz")
    assert len(load_newsgroups()[0].texts) == 120


@pytest.mark.skipif(
    not os.path.isdir(os.path.join(os.environ.get("GEOSOFTMAX_DATA", ""), "newsgroups")),
    reason="needs newsgroups/ in GEOSOFTMAX_DATA",
)
def test_the_published_archive():
    train, test = load_newsgroups()
    assert train.names == test.names == FULL
    assert (len(train.texts), len(test.texts)) == (11_314, 7_532)
    assert train.digest() == "b3086bacf7ec"


def link(name, target, kind=tarfile.SYMTYPE):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


@pytest.mark.parametrize(
    ("files", "extra", "said"),
    [
        ([], (), "holds 0 posts to train on; 120 were expected"),
        ([("../../pwned", b"x")], (), r"holds '../../pwned', which is no post"),
        ([("/20news-bydate-train/a.b/1", b"x")], (), "which is no post"),
        ([("20news-bydate-train/a.b/../1", b"x")], (), "which is no post"),
        ([], [link("20news-bydate-train/a.b/1", "/etc/passwd")], "which is no post"),
        ([], [link("20news-bydate-train/a.b/1", "x", tarfile.FIFOTYPE)], "which is no post"),
        ([("20news-bydate-test/a.b/1", b"x")] * 2, (), "holds '20news-bydate-test/a.b/1' twice"),
    ],
    ids=["empty", "above", "absolute", "dots", "link", "pipe", "twice"],
)
def test_strange_members_are_refused(files, extra, said, small, tmp_path):
    path = posts.archive(tmp_path / "archive", files, extra=extra)
    with pytest.raises(UserError, match=said):
        read_archive(path)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_other_groups_are_refused(small, tmp_path, monkeypatch):
    renamed = [(name.replace("test/rec.autos", "test/rec.boats"), x) for name, x in posts.members()]
    with pytest.raises(UserError, match="4 were expected, the same in both"):
        read_archive(posts.archive(tmp_path / "renamed", renamed))
    monkeypatch.setattr(newsgroups, "GROUPS", 5)
    with pytest.raises(UserError, match="holds 4 groups to train on and 4 to test on; 5"):
        read_archive(posts.archive(tmp_path / "fewer"))


@pytest.mark.parametrize("pack", [lzma.compress, gzip.compress], ids=["xz", "gzip"])
def test_bombs_and_damage_are_refused(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(newsgroups, "LARGEST", 10**6)
    path = tmp_path / "archive"
    path.write_bytes(pack(bytes(10**6 + 1)))
    with pytest.raises(UserError, match="unpacked it has more than 1,000,000 bytes"):
        read_archive(path)
    whole = pack(np.random.default_rng(0).bytes(5000))
    for damaged in (whole[:-40], whole[:2000] + bytes(40) + whole[2040:], b"", b"words"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="is no archive of 20 newsgroups"):
            read_archive(path)


def test_a_header_that_claims_much_takes_no_memory(tmp_path):
    """Extended headers are read at once: one that claims a terabyte finds the end of the data."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("20news-bydate-train/a.b/1")
        entry.type, entry.size = tarfile.XHDTYPE, 2**33 - 1
        archive.addfile(entry)
    (tmp_path / "archive").write_bytes(gzip.compress(packed.getvalue()))
    with pytest.raises(UserError):
        read_archive(tmp_path / "archive")


def test_the_tree_of_the_names():
    tree = TreeCost.from_dict(tree_of_names(FULL), order=FULL)
    assert tree.names == FULL
    assert set(tree.groups) == {
        "comp", "rec", "sci", "talk", "comp.sys", "rec.sport", "talk.politics",
    }  # fmt: skip
    distances, index = tree.matrix(), tree.index
    assert distances[index("comp.sys.ibm.pc.hardware"), index("comp.sys.mac.hardware")] == 2
    assert distances[index("comp.sys.ibm.pc.hardware"), index("comp.os.ms-windows.misc")] == 3
    assert distances[index("alt.atheism"), index("soc.religion.christian")] == 2
    assert distances[index("talk.politics.guns"), index("comp.sys.mac.hardware")] == 6


def test_prefixes_of_one_branch_are_no_groups():
    assert tree_of_names(["a.b.c.x", "a.b.c.y", "d"]) == {
        "a.b.c": {"a.b.c.x": None, "a.b.c.y": None},
        "d": None,
    }

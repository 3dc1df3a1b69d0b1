"""A small archive in the form of 20 newsgroups."""

import io
import tarfile

import numpy as np

NAMES = ("rec.autos", "rec.sport.baseball", "rec.sport.hockey", "sci.space")
WORDS = {
    "rec.autos": ["car", "engine", "wheel"],
    "rec.sport.baseball": ["pitcher", "inning", "team", "game"],
    "rec.sport.hockey": ["goalie", "ice", "team", "game"],
    "sci.space": ["orbit", "rocket", "moon"],
}
EXPECTED = {"train": 120, "test": 40}
POST = (
    "From: {number}@b.c\nSubject: {name}\n\n> somebody quoted this\n{text}\nmore of it\n\n-- \nme\n"
)


def members():
    """Yield names of files and their bytes."""
    rng = np.random.default_rng(0)
    for part, count in EXPECTED.items():
        for name in NAMES:
            for number in range(count // len(NAMES)):
                other = WORDS[NAMES[rng.integers(4)]]
                words = [*rng.choice(WORDS[name], 4), *rng.choice(other, 3), "the", "and"]
                text = POST.format(number=number, name=name, text=" ".join(words))
                yield f"20news-bydate-{part}/{name}/{1000 + number}", text.encode("latin1")


def archive(path, files=None, mode="w:xz", extra=()):
    """Write files, and members that `tarfile` has made, as an archive."""
    with tarfile.open(path, mode) as packed:
        for name, content in members() if files is None else files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
        for entry in extra:
            packed.addfile(entry)
    return path

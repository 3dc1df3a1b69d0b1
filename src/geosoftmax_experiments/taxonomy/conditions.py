"""The conditions under which models learn: clean labels, noisy ones, or leaves without a post.

A condition says which posts are drawn and measured, which folds settings are chosen on, and by
which measure the likeliest class is judged. All models get the same posts, labels and folds.
A *group* is a child of the root with the leaves below it.
"""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.taxonomy.features import Corpus, Sample
from geosoftmax_experiments.taxonomy.measures import Yardstick

__all__ = ["CLEAN", "Clean", "Condition", "Noise", "Task", "Unseen", "condition_of"]

FOLDS = 3
#: Posts from which on one of the folds is enough to choose by.
MANY = 2000
#: Leaves of a group that may lose one: two are left, so that another can be held out in a fold.
ENOUGH = 3
#: What sets the random numbers of noise and of unseen leaves apart from those of draws and folds.
NOISE, UNSEEN, HELD = 1, 2, 3
SAME_POSTS = (
    "Draws are measured on the same test posts, so that tests over draws tell the spread of small "
    "samples alone."
)


class Task(NamedTuple):
    """Posts to learn from, and posts to measure on."""

    sample: Sample
    test: Sample


class Condition(ABC):
    """How posts are drawn, folded and measured."""

    #: Decisions, with the measure by which their setting is chosen.
    criteria: ClassVar[dict[str, str]] = {"mode": "accuracy", "cost": "distance"}
    #: Whether draws of all posts differ.
    varies: ClassVar[bool] = True

    def __init__(self, title: str, notes: Sequence[str], **settings: Any) -> None:
        self.title = title  # the end of the report's
        self.notes = notes  # what the report says of posts, folds and measures
        self.settings = settings  # what the rows depend on, by the name of the option

    @abstractmethod
    def draw(self, corpus: Corpus, size: int, number: int) -> Task:
        """Return so many posts to learn from, drawn with a seed, and those to measure on."""

    def folds(
        self, sample: Sample, yardstick: Yardstick, seed: int
    ) -> Iterator[tuple[Sample, Sample]]:
        """Yield parts of a sample, each with what is held out."""
        split = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        with warnings.catch_warnings():  # noise can leave a class fewer posts than folds
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            parts = list(split.split(sample.X, sample.y))
        for part, held in parts[: 1 if len(sample.y) >= MANY else FOLDS]:
            yield sample.take(part), sample.take(held)

    def most(self, corpus: Corpus) -> int:
        """Return how many posts there are to draw from."""
        return len(corpus.y_train)


class Clean(Condition):
    """The posts as they are."""

    varies = False

    def __init__(self) -> None:
        super().__init__("", [SAME_POSTS])

    def draw(self, corpus: Corpus, size: int, number: int) -> Task:
        """Return a stratified draw, and all test posts."""
        return Task(corpus.draw(size, number), corpus.test)


CLEAN = Clean()


class Noise(Condition):
    """A share of the labels is replaced by another leaf of the same group; test labels are clean.

    The share is of the posts whose group has several leaves. All other labels stay.
    """

    def __init__(self, share: float) -> None:
        if not 0 < share < 1:
            raise UserError(
                f"--noise {share:g} is not between 0 and 1.",
                "It is the share of labels to replace, as in: --noise 0.3",
            )
        self.share = share
        note = (
            f"Of the drawn posts whose group has several leaves, {share:.0%} get the label of "
            "another leaf of the group, each other leaf with the same chance. Settings are chosen "
            "on these labels, for nobody knows the clean ones. Labels of test posts are clean."
        )
        title = f", with {share:.0%} of the labels wrong within their group"
        super().__init__(title, [note, SAME_POSTS], noise=share)

    def draw(self, corpus: Corpus, size: int, number: int) -> Task:
        """Return a stratified draw, some of its labels replaced, and all test posts."""
        sample = corpus.draw(size, number)
        top = Yardstick.of(corpus.tree()).top
        rng = np.random.default_rng([number, NOISE])
        several = np.flatnonzero(np.bincount(top)[top[sample.y]] > 1)
        y = sample.y.copy()
        for row in rng.choice(several, round(self.share * len(several)), replace=False):
            others = np.flatnonzero(top == top[y[row]])
            y[row] = rng.choice(others[others != y[row]])
        return Task(Sample(sample.X, y), corpus.test)


class Unseen(Condition):
    """One leaf of each larger group has no post to learn from; its test posts are measured alone.

    Their class is never found, so the likeliest class is judged by its group. Settings are chosen
    in the same way: in each fold one more leaf of these groups is held out.
    """

    criteria: ClassVar[dict[str, str]] = {"mode": "group", "cost": "distance"}

    def __init__(self) -> None:
        notes = [
            f"In each draw, one leaf of each group with at least {ENOUGH} leaves has no post to "
            "learn from. It keeps its place in the tree, and models may predict it. Measured are "
            "the test posts of these leaves alone, so that accuracy is near 0 and *group "
            "accuracy* is what counts. Other draws have other unseen leaves and test posts.",
            "Folds imitate that: in each, one of the leaves that are left in these groups is held "
            "out with all its posts.",
        ]
        super().__init__(", posts of unseen leaves", notes, unseen=True)

    def draw(self, corpus: Corpus, size: int, number: int) -> Task:
        """Return a stratified draw without the unseen leaves, and the test posts of these."""
        rng = np.random.default_rng([number, UNSEEN])
        top = Yardstick.of(corpus.tree()).top
        hidden = [rng.choice(leaves) for leaves in _large_groups(top)]
        measured = np.flatnonzero(np.isin(corpus.y_test, hidden))
        return Task(corpus.draw(size, number, hidden), corpus.test.take(measured))

    def folds(
        self, sample: Sample, yardstick: Yardstick, seed: int
    ) -> Iterator[tuple[Sample, Sample]]:
        """Yield the posts of other leaves, and those of one leaf of each larger group."""
        rng = np.random.default_rng([seed, HELD])
        seen = np.isin(np.arange(len(yardstick.top)), sample.y)
        orders = [rng.permutation(g[seen[g]]) for g in _large_groups(yardstick.top)]
        count = 1 if len(sample.y) >= MANY else min(FOLDS, max(map(len, orders)))
        for turn in itertools.islice(zip(*map(itertools.cycle, orders), strict=True), count):
            held = np.isin(sample.y, turn)
            yield sample.take(np.flatnonzero(~held)), sample.take(np.flatnonzero(held))

    def most(self, corpus: Corpus) -> int:
        """Return how many posts are left where the largest leaves are unseen."""
        counts = np.bincount(corpus.y_train, minlength=len(corpus.names))
        groups = _large_groups(Yardstick.of(corpus.tree()).top)
        return len(corpus.y_train) - sum(int(counts[leaves].max()) for leaves in groups)


def _large_groups(top: np.ndarray) -> list[np.ndarray]:
    groups = (np.flatnonzero(top == one) for one in np.unique(top))
    return [leaves for leaves in groups if len(leaves) >= ENOUGH]


def condition_of(noise: float | None, unseen: bool) -> Condition:
    """Return the condition that options ask for."""
    if unseen and noise is not None:
        raise UserError("--noise and --unseen do not go together.", "Run one after the other.")
    if unseen:
        return Unseen()
    return CLEAN if noise is None else Noise(noise)

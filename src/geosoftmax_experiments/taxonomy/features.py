"""Posts as numbers: weighted words, reduced to a few directions, without looking at labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from geosoftmax import TreeCost
from geosoftmax_experiments.data.newsgroups import Posts, tree_of_names

__all__ = ["Corpus", "Sample", "featurize"]

#: Directions that are kept of the words.
DIRECTIONS = 200


@dataclass(frozen=True)
class Corpus:
    """Features and labels of the official split. Labels are places in `names`."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    names: tuple[str, ...]

    def tree(self) -> TreeCost:
        """Return the tree of the names, with edges of length 1."""
        return TreeCost.from_dict(tree_of_names(self.names), order=self.names)

    def digest(self) -> str:
        """Return a short fingerprint of features, labels and names."""
        found = hashlib.sha256("\0".join(self.names).encode())
        for array in (self.X_train, self.y_train, self.X_test, self.y_test):
            found.update(np.ascontiguousarray(np.round(array, 6), dtype=np.float64).tobytes())
        return found.hexdigest()[:12]

    @property
    def test(self) -> Sample:
        """The posts to test on."""
        return Sample(self.X_test, self.y_test)

    def draw(self, size: int, number: int, without: Sequence[int] = ()) -> Sample:
        """Return so many of the posts to train on, stratified, drawn with a seed; or all.

        Classes that are named in `without` have none.
        """
        rows = np.flatnonzero(~np.isin(self.y_train, without))
        if size < len(rows):
            labels = self.y_train[rows]
            split = train_test_split(rows, train_size=size, random_state=number, stratify=labels)
            rows = np.sort(split[0])
        return Sample(self.X_train[rows], self.y_train[rows])


@dataclass(frozen=True)
class Sample:
    """Posts that a model is fitted to, or measured on."""

    X: np.ndarray
    y: np.ndarray

    def take(self, rows: np.ndarray) -> Sample:
        """Return some of them."""
        return Sample(self.X[rows], self.y[rows])


def featurize(train: Posts, test: Posts, directions: int = DIRECTIONS) -> Corpus:
    """Weigh words by TF-IDF and keep the main directions, as all posts to train on define them.

    Each post then has the same length, the root of the number of directions, so that penalties
    mean the same as for standardised features.
    """
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    counts = words.fit_transform(train.texts)
    reduced = TruncatedSVD(min(directions, counts.shape[1] - 1), random_state=0)
    X_train, X_test = reduced.fit_transform(counts), reduced.transform(words.transform(test.texts))
    size = np.sqrt(X_train.shape[1])
    return Corpus(
        size * normalize(X_train),
        train.labels,
        size * normalize(X_test),
        test.labels,
        train.names,
    )

"""Noisy labels and unseen leaves: what is replaced, hidden, held out and measured."""

import numpy as np
import pytest

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.taxonomy import summary
from geosoftmax_experiments.taxonomy.comparison import Comparison
from geosoftmax_experiments.taxonomy.conditions import CLEAN, Noise, Unseen, condition_of
from geosoftmax_experiments.taxonomy.features import Corpus, Sample
from geosoftmax_experiments.taxonomy.measures import Yardstick
from geosoftmax_experiments.taxonomy.models import MODELS
from geosoftmax_experiments.taxonomy.selection import measure_draw
from geosoftmax_experiments.taxonomy.summary import Column

NAMES = ("a.one", "a.three", "a.two", "b.four", "b.one", "b.three", "b.two", "lone")
GROUP = np.array([0, 0, 0, 1, 1, 1, 1, 2])
EACH = 40


@pytest.fixture(scope="module")
def corpus():
    """Posts whose first two features tell the group, and whose others tell the leaf."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(len(NAMES)), EACH)
    centres = np.hstack([4 * np.eye(3)[GROUP], 3 * np.eye(len(NAMES))])
    X = centres[y] + rng.normal(size=(len(y), centres.shape[1]))
    return Corpus(X, y, X[::-1].copy(), y[::-1].copy(), NAMES)


# ------------------------------------------------------------------ noise


def test_noise_replaces_a_share_of_the_labels_within_their_groups(corpus):
    clean, noisy = CLEAN.draw(corpus, 160, 3), Noise(0.25).draw(corpus, 160, 3)
    assert np.array_equal(clean.sample.X, noisy.sample.X)
    before, after = clean.sample.y, noisy.sample.y
    assert (before != after).sum() == 35  # a quarter of the 140 posts outside of the lone leaf
    assert np.array_equal(GROUP[before], GROUP[after])
    assert np.array_equal(after[before == 7], before[before == 7])
    assert set(after[(before != after) & (before == 4)]) == {3, 5, 6}
    assert np.array_equal(corpus.draw(160, 3).y, before)  # the corpus itself is as it was


def test_noise_is_repeatable_and_differs_between_draws(corpus):
    noise = Noise(0.5)
    one, same, other = (noise.draw(corpus, 320, number).sample.y for number in (0, 0, 1))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_test_labels_stay_clean(corpus):
    test = Noise(0.9).draw(corpus, 160, 0).test
    assert np.array_equal(test.y, corpus.y_test)
    assert np.array_equal(test.X, corpus.X_test)


def test_classes_that_noise_leaves_few_posts_still_have_folds():
    sample = Sample(np.zeros((10, 2)), np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2]))
    yardstick = Yardstick(*[np.zeros(0)] * 4)
    parts = list(Noise(0.5).folds(sample, yardstick, 0))
    assert len(parts) == 3
    assert sum(len(held.y) for _, held in parts) == 10


def test_settings_are_chosen_on_the_noisy_labels(corpus):
    """Where all labels are wrong, the tree's groups are all that can be learnt."""
    row = measure_draw(MODELS["lr"], corpus, 160, 0, (3.0,), Noise(0.99))[1]
    assert row["accuracy"] < 0.3
    assert row["group"] > 0.95


# ------------------------------------------------------------------ unseen leaves


def test_one_leaf_of_each_larger_group_is_unseen_and_alone_measured(corpus):
    hidden = set()
    for number in range(12):
        sample, test = Unseen().draw(corpus, 120, number)
        unseen = sorted(set(range(8)) - set(sample.y))
        assert len(sample.y) == 120
        assert [GROUP[leaf] for leaf in unseen] == [0, 1]  # none of the group with one leaf
        assert sorted(set(test.y)) == unseen
        assert len(test.y) == 2 * EACH
        hidden.update(unseen)
    assert hidden == set(range(7))


def test_folds_hold_out_leaves_as_a_whole(corpus):
    condition, yardstick = Unseen(), Yardstick.of(corpus.tree())
    sample = condition.draw(corpus, 120, 0).sample
    folds = list(condition.folds(sample, yardstick, 0))
    assert len(folds) == 3
    for part, held in folds:
        assert sorted(GROUP[leaf] for leaf in set(held.y)) == [0, 1]
        assert not set(part.y) & set(held.y)
        assert len(part.y) + len(held.y) == 120
    # The larger group has three leaves left, and each is held out once.
    assert len({leaf for _, held in folds for leaf in held.y if GROUP[leaf] == 1}) == 3


def test_groups_of_unseen_leaves_are_found(corpus):
    rows = measure_draw(MODELS["zero-one-shared"], corpus, 120, 0, (3.0,), Unseen())
    assert [row["decision"] for row in rows] == ["mode", "cost"]
    assert all(row["group"] > 0.9 for row in rows)
    assert all(row["accuracy"] < 0.5 for row in rows)


def test_the_likeliest_class_is_judged_by_its_group():
    assert summary.shown(CLEAN)[0] == Column("accuracy", "mode")
    assert summary.shown(Unseen())[0] == Column("group", "mode")
    distance, group = Column("distance", "cost"), Column("group", "cost")
    assert summary.tested(Unseen()) == (Column("group", "mode"), distance, group)


# ------------------------------------------------------------------ settings


def test_each_condition_has_settings_of_its_own(corpus):
    def settings(condition):
        return Comparison.of(corpus, (40,), (1,), (), condition=condition).settings

    found = [settings(condition) for condition in (CLEAN, Noise(0.2), Noise(0.3), Unseen())]
    assert len({(one.noise, one.unseen) for one in found}) == 4
    assert (found[0].noise, found[0].unseen) == (None, None)  # as in folders of older versions


def test_all_posts_have_several_draws_where_labels_or_leaves_vary(corpus):
    def draws(size, condition):
        return Comparison.of(corpus, (size,), (5,), (), condition=condition).draws

    assert draws(320, CLEAN) == (1,)
    assert draws(320, Noise(0.2)) == (5,)
    assert draws(240, Unseen()) == (5,)
    with pytest.raises(UserError, match="--sizes 241 is not between 24 and 240"):
        draws(241, Unseen())


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
def test_noise_is_a_share(share):
    with pytest.raises(UserError, match="is not between 0 and 1"):
        condition_of(share, unseen=False)


def test_one_condition_at_a_time():
    assert condition_of(None, unseen=False) is CLEAN
    with pytest.raises(UserError, match="do not go together"):
        condition_of(0.2, unseen=True)

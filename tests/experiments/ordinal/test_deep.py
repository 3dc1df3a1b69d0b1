"""Small networks with every loss: stacked training, fair candidates, the command."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.ordinal.deep import measure_rival, rules_of
from geosoftmax_experiments.ordinal.measures import CRITERIA
from geosoftmax_experiments.ordinal.networks import Stack, Training, train
from geosoftmax_experiments.rivals.table import RIVALS, line

SHORT = Training(width=8, steps=(5, 20))


@pytest.fixture
def samples():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])
    return torch.from_numpy(X).float(), torch.from_numpy(y)


def test_stacked_networks_do_not_know_each_other(samples):
    """A network of the stack is the network that is trained alone."""
    X, y = samples
    seen = torch.ones(3, 60)
    seen[0, :20] = 0
    seen[1, 20:40] = 0
    rival = replace(RIVALS["geometric"], values=(0.5, 2.0))
    together = train(rival, line(3), X, y, seen, X[:7], SHORT, seed=0)
    alone = train(replace(rival, values=(2.0,)), line(3), X, y, seen[1:2], X[:7], SHORT, seed=0)
    found = {(one.value, one.steps): one for one in together}
    assert set(found) == {(v, s) for v in (0.5, 2.0) for s in SHORT.steps}
    for one in alone:
        torch.testing.assert_close(found[2.0, one.steps].test[1], one.test[0], atol=1e-4, rtol=1e-3)


def test_a_network_does_not_learn_from_what_is_held_out(samples):
    X, y = samples
    seen = torch.ones(1, 60)
    seen[0, :20] = 0
    changed = y.clone()
    changed[:20] = 2 - changed[:20]
    one, other = (
        train(RIVALS["corn"], line(3), X, labels, seen, X, SHORT, seed=0)[-1].test
        for labels in (y, changed)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_shared_weights_make_rank_consistent_scores(samples):
    X, _ = samples
    scores = Stack(2, 3, 8, 4, shared=True, seed=0)(X)
    assert scores.shape == (2, 60, 4)
    torch.testing.assert_close(scores[..., 0], scores[..., 3])  # offsets start at 0


def test_shared_thresholds_start_at_the_log_odds_of_what_is_seen():
    X, y = torch.zeros(40, 1), torch.arange(4).repeat(10)
    seen = torch.ones(2, 40)
    seen[0, y == 3] = 0
    training = Training(width=2, rate=1e-9, steps=(1,))
    (found,) = train(RIVALS["coral"], line(4), X, y, seen, X[:1], training, seed=0)
    share = torch.tensor([[20.5, 10.5, 0.5], [30.5, 20.5, 10.5]]) / torch.tensor([[31.0], [41.0]])
    torch.testing.assert_close(found.test[:, 0], torch.logit(share).double())


@pytest.mark.parametrize("name", RIVALS)
def test_every_loss_learns(name):
    fold = load_fold("skordinal", "balance-scale", 0)
    rows = pd.DataFrame(measure_rival(RIVALS[name], fold, 2, Training(width=8, steps=(60,))))
    rules = rules_of(RIVALS[name])
    decisions = {*rules, "chosen"} if len(rules) > 1 else {*rules}
    assert set(zip(rows["decision"], rows["selected_by"], strict=True)) == {
        (rule, by) for rule in decisions for by in CRITERIA
    }
    assert rows[rows["selected_by"] == "accuracy"]["accuracy"].min() > 0.75


def test_the_command_writes_a_page_and_continues(tmp_path):
    options = ["--source", "skordinal", "--sets", "balance-scale,LEV", "--folds", "1"]
    losses = ["--losses", "cross-entropy,geometric,coral,hinge", "--steps", "30", "--jobs", "1"]
    call = ["ordinal", "deep", *options, *losses, "-o", str(tmp_path)]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    text = (tmp_path / "report.md").read_text()
    for words in ("Means over sets and folds", "CORAL", "Friedman", "cost-augmented hinge"):
        assert words in text
    stamp = (tmp_path / "units" / "LEV.0.coral.json").stat().st_mtime_ns
    assert CliRunner().invoke(app, call).exit_code == 0
    assert (tmp_path / "units" / "LEV.0.coral.json").stat().st_mtime_ns == stamp
    refused = CliRunner().invoke(app, [*call[:-4], "--losses", "mse", "-o", str(tmp_path)])
    assert refused.exit_code == 1
    assert "There is no loss 'mse'" in refused.output

"""Samples: how far codes are from the prior, a density that fits them, and what a judge says.

Samples from the prior are drawings only where codes of drawings lie as the prior says. Where they
do not, a mixture of normal distributions is fitted to the codes of training drawings, after
training and in the same way for all losses; samples of it show what the decoder can draw.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor

from geosoftmax_experiments.data.drawings import Drawings, as_distributions
from geosoftmax_experiments.vae.judge import COUNT, SAMPLED, Judge, compare_features
from geosoftmax_experiments.vae.models import Code
from geosoftmax_experiments.vae.pictures import Run, prior_codes
from geosoftmax_experiments.vae.settings import derive_seed

__all__ = ["JUDGED", "SOURCES", "fit_codes", "judge_run", "prior_gap"]

#: Where the codes of samples come from.
SOURCES = ("prior", "fitted")
#: What is found at the end of a run.
JUDGED = ("error", "prior_gap", *(f"{s}_{name}" for s in SOURCES for name in SAMPLED))
#: Codes that a mixture is fitted to at most, and least for more than one component: so many times
#: their length.
MOST_CODES, LEAST_TIMES = 5000, 20
COMPONENTS = 10


def prior_gap(code: Code) -> float:
    """Return a lower bound, in nats, of the KL from the codes of all drawings to the prior.

    The codes have the mean ``m`` and the covariance ``S``. With a normal prior, their KL is that of
    ``N(m, S)``, which is returned, and what is not normal in them.
    """
    mean, variance = code.mean.double(), code.log_variance.double().exp()
    m = mean.mean(0)
    covariance = torch.cov(mean.T, correction=0) + torch.diag(variance.mean(0))
    inside = covariance.trace() + m @ m - len(m) - torch.logdet(covariance)
    return float(inside / 2)


def fit_codes(run: Run, drawings: Drawings, count: int, seed: int = 0) -> Tensor:
    """Return codes of a mixture that fits those of training drawings.

    It has one component, or `COMPONENTS` where these make codes of validation drawings more likely.
    """
    split = drawings.split()
    train, validation = (
        _sampled(run, drawings, rows[:MOST_CODES]).double()
        for rows in (split.train, split.validation)
    )
    sizes = [1] + [COMPONENTS] * (train.shape[1] * LEAST_TIMES <= len(train))
    number = derive_seed(seed, "mixture") % 2**31
    mixtures = []
    for size in sizes:
        mixture = GaussianMixture(size, reg_covar=1e-4, max_iter=30, random_state=number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # near enough, after 30 rounds
            mixtures.append(mixture.fit(train.numpy()))
    best = max(mixtures, key=lambda mixture: mixture.score(validation.numpy()))
    return torch.from_numpy(best.sample(count)[0]).float()


@torch.no_grad()
def _encoded(run: Run, drawings: Drawings, rows: Any) -> Code:
    alpha = as_distributions(drawings.tensor(rows))
    parts = [run.net.encode(part.to(run.device)) for part in alpha.split(500)]
    means, logs = zip(*parts, strict=True)
    return Code(torch.cat(means).float().cpu(), torch.cat(logs).float().cpu())


def _sampled(run: Run, drawings: Drawings, rows: Any) -> Tensor:
    code = _encoded(run, drawings, rows)
    generator = torch.Generator().manual_seed(derive_seed(run.settings.seed, "codes"))
    return code.sample(torch.randn(code.mean.shape, generator=generator))


def judge_run(run: Run, drawings: Drawings, judge: Judge) -> dict[str, float | None]:
    """Judge the reconstructions and samples of a run, on the drawings that it is measured on."""
    split = drawings.split()
    rows = getattr(split, run.settings.on)[:COUNT]
    labels = drawings.labels()
    error = None
    if labels is not None:
        often = np.tile(rows, max(1, COUNT // len(rows)))  # few drawings: several codes of each
        _, said = judge.judge(run.decode(_sampled(run, drawings, often).to(run.device)).cpu())
        error = float((said.numpy() != labels[often]).mean())
    gap = prior_gap(_encoded(run, drawings, split.train[:MOST_CODES]))
    found: dict[str, float | None] = {"error": error, "prior_gap": gap}
    real, _ = judge.judge(as_distributions(drawings.tensor(rows)))
    codes = {
        "prior": prior_codes(len(rows), run.settings.latent),
        "fitted": fit_codes(run, drawings, len(rows)),
    }
    for source, code in codes.items():
        features, _ = judge.judge(run.decode(code.to(run.device)).cpu())
        compared = compare_features(real, features)
        found |= {f"{source}_{name}": value for name, value in compared.items()}
    return found

"""Output layers: what turns the scores of a decoder into a drawing, and the loss that goes with it.

A new one is a class with a name and three methods, a row in `LAYERS`, and its name in
`presets.LOSSES`.
"""

from __future__ import annotations

import warnings
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from geosoftmax import (
    ConvergenceWarning,
    Cost,
    geometric_logistic_loss,
    geometric_logsumexp,
    geometric_softmax,
    potential_logistic_loss,
    potential_softmax,
    sinkhorn_potential,
    smooth_scores,
)

__all__ = ["LAYERS", "Layer", "layer_of"]

#: The gap to which training solves. Smaller ones were found to train equally well.
TRAINING_TOL = 1e-3
SMALL = 64
#: The gap that drawings have at least. Networks that know nothing yet output nearly the same scores
#: everywhere, which is hard to solve, and nothing to look at.
LAST_TOL = 1e-5


class Layer(Protocol):
    """Scores and drawings have shape ``(batch, h, w)``."""

    label: str
    colour: str

    def loss(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """Return one value for each drawing, as a sum over pixels would be divided by ``hw``."""
        ...

    def objective(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """Return the loss, up to a term of `alpha` alone that takes time to compute."""
        ...

    def link(self, scores: Tensor, cost: Cost) -> Tensor:
        """Return distributions."""
        ...

    def start(self, mean: Tensor, cost: Cost) -> Tensor:
        """Return the scores that give the distribution `mean`, which is positive everywhere."""
        ...


class Softmax:
    """``KL(α | softmax(f))``."""

    label = "softmax, KL"
    colour = "#0072B2"

    def loss(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``Σ α log α - ⟨α, log softmax(f)⟩``."""
        logs = F.log_softmax(scores.flatten(1), 1)
        return F.kl_div(logs, alpha.flatten(1), reduction="none").sum(1)

    objective = loss

    def link(self, scores: Tensor, cost: Cost) -> Tensor:
        """``softmax(f)``."""
        return torch.softmax(scores.flatten(1), 1).reshape(scores.shape)

    def start(self, mean: Tensor, cost: Cost) -> Tensor:
        """``log α``."""
        return torch.log(mean)


class Geometric:
    """The g-logistic loss of the paper."""

    def __init__(self, label: str = "g-softmax, g-logistic", colour: str = "#D55E00") -> None:
        self.label, self.colour = label, colour

    def loss(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``ℓ(α, f)``, solved to `TRAINING_TOL`."""
        return geometric_logistic_loss(scores, alpha, cost, reduction="none", tol=TRAINING_TOL)

    def objective(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``Ω*(f) - ⟨α, f⟩``, without ``Ω(α)``: that takes most of the time on a CPU."""
        # Small grids would be solved exactly, which takes twice the time, and trains no better.
        method = "splitting" if cost.size <= SMALL else "auto"
        conjugate = geometric_logsumexp(scores, cost, tol=TRAINING_TOL, method=method)
        return conjugate - (alpha * scores).sum((1, 2))

    def link(self, scores: Tensor, cost: Cost) -> Tensor:
        """``∇Ω*(f)`` with all digits, or to `LAST_TOL` where those are not reached."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", ConvergenceWarning)
                return geometric_softmax(scores, cost)
        except ConvergenceWarning:
            return geometric_softmax(scores, cost, tol=LAST_TOL)

    def start(self, mean: Tensor, cost: Cost) -> Tensor:
        """``∇Ω(α)``."""
        return sinkhorn_potential(mean, cost)


class Potential:
    """The sibling without a solver: the loss is the Hausdorff divergence itself."""

    label = "potential layer"
    colour = "#009E73"

    def loss(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``D(α | β)``."""
        return potential_logistic_loss(scores, alpha, cost, reduction="none")

    def objective(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``log vᵀKv - 2 ⟨α, log Kv⟩``: all but ``Ω(α)``."""
        peak = scores.amax((1, 2), keepdim=True).detach()
        v = torch.exp((scores - peak) / 2)
        product = cost.matvec(v).clamp_min(torch.finfo(v.dtype).tiny)
        conjugate = torch.log((v * product).sum((1, 2)))
        return conjugate - 2 * (alpha * torch.log(product)).sum((1, 2))

    def link(self, scores: Tensor, cost: Cost) -> Tensor:
        """``β = v Kv / vᵀKv`` with ``v = exp(g/2)``."""
        return potential_softmax(scores, cost)

    def start(self, mean: Tensor, cost: Cost) -> Tensor:
        """``2 log v`` with ``v Kv = α``: as ``∇Ω(α) = 2 log Kv``, it is ``2 log α - ∇Ω(α)``."""
        return 2 * torch.log(mean) - sinkhorn_potential(mean, cost)


class Sigmoid:
    """Each pixel for itself: binary cross-entropy with the drawing's ink, from 0 to 1."""

    label = "sigmoid, BCE"
    colour = "#777777"

    def loss(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``Σ BCE / hw``: the ink is ``α / max α``."""
        ink = alpha / alpha.amax((1, 2), keepdim=True)
        return F.binary_cross_entropy_with_logits(scores, ink, reduction="none").mean((1, 2))

    objective = loss

    def link(self, scores: Tensor, cost: Cost) -> Tensor:
        """Ink, rescaled to sum to 1; as logarithms, so that a faint drawing is one too."""
        logs = F.logsigmoid(scores.flatten(1))
        return torch.softmax(logs, 1).reshape(scores.shape)

    def start(self, mean: Tensor, cost: Cost) -> Tensor:
        """``logit`` of the ink of the mean drawing, at most a half."""
        return torch.logit(mean / mean.max() / 2)


class Smoothed:
    """Another layer, of scores ``S f`` that were smoothed by a kernel, ``exp(-C / smoothing)``.

    Potentials are smooth, so the g-softmax loses nothing; and as it undoes a kernel, its loss is
    steep in what is rough and flat in what is smooth. Smoothing evens that out: decoders learn
    sooner. For softmax there is no such reason; it is here to show that.
    """

    def __init__(self, layer: Layer, label: str, colour: str, smoothing: float = 1.0) -> None:
        self.label, self.colour = label, colour
        self._layer, self._smoothing = layer, smoothing
        self._last: tuple[Cost, Cost] | None = None  # a cost, and what smooths for it

    def of_width(self, smoothing: float) -> Smoothed:
        """Return the layer with another width."""
        return Smoothed(self._layer, self.label, self.colour, smoothing)

    def _smooth(self, scores: Tensor, cost: Cost) -> Tensor:
        if self._smoothing == 1:
            return smooth_scores(scores, cost)
        # A new cost has its tables made anew, so it is made once for the cost of many steps.
        if self._last is None or self._last[0] is not cost:
            self._last = (cost, cost / self._smoothing)
        return smooth_scores(scores, self._last[1])

    def loss(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """``ℓ(α, S f)``."""
        return self._layer.loss(self._smooth(scores, cost), alpha, cost)

    def objective(self, scores: Tensor, alpha: Tensor, cost: Cost) -> Tensor:
        """That of the layer, at ``S f``."""
        return self._layer.objective(self._smooth(scores, cost), alpha, cost)

    def link(self, scores: Tensor, cost: Cost) -> Tensor:
        """That of the layer, at ``S f``."""
        return self._layer.link(self._smooth(scores, cost), cost)

    def start(self, mean: Tensor, cost: Cost) -> Tensor:
        """``S⁻¹`` of where the layer starts."""
        smooth = self._layer.start(mean.double(), cost)
        narrow, ones = 2 * cost / self._smoothing, torch.ones_like(smooth)
        return narrow.solve((narrow.matvec(ones) * smooth)[None], ones.bool()[None])[0]


LAYERS: dict[str, Layer] = {
    "softmax": Softmax(),
    "geometric": Geometric(),
    "smoothed": Smoothed(Geometric(), "g-softmax, smoothed scores", "#E69F00"),
    "potential": Potential(),
    "sigmoid": Sigmoid(),
    "softmax-smoothed": Smoothed(Softmax(), "softmax, smoothed scores", "#56B4E9"),
    # The same as `geometric`, with the cost of the paper: `RunSettings.cost` knows.
    "paper": Geometric("the paper's: p = 2, plain", "#CC79A7"),
}


def layer_of(loss: str, smoothing: float) -> Layer:
    """Return a layer; where it smooths its scores, with that width."""
    layer = LAYERS[loss]
    return layer.of_width(smoothing) if isinstance(layer, Smoothed) else layer

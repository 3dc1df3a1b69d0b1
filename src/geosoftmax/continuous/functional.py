"""One function per object of the paper, for measures whose points lie anywhere in a box.

Write ``K = exp(-C/2)`` and ``b = exp(score/2)``. A *score* is a torch function: it takes points of
shape ``(n, dim)`` or ``(*batch, n, dim)``, in float64 and on the device of the domain, and returns
values of shape ``(*batch, n)``; or it is a tensor of values on a regular grid over the domain, as
for `interpolate`. Twice differentiable is best; ``-inf`` keeps mass away. Everything is computed
in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from geosoftmax import autograd
from geosoftmax.continuous.costs import FunctionCost, PointCost
from geosoftmax.continuous.measure import Box, Measure
from geosoftmax.continuous.scores import interpolate
from geosoftmax.continuous.solver import METHODS, ContinuousSolution, minimise
from geosoftmax.costs import DenseCost
from geosoftmax.functional.entropy import at_least_zero, scaled
from geosoftmax.validation import check_options, check_reduction

__all__ = [
    "Potential",
    "geometric_logistic_loss",
    "geometric_logsumexp",
    "geometric_softmax",
    "hausdorff_divergence",
    "sinkhorn_negentropy",
    "sinkhorn_potential",
]

Score = Callable[[Tensor], Tensor] | Tensor
PairCost = PointCost | Callable[[Tensor, Tensor], Tensor]

#: How far the mass of a target may be from 1.
MASS_TOLERANCE = 1e-4


def geometric_softmax(
    score: Score,
    domain: Box,
    cost: PairCost,
    *,
    method: str = "sliding",
    tol: float = 1e-9,
    max_iter: int | None = None,
    grid: int | None = None,
) -> tuple[Measure, ContinuousSolution]:
    r"""Geometric softmax off the grid: :math:`\nabla\Omega^*(f) = b\,\mu^* / \int b\,d\mu^*`.

    ``μ*`` minimises ``½ ∬ K dμ dμ - ∫ b dμ`` over the positive measures on the domain. No
    gradients are recorded; for those use `geometric_logsumexp` and `geometric_logistic_loss`.

    Parameters
    ----------
    score : callable, or Tensor of shape (*batch, *sides)
        The score of each point, as the head of this module says.
    domain : Box
    cost : PointCost or callable
        `PowerCost`, or a torch function of two point sets (see `FunctionCost`).
    method : {"sliding", "corrective", "pairwise", "away", "plain"}
        Which Frank–Wolfe method; see ``geosoftmax.continuous.solver``.
    tol : float
        The gap ``upper - lower`` to reach.
    max_iter : int, optional
        The most rounds; by default 50 (sliding), 200 (corrective) or 1000.
    grid : int, optional
        Points along each side of the grid from which maxima are sought; by default 257, 49 and 17
        in 1, 2 and 3 dimensions. It has to show every bump of the score, and ``K``. The last check
        is made on one twice as fine.

    Returns
    -------
    measure : Measure
    solution : ContinuousSolution
        The bracket of the value, and whether it converged.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.continuous import Box, PowerCost, geometric_softmax
    >>> def score(x):
    ...     return -50 * (x[..., 0] - 0.3) ** 2 * (x[..., 0] - 0.8) ** 2
    >>> measure, solution = geometric_softmax(score, Box(0, 1), PowerCost(p=2, scale=10))
    >>> measure
    Measure(2 points in 1-D)
    >>> bool(solution.converged)
    True
    """
    solution = _solve(score, domain, cost, method, tol, max_iter, grid)
    return solution.measure, solution


def geometric_logsumexp(
    score: Score,
    domain: Box,
    cost: PairCost,
    *,
    method: str = "sliding",
    tol: float = 1e-9,
    max_iter: int | None = None,
    grid: int | None = None,
) -> Tensor:
    r"""Geometric log-sum-exp off the grid: :math:`\Omega^*(f) = \log \int b \, d\mu^*`.

    Gradients flow to whatever the score depends on, ``dΩ* = ∫ α dscore``, and to the scale of the
    cost, ``½ u_i K_ij u_j / Z dC_ij``.

    Parameters
    ----------
    score, domain, cost, method, tol, max_iter, grid
        As for `geometric_softmax`.

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.continuous import Box, PowerCost, geometric_logsumexp
    >>> height = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    >>> value = geometric_logsumexp(lambda x: height - x[..., 0] ** 2, Box(-1, 1), PowerCost())
    >>> value
    tensor(2., dtype=torch.float64, grad_fn=<...>)
    >>> torch.autograd.grad(value, height)
    (tensor(1., dtype=torch.float64),)
    """
    solution = _solve(score, domain, cost, method, tol, max_iter, grid)
    return _value(_as_function(score, domain), _as_cost(cost), solution)


def geometric_logistic_loss(
    score: Score,
    target: Measure,
    domain: Box,
    cost: PairCost,
    *,
    reduction: str = "mean",
    method: str = "sliding",
    tol: float = 1e-6,
    max_iter: int | None = None,
    grid: int | None = None,
) -> Tensor:
    r"""Geometric logistic loss: :math:`\Omega^*(f) + \Omega(\alpha) - \int f \, d\alpha`.

    At least 0, and 0 exactly when the target is the geometric softmax of the score. Gradients flow
    to whatever the score depends on, to the target and to the scale of the cost.

    Parameters
    ----------
    score : callable or Tensor
    target : Measure
        Of mass 1, inside the domain, with the batch shape of the score.
    domain, cost
        As for `geometric_softmax`.
    reduction : {"mean", "sum", "none"}
    method, tol, max_iter, grid
        As for `geometric_softmax`; training needs fewer digits.

    Returns
    -------
    Tensor, a scalar, or of shape batch for ``reduction="none"``

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.continuous import Box, Measure, PowerCost, geometric_logistic_loss
    >>> centre = torch.tensor(0.2, dtype=torch.float64, requires_grad=True)
    >>> loss = geometric_logistic_loss(
    ...     lambda x: -((x[..., 0] - centre) ** 2), Measure([[0.5]]), Box(0, 1), PowerCost()
    ... )
    >>> loss
    tensor(0.0900, dtype=torch.float64, grad_fn=<...>)
    >>> torch.autograd.grad(loss, centre)
    (tensor(-0.6000, dtype=torch.float64),)
    """
    check_reduction(reduction)
    cost = _as_cost(cost)
    _check_distribution("target", target)
    _check_domain(domain)
    if target.dim != domain.dim or not bool(domain.contains(target.points.detach()).all()):
        raise ValueError(
            f"the points of target must lie in the domain {domain!r}; got points in "
            f"{target.dim}-D, some outside. Enlarge the domain, or clip them: "
            "target.move(domain.clip)."
        )
    solution = _solve(score, domain, cost, method, tol, max_iter, grid)
    if target.batch_shape != solution.lower.shape:
        raise ValueError(
            f"target must have the batch shape of the scores, {tuple(solution.lower.shape)}; "
            f"got {tuple(target.batch_shape)}."
        )
    function = _as_function(score, domain)
    conjugate = _value(function, cost, solution)
    loss = target.mass * conjugate + sinkhorn_negentropy(target, cost)
    loss = at_least_zero(loss - target.expectation(function))
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.mean()


def sinkhorn_negentropy(alpha: Measure, cost: PairCost) -> Tensor:
    r"""Sinkhorn negentropy: :math:`\Omega(\alpha) = -\tfrac12 \mathrm{OT}_{C,2}(\alpha, \alpha)`.

    Differentiable with respect to points, weights and the scale of the cost.

    Parameters
    ----------
    alpha : Measure
        Of mass 1.
    cost : PointCost or callable

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> from geosoftmax.continuous import Measure, PowerCost, sinkhorn_negentropy
    >>> sinkhorn_negentropy(Measure([[0.0], [1.0]]), PowerCost(p=1))
    tensor(-0.2191, dtype=torch.float64)
    """
    weights, v, dense = _sinkhorn("alpha", alpha, _as_cost(cost))
    return autograd.negentropy(weights, v, dense)


class Potential:
    r"""The function :math:`f(x) = 2 \log \sum_i K(x, x_i) v_i`; a valid score.

    Made by `sinkhorn_potential`. Called with points of shape ``(n, dim)`` or ``(*batch, n, dim)``,
    it returns ``(*batch, n)``, differentiable in the points and in what it was made of.
    """

    def __init__(self, points: Tensor, v: Tensor, cost: PointCost) -> None:
        inside = v.detach() > 0
        self.points, self.cost = points, cost
        self.log_v = torch.where(inside, torch.log(torch.where(inside, v, 1.0)), -torch.inf)

    def __call__(self, x: Tensor) -> Tensor:
        """Evaluate at points."""
        if x.dim() < 2 or x.shape[-1] != self.points.shape[-1]:
            raise ValueError(
                f"points must have shape (..., n, {self.points.shape[-1]}); got {tuple(x.shape)}."
            )
        C = self.cost.matrix(x.to(torch.float64), self.points)
        return 2 * torch.logsumexp(self.log_v[..., None, :] - C / 2, -1)


def sinkhorn_potential(alpha: Measure, cost: PairCost) -> Potential:
    r"""Symmetric Sinkhorn potential: :math:`\nabla\Omega(\alpha)(x) = 2 \log \int K(x, \cdot) dv`.

    ``v`` solves ``v · Kv = α`` on the points of the measure. The geometric softmax inverts it.

    Parameters
    ----------
    alpha : Measure
        Of mass 1.
    cost : PointCost or callable

    Returns
    -------
    Potential
        A function of points: a distance field to the measure, defined everywhere.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax.continuous import Measure, PowerCost, sinkhorn_potential
    >>> field = sinkhorn_potential(Measure([[0.0]]), PowerCost(p=2))
    >>> field(torch.tensor([[0.0], [1.0], [3.0]]))
    tensor([ 0., -1., -9.], dtype=torch.float64)
    """
    cost = _as_cost(cost)
    weights, v, dense = _sinkhorn("alpha", alpha, cost)
    return Potential(alpha.points, autograd.scaling(weights, v, dense), cost)


def hausdorff_divergence(alpha: Measure, beta: Measure, cost: PairCost) -> Tensor:
    r"""Hausdorff divergence: :math:`\Omega(\alpha) - \int \nabla\Omega(\beta) \, d\alpha`.

    At least 0, asymmetric; the measures may have different points, and numbers of points.

    Parameters
    ----------
    alpha, beta : Measure
        Of mass 1 and of the same batch shape.
    cost : PointCost or callable

    Returns
    -------
    Tensor, shape batch

    Examples
    --------
    >>> from geosoftmax.continuous import Measure, PowerCost, hausdorff_divergence
    >>> hausdorff_divergence(Measure([[0.0]]), Measure([[3.0]]), PowerCost(p=2))
    tensor(9., dtype=torch.float64)
    """
    of_alpha = sinkhorn_negentropy(alpha, cost)
    of_beta = sinkhorn_potential(beta, cost)
    if alpha.batch_shape != beta.batch_shape or alpha.dim != beta.dim:
        raise ValueError(
            "alpha and beta must have the same batch shape and dimension; got "
            f"{alpha!r} and {beta!r}."
        )
    # Ω(α) - Ω(β) - ∫ ∇Ω(β) d(α - β), where Ω(β) = ∫ ∇Ω(β) dβ - ∫ dβ + 1
    return at_least_zero(of_alpha - alpha.expectation(of_beta) + beta.mass - 1)


# ------------------------------------------------------------------ shared pieces


def _solve(
    score: Score,
    domain: Box,
    cost: PairCost,
    method: str,
    tol: float,
    max_iter: int | None,
    grid: int | None,
) -> ContinuousSolution:
    _check_domain(domain)
    check_options(tol, max_iter)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}.")
    if grid is not None and (isinstance(grid, bool) or not isinstance(grid, int) or grid < 3):
        raise ValueError(f"grid must be an integer of at least 3, or None; got {grid!r}.")
    function, cost = _as_function(score, domain), _as_cost(cost)
    with torch.no_grad():
        return minimise(
            function, domain, cost, method=method, tol=tol, max_iter=max_iter, grid=grid
        )


def _value(
    function: Callable[[Tensor], Tensor], cost: PointCost, solution: ContinuousSolution
) -> Tensor:
    """Return the value as a function of the score's and of the cost's parameters (Danskin)."""
    x, u = solution.measure.points, solution.u
    f, C = function(x).to(torch.float64), cost.matrix(x, x)
    value = solution.lower
    if f.requires_grad:
        f = torch.where(u > 0, f, 0.0)
        value = value + (solution.measure.weights * (f - f.detach())).sum(-1)
    if C.requires_grad:
        K = torch.exp(-C.detach() / 2)
        pairs = u[..., :, None] * K * u[..., None, :]
        pairs = pairs / pairs.sum((-2, -1), keepdim=True) / 2
        value = value + (pairs * (C - C.detach())).sum((-2, -1))
    return value


def _sinkhorn(name: str, alpha: Measure, cost: PointCost) -> tuple[Tensor, Tensor, DenseCost]:
    """Return the weights, ``v`` with ``v · Kv = α`` on the points, and the cost between them."""
    _check_distribution(name, alpha)
    dense = DenseCost(cost.matrix(alpha.points, alpha.points), validate=False)
    weights, v = scaled(name, alpha.weights, dense)
    return weights, v, dense


def _as_function(score: Any, domain: Box) -> Callable[[Tensor], Tensor]:
    if isinstance(score, Potential) and score.points.shape[-1] != domain.dim:
        raise ValueError(
            f"score is a potential of points in {score.points.shape[-1]}-D, shape "
            f"{tuple(score.points.shape)}; the domain {domain!r} is {domain.dim}-D. Take a box of "
            "as many sides as the points have coordinates."
        )
    return interpolate(score, domain) if isinstance(score, Tensor) else score


def _as_cost(cost: Any) -> PointCost:
    if isinstance(cost, PointCost):
        return cost
    if callable(cost):
        return FunctionCost(cast(Callable[[Tensor, Tensor], Tensor], cost))
    raise TypeError(
        f"cost must be a PointCost or a function of two point sets; got {type(cost).__name__}. "
        "Squared distances are PowerCost(p=2); LineCost, GridCost and DenseCost are for fixed "
        "outputs."
    )


def _check_domain(domain: Any) -> None:
    if not isinstance(domain, Box):
        raise TypeError(f"domain must be a Box, as in Box(0, 1); got {type(domain).__name__}.")


def _check_distribution(name: str, measure: Any) -> None:
    if not isinstance(measure, Measure):
        raise TypeError(
            f"{name} must be a Measure; got {type(measure).__name__}. "
            "Make one as Measure(points, weights)."
        )
    off = (measure.mass.detach() - 1).abs()
    if off.numel() and not float(off.max()) <= MASS_TOLERANCE:
        raise ValueError(
            f"{name} must have mass 1; the mass of a sample is off by {float(off.max()):.1e}. "
            f"Use {name}.normalise()."
        )

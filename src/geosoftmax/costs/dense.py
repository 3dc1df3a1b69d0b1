"""Costs given by a matrix."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from geosoftmax.costs.base import Cost, reads_values, wide
from geosoftmax.costs.linalg import LARGE_BLOCK, gathered_solve, spd_solve
from geosoftmax.validation import (
    as_float_tensor,
    check_cost_matrix,
    check_count,
    check_distinct,
    check_finite_matrix,
    check_has_values,
    check_learnt_matrix,
    check_matrix_shape,
    check_multiplier,
    check_places,
    check_power,
    check_scaled,
    is_concrete,
    is_readable,
)

#: Up to this many outputs, supports are masked instead of gathered.
SMALL = 64


class Repair(NamedTuple):
    """The result of `DenseCost.repair`: a valid cost, and how far it moved."""

    cost: DenseCost
    moved: float


class DenseCost(Cost):
    """A cost given by its matrix, or by one matrix per sample.

    Parameters
    ----------
    C : array_like, shape (d, d) or (*batch, d, d)
        Symmetric, non-negative, zero on the diagonal, with ``exp(-C/2)`` positive definite.
        Asymmetries within 1e-5 are averaged. Gradients flow to ``C``.
    validate : bool
        Check ``C`` (one Cholesky factorisation). Disable it inside a training loop where ``C`` is
        valid by construction. Gradient steps on ``C`` itself can make it invalid: see
        `geosoftmax.nn.LearntPoints` for costs that are learnt.

    Examples
    --------
    >>> import torch
    >>> cost = DenseCost([[0.0, 1.0], [1.0, 0.0]])
    >>> cost.matvec(torch.tensor([1.0, 0.0]))
    tensor([1.0000, 0.6065])
    """

    C: Tensor
    tensor_names = ("C",)
    is_learnable = False

    @reads_values
    def __init__(self, C: Any, *, validate: bool = True) -> None:
        C = as_float_tensor("cost matrix", C)
        check_matrix_shape(C)
        if validate:
            check_cost_matrix(C)
        self._set({"signature": "DenseCost", "shape": (C.shape[-1],), "C": (C + C.mT) / 2})

    @classmethod
    def from_points(cls, X: Any, p: float = 2.0, *, validate: bool = True) -> DenseCost:
        """Return ``C_ij = |x_i - x_j|^p`` for points ``X``, with ``0 < p ≤ 2``.

        Such a cost is valid at every scale, if no two points coincide. It is differentiable with
        respect to the points. To learn them in a module, see `geosoftmax.nn.LearntPoints`.

        Parameters
        ----------
        X : array_like, shape (d, n) or (*batch, d, n)
            One point for each output, or for each output of each sample. Points on a line may have
            shape (d,).
        p : float
        validate : bool
            Refuse points that coincide or are not finite.

        Examples
        --------
        >>> DenseCost.from_points([[0.0], [1.0], [3.0]], p=1).matrix()
        tensor([[0., 1., 3.],
                [1., 0., 2.],
                [3., 2., 0.]], dtype=torch.float64)
        """
        p = check_power(p)
        X = as_float_tensor("points", X)
        squared = _squared_distances("points", X[:, None] if X.dim() == 1 else X)
        if p == 2:
            return cls._of_distances(squared, validate)
        same = squared == 0  # where the gradient of the power would be infinite
        C = torch.where(same, 0.0, torch.where(same, 1.0, squared) ** (p / 2))
        return cls._of_distances(C, validate)

    @classmethod
    def from_embeddings(cls, E: Any, *, validate: bool = True) -> DenseCost:
        """Return ``C_ij = 1 - cos(e_i, e_j)`` for embeddings ``E``.

        This is half the squared distance between their directions, so it is valid at every scale,
        if no two directions coincide. It is differentiable with respect to the embeddings. To learn
        them in a module, see `geosoftmax.nn.LearntEmbeddings`.

        Parameters
        ----------
        E : array_like, shape (d, n) or (*batch, d, n)
        validate : bool
            Refuse embeddings that are zero or not finite, or that share a direction.
        """
        E = wide(as_float_tensor("embeddings", E))
        length = E.norm(dim=-1, keepdim=True)
        if validate and is_concrete(length) and not bool((length > 0).all()):
            raise ValueError(
                "an embedding is zero or NaN, so its direction is not defined. Remove it."
            )
        return cls._of_distances(_squared_distances("embeddings", E / length) / 2, validate)

    @classmethod
    def _of_distances(cls, C: Tensor, validate: bool) -> DenseCost:
        """Return the cost of a matrix that is symmetric and of negative type by construction."""
        if validate:
            check_finite_matrix(C)
            check_distinct(C)
        return cls(C, validate=False)

    @staticmethod
    def repair(
        C: Any, *, every_scale: bool = False, smallest: float = 1e-6, max_iter: int = 1000
    ) -> Repair:
        """Return the nearest valid cost, and how far it moved.

        The matrix is symmetrised. Then ``exp(-C/2)`` is replaced by the nearest matrix (in the
        Frobenius norm) with unit diagonal, entries in ``(0, 1]`` and eigenvalues of at least
        `smallest`. Dykstra's alternating projections find it.

        It warns where an entry changes by more than half of the largest entry of ``C``: the matrix
        then seldom holds costs.

        Such a cost is valid at its own scale. To multiply it, or to learn its scale, pass
        ``every_scale=True``: the result is the nearest matrix of squared distances between points.

        Parameters
        ----------
        C : array_like, shape (d, d)
        every_scale : bool
            Return a cost whose multiples are valid, too. It may have to move further.
        smallest : float
            The smallest eigenvalue of ``exp(-C/2)`` for the cost that is returned.
        max_iter : int
            The largest number of projections.

        Returns
        -------
        Repair
            ``cost``, a `DenseCost`, and ``moved``, the largest change of an entry of ``C``.

        Examples
        --------
        >>> cost, moved = DenseCost.repair([[0.0, 1.0], [3.0, 0.0]])
        >>> cost.matrix(), moved
        (tensor([[0., 2.],
                [2., 0.]], dtype=torch.float64), 1.0)
        """
        original = as_float_tensor("cost matrix", C).detach().to(torch.float64)
        if original.dim() != 2:
            raise ValueError(f"repair takes one square matrix; got shape {tuple(original.shape)}.")
        check_matrix_shape(original)
        check_has_values("cost matrix", original)
        check_count("max_iter", max_iter)
        if not 0 < smallest < 0.5:
            raise ValueError(f"smallest must lie between 0 and 0.5; got {smallest!r}.")
        if not bool(torch.isfinite(original).all()):
            raise ValueError(
                "cost matrix has NaN or infinite values, so no nearest cost exists. "
                "Replace them first."
            )
        eye = torch.eye(original.shape[0], dtype=torch.float64, device=original.device)
        symmetric = ((original + original.mT) / 2).clamp_min(0) * (1 - eye)
        if every_scale:
            if not is_negative_type(symmetric):
                symmetric = _nearest_squared_distances(symmetric, max_iter)
            if float(torch.linalg.eigvalsh(torch.exp(-symmetric / 2))[0]) < smallest:
                apart = -2 * math.log1p(-2 * smallest)  # a zero-one cost, valid at every scale
                symmetric = symmetric + apart * (1 - eye)
            return _repaired(symmetric, original)
        K = torch.exp(-symmetric / 2)
        if float(torch.linalg.eigvalsh(K)[0]) < smallest:
            near = _nearest_kernel(K, smallest, max_iter)
            # Entries whose K has underflowed are unchanged: costs that large do not matter.
            vanished = (K < 1e-290) & (near < 1e-290)
            moved = -2 * torch.log(near.clamp_min(1e-290)) * (1 - eye)
            symmetric = torch.where(vanished, symmetric, moved)
        return _repaired(symmetric, original)

    # ------------------------------------------------------------------

    def check(self) -> None:
        check_learnt_matrix(self.C)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return tuple(self.C.shape[:-2])

    @property
    def diagonal(self) -> Tensor:
        return torch.exp(-wide(self.C.diagonal(dim1=-2, dim2=-1)) / 2)

    @classmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        return {"shape": (tensors[0].shape[-1],)}

    def __mul__(self, factor: float | Tensor) -> DenseCost:
        factor = check_multiplier(factor).to(self.C.device)
        C = self.C * factor
        if is_readable(C):
            check_scaled(C, factor)
        return self.with_parameter(C)

    def multiple(self, factor: float | Tensor) -> DenseCost:
        return self.with_parameter(self.C * check_multiplier(factor).to(self.C.device))

    @property
    def scales_freely(self) -> bool:
        return self.C.is_meta or is_negative_type(self.C)

    def __repr__(self) -> str:
        size = self.shape[0]
        batch = f", batch {tuple(self.batch_shape)}" if self.batch_shape else ""
        return f"DenseCost({size} outputs{batch})"

    def matvec(self, u: Tensor) -> Tensor:
        K = self.kernel().to(u.dtype)
        if not self.batch_shape:
            return u @ K
        return (K @ u[..., None])[..., 0]

    def log_matvec(self, g: Tensor) -> Tensor:
        C = self.C.to(g.dtype)
        rows = max(1, LARGE_BLOCK // max(1, g.numel() * g.element_size()))
        parts = [
            torch.logsumexp(g[..., None, :] - C[..., i : i + rows, :] / 2, -1)
            for i in range(0, self.shape[0], rows)
        ]
        return torch.cat(parts, -1)

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        d = self.shape[0]
        K = self.kernel().to(rhs.dtype)
        if d <= SMALL:
            inside = support.to(rhs.dtype)
            masked = K * inside[..., :, None] * inside[..., None, :]
            masked = masked + torch.diag_embed(1 - inside)
            return spd_solve(masked, (rhs * inside)[..., None])[..., 0] * inside
        flat_rhs, flat_support = rhs.reshape(-1, d), support.reshape(-1, d)
        if self.batch_shape:
            K = K.expand(*rhs.shape[:-1], d, d).reshape(-1, d, d)
            x = gathered_solve(
                lambda rows, i, j: K[rows, i, j],
                lambda v: (K @ v[..., None])[..., 0],
                flat_rhs,
                flat_support,
            )
        else:
            x = gathered_solve(lambda rows, i, j: K[i, j], lambda v: v @ K, flat_rhs, flat_support)
        return x.reshape(rhs.shape)

    def matrix(self) -> Tensor:
        return self.C


def _repaired(near: Tensor, original: Tensor) -> Repair:
    """Return the cost of a repaired matrix; warn if little is left of what was given."""
    change, largest = (near - original).abs(), float(original.abs().max())
    moved = float(change.max())
    if moved > largest / 2 > 0:
        if float(change.diagonal().max()) == moved:
            cause = "Its diagonal is not 0. If it holds similarities S, pass costs, such as 1 - S."
        elif float(original.min()) < -largest / 2:
            cause = (
                "It has negative entries. If it holds similarities S, pass costs, such as 1 - S."
            )
        else:
            cause = "It is far from any matrix of distances: see which entries contradict others."
        warnings.warn(
            f"repair changed an entry of the cost matrix by {moved:.3g}, although its largest "
            f"entry is {largest:.3g}: little of the matrix is left. {cause}",
            UserWarning,
            stacklevel=3,
        )
    return Repair(DenseCost(near + 0.0), moved)  # no -0.0


def _squared_distances(name: str, X: Tensor) -> Tensor:
    check_places(name, X)
    X = wide(X)
    return (X[..., :, None, :] - X[..., None, :, :]).square().sum(-1)


def is_negative_type(C: Tensor) -> bool:
    """Return whether ``exp(-c C)`` is semidefinite for all c: ``xᵀCx ≤ 0`` where ``Σx = 0``."""
    largest = torch.linalg.eigvalsh(_centred(wide(C.detach())))[..., -1]
    return bool((largest <= 10 * C.shape[-1] * torch.finfo(C.dtype).eps * C.abs().amax()).all())


def _centred(C: Tensor) -> Tensor:
    """Return ``P C P`` with ``P = I - 11ᵀ/d``."""
    C = C - C.mean(-1, keepdim=True)
    return C - C.mean(-2, keepdim=True)


def _nearest_squared_distances(C: Tensor, max_iter: int) -> Tensor:
    """Project on {``xᵀCx ≤ 0`` where ``Σx = 0``} ∩ {zero diagonal, no negative entry} (Dykstra)."""
    eye = torch.eye(C.shape[0], dtype=C.dtype, device=C.device)
    correction = torch.zeros_like(C)
    small = 1e-9 * float(C.max())
    for _ in range(max_iter):
        start = C - correction
        values, vectors = torch.linalg.eigh(_centred(start))
        spectral = start - (vectors * values.clamp_min(0)) @ vectors.mT
        correction = spectral - start
        C = spectral.clamp_min(0) * (1 - eye)
        if float(torch.linalg.eigvalsh(_centred(C))[-1]) <= small:
            break
    # Make it exact: squared distances between the points of the positive part.
    values, vectors = torch.linalg.eigh(-_centred(C) / 2)
    gram = (vectors * values.clamp_min(0)) @ vectors.mT
    squared = gram.diagonal()[:, None] + gram.diagonal() - 2 * gram
    return ((squared + squared.mT) / 2).clamp_min(0) * (1 - eye)


def _nearest_kernel(K: Tensor, smallest: float, max_iter: int) -> Tensor:
    """Project on {unit diagonal, entries in (0, 1]} ∩ {eigenvalues ≥ smallest} (Dykstra)."""
    floor = 2.0 * smallest  # so that the last projection, of entries, is positive definite
    eye = torch.eye(K.shape[0], dtype=K.dtype, device=K.device)
    lowest = float(K.min()) * 0.5
    correction = torch.zeros_like(K)
    for _ in range(max_iter):
        values, vectors = torch.linalg.eigh(K - correction)
        spectral = (vectors * values.clamp_min(floor)) @ vectors.mT
        correction = spectral - (K - correction)
        K = spectral.clamp(lowest, 1.0) * (1 - eye) + eye
        if float(torch.linalg.eigvalsh(K)[0]) >= smallest:
            return K
    # Convergence is slow: end on the segment towards the identity, which lies in both sets.
    shift = (smallest - float(torch.linalg.eigvalsh(K)[0])) / (1 - smallest)
    return (K + shift * eye) / (1 + shift)

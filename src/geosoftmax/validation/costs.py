"""The input of costs: scales, powers, positions, matrices."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
import torch
from torch import Tensor

from geosoftmax.validation.reading import is_concrete

#: The tolerance for symmetry, sign and diagonal of a cost matrix: relative to its largest entry, or
#: absolute if that is below 1. It is wide enough for finite differences.
MATRIX_TOLERANCE = 1e-5


#: Below this scale, squares of costs vanish in float64, and all outputs are the same.
SMALLEST_SCALE = 1e-100

#: What to do instead of learning a matrix.
LEARN_PLACES = (
    "Gradient steps on a matrix can make it invalid. Learn points or embeddings: pass "
    "geosoftmax.nn.LearntPoints(points, p) or LearntEmbeddings(embeddings) in place of the cost."
)


def check_multiplier(value: Any) -> Tensor:
    """Check the number that multiplies a cost: a positive, finite scalar."""
    if isinstance(value, Tensor):
        if value.dim() != 0:
            raise ValueError(
                f"a cost can be multiplied by a scalar only; got shape {tuple(value.shape)}."
            )
        multiplier = value if value.is_floating_point() else value.to(torch.float64)
    elif isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        multiplier = torch.tensor(float(value), dtype=torch.float64)
    else:
        raise TypeError(f"a cost can be multiplied by a number only; got {type(value).__name__}.")
    if not is_concrete(multiplier):
        return multiplier
    number = float(multiplier.detach())
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(
            f"a cost must be multiplied by a positive, finite number; got {number:g}. "
            "exp(-C/2) stays positive definite only for positive multiples."
        )
    return multiplier


def check_scale(scale: Tensor) -> None:
    """Refuse scales that were changed in place and are no longer positive, or are next to 0."""
    if not bool((torch.isfinite(scale) & (scale >= SMALLEST_SCALE)).all()):
        raise ValueError(
            f"the scale of this cost must be at least {SMALLEST_SCALE:g} and finite; it is now "
            f"{float(scale.detach().amin()):g}. Use learn_scale=True of a module, which learns the "
            "logarithm of the scale."
        )


def check_power(p: float, allowed: tuple[float, ...] | None = None) -> float:
    """Check the exponent of ``|x - y|^p``."""
    if isinstance(p, bool) or not isinstance(p, numbers.Real):
        raise TypeError(f"p must be a number; got {p!r}.")
    if allowed is not None and p not in allowed:
        raise ValueError(f"p must be one of {allowed}; got {p}.")
    if not 0 < p <= 2:
        raise ValueError(
            f"p must satisfy 0 < p <= 2; got {p}. "
            "exp(-|x - y|^p / 2) is not positive definite for other exponents."
        )
    return float(p)


def check_count(name: str, value: Any) -> int:
    """Check a number of outputs."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer; got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1; got {value}.")
    return int(value)


def as_float_tensor(name: str, value: Any) -> Tensor:
    """Return lists, arrays and tensors as a floating tensor, by default float64."""
    try:
        tensor = value if isinstance(value, Tensor) else _tensor_of(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} could not be read as an array of numbers: {error}") from None
    if tensor.is_complex():
        raise TypeError(f"{name} must be real; got {tensor.dtype}.")
    if isinstance(value, Tensor) and tensor.is_floating_point():
        return tensor
    return tensor.to(torch.float64)


def _tensor_of(array: np.ndarray) -> Tensor:
    if array.dtype.kind in "US":
        raise TypeError(f"got text, such as {str(array.flat[0])!r}")
    return torch.as_tensor(array if array.flags.writeable else array.copy())


def check_has_values(name: str, value: Any) -> None:
    """Refuse a tensor on the meta device if the cost needs its values."""
    if isinstance(value, Tensor) and value.is_meta:
        raise ValueError(
            f"{name} is on the meta device and has no values, but they are needed here. Create "
            "it outside of torch.device('meta')."
        )


def check_positions(positions: Tensor, *, may_meet: bool = False) -> None:
    """Check the positions of the classes on a line."""
    if positions.dim() != 1 or positions.numel() == 0:
        raise ValueError(
            "positions must be a number of classes (an int) or a non-empty vector; "
            f"got shape {tuple(positions.shape)}."
        )
    check_has_values("positions", positions)
    if not bool(torch.isfinite(positions).all()):
        raise ValueError("positions must be finite; got NaN or infinite values.")
    gaps = positions.diff()
    if bool((gaps < 0 if may_meet else gaps <= 0).any()):
        raise ValueError(
            "positions must be strictly increasing. Sort the classes by position, and merge "
            "classes at the same position."
        )


def check_places(name: str, X: Tensor) -> None:
    """Check the shape of points or embeddings."""
    if X.dim() < 2 or X.shape[-2] == 0:
        raise ValueError(
            f"{name} must have shape (d, n), or (*batch, d, n) if samples differ; "
            f"got {tuple(X.shape)}."
        )


def check_matrix_shape(C: Tensor) -> None:
    """Check that ``C`` is one square matrix, or one per sample."""
    if C.dim() < 2 or C.shape[-1] != C.shape[-2] or C.shape[-1] == 0:
        raise ValueError(
            f"cost matrix must be square, (d, d), or (batch, d, d) for one cost per sample; "
            f"got shape {tuple(C.shape)}."
        )


def check_cost_matrix(C: Tensor) -> None:
    """Check a cost matrix: shape, NaN, symmetry, sign, diagonal, positive definiteness."""
    check_matrix_shape(C)
    if not is_concrete(C):
        return
    check_finite_matrix(C)
    C = C.detach()
    largest = float(C.abs().amax())
    slack = MATRIX_TOLERANCE * max(largest, 1.0)
    asymmetry = float((C - C.mT).abs().amax())
    if asymmetry > slack:
        raise ValueError(
            f"cost matrix is not symmetric: C and its transpose differ by {asymmetry:.3g}. "
            "Use (C + C.T) / 2, or DenseCost.repair(C).cost. If a mistake is dearer than its "
            "opposite, let the decision know, not the loss: (alpha @ M.T).argmin(-1), where "
            "M[i, j] is paid for the decision i where j is true."
        )
    diagonal = float(C.diagonal(dim1=-2, dim2=-1).abs().amax())
    if diagonal > slack:
        raise ValueError(
            f"cost matrix has a non-zero diagonal (largest {diagonal:.3g}), but the cost from an "
            "output to itself must be 0. If these are similarities, turn them into costs first, "
            "such as 1 - S. If they are costs, use DenseCost.repair(C).cost."
        )
    if float(C.amin()) < -slack:
        raise ValueError(
            f"cost matrix has negative entries (smallest {float(C.amin()):.3g}). "
            "Costs must be at least 0. DenseCost.repair(C).cost is the nearest valid cost."
        )
    check_distinct(C)
    check_positive_definite(C)


def check_finite_matrix(C: Tensor) -> None:
    """Refuse a cost matrix with NaN or infinities."""
    if is_concrete(C) and not bool(torch.isfinite(C).all()):
        raise ValueError(
            "cost matrix has NaN or infinite values. Use a large finite cost for outputs that "
            "should not interact."
        )


def check_distinct(C: Tensor) -> None:
    """Refuse two outputs with cost 0 between them."""
    if not is_concrete(C):
        return
    off = C.detach() + torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
    if bool((off == 0).any()):
        i, j = (int(k) for k in (off == 0).nonzero()[0][-2:])
        raise ValueError(
            f"the cost between outputs {i} and {j} is 0, so they are the same output. "
            "Merge them, or set a small positive cost."
        )


def check_learnt_matrix(C: Tensor) -> None:
    """Refuse a matrix that was changed in place and is no longer a cost."""
    C = C.detach()
    diagonal = C.diagonal(dim1=-2, dim2=-1)
    parts = [(C - C.mT).abs().amax(), diagonal.abs().amax(), -C.amin(), C.abs().amax()]
    asymmetry, diagonal, below, largest = torch.stack(parts).tolist()
    slack = MATRIX_TOLERANCE * max(largest, 1.0)
    for what, size in (("asymmetric", asymmetry), ("diagonal", diagonal), ("negative", below)):
        if not size <= slack:
            raise ValueError(
                f"the matrix of this cost is no longer valid: its largest {what} entry is "
                f"{size:.3g} instead of 0. {LEARN_PLACES}"
            )


def check_scaled(C: Tensor, factor: Tensor) -> None:
    """Refuse a multiple that is not valid."""
    check_distinct(C)
    try:
        check_positive_definite(C)
    except ValueError:
        raise ValueError(
            f"this cost cannot be multiplied by {float(factor.detach()):g}: exp(-C/2) is positive "
            "definite for C itself, but not for that multiple. DenseCost.repair(C, "
            "every_scale=True).cost is the nearest cost that is valid at every scale."
        ) from None


def check_positive_definite(C: Tensor) -> None:
    """Refuse ``C`` if ``exp(-C/2)`` has a negative eigenvalue beyond rounding."""
    C = C.detach()
    K = torch.exp(-(C + C.mT) / 4).to(torch.float64 if C.device.type != "mps" else C.dtype)
    d = C.shape[-1]
    slack = 10 * d * torch.finfo(C.dtype).eps
    eye = torch.eye(d, dtype=K.dtype, device=K.device)
    if not bool(torch.linalg.cholesky_ex(K + slack * eye).info.any()):
        return
    smallest = float(torch.linalg.eigvalsh(K).amin())
    if smallest < -slack:
        raise ValueError(
            f"exp(-C/2) is not positive definite: its smallest eigenvalue is {smallest:.3g}. "
            "DenseCost.repair(C).cost is the nearest valid cost; with every_scale=True, its "
            "multiples are valid, too. Costs |x - y|^p with 0 < p <= 2 (DenseCost.from_points) are "
            "always valid."
        )

"""Every check of what a user hands over, and the messages that teach what to do instead.

Checks of shape, dtype and device need no data and run before anything else, also under
``torch.compile`` and ``torch.func``. Checks of values need the numbers; they run inside the opaque
operators of ``operators``, where tensors are concrete whatever transform surrounds the call.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as _is_wrapped

if TYPE_CHECKING:
    from geosoftmax.costs.base import Cost

#: How far a distribution may be from summing to one, by the dtype it came in.
SUM_TOLERANCE = {
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 5e-2,
}

#: How far, relative to its largest entry (and at least absolutely), a cost matrix may be from
#: symmetric, non-negative and zero on the diagonal. Wide enough for finite differences.
MATRIX_TOLERANCE = 1e-5

#: What to do instead of learning a matrix.
LEARN_PLACES = (
    "Gradient steps on a matrix end in matrices that are no costs. Learn points or embeddings: "
    "geosoftmax.nn.LearntPoints(points, p) or LearntEmbeddings(embeddings), in place of the cost."
)

REDUCTIONS = ("none", "mean", "sum")

#: What a decision may be taken by.
RULES = ("mode", "median", "mean", "cost")


def is_concrete(*tensors: Tensor) -> bool:
    """Whether the values of ``tensors`` can be read: no tracing, no ``torch.func`` wrapper."""
    return not (torch.compiler.is_compiling() or any(map(_is_abstract, tensors)))


def _is_abstract(tensor: Tensor) -> bool:
    return tensor.is_meta or _is_wrapped(tensor)


def is_onnx_export() -> bool:
    """Whether ``torch.onnx.export`` traces the call: it needs operators that ONNX has."""
    return torch.compiler.is_compiling() and torch.onnx.is_in_onnx_export()


def is_readable(*tensors: Tensor) -> bool:
    """Whether values can be read at once: not while a GPU is still at work on them.

    There, values are not checked: what is wrong with them shows as NaN in the results.
    """
    return is_concrete(*tensors) and not any(t.is_cuda for t in tensors)


def refuse_torchscript() -> NoReturn:
    """Say what to use instead of TorchScript: it cannot hold a solver."""
    raise TypeError(
        "geosoftmax does not work with TorchScript (torch.jit.trace, torch.jit.script, and "
        "torch.onnx.export with dynamo=False, which traces): a trace would hold one answer, not "
        "the solver. Use torch.export.export, torch.compile, or torch.onnx.export with "
        "dynamo=True, its default."
    )


# ------------------------------------------------------------------ signals


def check_signal(name: str, signal: Any, cost: Cost) -> None:
    """Check that ``signal`` is a floating tensor of shape ``(*batch, *cost.shape)``."""
    if torch.jit.is_tracing():  # pyright: ignore[reportPrivateImportUsage]
        refuse_torchscript()
    try:
        shape, batch_shape = cost.shape, cost.batch_shape
    except AttributeError:
        raise TypeError(
            f"cost must be a geosoftmax Cost; got {type(cost).__name__}. "
            "Wrap a cost matrix as DenseCost(C), or use LineCost, GridCost, TreeCost, ZeroOneCost."
        ) from None
    if (
        isinstance(signal, Tensor)
        and signal.is_floating_point()
        and signal.shape[-len(shape) :] == shape
        and not batch_shape
        and signal.device == cost.device
    ):
        return
    _refuse_signal(name, signal, cost)


def _refuse_signal(name: str, signal: Any, cost: Cost) -> None:
    """Say what is wrong with a signal, if anything."""
    if not isinstance(signal, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor; got {type(signal).__name__}. "
            f"Convert it with torch.as_tensor({name}, dtype=torch.float64)."
        )
    if not signal.is_floating_point():
        hint = "" if signal.is_complex() else f" Use {name}.float()."
        raise TypeError(f"{name} must be a floating-point tensor; got {signal.dtype}.{hint}")
    n = len(cost.shape)
    if signal.dim() < n or tuple(signal.shape[signal.dim() - n :]) != cost.shape:
        raise ValueError(
            f"{name} must end with shape {cost.shape} to match {cost!r}; "
            f"got {tuple(signal.shape)}. {_shape_hint(name, signal, cost)}"
        )
    batch = tuple(signal.shape[: signal.dim() - n])
    if cost.batch_shape and batch[len(batch) - len(cost.batch_shape) :] != cost.batch_shape:
        raise ValueError(
            f"{cost!r} holds one cost per sample, so {name} must have shape "
            f"(..., {', '.join(map(str, cost.batch_shape + cost.shape))}); got "
            f"{tuple(signal.shape)}. Give one cost matrix per sample, or a single (d, d) one."
        )
    if signal.device != cost.device:
        raise ValueError(
            f"{name} is on {signal.device} but {cost!r} is on {cost.device}. "
            f"Move the cost once with cost = cost.to({str(signal.device)!r})."
        )


def _shape_hint(name: str, signal: Tensor, cost: Cost) -> str:
    n = len(cost.shape)
    if n > 1 and signal.dim() >= 1 and signal.shape[-1] == math.prod(cost.shape):
        return f"Signals are not flattened: reshape with .unflatten(-1, {cost.shape})."
    if signal.dim() < n:
        return f"The last {n} dimension(s) hold one sample."
    shape = tuple(signal.shape[signal.dim() - n :])
    other = f"the cost with {f'{shape[0]} classes' if n == 1 else f'shape {shape}'}"
    axes = fitting_axes(signal, cost)
    if axes is None:
        return f"Build {other}."
    what = "Classes are the last dimension" if n == 1 else f"Sides are the last {n} dimensions"
    return f"{what} by default: pass dim={how_to_say(axes)}, or build {other}."


def fitting_axes(signal: Tensor, cost: Cost) -> tuple[int, ...] | None:
    """Return neighbouring axes that have the cost's shape; from 1 on first, as torch's losses."""
    n = len(cost.shape)
    starts = sorted(range(signal.dim() - n + 1), key=lambda start: (start != 1, start))
    fitting = (k for k in starts if tuple(signal.shape[k : k + n]) == cost.shape)
    first = next(fitting, None)
    return None if first is None else tuple(range(first, first + n))


def how_to_say(axes: tuple[int, ...]) -> str:
    """Write axes as one passes them for ``dim``."""
    return str(axes[0] if len(axes) == 1 else axes)


def check_peaks(peak: Tensor) -> None:
    """Refuse scores by their row maxima: NaN, +inf, rows without a finite score (-inf masks)."""
    extremes = (float(peak.amin()), float(peak.amax()))  # NaN propagates into both
    if all(math.isfinite(x) for x in extremes):
        return
    if bool(torch.isnan(peak).any()):
        rows = int(torch.isnan(peak).sum())
        raise ValueError(
            f"scores hold NaN in {rows} of {peak.numel()} rows. "
            "Check the layer before; to exclude an output, set its score to -inf."
        )
    if bool((peak == math.inf).any()):
        raise ValueError(
            f"scores hold +inf in {int((peak == math.inf).sum())} of {peak.numel()} rows. "
            "Scores must be finite, or -inf to mask an output."
        )
    raise ValueError(
        f"{int((peak == -math.inf).sum())} of {peak.numel()} rows of scores are all -inf: "
        "every output is masked. Leave at least one finite score in each row."
    )


def check_finite(name: str, signal: Tensor, remedy: str) -> None:
    """Refuse NaN and infinities where a signal has no notion of a mask."""
    if is_readable(signal) and not bool(torch.isfinite(signal).all()):
        raise ValueError(f"{name} must be finite; got NaN or infinite values. {remedy}")


def check_distribution_values(name: str, alpha: Tensor, cost: Cost, tolerance: float) -> None:
    """Refuse what is not a probability distribution over the outputs of ``cost``."""
    if alpha.numel() == 0 or not is_readable(alpha):
        return
    alpha = alpha.detach()
    dims = tuple(range(-len(cost.shape), 0))
    if not bool(torch.isfinite(alpha).all()):
        raise ValueError(f"{name} holds NaN or infinite values; it must be a distribution.")
    smallest = float(alpha.amin())
    if smallest < 0:
        raise ValueError(
            f"{name} has negative entries (smallest {smallest:.3g}); it must be a distribution. "
            f"Clip it with {name}.clamp(min=0), then divide it by its sum."
        )
    total = alpha.sum(dim=dims, dtype=torch.float64)
    worst = float((total - 1).abs().amax())
    if worst > tolerance:
        row = total.flatten()[(total - 1).abs().flatten().argmax()]
        raise ValueError(
            f"{name} must sum to 1 over the outputs (the last {len(dims)} dimension(s), or dim); "
            f"a row sums to {float(row):.6g} (tolerance {tolerance:g}). Divide it by its sum first."
        )


def check_index_shape(target: Tensor, scores: Tensor, cost: Cost, dim: Any) -> None:
    """Check that there is one class index per sample, on the device of the scores.

    With several batch axes, `dim` must have been given: torch's losses read such scores otherwise.
    """
    leading = scores.dim() - len(cost.shape)
    batch = scores.shape[:leading]
    if leading > 1 and dim is None and target.dim() == leading:
        _ask_for_dim(scores, cost)
    if target.shape != batch:
        raise ValueError(
            f"class-index target must have the batch shape {tuple(batch)} of scores "
            f"{tuple(scores.shape)}; got {tuple(target.shape)}. For distributions, pass a "
            "floating-point target with the shape of scores."
        )
    if target.device != scores.device:
        raise ValueError(f"target is on {target.device} but scores are on {scores.device}.")


def _ask_for_dim(scores: Tensor, cost: Cost) -> None:
    """Show the two ways to read class indices with several batch axes."""
    n = len(cost.shape)
    letters = [chr(ord("i") + k) for k in range(scores.dim() - n)]
    outputs = [":"] * n
    sample = f"target[{', '.join(letters)}] belongs to scores"
    last, second = tuple(range(-n, 0)), tuple(range(1, n + 1))
    raise ValueError(
        f"class indices with {len(letters)} batch axes need dim, the axes of scores "
        f"{tuple(scores.shape)} that hold the outputs of {cost!r}. "
        f"dim={how_to_say(last)}: {sample}[{', '.join(letters + outputs)}]. "
        f"dim={how_to_say(second)}, as in torch.nn.CrossEntropyLoss: "
        f"{sample}[{', '.join(letters[:1] + outputs + letters[1:])}]."
    )


def check_class_indices(
    target: Tensor, scores: Tensor, cost: Cost, ignore_index: int | None, dim: Any
) -> None:
    """Check integer targets: one index per sample, within the number of outputs."""
    check_index_shape(target, scores, cost, dim)
    if not is_readable(target) or target.numel() == 0:
        return
    valid = target if ignore_index is None else target[target != ignore_index]
    if valid.numel() == 0:
        return
    low, high, d = int(valid.min()), int(valid.max()), math.prod(cost.shape)
    if low < 0 or high >= d:
        raise ValueError(
            f"class indices must lie in 0…{d - 1} for {cost!r}; got {low}…{high}. "
            "Indices count outputs from 0 (row-major over a grid)."
        )


def are_classes(target: Tensor, cost: Cost, dim: int | tuple[int, ...] | None = None) -> bool:
    """Whether targets are single classes: indices or, where they can be read, one-hot rows."""
    if not target.is_floating_point():
        return True
    if target.numel() == 0 or not is_readable(target):
        return False
    axes = tuple(range(-len(cost.shape), 0)) if dim is None else dim
    return bool((target.detach().amax(axes) > 1 - 1e-6).all())


def check_same_shape(name: str, tensor: Tensor, like_name: str, like: Tensor) -> None:
    """Check that two signals agree in shape and device."""
    if tuple(tensor.shape) != tuple(like.shape):
        raise ValueError(
            f"{name} must have the shape {tuple(like.shape)} of {like_name}; "
            f"got {tuple(tensor.shape)}."
        )
    if tensor.device != like.device:
        raise ValueError(f"{name} is on {tensor.device} but {like_name} is on {like.device}.")


def check_finite_where_positive(f: Tensor, alpha: Tensor) -> None:
    """Refuse a function that is not a number where the distribution has mass."""
    if bool((torch.isnan(f) | ((alpha > 0) & torch.isinf(f))).any()):
        raise ValueError("f holds NaN, or is infinite where alpha is positive.")


def check_init_values(init: Tensor) -> None:
    """Refuse a warm start that is not a non-negative, finite vector."""
    if init.numel() and not bool((torch.isfinite(init) & (init >= 0)).all()):
        raise ValueError(
            "init must be finite and non-negative: pass the `u` of an earlier Solution "
            "(or the Solution itself)."
        )


# ------------------------------------------------------------------ options


def check_options(tol: float | None, max_iter: int | None) -> None:
    """Check solver options."""
    if tol is not None and not (isinstance(tol, (int, float)) and tol > 0 and math.isfinite(tol)):
        raise ValueError(f"tol must be a positive number; got {tol!r}.")
    if max_iter is not None and (isinstance(max_iter, bool) or not isinstance(max_iter, int)):
        raise TypeError(f"max_iter must be an integer; got {max_iter!r}.")
    if max_iter is not None and max_iter < 1:
        raise ValueError(f"max_iter must be at least 1; got {max_iter}.")


def check_reduction(reduction: str) -> None:
    """Check how a loss is reduced over the batch."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}; got {reduction!r}.")


def check_rule(rule: str, cost: Cost) -> None:
    """Check by what to decide. Medians and means are of outputs that lie on a line or a grid."""
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}; got {rule!r}.")
    if rule in ("median", "mean") and any(axis.positions is None for axis in cost.factors):
        raise ValueError(
            f"the {rule} is not defined for {cost!r}: its outputs have no positions on a line or a "
            "grid. rule='cost' takes the output of least expected cost, which on a tree is what a "
            "median is on a line."
        )


def check_smoothing(label_smoothing: float) -> None:
    """Check the share of the uniform distribution in a target."""
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must lie in 0…1; got {label_smoothing}.")


def check_weight(weight: Any, cost: Cost) -> None:
    """Check the weights of the outputs in a loss."""
    if weight is None:
        return
    if not isinstance(weight, Tensor) or not weight.is_floating_point():
        kind = weight.dtype if isinstance(weight, Tensor) else type(weight).__name__
        raise TypeError(f"weight must be a floating-point torch.Tensor; got {kind}.")
    if tuple(weight.shape) != cost.shape:
        raise ValueError(f"weight must have shape {cost.shape}; got {tuple(weight.shape)}.")
    if is_readable(weight) and not bool((torch.isfinite(weight) & (weight >= 0)).all()):
        raise ValueError("weight must be finite and at least 0 for every output.")


# ------------------------------------------------------------------ costs


def check_multiplier(value: Any) -> Tensor:
    """Check the number that multiplies a cost: a positive, finite scalar."""
    if isinstance(value, Tensor):
        if value.dim() != 0:
            raise ValueError(
                f"a cost is multiplied by a scalar; got a tensor of shape {tuple(value.shape)}."
            )
        multiplier = value if value.is_floating_point() else value.to(torch.float64)
    elif isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        multiplier = torch.tensor(float(value), dtype=torch.float64)
    else:
        raise TypeError(f"a cost is multiplied by a number; got {type(value).__name__}.")
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
    """Refuse scales that were written to until they are not positive."""
    if not bool((torch.isfinite(scale) & (scale > 0)).all()):
        raise ValueError(
            f"the scale of this cost must be positive and finite; it has become "
            f"{float(scale.detach().amin()):g}. Learn its logarithm: learn_scale=True in a module."
        )


def check_power(p: float, allowed: tuple[float, ...] | None = None) -> float:
    """Check the exponent of ``|x - y|^p``."""
    if isinstance(p, bool) or not isinstance(p, (int, float)):
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
    """Turn lists, arrays and tensors into a floating tensor; float64 unless it already was one."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(np.asarray(value))
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} could not be read as an array of numbers: {error}") from None
    if tensor.is_complex():
        raise TypeError(f"{name} must be real; got {tensor.dtype}.")
    if isinstance(value, Tensor) and tensor.is_floating_point():
        return tensor
    return tensor.to(torch.float64)


def check_has_values(name: str, value: Any) -> None:
    """Refuse a tensor of the meta device where its values decide what a cost is."""
    if isinstance(value, Tensor) and value.is_meta:
        raise ValueError(
            f"{name} is on the meta device and holds no values, which are needed here. Make it "
            "outside of torch.device('meta')."
        )


def check_positions(positions: Tensor) -> None:
    """Check the positions of the classes on a line."""
    if positions.dim() != 1 or positions.numel() == 0:
        raise ValueError(
            "positions must be a number of classes (an int) or a non-empty vector; "
            f"got shape {tuple(positions.shape)}."
        )
    check_has_values("positions", positions)
    if not bool(torch.isfinite(positions).all()):
        raise ValueError("positions hold NaN or infinite values.")
    if bool((positions.diff() <= 0).any()):
        raise ValueError(
            "positions must be strictly increasing. Sort the classes by position, and merge those "
            "that coincide: two classes at one place are one class."
        )


def check_cost_matrix(C: Tensor) -> None:
    """Diagnose a cost matrix: shape, NaN, symmetry, sign, diagonal, positive definiteness."""
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
            "Use (C + C.T) / 2, or DenseCost.repair(C)."
        )
    diagonal = float(C.diagonal(dim1=-2, dim2=-1).abs().amax())
    if diagonal > slack:
        raise ValueError(
            f"cost matrix has a non-zero diagonal (largest {diagonal:.3g}): an output must be at "
            "cost 0 from itself. Subtract it, or use DenseCost.repair(C)."
        )
    if float(C.amin()) < -slack:
        raise ValueError(
            f"cost matrix has negative entries (smallest {float(C.amin()):.3g}). "
            "Costs are at least 0; use DenseCost.repair(C) for the nearest usable cost."
        )
    check_distinct(C)
    check_positive_definite(C)


def check_finite_matrix(C: Tensor) -> None:
    """Refuse a cost matrix that holds NaN or infinities."""
    if is_concrete(C) and not bool(torch.isfinite(C).all()):
        raise ValueError(
            "cost matrix holds NaN or infinite values. Use a large finite cost for outputs that "
            "should not interact."
        )


def check_distinct(C: Tensor) -> None:
    """Refuse two outputs that are at cost 0 from each other."""
    if not is_concrete(C):
        return
    off = C.detach() + torch.eye(C.shape[-1], dtype=C.dtype, device=C.device)
    if bool((off == 0).any()):
        i, j = (int(k) for k in (off == 0).nonzero()[0][-2:])
        raise ValueError(
            f"outputs {i} and {j} are at cost 0 from each other: they are one output. "
            "Merge them, or set a small positive cost."
        )


def check_learnt_matrix(C: Tensor) -> None:
    """Refuse a matrix that was written to until it was no cost: symmetry, diagonal, sign."""
    C = C.detach()
    diagonal = C.diagonal(dim1=-2, dim2=-1)
    parts = [(C - C.mT).abs().amax(), diagonal.abs().amax(), -C.amin(), C.abs().amax()]
    asymmetry, diagonal, below, largest = torch.stack(parts).tolist()
    slack = MATRIX_TOLERANCE * max(largest, 1.0)
    for what, size in (("asymmetric", asymmetry), ("diagonal", diagonal), ("negative", below)):
        if not size <= slack:
            raise ValueError(
                f"the matrix of this cost is no longer a cost: largest {what} entry {size:.3g}, "
                f"where 0 is expected. {LEARN_PLACES}"
            )


def check_places(name: str, X: Tensor) -> None:
    """Check the shape of points or embeddings."""
    if X.dim() < 2 or X.shape[-2] == 0:
        raise ValueError(
            f"{name} must have shape (d, n), or (*batch, d, n) for others in each sample; "
            f"got {tuple(X.shape)}."
        )


def check_matrix_shape(C: Tensor) -> None:
    """Check that ``C`` is one square matrix, or one per sample."""
    if C.dim() < 2 or C.shape[-1] != C.shape[-2] or C.shape[-1] == 0:
        raise ValueError(
            f"cost matrix must be square, (d, d), or (batch, d, d) for one cost per sample; "
            f"got shape {tuple(C.shape)}."
        )


def check_scaled(C: Tensor, factor: Tensor) -> None:
    """Refuse a matrix that was usable until it was multiplied."""
    try:
        check_positive_definite(C)
    except ValueError:
        raise ValueError(
            f"this cost cannot be multiplied by {float(factor.detach()):g}: exp(-C/2) is positive "
            "definite for C as it was, not for that multiple. DenseCost.repair(C, "
            "every_scale=True) returns the nearest cost of which every multiple is usable."
        ) from None


def check_positive_definite(C: Tensor) -> None:
    """Refuse ``C`` when ``exp(-C/2)`` has an eigenvalue below what rounding explains."""
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
            "The geometric softmax needs it to be; DenseCost.repair(C) returns the nearest usable "
            "cost, and |x - y|^p costs with 0 < p <= 2 (DenseCost.from_points) always are."
        )

"""The functions as torch Modules.

A module holds its cost as buffers: it moves, is saved and is loaded with the module. With
``learn_scale=True`` a scalar that multiplies the cost is learnt with the other parameters; `cost`
is the scaled one, to predict with. `LearntPoints` and `LearntEmbeddings`, in place of a cost, are
learnt as a whole. Learn both from distributions: with class indices alone the loss falls with every
entry of the cost, whatever the scores are, and nothing keeps it from zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from geosoftmax import functional
from geosoftmax.costs.base import Cost
from geosoftmax.functional.axes import Dim, read_dim
from geosoftmax.learnt import LearntCost, LearntEmbeddings, LearntPoints, warn_of_collapse
from geosoftmax.validation import (
    LEARN_PLACES,
    are_classes,
    check_options,
    check_reduction,
    check_smoothing,
    check_weight,
    refuse_torchscript,
)

__all__ = [
    "GeometricLogSumExp",
    "GeometricLogisticLoss",
    "GeometricSoftmax",
    "HausdorffDivergence",
    "LearntEmbeddings",
    "LearntPoints",
    "PotentialLogisticLoss",
    "PotentialSoftmax",
    "SmoothScores",
]


#: Under which the tensors of a cost are registered; no cost has more.
_NAMES = tuple(f"cost_{k}" for k in range(16))


class CostModule(nn.Module):
    """A module with a cost. `cost` gives it on the module's device, scaled as learnt.

    Plans for the cost are made once, and again when its values changed. Writes through ``.data``,
    behind the back of torch, are not noticed.
    """

    cost_signature: Tensor
    learnt_cost: LearntCost | None
    #: The axes of the outputs, as for `geosoftmax.geometric_softmax`.
    dim: Dim = None
    #: Whether the tensors of the cost hold nothing yet: `to_empty` after the meta device.
    _is_empty = False

    def __init__(
        self, cost: Cost | LearntCost, *, dim: Dim = None, learn_scale: bool = False
    ) -> None:
        super().__init__()
        self.learnt_cost = cost if isinstance(cost, LearntCost) else None
        self._unscaled: Cost | None = None
        if not isinstance(cost, LearntCost):
            _check_cost(cost, learn_scale)
            for k, tensor in enumerate(cost.tensors):
                if isinstance(tensor, nn.Parameter):
                    self.register_parameter(f"cost_{k}", tensor)
                else:
                    self.register_buffer(f"cost_{k}", tensor.clone())
            self._unscaled = cost.with_tensors(self._tensors(cost))
        # The kind of cost as bytes, so that a state of another kind is refused on loading.
        self.log_scale = nn.Parameter(torch.zeros(())) if learn_scale else None
        device = self.cost.device
        self.register_buffer("cost_signature", _as_bytes(cost.signature).to(device))
        self._warned = False
        if dim is not None:
            axes = read_dim(dim, self.cost)
            dim = dim if isinstance(dim, int) else axes
        self.dim = dim

    @property
    def cost(self) -> Cost:
        """The cost, as it was learnt."""
        cost = self._current() if self.learnt_cost is None else self.learnt_cost.cost
        return cost if self.log_scale is None else cost.multiple(torch.exp(self.log_scale))

    def _tensors(self, cost: Cost) -> list[Tensor]:
        buffers = self._buffers  # a look-up by name would try everything else first
        names = _NAMES[: len(cost.tensor_names)]
        return [buffers[k] if k in buffers else getattr(self, k) for k in names]  # pyright: ignore

    def _current(self) -> Cost:
        """Return the cost of the buffers: one object, with its plans, while they are the same."""
        if self._is_empty:
            raise ValueError(
                f"the cost of {type(self).__name__} holds no values yet: the module was made on "
                "the meta device. Load a state into it first, with load_state_dict."
            )
        cost = self._unscaled
        assert cost is not None
        tensors = self._tensors(cost)
        if torch.compiler.is_compiling():
            return cost.with_tensors(tensors)
        if not all(map(operator.is_, tensors, cost.tensors)):
            cost = self._unscaled = cost.with_tensors(tensors)
        return cost

    def _warn_of_collapse(self, cost: Cost, target: Tensor) -> None:
        """Warn once, where the cost is learnt from classes alone."""
        if self._warned or not (torch.is_grad_enabled() and cost.parameter.requires_grad):
            return
        if are_classes(target, cost, self.dim):
            if not torch.compiler.is_compiling():
                self._warned = True
            warn_of_collapse()

    def __prepare_scriptable__(self) -> Any:
        """Refuse ``torch.jit.script``."""
        refuse_torchscript()

    def extra_repr(self) -> str:
        """Describe the cost, and where the outputs are."""
        if self._is_empty:
            cost = f"{_in_words(self._signature)}, not loaded"
        else:
            cost = repr(self.cost) if self.learnt_cost is None else ""
        where = "" if self.dim is None else f"dim={self.dim}"
        learnt = "" if self.log_scale is None else "learn_scale=True"
        return ", ".join(text for text in (cost, where, learnt) if text)

    @property
    def _signature(self) -> str:
        return (self.learnt_cost or self._unscaled).signature  # pyright: ignore

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CostModule:
        """Move as every module does, but keep the geometry out of half precision."""
        cost = self._unscaled
        if cost is None:
            super()._apply(fn, recurse)
            return self
        precise = {f"cost_{k}": tensor.data for k, tensor in enumerate(self._tensors(cost))}
        super()._apply(fn, recurse)
        if any(
            before.is_meta and not getattr(self, name).is_meta for name, before in precise.items()
        ):
            self._is_empty = True
            self.cost_signature.copy_(_as_bytes(cost.signature))
        for name, before in precise.items():
            after = getattr(self, name)
            if before.is_floating_point() and torch.finfo(after.dtype).bits < 32:
                after.data = before.to(after.device)
        self._unscaled = cost.with_tensors(self._tensors(cost))
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved, here = state_dict.get(f"{prefix}cost_signature"), self._signature
        if saved is not None and not saved.is_meta:
            there = bytes(saved.cpu().tolist()).decode("utf8", "replace")
            # An early state of a named tree says nothing of the names.
            if there not in (here, here.partition("|names:")[0]):
                error_msgs.append(
                    f"the state was saved with another kind of cost ({_in_words(there)}) than this "
                    f"module's ({_in_words(here)}). Build the module with that cost."
                )
                return
            state_dict = {**state_dict, f"{prefix}cost_signature": _as_bytes(here)}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        names = _NAMES[: len(self._unscaled.tensor_names)] if self._unscaled else ()
        if all(f"{prefix}{name}" in state_dict for name in names):
            self._is_empty = False


def _described(text: str, **options: Any) -> str:
    """Return the text of a repr with the options that are not None."""
    told = [f"{name}={value!r}" for name, value in options.items() if value is not None]
    return ", ".join([*filter(None, [text]), *told])


def _unless(value: Any, default: Any) -> Any:
    return None if value == default else value


def _as_bytes(signature: str) -> Tensor:
    return torch.tensor(list(signature.encode()), dtype=torch.uint8, device="cpu")


def _in_words(signature: str) -> str:
    return signature.replace("|", " ")


def _check_cost(cost: Any, learn_scale: bool) -> None:
    """Refuse what a module cannot hold, or not learn."""
    if not isinstance(cost, Cost):
        raise TypeError(
            "cost must be a geosoftmax Cost, or LearntPoints or LearntEmbeddings; got "
            f"{type(cost).__name__}. Wrap a cost matrix as DenseCost(C)."
        )
    if learn_scale and not cost.scales_freely:
        raise ValueError(
            f"the scale of {cost!r} cannot be learnt: multiples of it need not be positive "
            "definite. DenseCost.repair(C, every_scale=True) returns the nearest cost of which "
            "every multiple is usable."
        )
    if isinstance(cost.parameter, nn.Parameter) and not cost.is_learnable:
        raise ValueError(f"{cost!r} cannot be learnt by its matrix. {LEARN_PLACES}")
    if any(t.requires_grad and not isinstance(t, nn.Parameter) for t in cost.tensors):
        raise ValueError(
            "the cost requires gradients, which a module would cut off. Give the module what the "
            "cost is made of: LearntPoints(points, p) or LearntEmbeddings(embeddings) of "
            "geosoftmax.nn. To learn a scale, ask for learn_scale=True. Or call "
            "geosoftmax.functional with the cost."
        )


class _SolvingModule(CostModule):
    """A module that solves (QP)."""

    def __init__(
        self,
        cost: Cost | LearntCost,
        *,
        dim: Dim = None,
        learn_scale: bool = False,
        tol: float | None = None,
        max_iter: int | None = None,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale)
        check_options(tol, max_iter)
        self.tol = tol
        self.max_iter = max_iter

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        return _described(super().extra_repr(), tol=self.tol, max_iter=self.max_iter)


class GeometricSoftmax(_SolvingModule):
    """``geometric_softmax`` as a layer.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geosoftmax.geometric_softmax`. By default the last ones.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    tol, max_iter
        As for `geosoftmax.solve`.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost
    >>> layer = torch.nn.Sequential(torch.nn.Linear(8, 5), GeometricSoftmax(LineCost(5)))
    >>> layer(torch.randn(3, 8)).shape
    torch.Size([3, 5])
    """

    def forward(self, scores: Tensor) -> Tensor:
        """Return distributions of the shape of the scores."""
        return functional.geometric_softmax(
            scores, self.cost, dim=self.dim, tol=self.tol, max_iter=self.max_iter
        )


class GeometricLogSumExp(_SolvingModule):
    """``geometric_logsumexp`` as a layer. Parameters as for `GeometricSoftmax`."""

    def forward(self, scores: Tensor) -> Tensor:
        """Return one value per sample."""
        return functional.geometric_logsumexp(
            scores, self.cost, dim=self.dim, tol=self.tol, max_iter=self.max_iter
        )


class GeometricLogisticLoss(_SolvingModule):
    """``geometric_logistic_loss`` with the arguments of ``torch.nn.CrossEntropyLoss``.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    weight : Tensor, shape cost.shape, optional
        The weight of each output.
    ignore_index : int
        Samples with this class index do not count.
    reduction : {"mean", "sum", "none"}
    label_smoothing : float
    dim : int or tuple of int, optional
        The axes of the outputs: 1 for the layout of ``torch.nn.CrossEntropyLoss``, scores
        ``(N, C, d1, …)`` and class indices ``(N, d1, …)``. By default the last ones, but class
        indices with two or more batch axes need it said.
    learn_scale, tol, max_iter
        As for `GeometricSoftmax`.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import LineCost
    >>> loss = GeometricLogisticLoss(LineCost(5, p=2) / 2)  # was torch.nn.CrossEntropyLoss()
    >>> scores = torch.zeros(2, 5, requires_grad=True)
    >>> loss(scores, torch.tensor([0, 4])).backward()
    >>> scores.grad.shape
    torch.Size([2, 5])
    """

    weight: Tensor | None

    def __init__(
        self,
        cost: Cost | LearntCost,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        dim: Dim = None,
        learn_scale: bool = False,
        tol: float | None = None,
        max_iter: int | None = None,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale, tol=tol, max_iter=max_iter)
        check_reduction(reduction)
        check_smoothing(label_smoothing)
        check_weight(weight, self.cost)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction
        self.label_smoothing = label_smoothing

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        weight = None
        if self.weight is not None:
            few = self.weight.numel() <= 10
            weight = self.weight.tolist() if few else f"tensor of shape {tuple(self.weight.shape)}"
        return _described(
            super().extra_repr(),
            weight=weight,
            ignore_index=_unless(self.ignore_index, -100),
            reduction=_unless(self.reduction, "mean"),
            label_smoothing=self.label_smoothing or None,
        )

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """Return the loss of scores against class indices or distributions."""
        cost = self.cost
        loss = functional.geometric_logistic_loss(
            scores,
            target,
            cost,
            dim=self.dim,
            reduction=self.reduction,
            weight=self.weight,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        if self.label_smoothing == 0:
            self._warn_of_collapse(cost, target)
        return loss


class SmoothScores(CostModule):
    """``smooth_scores`` as the last layer of a network that outputs scores.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geosoftmax.geometric_softmax`. By default the last ones.
    learn_scale : bool
        Learn a positive number that multiplies the cost.

    Examples
    --------
    >>> import torch
    >>> from geosoftmax import GridCost
    >>> cost = GridCost((28, 28), p=2) / 2
    >>> decoder = torch.nn.Sequential(
    ...     torch.nn.Linear(100, 784), torch.nn.Unflatten(1, (28, 28)), SmoothScores(cost)
    ... )
    >>> loss = GeometricLogisticLoss(cost)(decoder(torch.randn(2, 100)), torch.tensor([0, 783]))
    """

    def forward(self, scores: Tensor) -> Tensor:
        """Return scores of the same shape."""
        return functional.smooth_scores(scores, self.cost, dim=self.dim)


class PotentialSoftmax(CostModule):
    """``potential_softmax`` as a layer: no solver, no iterations.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    dim : int or tuple of int, optional
        The axes of the outputs, as for `geosoftmax.geometric_softmax`. By default the last ones.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    """

    def forward(self, logits: Tensor) -> Tensor:
        """Return distributions of the shape of the logits."""
        return functional.potential_softmax(logits, self.cost, dim=self.dim)


class PotentialLogisticLoss(CostModule):
    """``potential_logistic_loss`` as a module.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    reduction : {"mean", "sum", "none"}
    dim : int or tuple of int, optional
        The axes of the outputs, as for `GeometricLogisticLoss`.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    """

    def __init__(
        self,
        cost: Cost | LearntCost,
        reduction: str = "mean",
        *,
        dim: Dim = None,
        learn_scale: bool = False,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale)
        check_reduction(reduction)
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        return _described(super().extra_repr(), reduction=_unless(self.reduction, "mean"))

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits against class indices or distributions."""
        cost = self.cost
        loss = functional.potential_logistic_loss(
            logits, target, cost, dim=self.dim, reduction=self.reduction
        )
        self._warn_of_collapse(cost, target)
        return loss


class HausdorffDivergence(CostModule):
    """``hausdorff_divergence`` as a module, reduced over the batch.

    Parameters
    ----------
    cost : Cost, LearntPoints or LearntEmbeddings
    symmetric : bool
    reduction : {"mean", "sum", "none"}
    dim : int or tuple of int, optional
        The axes of the outputs, as for `GeometricSoftmax`.
    learn_scale : bool
        Learn a positive number that multiplies the cost.
    """

    def __init__(
        self,
        cost: Cost | LearntCost,
        *,
        dim: Dim = None,
        symmetric: bool = False,
        reduction: str = "mean",
        learn_scale: bool = False,
    ) -> None:
        super().__init__(cost, dim=dim, learn_scale=learn_scale)
        check_reduction(reduction)
        self.symmetric = symmetric
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Describe the cost, and what differs from the defaults."""
        return _described(
            super().extra_repr(),
            reduction=_unless(self.reduction, "mean"),
            symmetric=self.symmetric or None,
        )

    def forward(self, alpha: Tensor, beta: Tensor) -> Tensor:
        """Return ``D(alpha|beta)``."""
        value = functional.hausdorff_divergence(
            alpha, beta, self.cost, dim=self.dim, symmetric=self.symmetric
        )
        if self.reduction == "none":
            return value
        return value.mean() if self.reduction == "mean" else value.sum()

"""The interface of a solver: it says what it accepts, and prepares a plan that is reused."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from geosoftmax.backends.reference import Kernel, Rows
from geosoftmax.costs.base import Cost

Purpose = Literal[
    "value",  # the log-sum-exp, to the requested gap
    "distribution",  # the softmax: the distribution must have converged, not only the gap
    "loss",  # the logistic loss and its slope
    "sinkhorn",  # v · Kv = α
    "potential",  # the loss of the potential layer and its slope
    "support",  # K_SS x = rhs_S, for derivatives
    "fit",  # losses of class indices and their curvature, evaluated many times
    "onnx",  # u of (QP), in ONNX operators
]

#: What a fused solve returns: alpha, u, lower, upper, iterations.
Fused = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

#: A reduced loss of class indices; its slope in the scores; the largest certified gap, NaN if some
#: scores have no solution; and the number of invalid targets (neither a class nor ignored). If
#: there are any, the other three are meaningless.
IndexLoss = tuple[Tensor, Tensor, float, int]

MAX_ITER = 5000


class Request(NamedTuple):
    """What a plan is prepared for."""

    purpose: Purpose
    device: torch.device
    dtype: torch.dtype
    tol: float = 0.0
    #: The name of a method, or "auto".
    method: str = "auto"


class Solver(ABC):
    """One method on one backend, for some purposes.

    `accepts` returns None, or a reason, which becomes the error message if the user chose the
    method by name. It reads no values of the cost, which may be on a GPU. `prepare` computes once
    what later calls need: factors, tables, the kernel to launch. The plan that it returns owns its
    tables and has no reference to the cost, so that the plan can be freed with the cost.
    """

    method: ClassVar[str]
    backend: ClassVar[str]
    purposes: ClassVar[tuple[str, ...]] = ("value", "distribution", "loss")
    #: The row in the table of methods: costs, outputs, and how exact it is. None: no row.
    row: ClassVar[tuple[str, str, str]] | None = None

    @abstractmethod
    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Return None if it accepts the request, else the reason why not."""

    @abstractmethod
    def prepare(self, cost: Cost, request: Request) -> Any:
        """Return a plan for the purpose of the request."""


# ------------------------------------------------------------------ plans, by purpose


class SolveRows(Protocol):
    """Solves (QP) for rows ``b``, from a warm start or None."""

    def __call__(self, b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        """Return the minimisers, their brackets and the iterations."""
        ...


@dataclasses.dataclass(frozen=True)
class Plan:
    """A solver of (QP), prepared for one cost and one request.

    `rows` solves for given ``b``, with an optional warm start. The callables that take scores are
    optional: they are None if the backend does not have them.
    """

    method: str
    request: Request
    #: The number of dimensions of a signal.
    dimensions: int
    #: Products with K, for certificates.
    kernel: Kernel
    rows: SolveRows
    #: Whether there is one cost per row.
    per_row: bool = False
    #: Whether a solve reads from its device. If so, values are checked as well.
    waits: bool = True
    #: ``(scores, max_iter)``: the complete solve.
    fused: Callable[[Tensor, int], Fused] | None = None
    #: ``scores -> alpha, worst gap``: what a prediction needs.
    predict: Callable[[Tensor], tuple[Tensor, float]] | None = None
    #: ``(scores, distributions, max_iter, share) -> loss, slope`` of each sample, times the share.
    loss: Callable[[Tensor, Tensor, int, float], tuple[Tensor, Tensor]] | None = None
    #: ``(scores, indices, ignore_index, reduction, max_iter)``. The scores may require gradients,
    #: but it records none.
    index_loss: Callable[[Tensor, Tensor, int, str, int], IndexLoss] | None = None


@dataclasses.dataclass(frozen=True)
class SinkhornPlan:
    """``solve(alpha) -> v, residual``. The residual is None if nothing is read from the device."""

    solve: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    #: ``alpha -> 2 log(Kv)`` and ``alpha -> Ω(alpha)``, each in one call, in float32.
    potential: Callable[[Tensor], Tensor] | None = None
    negentropy: Callable[[Tensor], Tensor] | None = None


@dataclasses.dataclass(frozen=True)
class PotentialPlan:
    """``loss(logits, distributions, share) -> loss, slope`` of each sample, times the share."""

    loss: Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True)
class SupportPlan:
    """``solve_on(support, rhs) -> x`` with ``K_SS x_S = rhs_S``, and 0 elsewhere."""

    solve_on: Callable[[Tensor, Tensor], Tensor]


@dataclasses.dataclass(frozen=True)
class FitPlan:
    """The functions for fitting linear models, in numpy.

    ``workspace(target, weight)`` computes the losses of samples, and stores scores, distributions
    and lower bounds. It is None if the backend does not have it. `backends.reference.fitting`
    defines the others.
    """

    workspace: Callable[[Any, Any], Any] | None
    add_inverses: Callable[..., None]
    two_loop_first: Callable[..., None]
    two_loop_second: Callable[..., None]


@dataclasses.dataclass(frozen=True)
class OnnxPlan:
    """``minimise(b) -> u`` of (QP), for flattened ``b`` of shape (..., d) in float64."""

    minimise: Callable[[Tensor], Tensor]


# ------------------------------------------------------------------ availability of backends


@functools.cache
def numba_installed() -> bool:
    """Return whether the compiled CPU kernels can be used."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def triton_installed() -> bool:
    """Return whether the fused GPU kernels can be used."""
    return importlib.util.find_spec("triton") is not None


def without_numba(request: Request) -> str | None:
    """Return why the numba backend cannot serve a request, or None."""
    if request.device.type != "cpu":
        return "the numba backend runs on CPUs"
    return None if numba_installed() else "numba is not installed"


def without_triton(request: Request) -> str | None:
    """Return why the Triton backend cannot serve a request, or None."""
    if request.device.type != "cuda":
        return "the Triton backend runs on CUDA devices"
    return None if triton_installed() else "triton is not installed"

"""What a solver is: it tells what it accepts, and prepares a plan that is then used many times."""

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
    "value",  # the log-sum-exp, to the gap that was asked for
    "distribution",  # the softmax: beyond the gap, the distribution has settled
    "loss",  # the logistic loss and its slope
    "sinkhorn",  # v · Kv = α
    "potential",  # the loss of the potential layer and its slope
    "support",  # K_SS x = rhs_S, for derivatives
    "fit",  # losses of class indices and their curvature, again and again
    "onnx",  # u of (QP), in operators that ONNX has
]

#: What a fused solve returns: alpha, u, lower, upper, iterations.
Fused = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]

#: A loss of class indices, reduced; its slope in the scores; the largest certified gap, NaN where
#: scores have no solution; and how many targets are neither a class nor ignored. If there are any,
#: the rest means nothing.
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

    `accepts` returns None, or why not: that text is the error message where the method was asked
    for by name. It reads no values of the cost, which may lie on a GPU. `prepare` derives what is
    needed once: factors, tables, the kernel to launch. What it returns owns its tables, and holds
    no reference to the cost itself: it goes when that goes.
    """

    method: ClassVar[str]
    backend: ClassVar[str]
    purposes: ClassVar[tuple[str, ...]] = ("value", "distribution", "loss")
    #: For the table of methods: costs, outputs, and how exact it is. Empty: not a row of its own.
    row: ClassVar[tuple[str, str, str]] | None = None

    @abstractmethod
    def accepts(self, cost: Cost, request: Request) -> str | None:
        """Return None if it serves the request, else the reason why not."""

    @abstractmethod
    def prepare(self, cost: Cost, request: Request) -> Any:
        """Return a plan for the purpose of the request."""


# ------------------------------------------------------------------ plans, by purpose


class SolveRows(Protocol):
    """Solves rows ``b`` of (QP), from a start or None."""

    def __call__(self, b: Tensor, start: Tensor | None, max_iter: int) -> Rows:
        """Return the minimisers, their brackets and the iterations."""
        ...


@dataclasses.dataclass(frozen=True)
class Plan:
    """A solver of (QP), prepared for one cost and one request.

    `rows` solves from ``b``, with a warm start. What begins with the scores is there only where a
    backend has it.
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
    #: Whether a solve reads from its device. Then values are checked as well.
    waits: bool = True
    #: ``(scores, max_iter)``: everything at once.
    fused: Callable[[Tensor, int], Fused] | None = None
    #: ``scores -> alpha, worst gap``: what a prediction needs.
    predict: Callable[[Tensor], tuple[Tensor, float]] | None = None
    #: ``(scores, distributions, max_iter, share) -> loss, slope`` of each sample, times the share.
    loss: Callable[[Tensor, Tensor, int, float], tuple[Tensor, Tensor]] | None = None
    #: ``(scores, indices, ignore_index, reduction, max_iter)``; the scores may require gradients,
    #: of which it records none.
    index_loss: Callable[[Tensor, Tensor, int, str, int], IndexLoss] | None = None


@dataclasses.dataclass(frozen=True)
class SinkhornPlan:
    """``solve(alpha) -> v, residual``; the residual is None where nothing waits for the device."""

    solve: Callable[[Tensor], tuple[Tensor, Tensor | None]]
    #: ``alpha -> 2 log(Kv)`` and ``alpha -> Ω(alpha)`` at once, in float32.
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
    """What fits of linear models use, in numpy.

    ``workspace(target, weight)``, where a backend has it, gives the losses of samples, and keeps
    scores, distributions and lower bounds. The others are as in `backends.reference.fitting`.
    """

    workspace: Callable[[Any, Any], Any] | None
    add_inverses: Callable[..., None]
    two_loop_first: Callable[..., None]
    two_loop_second: Callable[..., None]


@dataclasses.dataclass(frozen=True)
class OnnxPlan:
    """``minimise(b) -> u`` of (QP), for flattened ``b`` of shape (..., d) in float64."""

    minimise: Callable[[Tensor], Tensor]


# ------------------------------------------------------------------ what solvers ask


@functools.cache
def numba_installed() -> bool:
    """Whether the compiled CPU kernels can be used."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def triton_installed() -> bool:
    """Whether the fused GPU kernels can be used."""
    return importlib.util.find_spec("triton") is not None


def without_numba(request: Request) -> str | None:
    """Return why the numba backend cannot serve a request."""
    if request.device.type != "cpu":
        return "the numba backend runs on CPUs"
    return None if numba_installed() else "numba is not installed"


def without_triton(request: Request) -> str | None:
    """Return why the Triton backend cannot serve a request."""
    if request.device.type != "cuda":
        return "the Triton backend runs on CUDA devices"
    return None if triton_installed() else "triton is not installed"

"""Measuring: rivals side by side, their certified gaps, their memory, and the arithmetic floor."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from geosoftmax import ConvergenceWarning, Cost, GridCost, LineCost

ROUNDS = 10
#: Outputs up to which certificates multiply by the dense ``K``, rather than call ``cost.matvec``.
DENSE = 1024


@dataclass(frozen=True)
class Problem:
    """Scores, of shape ``(rows, *cost.shape)`` in float64, and the cost between the outputs."""

    cost: Cost
    scores: Tensor

    @property
    def rows(self) -> int:
        return self.scores.shape[0]

    @property
    def b(self) -> Tensor:
        """``exp(f/2)``, with the maximum of ``f`` subtracted."""
        peak = self.scores.flatten(1).amax(1).reshape(-1, *[1] * len(self.cost.shape))
        return torch.exp((self.scores - peak) / 2)

    def first(self, rows: int) -> Problem:
        return Problem(self.cost, self.scores[:rows])

    def gaps(self, u: Tensor) -> Tensor:
        """Certify in float64 what anyone answered."""
        u = u.detach().to(torch.float64).clamp_min(0).reshape(-1, *self.cost.shape)
        return certified_gaps(self.cost, self.b[: len(u)], u)


def certified_gaps(cost: Cost, b: Tensor, u: Tensor) -> Tensor:
    """Return an upper bound of the gap of each row of ``u ≥ 0``, whatever its scale, in float64.

    The value is ``log max ⟨b,u⟩² / uᵀKu``, so every ``u`` gives a lower bound. By duality,
    ``log wᵀKw`` is an upper bound for every ``w ≥ 0`` with ``Kw ≥ b``. Two are tried:
    ``u + max(b - Ku, 0)``, which works because ``K`` is at least the identity, entry by entry, and
    ``u · max(b / Ku)``. The gap is widened by the rounding of the sums.

    It shares no code with the library's own certificate, and small costs use their matrix alone.
    """
    size = cost.size
    b, u = b.double().reshape(-1, size), u.double().reshape(-1, size)
    cost = cost.to(torch.float64)
    if size <= DENSE:
        K = torch.exp(-cost.matrix() / 2)
        assert torch.equal(K.diagonal(), torch.ones_like(K[0])), "a cost of 0 on the diagonal"

    def product(x: Tensor) -> Tensor:
        if size <= DENSE:
            return x @ K
        return cost.matvec(x.reshape(-1, *cost.shape)).reshape(x.shape)

    h = product(u)
    scale = (b * u).sum(-1, keepdim=True) / (u * h).sum(-1, keepdim=True)
    u, h = scale * u, scale * h
    energy = (u * h).sum(-1)
    v = (b - h).clamp_min(0)
    added = 2 * (v * h).sum(-1) + (v * product(v)).sum(-1)
    ratio = torch.where(b > 0, b / h, 0.0).amax(-1).clamp_min(1)
    rounding = 2 * torch.finfo(torch.float64).eps * (8 + 2 * math.sqrt(size))
    return torch.minimum(torch.log1p(added / energy), 2 * torch.log(ratio)) + rounding


@dataclass(frozen=True)
class Rival:
    """Something that can be called, and what its answer says about itself."""

    name: str
    call: Callable[[], Any]
    samples: int
    gaps: Callable[[Any], Tensor] | None = None  # answer -> certified gap of each row
    iterations: Callable[[Any], Any] | None = None
    compiles: bool = False  # the first call may compile, so it never counts
    note: str = ""


@dataclass(frozen=True)
class Measurement:
    """What a rival took. Seconds are those of one call, on `samples` samples."""

    name: str
    samples: int
    median: float
    fastest: float
    repeats: int
    cpu: float | None = None  # the median of CPU seconds, of all threads
    gap: float | None = None  # the worst of the rows
    gap_median: float | None = None
    peak_bytes: int | None = None
    iterations: float | None = None
    note: str = ""

    @property
    def per_sample(self) -> float:
        return self.median / self.samples


@dataclass(frozen=True)
class Rates:
    """What this machine can do, measured in this run."""

    flops32: float
    flops64: float
    bytes: float

    @staticmethod
    def measure(quick: bool) -> Rates:
        n = 1024 if quick else 2048
        flops = {}
        for dtype in (torch.float32, torch.float64):
            a = torch.ones(n, n, dtype=dtype)
            out = torch.empty_like(a)
            flops[dtype] = 2 * n**3 / _fastest(lambda a=a, out=out: torch.mm(a, a, out=out))
        source = torch.ones((1 << 24) if quick else (1 << 26))
        target = torch.empty_like(source)
        moved = 2 * source.numel() * source.element_size()
        seconds = _fastest(lambda: target.copy_(source))
        return Rates(flops[torch.float32], flops[torch.float64], moved / seconds)


@dataclass
class Bench:
    """The settings of a run, and the measuring itself."""

    quick: bool
    rates: Rates
    own: bool = False  # rivals are left out
    missing: set[str] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        """Time to spend on the repeats of one rival."""
        if self.quick:
            return 0.05
        return 0.15 if self.own else 1.0

    @property
    def patience(self) -> float:
        """A call that takes longer than this is not repeated."""
        if self.quick:
            return 0.2
        return 0.75 if self.own else 3.0

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def others(self, build: Callable[[], list[Rival]]) -> list[Rival]:
        """Build the rivals that are not ours, unless only our own rows are asked for."""
        return [] if self.own else build()

    def optional(self, module: str, build: Callable[[], Rival]) -> list[Rival]:
        """Build a rival whose library is there; the report names those that are not."""
        if self.own:
            return []
        if importlib.util.find_spec(module) is None:
            self.missing.add(module)
            return []
        return [build()]

    def measure(self, rivals: list[Rival]) -> list[Measurement]:
        """Time rivals in interleaved rounds, so that a slow minute of the machine hits all."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            tried = [self._try(rival) for rival in rivals]
            numbers = [max(1, int(self.seconds / ROUNDS / t.seconds)) for t in tried]
            gc.collect()
            for turn in range(ROUNDS):
                for rival, trial, number in zip(rivals, tried, numbers, strict=True):
                    if turn < self._rounds(trial.seconds):
                        trial.add(*_clock(rival.call, number))
        return [_summarise(r, t) for r, t in zip(rivals, tried, strict=True)]

    def _rounds(self, seconds: float) -> int:
        if seconds > self.patience:
            return 0
        if 3 * seconds > self.patience:
            return 1
        return min(ROUNDS, max(3, int(self.seconds / seconds)))

    def _try(self, rival: Rival) -> _Trial:
        """Warm up, then one call for memory, answer and an estimate of the time."""
        trial = _observed(rival.call)
        if rival.compiles or trial.seconds <= self.patience:
            trial = _observed(rival.call)
        self.say(f"    {rival.name}: {trial.seconds:.3g} s")
        if trial.seconds > self.patience / 3:
            trial.add(trial.seconds, trial.cpu_seconds)
        return trial

    def floor(
        self, name: str, operations: float, moved: float = 0.0, dtype: torch.dtype = torch.float64
    ) -> Measurement:
        """The least time for so many operations, and bytes moved, per sample."""
        rate = self.rates.flops32 if dtype == torch.float32 else self.rates.flops64
        arithmetic, memory = operations / rate, moved / self.rates.bytes
        note = f"{operations:.3g} operations, {moved:.3g} bytes a sample"
        least = max(arithmetic, memory)
        return Measurement(f"floor: {name}", 1, least, least, 0, note=note)


def product_operations(cost: Cost) -> float:
    """Operations of one product with ``K``, leaving out entries that float32 does not see."""
    if isinstance(cost, LineCost) and cost.p == 1:
        return 6.0 * cost.size
    if isinstance(cost, GridCost):
        seen = [int((torch.exp(-axis.matrix() / 2) > 1e-9).sum()) for axis in cost.axes]
        return sum(2.0 * n * cost.size / side for n, side in zip(seen, cost.shape, strict=True))
    return 2.0 * cost.size**2


@dataclass
class _Trial:
    seconds: float
    cpu_seconds: float
    answer: Any
    peak_bytes: int | None
    times: list[float] = field(default_factory=list)
    cpu_times: list[float] = field(default_factory=list)

    def add(self, seconds: float, cpu_seconds: float) -> None:
        self.times.append(seconds)
        self.cpu_times.append(cpu_seconds)


def _summarise(rival: Rival, trial: _Trial) -> Measurement:
    gaps = rival.gaps(trial.answer) if rival.gaps else None
    steps = rival.iterations(trial.answer) if rival.iterations else None
    return Measurement(
        name=rival.name,
        samples=rival.samples,
        median=statistics.median(trial.times),
        fastest=min(trial.times),
        repeats=len(trial.times),
        cpu=statistics.median(trial.cpu_times),
        gap=None if gaps is None else float(gaps.max()),
        gap_median=None if gaps is None else float(gaps.median()),
        peak_bytes=trial.peak_bytes,
        iterations=None if steps is None else float(torch.as_tensor(steps).double().mean()),
        note=rival.note,
    )


def _clock(call: Callable[[], Any], number: int) -> tuple[float, float]:
    """Return the seconds, and the CPU seconds, of one of so many calls."""
    start, cpu_start = time.perf_counter(), time.process_time()
    for _ in range(number):
        call()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return seconds / number, cpu_seconds / number


def _fastest(call: Callable[[], Any]) -> float:
    call()
    return min(_clock(call, 1)[0] for _ in range(5))


# ------------------------------------------------------------------ memory


def _observed(call: Callable[[], Any]) -> _Trial:
    """Call once. The peak is that of the resident set above where it was (Linux only)."""
    before = _resident_after_reset()
    start, cpu_start = time.perf_counter(), time.process_time()
    answer = call()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = None if before is None else _status("VmHWM") - before
    return _Trial(seconds, cpu_seconds, answer, peak)


def _resident_after_reset() -> int | None:
    """Give freed memory back, and reset the kernel's high-water mark of this process."""
    mark = Path("/proc/self/clear_refs")
    if not mark.exists():
        return None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    mark.write_text("5")
    return _status("VmRSS")


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")

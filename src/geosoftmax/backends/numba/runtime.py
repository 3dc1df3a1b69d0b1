"""Compilation and threads, for all compiled kernels."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numba
import torch
from numba.core import event
from numba.core.registry import cpu_target

#: Work, in entries, below which threads are not worth it.
WORTH_A_THREAD = 4096
#: From this much work on, there are more parts than threads.
WORTH_BALANCING = 1 << 22
#: Seconds of compilation after which a line is printed for the user.
PATIENCE = 2.0
NOTICE = (
    "geosoftmax: compiling kernels for this machine. It happens once for each kind of cost "
    "after installing, and may take half a minute."
)

# Before any other part of numba is loaded: what it declares first it tries first, and its rules for
# arrays should come before those for strings, lists and dictionaries. Large kernels compile in two
# thirds of the time.
cpu_target.typing_context.refresh()  # pyright: ignore[reportAttributeAccessIssue]


OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a kernel that Python calls."""
    options = OPTIONS | options
    try:
        kernel = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can hold the cache: compile in this process only
        return numba.njit(**options)(function)
    discard_stale(kernel.stats.cache_path)
    return kernel


@functools.cache
def discard_stale(folder: str) -> None:
    """Remove what was compiled from other sources than those that are here.

    Numba looks at the file of a function alone, and not at the functions that it calls: after a
    change to one of these it would run the old one.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    stamp = repr(
        [(path.name, os.stat(path).st_mtime_ns, os.stat(path).st_size) for path in sources]
    )
    mark = Path(folder, "sources.txt")
    with contextlib.suppress(OSError):
        if mark.is_file() and mark.read_text() == stamp:
            return
        for old in Path(folder).glob("*.nb[ci]"):
            old.unlink(missing_ok=True)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(stamp)


def inner(
    function: Callable[..., Any],
    *,
    reassociate: bool = False,
    finite: bool = False,
    inline: bool = False,
    allocates: bool = False,
) -> Callable[..., Any]:
    """Compile a function that only kernels call: without the code to call it from Python.

    It counts no references to arrays, which would take half the time of a short row: the kernel
    keeps them. What makes or returns arrays must count, and is `allocating`.

    Only kernels are cached: they contain the functions that they call. Integers that begin as a
    constant, and are passed on, must be written ``np.int64(0)``: numba compiles a function once
    more for a literal. `reassociate` lets sums be vectorised (in one fixed order: still
    deterministic), `finite` maxima too, where no number is NaN; `inline` makes LLVM copy the
    function to where it is called.
    """
    fast = {"contract", *(["reassoc"] if reassociate else ()), *(["nnan", "nsz"] if finite else ())}
    options = {"fastmath": fast, "forceinline": inline, "_nrt": allocates}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**(OPTIONS | options))(function)


allocating = functools.partial(inner, allocates=True)


# ------------------------------------------------------------------ threads


@functools.lru_cache(maxsize=2)
def _pool(_pid: int, threads: int) -> ThreadPoolExecutor:
    """Return the pool of this process; a forked child gets one of its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="geosoftmax")


def spread(kernel: Callable[..., Any], rows: int, work: int, *arguments: Any) -> list[Any]:
    """Run ``kernel(*arguments, first, last)`` over slices of the rows; return what each returned.

    Where the slices lie depends on the number of threads: a row must not depend on its slice.
    """
    threads = 1 if work < WORTH_A_THREAD else min(torch.get_num_threads(), rows)
    if threads <= 1:
        return [kernel(*arguments, 0, rows)]
    # Long work is cut finer, so that no thread waits for another with harder rows.
    parts = threads if work < WORTH_BALANCING or rows < 64 * threads else 4 * threads
    bounds = [rows * i // parts for i in range(parts + 1)]
    pool = _pool(os.getpid(), threads)
    slices = list(itertools.pairwise(bounds))
    jobs = [pool.submit(kernel, *arguments, first, last) for first, last in slices[1:]]
    try:
        found = [kernel(*arguments, *slices[0])]
        return found + [job.result() for job in jobs]
    finally:  # after Ctrl-C too: arguments are addresses of memory that the caller then frees
        wait(jobs)


# ------------------------------------------------------------------ the notice of compiling


class CompileNotice(event.Listener):
    """Prints one line to stderr once our functions have been compiling for some seconds.

    Numba reports each compilation, but nothing that comes from its cache. A compilation contains
    those of the functions that it calls, so only the outermost one of a thread counts. Meanwhile no
    garbage is collected, which would take a sixth of the time.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self.patience = patience
        self._lock = threading.Lock()
        self._printed = False
        self._outermost = threading.local()

    def on_start(self, event: event.Event) -> None:
        """Arm the timer."""
        at = self._outermost
        at.depth = getattr(at, "depth", 0) + 1
        if at.depth > 1:
            return
        at.timer, at.collects = None, _is_ours(event) and gc.isenabled()
        if at.collects:
            gc.disable()
        if _is_ours(event) and not self._printed:
            at.timer, at.start = (
                threading.Timer(max(self.patience, 0.0), self._print),
                time.perf_counter(),
            )
            at.timer.daemon = True
            at.timer.start()

    def on_end(self, event: event.Event) -> None:
        """Stop the timer; what has been waited for so far counts towards the next."""
        at = self._outermost
        at.depth -= 1
        if at.depth:
            return
        if at.collects:
            gc.enable()
        if at.timer:
            at.timer.cancel()
            with self._lock:
                self.patience -= time.perf_counter() - at.start

    def _print(self) -> None:
        with self._lock:
            if not self._printed:
                self._printed = True
                print(NOTICE, file=sys.stderr, flush=True)


def _is_ours(compilation: event.Event) -> bool:
    function = getattr((compilation.data or {}).get("dispatcher"), "py_func", None)
    return getattr(function, "__module__", "").startswith("geosoftmax.backends.numba")


NOTICES = CompileNotice()
event.register("numba:compile", NOTICES)

"""Child processes, as tests start them, interrupt them and kill them."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import NamedTuple

#: The command line, as `kill_at_random` and `run_to_the_end` take it before their arguments.
PROGRAM = (sys.executable, "-m", "geosoftmax_experiments")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
#: Seconds in which a command has to end after a signal, and its children after it.
PATIENCE = 20.0
#: Seconds after which a command has to listen to signals: before, Python itself is starting.
LISTENING = 3.0
#: What commands print at their end, as in "Saved in …": later on, Python itself is ending.
DONE = "aved "
_MARK = "GEOSOFTMAX_TEST_PROCESS"


class Ended(NamedTuple):
    """A command that has ended: by itself with `status` 0, or by the signal `by`."""

    status: int
    output: str
    errors: str
    by: signal.Signals | None = None
    after: float = 0.0


def accept_interrupts():
    """Let a child process receive SIGINT: pass it to `subprocess.Popen` as ``preexec_fn``.

    A shell starts its background jobs with SIGINT ignored, and children inherit that. Without
    this, tests that interrupt a child would fail in a background job.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def new_random(seed=None):
    """Return a generator of moments and signals; print its seed, which pytest shows on failure."""
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    print(f"random moments: new_random({seed})")
    return random.Random(seed)


def kill_at_random(command, chance, longest, *, shortest=0.0, signals=SIGNALS, env=None):
    """Start a command, send it a random signal at a random moment, and see how it ends.

    It fails where the command ends in another way than by that signal (or with success, before it),
    prints a traceback, says nothing of how to continue, or leaves a child behind.

    Parameters
    ----------
    command : sequence
        As for `subprocess.Popen`; a command line of ours begins with `*PROGRAM`.
    chance : random.Random
        From `new_random`.
    longest, shortest : float
        The moment lies between these many seconds after the start.
    signals : sequence of signal.Signals
    env : dict, optional
        More variables of the environment.

    Returns
    -------
    Ended
    """
    by, after = chance.choice(signals), chance.uniform(shortest, longest)
    print(f"{by.name} after {after:.2f} s")
    ended = _end(command, env, by, after)
    if ended.status == 0:  # it was done before
        return ended
    if ended.status == -by and (by == signal.SIGKILL or DONE in ended.output):
        return ended
    if ended.status in (-by, 128 + by) and after < LISTENING:  # Python ends, or typer aborts
        return ended
    assert ended.status == 128 + by, f"{by.name} after {after:.2f} s: {ended}"
    assert "Traceback" not in ended.errors, ended.errors
    assert "Stopped" in ended.errors, ended.errors
    return ended


def run_to_the_end(command, *, env=None):
    """Run a command that has to succeed, and to leave no child behind; return how it ended."""
    ended = _end(command, env)
    assert ended.status == 0, ended.errors
    return ended


def _end(command, env, by=None, after=0.0):
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {}), _MARK: mark},
        preexec_fn=accept_interrupts,
    )
    try:
        if by is not None:
            try:
                process.wait(after)
            except subprocess.TimeoutExpired:
                process.send_signal(by)
        # Children that live on hold the pipes: this is where they would make a reader wait.
        output, errors = process.communicate(timeout=None if by is None else PATIENCE)
        left = _wait_for_children(mark)
        assert not left, f"children outlive the command: {left}"
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    return Ended(process.returncode, output, errors, by, after)


def _wait_for_children(mark):
    """Return the children that are still there after some seconds, with their command lines."""
    deadline = time.monotonic() + PATIENCE / 4
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def marked(mark):
    """Return the processes that have inherited a mark: their numbers, and their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={mark}".encode() in (folder / "environ").read_bytes():
                words = (folder / "cmdline").read_bytes().split(b"\0")
                found[int(folder.name)] = b" ".join(words).decode(errors="replace")
        except OSError:  # gone, or somebody else's
            continue
    return found

"""What went wrong, for the person at the command line: one line, and a hint."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NoReturn

__all__ = [
    "DEBUG",
    "Stopped",
    "Terminated",
    "UserError",
    "hold_signals",
    "plain_errors",
    "raise_on_sigterm",
]

#: Whether errors are shown with their traceback; the command line sets it anew for each command.
DEBUG: ContextVar[bool] = ContextVar("DEBUG", default=False)


class UserError(Exception):
    """A failure that its user can fix; the command line prints it without a traceback.

    Parameters
    ----------
    message : str
        Which object, what was expected, what came.
    hint : str
        What to do.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


class Terminated(KeyboardInterrupt):
    """The process was told to end (SIGTERM), as schedulers of clusters do."""


class Stopped(Exception):  # noqa: N818 - nothing went wrong
    """Long work was stopped by the signal `by`, and can go on.

    Parameters
    ----------
    done : str
        What the same command continues from.
    by : KeyboardInterrupt
    """

    def __init__(self, done: str, by: KeyboardInterrupt) -> None:
        super().__init__(done)
        self.done = done
        self.status = _status(by)


@contextlib.contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `Terminated`, so that it is handled as an interrupt from the keyboard."""

    def end(number: int, frame: Any) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the end, where what they raise would be misread."""
    if threading.current_thread() is not threading.main_thread():  # signals reach the main one
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    waiting: list[tuple[int, Any]] = []
    before = {
        number: signal.signal(number, lambda *call: waiting.append(call)) for number in numbers
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, _ in waiting[:1]:
            signal.raise_signal(number)


def _status(by: KeyboardInterrupt) -> int:
    """Return the exit status that shells have for a process that a signal ended.

    Where the interrupt came in code made of text (`exec`), Python remembers it as not handled, and
    would end itself by the signal. It forgets when it runs other such code.
    """
    exec("")
    return 128 + (signal.SIGTERM if isinstance(by, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Print an error in a line, with a hint, and end with status 1; as it is, where `DEBUG` is set.

    What nobody foresaw is printed by its name and first line.
    """
    import typer

    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except KeyboardInterrupt as error:
        typer.echo("\nStopped.", err=True)
        raise typer.Exit(_status(error)) from None
    except Stopped as error:
        typer.echo(f"\nStopped: {error.done}.\nHint: the same command continues.", err=True)
        raise typer.Exit(error.status) from None
    except Exception as error:
        if DEBUG.get() or hasattr(error, "format_message"):  # bad options: typer prints them
            raise
        message, hint = _in_a_line(error)
        typer.echo(f"Error: {message}\nHint: {hint}", err=True)
        raise typer.Exit(1) from None


def _in_a_line(error: Exception) -> tuple[str, str]:
    if isinstance(error, UserError):
        return error.message, error.hint
    if isinstance(error, ModuleNotFoundError):
        return (
            f"The package {error.name} is not installed.",
            "Install what the commands need: pip install geosoftmax-experiments "
            "(in a checkout: pip install . ./experiments).",
        )
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return (
        f"{type(error).__name__}: {first}",
        "geosoftmax --debug, before the same command, shows where it happened.",
    )

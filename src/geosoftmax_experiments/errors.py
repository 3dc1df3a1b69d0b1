"""What went wrong, for the person at the command line: one line, and a hint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import NoReturn

__all__ = ["DEBUG", "UserError", "end_stopped", "plain_errors"]

#: Whether errors are shown with their traceback; the command line sets it anew for each command.
DEBUG: ContextVar[bool] = ContextVar("DEBUG", default=False)


class UserError(Exception):
    """A failure that its user can mend; the command line prints it without a traceback.

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
    except Exception as error:
        if DEBUG.get() or hasattr(error, "format_message"):  # bad options: typer prints them
            raise
        message, hint = _in_a_line(error)
        typer.echo(f"Error: {message}\nHint: {hint}", err=True)
        raise typer.Exit(1) from None


def end_stopped(kept: str) -> NoReturn:
    """End a command that was interrupted and can go on: say what is kept."""
    import typer

    typer.echo(f"\nStopped: {kept}.\nHint: the same command continues.", err=True)
    raise typer.Exit(130) from None


def _in_a_line(error: Exception) -> tuple[str, str]:
    if isinstance(error, UserError):
        return error.message, error.hint
    if isinstance(error, ModuleNotFoundError):
        return (
            f"The package {error.name} is not installed.",
            'Install what the commands need, in the checkout: pip install ".[experiments]".',
        )
    first = (str(error).strip().splitlines() or ["no message"])[0]
    return (
        f"{type(error).__name__}: {first}",
        "geosoftmax --debug, before the same command, shows where it happened.",
    )

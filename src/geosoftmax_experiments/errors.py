"""What went wrong, for the person at the command line: one line, and a hint."""

from __future__ import annotations


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

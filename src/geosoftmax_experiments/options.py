"""The command line is parsed into frozen dataclasses: an option is a field, written once."""

from __future__ import annotations

import csv
import dataclasses
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from geosoftmax_experiments.errors import UserError

if TYPE_CHECKING:  # the command line starts fast: commands import what they need
    from geosoftmax_experiments.runs import Backend

__all__ = ["BackendOptions", "check_picture", "parsed", "read_names", "read_numbers"]


def parsed(command: Callable[[Any], None]) -> Callable[..., None]:
    """Return a command for typer whose options are the fields of the dataclass that it takes.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Greeting:
    ...     name: Annotated[str, typer.Argument(help="Whom to greet.")]
    ...     loud: Annotated[bool, typer.Option("--loud", help="In capitals.")] = False
    >>> @parsed
    ... def greet(options: Greeting) -> None:
    ...     print(options.name.upper() if options.loud else options.name)
    >>> greet(name="Ada", loud=True)
    ADA
    """
    (parameter,) = inspect.signature(command).parameters
    options = get_type_hints(command)[parameter]
    hints = get_type_hints(options, include_extras=True)
    # Its own options are listed first, then those that it shares with other commands.
    own = options.__annotations__
    fields = sorted(dataclasses.fields(options), key=lambda field: field.name not in own)

    def filled(**values: Any) -> None:
        command(options(**values))

    filled.__name__, filled.__doc__ = command.__name__, command.__doc__
    filled.__module__ = command.__module__
    filled.__annotations__ = {field.name: hints[field.name] for field in fields}
    filled.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty
                if field.default is dataclasses.MISSING
                else field.default,
                annotation=hints[field.name],
            )
            for field in fields
        ]
    )
    return filled


@dataclasses.dataclass(frozen=True, kw_only=True)
class BackendOptions:
    """Where long work is done; a base for the options of commands."""

    jobs: Annotated[
        int | None, typer.Option(help="Worker processes on this machine.", show_default="cores")
    ] = None
    backend: Annotated[str, typer.Option(help="local or dask.")] = "local"
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a dask scheduler, as in tcp://host:8786.")
    ] = None
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the results in the folder.")] = (
        False
    )

    def where(self, usual: int = -1, *, threads: bool = False) -> Backend:
        """Return the backend; on this machine with the `usual` number of jobs by default."""
        from geosoftmax_experiments.runs import Backend

        local = self.backend == "local"
        jobs = (usual if local else -1) if self.jobs is None else self.jobs
        return Backend(self.backend, jobs, self.scheduler, threads and local)


def read_names(option: str, text: str) -> tuple[str, ...]:
    """Read names that are separated by commas, each once; nothing gives nothing.

    Names that hold commas are written in double quotes, as in CSV.

    Examples
    --------
    >>> read_names("--order", '"1,5", 2')
    ('1,5', '2')
    """
    try:
        if re.search(r'(^|,)\s*"', text):
            parts = next(csv.reader([text], skipinitialspace=True, strict=True))
        else:
            parts = text.split(",")
    except csv.Error:
        raise UserError(
            f"The quotes in {option} {text} are not as in CSV.", """As in: '"1,5","2,0"'."""
        ) from None
    names = tuple(part.strip() for part in parts if part.strip())
    if len(set(names)) < len(names):
        raise UserError(f"A name comes twice in {option} {text}.", "Name each once.")
    return names


def read_numbers(option: str, text: str) -> tuple[float, ...]:
    """Read numbers that are separated by commas."""
    try:
        return tuple(float(part) for part in read_names(option, text))
    except ValueError:
        raise UserError(f"{option} {text!r} are no numbers.", f"As in: {option} 0.1,1,10") from None


def check_picture(path: Path) -> None:
    """Refuse a path that does not end as a picture."""
    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise UserError(f"{path} is no picture.", "Let it end in .png, .svg or .pdf.")

"""``geosoftmax`` and ``python -m geosoftmax_experiments``: the command line, if installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or say in one line what it lacks."""
    try:
        from geosoftmax_experiments.cli import app
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package.startswith("geosoftmax"):
            raise
        sys.exit(
            f"geosoftmax: the command line needs {package}, which is not installed. Install all "
            "that it needs: pip install geosoftmax-experiments "
            "(in a checkout: pip install . ./experiments)"
        )
    app()


if __name__ == "__main__":
    main()

"""``geosoftmax`` on the command line: runs the application, where it is installed.

A module of its own, so that ``geosoftmax --help`` does not wait for torch. The application is
another distribution, which registers the entry point ``commands`` of the group ``geosoftmax``.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points


def main() -> None:
    """Run the command line, or name in one line the distribution that brings it."""
    found = entry_points(group="geosoftmax", name="commands")
    if not found:
        sys.exit(
            "geosoftmax: the commands are in a second package: pip install geosoftmax-experiments "
            "(in a checkout: pip install . ./experiments)"
        )
    next(iter(found)).load()()

"""Scratch environments, in which a distribution is installed as its users install it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


class CommandError(Exception):
    """A command that did not succeed, with the end of what it printed."""


class Environment:
    """A virtual environment of its own, made anew."""

    def __init__(self, folder: Path, python: str) -> None:
        self.folder = folder
        call([python, "-m", "venv", "--clear", str(folder)])
        self.bin = folder / "bin"
        self.python = str(self.bin / "python")

    def install(self, *what: str, constraints: Path | None = None) -> None:
        """Install packages; `CommandError` where they cannot be had together."""
        pinned = ["-c", str(constraints)] if constraints else []
        pip = [self.python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        call([*pip, *pinned, *what])

    def versions(self) -> dict[str, str]:
        """Return the version of each installed package."""
        listed = call([self.python, "-m", "pip", "list", "--format=freeze"])
        pairs = (line.split("==", 1) for line in listed.splitlines() if "==" in line)
        return {name.lower(): version for name, version in pairs}


def clean_environ() -> dict[str, str]:
    """Return the variables of this process without those that lead to the checkout's sources."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    return {key: value for key, value in os.environ.items() if key not in hidden}


def call(command: list[str], folder: Path | None = None, status: int = 0) -> str:
    """Run a command without the checkout's own sources; return what it printed."""
    done = subprocess.run(command, cwd=folder, env=clean_environ(), capture_output=True, text=True)
    printed = done.stdout + done.stderr
    if done.returncode != status:
        raise CommandError(f"{' '.join(command)}\nended with {done.returncode}:\n{printed[-2000:]}")
    return printed

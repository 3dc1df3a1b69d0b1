"""Chromium, as benchmarks and tests of pages start it."""

import shutil
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def launch(playwright: Any) -> Any:
    """Start it, without a window and without asking anybody for anything."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)

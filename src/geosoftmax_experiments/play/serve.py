"""Open the page on this machine, and on no other."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import tempfile
from typing import Any

from rich.console import Console

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.play.gate import Gate

__all__ = ["HOST", "open_page", "run"]

HOST = "127.0.0.1"


def open_page(port: int) -> tuple[Any, str]:
    """Serve the page in threads of this process; return it and its address. ``close()`` ends it.

    The server answers what `Gate` lets through. gradio's temporary files, should there be any, lie
    in a folder that is removed when the process ends.
    """
    _check_port(port)
    folder = tempfile.mkdtemp(prefix="geosoftmax-play-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["GRADIO_TEMP_DIR"] = folder
    # Read by gradio and huggingface_hub when they are imported: nothing is reported or looked up.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        from geosoftmax_experiments.play import page
    except ModuleNotFoundError as error:
        raise UserError(
            f"The package {error.name} is not installed.",
            'Install what the page needs: pip install "geosoftmax-experiments[play]" '
            "(in a checkout, make play installs it and opens the page).",
        ) from None
    from starlette.middleware import Middleware  # pyright: ignore[reportMissingImports] (gradio's)

    blocks = page.build()
    _, address, _ = blocks.launch(
        server_name=HOST,
        server_port=port,
        share=False,
        inbrowser=False,
        quiet=True,
        prevent_thread_lock=True,
        ssr_mode=False,
        theme=page.THEME,
        css=page.CSS,
        footer_links=[],
        enable_monitoring=False,
        mcp_server=False,
        run_history=False,
        app_kwargs={"middleware": [Middleware(Gate)]},
    )
    return blocks, address


def run(port: int, browser: bool, console: Console) -> None:
    """Serve the page until it is stopped by Ctrl-C."""
    with console.status("Starting"):
        blocks, address = open_page(port)
    console.print(f"The page is at {address} (Ctrl-C ends it).", soft_wrap=True)
    if browser:
        import webbrowser

        webbrowser.open(address)
    try:
        blocks.block_thread()
    finally:
        blocks.close(verbose=False)


def _check_port(port: int) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError as error:
            raise UserError(
                f"Port {port} cannot be used: {error.strerror}.", "Choose another with --port."
            ) from None

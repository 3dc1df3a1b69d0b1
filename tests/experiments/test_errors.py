"""Errors of the command line: a line and a hint; with --debug, all of it."""

import os
import signal
import subprocess
import sys
import time

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from geosoftmax_experiments import doctor
from geosoftmax_experiments.cli import app
from geosoftmax_experiments.errors import UserError, hold_signals, raise_on_sigterm
from tests.processes import accept_interrupts


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(
    ("error", "line", "hint"),
    [
        (UserError("It is broken.", "Mend it."), "Error: It is broken.", "Hint: Mend it."),
        (ValueError("so\nlong"), "Error: ValueError: so", "geosoftmax --debug"),
        (PermissionError(13, "Permission denied", "x"), "Permission denied: 'x'", "--debug"),
        (
            ModuleNotFoundError("…", name="typer"),
            "typer is not installed",
            "geosoftmax-experiments",
        ),
        (KeyError(), "Error: KeyError: no message", "--debug"),
    ],
)
def test_any_error_is_a_line_and_a_hint(monkeypatch, error, line, hint):
    def fail(console, full):
        raise error

    monkeypatch.setattr(doctor, "run", fail)
    result = call("doctor")
    assert result.exit_code == 1
    assert line in result.output
    assert hint in result.output
    assert result.output.count("\n") == 2
    shown = call("--debug", "doctor")
    assert shown.exception is error  # as it is: Python prints its traceback
    assert call("doctor").exception is not error  # --debug was for that command alone


INTERRUPTED = """
import typer
from geosoftmax_experiments.errors import Stopped, plain_errors

def main():
    with plain_errors():
        try:
            exec("import signal; signal.raise_signal(signal.SIGINT)")
        except KeyboardInterrupt as error:
            raise Stopped("2 of 6 are stored", error) from None

typer.run(main)
"""


def test_an_interrupt_in_code_made_of_text_ends_with_the_status_of_others(tmp_path):
    """Dataclasses and compilers run such code; Python then ended itself by the signal."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=accept_interrupts,
    )
    assert "Stopped: 2 of 6 are stored" in done.stderr
    assert done.returncode == 128 + signal.SIGINT


def commands(group, path=()):
    """Yield every command with its path, groups too."""
    yield path, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


@pytest.mark.parametrize(("path", "command"), [*commands(get_command(app))])
def test_help_shows_all_that_was_written(path, command):
    """Also words in brackets, which a console may take for styles."""
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "400"})
    assert result.exit_code == 0
    shown = result.output.split()
    written = [
        command.help or "",
        *(
            getattr(option, "help", "") or ""
            for option in command.params
            if not getattr(option, "hidden", False)
        ),
    ]
    assert command.help
    missing = [
        word for text in written for word in text.replace("`", "").split() if word not in shown
    ]
    assert missing == []


@pytest.mark.parametrize("path", [[], ["demo"], ["ordinal"], ["vae"]])
def test_without_a_command_there_is_help(path):
    assert "Usage: " in call(*path).output


def test_usage_errors_are_typers_own():
    result = call("figures", "--no-such-option")
    assert result.exit_code == 2
    assert "No such option" in result.output


def test_a_signal_waits_until_what_it_would_disturb_is_done():
    done = []

    def write():
        with hold_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            done.append("written")

    with raise_on_sigterm():
        with pytest.raises(KeyboardInterrupt):  # Terminated is one
            write()
        with hold_signals():  # nothing came: nothing is raised
            done.append("again")
    assert done == ["written", "again"]

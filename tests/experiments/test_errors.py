"""Errors of the command line: a line and a hint; with --debug, all of it."""

import pytest
from typer.testing import CliRunner

from geosoftmax_experiments import doctor
from geosoftmax_experiments.cli import app
from geosoftmax_experiments.errors import UserError


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize(
    ("error", "line", "hint"),
    [
        (UserError("It is broken.", "Mend it."), "Error: It is broken.", "Hint: Mend it."),
        (ValueError("so\nlong"), "Error: ValueError: so", "geosoftmax --debug"),
        (PermissionError(13, "Permission denied", "x"), "Permission denied: 'x'", "--debug"),
        (ModuleNotFoundError("…", name="gradio"), "gradio is not installed", "[experiments]"),
        (KeyError(), "Error: KeyError: no message", "--debug"),
    ],
)
def test_any_error_is_a_line_and_a_hint(monkeypatch, error, line, hint):
    def fail(console):
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


@pytest.mark.parametrize("path", [[], ["demo"], ["ordinal"], ["vae"]])
def test_help_at_every_level_says_what_each_command_does(path):
    result = call(*path, "--help")
    assert result.exit_code == 0
    assert call(*path).output  # without a command: the same help, not silence


def test_usage_errors_are_typers_own():
    result = call("figures", "--no-such-option")
    assert result.exit_code == 2
    assert "No such option" in result.output

"""``geosoftmax demo`` draws its picture, prints certificates, and fails with one line."""

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app


def run(*arguments):
    return CliRunner().invoke(app, ["demo", "digits", *map(str, arguments)])


def test_demo_draws_and_certifies(tmp_path):
    picture = tmp_path / "new" / "demo.png"
    result = run("--output", picture, "--digits", "3")
    assert result.exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "geometric" in result.output
    assert "e-14" in result.output or "e-15" in result.output
    assert list(picture.parent.iterdir()) == [picture]  # nothing half-written stays


def test_exact_field_gives_back_the_drawing():
    import torch

    from geosoftmax_experiments.demo import solve_digit

    row = solve_digit(5, 0.1, torch.Generator().manual_seed(0))
    assert (row.from_exact[0].alpha - row.drawing).abs().sum() < 1e-8
    noisy = [(r.alpha - row.drawing).abs().sum() for r in row.from_noisy]
    assert noisy[0] < min(noisy[1:])  # geometric before softmax and sparsemax


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--digits", "x"), "no digits"),
        (("--output", "demo.txt"), ".png"),
        (("--noise", -1), "noise"),
    ],
)
def test_bad_options_are_refused_in_a_line(arguments, word):
    result = run(*arguments)
    assert result.exit_code in {1, 2}
    assert word in result.output
    assert "Traceback" not in result.output


def test_unwritable_output_is_a_line_and_a_hint(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    result = run("--output", blocker / "demo.png", "--digits", "1")
    assert result.exit_code == 1
    assert "Error: Could not make the folder" in result.output
    assert "Hint: " in result.output

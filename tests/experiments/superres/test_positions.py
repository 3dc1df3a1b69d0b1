"""Tables of positions: what is written is read, also by others; none is replaced unasked."""

import importlib.util
import json
import os
import subprocess

import numpy as np
import pytest

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.superres.positions import (
    COLUMNS,
    Movie,
    check_output,
    read_positions,
    record_settings,
    write_positions,
)
from tests.experiments.superres.test_commands import UNITS, call, stack  # noqa: F401 (a fixture)

MOVIE = Movie(9, 32, 40, 125.0)


@pytest.fixture
def rows():
    table = 100 + 3000 * np.random.default_rng(0).random((6, len(COLUMNS)))
    table[:, 0], table[:, 1] = np.arange(1, 7), [1, 1, 2, 5, 5, 9]
    return table


def test_thunderstorm_and_back(tmp_path, rows):
    path = tmp_path / "positions.csv"
    write_positions(path, rows, MOVIE)
    np.testing.assert_allclose(read_positions(path), rows[:, 1:4], atol=1e-5)
    # As ThunderSTORM itself writes it: other columns, in another order, some unknown to us.
    path.write_text('"x [nm]","id","y [nm]","frame","chi2"\n1.5,1,2.5,3,0.9\n')
    assert read_positions(path).tolist() == [[3, 1.5, 2.5]]


@pytest.mark.skipif(importlib.util.find_spec("h5py") is not None, reason="h5py is installed")
def test_picasso_needs_h5py(tmp_path, stack):  # noqa: F811
    for arguments in (
        ["localize", stack / "stack.tif", *UNITS, "-o", stack / "out.hdf5"],
        ["localize-eval", stack / "out.hdf5", stack / "truth.csv"],
    ):
        result = call(*arguments)
        assert result.exit_code == 1
        assert "which needs h5py" in result.output.replace("\n", " ")


def test_picasso_and_back(tmp_path, rows):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "positions.hdf5"
    write_positions(path, rows, MOVIE)
    np.testing.assert_allclose(read_positions(path), rows[:, 1:4], rtol=1e-5)
    with h5py.File(path) as file:
        locs = file["locs"][()]
    assert locs["frame"].tolist() == [0, 0, 1, 4, 4, 8]  # counted from 0
    np.testing.assert_allclose(locs["x"], rows[:, 2] / 125 - 0.5, rtol=1e-5)  # centres are whole
    np.testing.assert_allclose(locs["lpx"], rows[:, 8] / 125, rtol=1e-5)
    assert "Pixelsize: 125.0\n" in (tmp_path / "positions.yaml").read_text()


def test_damaged_files_of_picasso(tmp_path, rows):
    pytest.importorskip("h5py")
    path = tmp_path / "positions.hdf5"
    with pytest.raises(UserError, match="There is no file"):
        read_positions(path)
    path.write_bytes(b"no such format")
    with pytest.raises(UserError, match="could not be read as positions of Picasso"):
        read_positions(path)
    write_positions(path, rows, MOVIE)
    (tmp_path / "positions.yaml").write_text("Pixelsize: much\n")
    with pytest.raises(UserError, match="has no Pixelsize"):
        read_positions(path)
    (tmp_path / "positions.yaml").unlink()
    with pytest.raises(UserError, match="which has the size of a pixel"):
        read_positions(path)


def test_picasso_itself_reads_it(tmp_path, rows):
    """Where $GEOSOFTMAX_PICASSO names a Python that has Picasso."""
    pytest.importorskip("h5py")
    python = os.environ.get("GEOSOFTMAX_PICASSO")
    if not python:
        pytest.skip("$GEOSOFTMAX_PICASSO is not set")
    path = tmp_path / "positions.hdf5"
    write_positions(path, rows, MOVIE)
    program = (
        "import sys, json; from picasso import io; locs, info = io.load_locs(sys.argv[1]); "
        "print(json.dumps([locs['x'].tolist(), info[0]['Pixelsize']]))"
    )
    done = subprocess.run(
        [python, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    x, pixel = json.loads(done.stdout.splitlines()[-1])
    assert pixel == 125
    np.testing.assert_allclose(x, rows[:, 2] / 125 - 0.5, rtol=1e-5)


def test_other_output_is_not_replaced(tmp_path):
    path = tmp_path / "positions.csv"
    check_output(path, {"threshold": 1.0}, fresh=False)
    path.write_text("mine")
    with pytest.raises(UserError, match="nothing says how it was made"):
        check_output(path, {"threshold": 1.0}, fresh=False)
    record_settings(path, {"threshold": 1.0, "psf": {"sigma": 1.1}})
    check_output(path, {"threshold": 1.0, "psf": {"sigma": 1.1}}, fresh=False)
    with pytest.raises(UserError, match=r"other settings: threshold 1.0, now 2.0\."):
        check_output(path, {"threshold": 2.0, "psf": {"sigma": 1.1}}, fresh=False)
    check_output(path, {"threshold": 2.0}, fresh=True)


def test_the_command_replaces_its_own_alone(stack):  # noqa: F811
    out = stack / "positions.csv"
    command = ["localize", stack / "stack.tif", *UNITS, "--method", "maxima", "-o", out]
    assert call(*command, "--threshold", 1000).exit_code == 0
    before = out.read_bytes()
    refused = call(*command, "--threshold", 4000)
    assert refused.exit_code == 1
    assert "threshold 1000.0, now 4000.0" in refused.output.replace("\n", " ")
    assert out.read_bytes() == before
    assert call(*command, "--threshold", 1000).exit_code == 0
    assert call(*command, "--threshold", 4000, "--fresh").exit_code == 0
    assert out.read_bytes() != before

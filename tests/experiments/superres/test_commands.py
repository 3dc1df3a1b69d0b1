"""`geosoftmax localize` and `localize-eval`: files in, files out, errors in a line."""

import csv
import io
import itertools
import re

import numpy as np
import pandas as pd
import pytest
import tifffile
import torch
from rich.console import Console
from scipy.optimize import linprog
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.store import Store, locked
from geosoftmax_experiments.superres import picture, spread
from geosoftmax_experiments.superres.brightness import Brightness
from geosoftmax_experiments.superres.commands import words
from geosoftmax_experiments.superres.emitters import Settings
from geosoftmax_experiments.superres.localisation import find_emitters, limit_of
from geosoftmax_experiments.superres.matching import compare, flat_distance, within
from geosoftmax_experiments.superres.positions import COLUMNS, read_positions
from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.stacks import read_length, read_memory, read_stack
from geosoftmax_experiments.superres.width import Width
from tests.conftest import data_file
from tests.experiments.superres.test_emitters import scene

UNITS = ["--psf", "110nm", "--pixel", "100nm"]


def save(path, frames):
    tifffile.imwrite(path, frames, photometric="minisblack")


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def stack(tmp_path):
    """A noisy stack of 3 frames, and the table of its emitters."""
    truth, frames = scene(frames=3)
    noisy = torch.poisson(frames, generator=torch.Generator().manual_seed(0))
    save(tmp_path / "stack.tif", noisy.numpy().astype(np.uint16))
    points = 100 * truth.points.numpy().reshape(-1, 2)
    table = pd.DataFrame(
        {"frame": np.repeat([1, 2, 3], 6), "x [nm]": points[:, 0], "y [nm]": points[:, 1]}
    )
    table.to_csv(tmp_path / "truth.csv", index=False)
    return tmp_path


def test_from_stack_to_score(stack):
    out = stack / "positions.csv"
    result = call("localize", stack / "stack.tif", *UNITS, "-o", out)
    assert result.exit_code == 0, result.output
    assert "18 emitters in 3 frames" in result.output
    table = pd.read_csv(out)
    assert tuple(table.columns) == COLUMNS
    assert table["id"].tolist() == list(range(1, 19))
    assert table["intensity [photon]"].between(2500, 5500).all()
    assert table["uncovered [photon]"].between(0, 250).all()
    header, first, *_ = out.read_text().splitlines()
    assert header == ",".join(f'"{name}"' for name in COLUMNS)
    assert re.fullmatch(r"1,1(,\d+\.\d{5}){8}", first)  # numbers, without quotes
    scored = call("localize-eval", out, stack / "truth.csv", "--tolerance", "0.05um")
    assert scored.exit_code == 0, scored.output
    assert "Jaccard 1.000" in scored.output
    flat = re.search(r"RMSE ([0-9.]+) nm +flat distance ([0-9.]+) nm", scored.output)
    assert flat is not None
    assert 0 < float(flat[2]) <= float(flat[1])  # a mean of distances, all within the tolerance
    assert "--scale must be" in call("localize-eval", out, out, "--scale", "9").output
    some = call("localize-eval", out, stack / "truth.csv", "--frames", "2-3")
    assert "12 matched" in some.output
    # Tables whose numbers are quoted are read alike.
    table.astype(str).to_csv(stack / "quoted.csv", index=False, quoting=csv.QUOTE_ALL)
    assert '\n"1","1","' in (stack / "quoted.csv").read_text()
    quoted = call("localize-eval", stack / "quoted.csv", stack / "truth.csv", "--frames", "2-3")
    assert quoted.output == some.output


def test_a_stopped_run_is_continued(tmp_path, threads, monkeypatch):
    threads(1)
    _, frames = scene(frames=60)
    path, out = tmp_path / "stack.tif", tmp_path / "positions.csv"
    save(path, frames.numpy().astype(np.uint16))
    command = ["localize", path, *UNITS, "--method", "maxima", "--threshold", 1000, "-o", out]
    assert call(*command).exit_code == 0
    whole = out.read_text()
    parts = tmp_path / "positions.csv.parts"
    assert not parts.exists()

    def stop_after_the_first():
        """Run until the first batch is written; return what the command said."""
        write = Store.write

        def write_and_stop(store, key, result):
            write(store, key, result)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Store, "write", write_and_stop)
            return call(*command)

    stopped = stop_after_the_first()
    assert stopped.exit_code == 130
    assert "Stopped: 56 of 60 are kept" in stopped.output
    (kept,) = parts.glob("units/*.npy")
    rows = np.load(kept)
    assert set(rows[:, 1]) == set(range(1, 57))
    continued = call(*command)
    assert continued.exit_code == 0
    assert "in 60 frames (56 done already), " in continued.output
    assert out.read_text() == whole  # what was kept, and the four frames that were missing
    assert not parts.exists()

    # What was kept is used, unless the settings are others: those are refused, or begin afresh.
    stop_after_the_first()
    np.save(kept, rows + np.array([0, 0, 5000.0, *[0] * 7]))
    command[command.index("--threshold") + 1] = 1001
    refused = call(*command)
    assert refused.exit_code == 1
    assert "made with other settings: threshold 1000.0, now 1001.0" in refused.output
    assert call(*command, "--fresh").exit_code == 0
    assert float(pd.read_csv(out)["x [nm]"].max()) < 5000
    command[command.index("--threshold") + 1] = 1000
    out.unlink()  # it is that of the other threshold
    stop_after_the_first()
    np.save(kept, rows + np.array([0, 0, 5000.0, *[0] * 7]))
    assert call(*command).exit_code == 0
    assert float(pd.read_csv(out)["x [nm]"].max()) > 5000


def test_nothing_is_lost_or_praised_by_mistake(stack):
    path, out = stack / "stack.tif", stack / "positions.csv"
    before = path.read_bytes()
    refused = call("localize", path, *UNITS, "-o", path)
    assert refused.exit_code == 1
    assert "would replace the stack" in refused.output
    assert path.read_bytes() == before
    assert "no pixel is above it" in call("localize", path, *UNITS, "--base", 1e4, "-o", out).output
    most = call("localize", path, *UNITS, "--base", 200, "-o", out)
    assert most.exit_code == 1
    assert re.search(r"--base is 200, but \d\d % of the pixels have fewer", most.output)
    save(stack / "even.tif", np.full((1, 24, 24), 100, np.uint8))
    even = call("localize", stack / "even.tif", *UNITS, "--base", 100, "-o", out).output
    assert "no pixel is above it: the brightest has 100 counts" in even.replace("\n", " ")
    assert "positive number" in call("localize", path, *UNITS, "--threshold", -5, "-o", out).output
    assert call("localize", path, *UNITS, "-o", out).exit_code == 0
    nothing = call("localize-eval", out, stack / "truth.csv", "--frames", "100-200")
    assert nothing.exit_code == 1
    assert "no positions" in nothing.output


def test_pictures(stack):
    out = stack / "positions.csv"
    options = [*UNITS, "--method", "maxima", "-o", out, "--image"]
    for name in ("image.tif", "image.png"):
        result = call("localize", stack / "stack.tif", *options, stack / name)
        assert result.exit_code == 0, result.output
    image = tifffile.imread(stack / "image.tif")
    assert image.shape == (24 * 8, 24 * 8)
    table = pd.read_csv(out)
    assert float(image.sum()) == pytest.approx(len(table), rel=1e-3)
    row, column = np.unravel_index(image.argmax(), image.shape)
    near = np.hypot(table["x [nm]"] / 12.5 - column - 0.5, table["y [nm]"] / 12.5 - row - 0.5)
    assert float(near.min()) < 1.0
    assert (stack / "image.png").read_bytes().startswith(b"\x89PNG")
    refused = call("localize", stack / "stack.tif", *options, stack / "image.gif")
    assert refused.exit_code == 1
    assert "is no picture" in refused.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("pixel", "length", "label"), [(100.0, 500.0, "500 nm"), (160.0, 1000.0, "1 µm")]
)
def test_pictures_have_a_scale(pixel, length, label):
    total, image = np.ones((20, 30)), np.ones((160, 240))
    for axes in picture.draw(image, total, pixel).axes:
        (bar,), (text,), (shown,) = axes.lines, axes.texts, axes.images
        assert np.ptp(bar.get_xdata()) == pytest.approx(length)
        assert text.get_text() == label
        # Of both pictures, the one with finer pixels too, sides are in nm.
        assert shown.get_extent() == [0, 30 * pixel, 20 * pixel, 0]
    assert [picture.round_length(most) for most in (0.7, 1.0, 4.9, 50.0, 99.0)] == [
        0.5,
        1,
        2,
        50,
        50,
    ]


@pytest.mark.parametrize("method", ["maxima", "plain"])
def test_rivals(stack, method):
    """They find most emitters of this stack, some of which overlap; sliding finds all."""
    out = stack / "positions.csv"
    options = [*UNITS, "--method", method, "--threshold", 1000]
    result = call("localize", stack / "stack.tif", *options, "-o", out)
    assert result.exit_code == 0, result.output
    truth = read_positions(stack / "truth.csv")
    assert compare(read_positions(out), truth, 100.0).jaccard > 0.7
    dark = np.full((2, 24, 24), 90, np.uint8)
    save(stack / "dark.tif", dark)
    result = call("localize", stack / "dark.tif", *options, "-o", stack / "dark.csv")
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(stack / "dark.csv")) == 0


def test_matching_is_optimal():
    def table(*points):
        return np.array([(frame, x, 0.0) for frame, x in points])

    # Greedy matching pairs 60 with 55 and leaves 0 alone; two pairs are possible.
    result = compare(table((1, 0.0), (1, 60.0)), table((1, 55.0), (1, 120.0)), 100.0)
    assert (result.matched, result.spurious, result.missed) == (2, 0, 0)
    assert result.rmse == pytest.approx(np.sqrt((55**2 + 60**2) / 2))
    result = compare(table((1, 0.0), (2, 0.0)), table((1, 200.0), (3, 0.0)), 100.0)
    assert (result.matched, result.spurious, result.missed) == (0, 2, 2)
    assert result.jaccard == 0
    assert np.isnan(result.rmse)


def test_the_flat_metric_is_optimal_transport():
    """Against its dual, a linear program: bounded functions with slopes of at most 1."""
    rng = np.random.default_rng(0)
    for count, others in ((3, 3), (5, 2), (0, 4), (6, 7)):
        ours, true = 400 * rng.random((count, 2)), 400 * rng.random((others, 2))
        points = np.concatenate([ours, true])
        price = np.repeat([-1.0, 1.0], [count, others])
        rows, bounds = [], []
        for i, j in itertools.permutations(range(len(points)), 2):
            rows.append(np.eye(len(points))[i] - np.eye(len(points))[j])
            bounds.append(np.linalg.norm(points[i] - points[j]))
        dual = linprog(price, A_ub=np.array(rows), b_ub=bounds, bounds=(-125, 125))
        tables = [np.insert(one, 0, 1, axis=1) for one in (ours, true)]
        flat = flat_distance(*tables, 250.0) * (count + others) / 2
        assert flat == pytest.approx(-dual.fun, rel=1e-9, abs=1e-9)


def test_flat_distances_of_tables():
    table = np.array([(1, 0.0, 0.0), (2, 500.0, 0.0), (2, 900.0, 0.0)])
    assert flat_distance(table, table, 250.0) == 0
    assert flat_distance(table[:0], table, 250.0) == 250
    assert flat_distance(table, table[:0], 250.0) == 250
    far = table + np.array([0, 5000.0, 0])
    assert flat_distance(far, table, 250.0) == 250  # all vanish and appear again
    assert flat_distance(table[:0], table[:0], 250.0) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--psf", "110", "--pixel", "100nm"], "--psf must be a positive length"),
        (["--psf", "-110nm", "--pixel", "100nm"], "--psf must be a positive length"),
        (["--psf", "110nm", "--pixel", "0nm"], "--pixel must be a positive length"),
        (["--psf", "9um", "--pixel", "100nm"], "check --psf and"),
        ([*UNITS, "--background", "dark"], "--background must be a number or auto"),
        ([*UNITS, "--threshold", "-3"], "--threshold must be a positive number or auto"),
        ([*UNITS, "--fdr", "0"], "--fdr must be between 0 and 1"),
        ([*UNITS, "--fdr", "0.1", "--threshold", "9"], "--threshold and --fdr are given"),
        ([*UNITS, "--gain", "0"], "--gain must be positive"),
        ([*UNITS, "--device", "abacus"], "There is no device"),
        ([*UNITS, "--method", "guess"], "There is no method"),
        ([*UNITS, "--method", "plain", "--alike"], "does not use --alike"),
        ([*UNITS, "--alike"], "--alike needs 30 emitters that stand alone"),
    ],
)
def test_bad_options(stack, options, says):
    result = call("localize", stack / "stack.tif", *options, "-o", stack / "out.csv")
    assert result.exit_code == 1
    assert says in result.output.replace("\n", " ")
    assert not (stack / "out.csv").exists()


def test_bad_stacks(tmp_path, caplog):
    def refused(content, says, name="bad.tif"):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif content is not None:
            tifffile.imwrite(
                path, content, photometric="rgb" if content.shape[-1] == 3 else "minisblack"
            )
        result = call("localize", path, *UNITS, "-o", tmp_path / "out.csv")
        assert result.exit_code == 1, result.output
        assert says in result.output, result.output
        assert result.output.count("\n") == 2, result.output
        assert not caplog.messages  # as tifffile's own would be printed above ours

    refused(None, "There is no file", "missing.tif")
    refused(b"not a picture at all", "could not be read as a TIFF")
    png = b"\x89PNG\r\n\x1a\n" + bytes(100)
    refused(png, "It is another format: save it as an uncompressed TIFF.", "picture.png")
    save(tmp_path / "whole.tif", np.zeros((4, 32, 32), np.uint16))
    whole = (tmp_path / "whole.tif").read_bytes()
    for length in (4, 200, 3000):
        refused(whole[:length], "could not be read as a TIFF")
        refused(whole[:length], "Save it as an uncompressed TIFF again")
    with tifffile.TiffWriter(tmp_path / "pages.tif") as file:
        for _ in range(4):
            file.write(np.zeros((32, 32), np.uint16), contiguous=False, metadata=None)
    with tifffile.TiffFile(tmp_path / "pages.tif") as file:
        third = file.pages[2].offset
    cut = (tmp_path / "pages.tif").read_bytes()[:third]  # two frames are whole
    refused(cut, "after pixels of shape (2, 32, 32) a page is missing")
    refused(np.zeros((32, 32, 3), np.uint8), "grey frames")
    refused(np.zeros((2, 2, 32, 32), np.uint8), "grey frames")
    save(tmp_path / "small.tif", np.eye(3, dtype=np.uint8))  # grey, though as wide as RGB
    refused((tmp_path / "small.tif").read_bytes(), "on frames of 3 x 3")
    refused(np.zeros((32, 32), np.complex64), "pixels of type")
    refused(np.full((2, 32, 32), np.nan, np.float32), "NaN or infinite")


def test_a_small_file_that_is_a_large_stack(tmp_path):
    """Deflated, 300 frames of nothing have some kilobytes."""
    path = tmp_path / "stack.tif"
    frames = np.zeros((300, 300, 300), np.uint8)
    frames[:, 10, 10] = 200
    tifffile.imwrite(path, frames, photometric="minisblack", compression="zlib")
    assert path.stat().st_size < 400_000
    with pytest.raises(UserError, match=r"need 0.2 GB, more than 0.1 GB") as refused:
        read_stack(path, read_memory("--memory", "100MB"))
    assert "--memory 1GB" in refused.value.hint
    assert (read_stack(path, read_memory("--memory", "0.3 gb"))[0] == frames).all()
    np.save(tmp_path / "stack.npy", frames)
    with pytest.raises(UserError, match=r"more than 0.1 GB"):
        read_stack(tmp_path / "stack.npy", 10**8)
    result = call("localize", path, *UNITS, "--memory", "50 MB", "-o", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "allow them with --memory" in result.output
    for text in ("much", "0GB", "-1GB", "12", ""):
        with pytest.raises(UserError, match="--memory must be a size with its unit"):
            read_memory("--memory", text)


@pytest.mark.parametrize("value", [1e300, -1e300, 3.5e38, 1e20])
def test_pixels_that_are_no_counts(tmp_path, value):
    """Beyond float32, or so large that squares are: these gave no emitters, and no error."""
    frames = np.full((2, 24, 24), 100.0)
    frames[1, 12, 12] = value
    save(tmp_path / "stack.tif", frames)
    result = call("localize", tmp_path / "stack.tif", *UNITS, "-o", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "counts are at most 1e+15" in result.output
    assert not (tmp_path / "out.csv").exists()


def test_saturated_and_empty_stacks(tmp_path):
    frames = np.full((2, 24, 24), 90, np.uint8)
    frames[1, 10:13, 10:13] = 255
    save(tmp_path / "stack.tif", frames)
    result = call("localize", tmp_path / "stack.tif", *UNITS, "-o", tmp_path / "out.csv")
    assert result.exit_code == 0, result.output
    assert "1 frame holds saturated pixels" in result.output
    assert set(pd.read_csv(tmp_path / "out.csv")["frame"]) == {2}
    save(tmp_path / "dark.tif", frames[:1])
    result = call("localize", tmp_path / "dark.tif", *UNITS, "-o", tmp_path / "dark.csv")
    assert result.exit_code == 0, result.output
    assert len(pd.read_csv(tmp_path / "dark.csv")) == 0


def test_bad_tables(stack):
    (stack / "other.csv").write_text("a,b\n1,2\n")
    (stack / "broken.csv").write_text("frame,x [nm],y [nm]\n1,2,three\n")
    for path, says in [("other.csv", "no column"), ("broken.csv", "Line 2"), ("no.csv", "no file")]:
        result = call("localize-eval", stack / path, stack / "truth.csv")
        assert result.exit_code == 1
        assert says in result.output.replace("\n", " ")
    result = call("localize-eval", stack / "truth.csv", stack / "truth.csv", "--frames", "3")
    assert "the first and the last frame" in result.output


def test_lengths():
    assert read_length("x", "0.11um") == pytest.approx(110)
    assert read_length("x", "1e2 nm") == 100


def test_threads_find_the_same(threads):
    frames = scene(frames=120)[1].numpy()
    settings = Settings(psf=Gaussian(1.1), threshold=1000.0)
    tables = []
    for count in (1, 3):
        threads(count)
        tables.append(find_emitters(frames, settings, method="maxima", pixel=100.0))
        assert torch.get_num_threads() == count
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-5)


def test_numpy_stacks(stack):
    frames = tifffile.imread(stack / "stack.tif")
    np.save(stack / "stack.npy", frames)
    for name in ("stack.tif", "stack.npy"):
        out = stack / f"{name}.csv"
        assert call("localize", stack / name, *UNITS, "-o", out).exit_code == 0
    assert (stack / "stack.tif.csv").read_text() == (stack / "stack.npy.csv").read_text()
    (stack / "bad.npy").write_bytes(b"no array")
    for name, says in [("bad.npy", "could not be read as a NumPy array"), ("no.npy", "no file")]:
        result = call("localize", stack / name, *UNITS, "-o", stack / "out.csv")
        assert result.exit_code == 1
        assert says in result.output.replace("\n", " ")


@pytest.mark.data
@pytest.mark.slow
def test_published_frames(tmp_path):
    """Two frames of the published stack; what is reported is measured on frames 11 to 20."""
    whole = tifffile.imread(data_file("smlm", "ArtificialDataset_demo1.tif"))
    save(tmp_path / "stack.tif", whole[:2])
    out = tmp_path / "positions.csv"
    options = [*UNITS, "--sampled", "--gain", 2, "--base", 100]
    result = call("localize", tmp_path / "stack.tif", *options, "-o", out)
    assert result.exit_code == 0, result.output
    truth = read_positions(data_file("smlm", "positions_demo1.csv"))
    agreement = compare(read_positions(out), within(truth, 1, 2), 100.0)
    said = re.search(
        r"Emitters are alike: (\d+) ± \d+ photons. The \d+ that stand alone have a mean between "
        r"(\d+) and (\d+)", result.output.replace("\n", " ")
    )  # fmt: skip
    assert said is not None
    assert 2000 < int(said[2]) < int(said[1]) < int(said[3]) < 2500
    assert re.search(r"threshold \d{3,4} photons, \d\.\d % false ones expected", result.output)
    assert agreement.jaccard > 0.93
    assert agreement.rmse < 23


def test_what_rivals_find_has_no_expected_share_of_false_emitters(stack):
    out = stack / "rival.csv"
    ours = call("localize", stack / "stack.tif", *UNITS, "-o", stack / "ours.csv")
    assert "false ones expected" in ours.output
    rival = call("localize", stack / "stack.tif", *UNITS, "--method", "maxima", "-o", out)
    assert rival.exit_code == 0, rival.output
    assert "false ones" not in rival.output


def test_a_threshold_that_no_rate_lowers_is_named():
    psf = Gaussian(1.1)
    assert not limit_of(Settings(psf=psf, threshold=57.0, noise=10.0))
    assert "4 standard deviations of the noise" in limit_of(
        Settings(psf=psf, threshold=40.0, noise=10.0)
    )
    known = Brightness(1000.0, 50.0, 100)
    assert "at least 0.4 of the mean" in limit_of(
        Settings(psf=psf, threshold=400.0, noise=10.0, brightness=known)
    )


def test_settings_are_in_photons():
    known = Brightness(1000.0, 50.0, 100)
    settings = Settings(
        psf=Gaussian(1.1), threshold=400.0, noise=10.0, base=100.0, brightness=known
    )
    found = words(settings, {"gain": 2.0, "background": 140.0, "pixel": 100.0}, "digest")
    assert (found["threshold"], found["noise"], found["background"]) == (200.0, 5.0, 20.0)
    assert found["brightness"] == {"mean": 500.0, "spread": 25.0, "number": 100}
    assert found["psf"] == {"sigma": 1.1, "sampled": False}


def test_a_second_process_is_refused_before_anything_is_measured(stack, monkeypatch):
    def measure(*_, **__):
        raise AssertionError("it measured")

    monkeypatch.setattr(spread, "find_width", measure)
    folder = stack / "out.csv.parts"
    folder.mkdir()
    with locked(folder):
        refused = call("localize", stack / "stack.tif", *UNITS, "-o", stack / "out.csv")
    assert refused.exit_code == 1
    assert "is in use by" in refused.output.replace("\n", " ")


@pytest.mark.parametrize("base", [None, 0.0])
def test_a_missing_base_is_named_where_it_is_why_widths_differ(monkeypatch, base):
    """Widths that were found with the base of the darkest pixels, and without."""
    widths = {True: Width(1.3, 0.005, 100, None), False: Width(1.1, 0.005, 100, None)}
    monkeypatch.setattr(spread, "find_width", lambda frames, dark, **_: widths[dark == 0])
    frames = np.full((2, 32, 32), 98.0)
    said = io.StringIO()
    camera = spread.Camera(100.0, base, None)
    spread.choose_psf("110nm", frames, camera, 10**9, Console(file=said, width=400))
    assert "does not fit the frames" in said.getvalue() or base is None
    assert ("--base is not given. If a pixel without light counts about 98" in said.getvalue()) is (
        base is None
    )


@pytest.mark.parametrize(
    ("sampled", "says"),
    [
        (None, "if pixels integrate it, which is assumed, or 116 nm if they sample it"),
        (True, "112 ± 1 nm wide, and pixels sample it"),
        (False, "112 ± 1 nm wide, and pixels integrate it"),
    ],
)
def test_how_pixels_see_is_said_once(monkeypatch, sampled, says):
    monkeypatch.setattr(spread, "find_width", lambda *_, **__: Width(1.12, 0.005, 100, sampled))
    said = io.StringIO()
    console = Console(file=said, width=400)
    spread.choose_psf("auto", np.zeros((1, 32, 32)), spread.Camera(100.0, 0.0, None), 1, console)
    assert says in said.getvalue()
    assert ("too dim to tell" in said.getvalue()) is (sampled is None)

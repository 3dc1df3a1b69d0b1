"""Every reader of the application, run on every file of the hostile corpus.

Each ends with an error of ours, a line and a hint, and with a status that is not 0. No code in a
file runs, no program is started, and memory stays small.
"""

import contextlib
import functools
import hashlib
import importlib
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from typer.testing import CliRunner

from geosoftmax_experiments.cli import app
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.figures import stored
from geosoftmax_experiments.keypoints.saved import Description
from geosoftmax_experiments.keypoints.saved import save_model as save_keypoints
from geosoftmax_experiments.ordinal.encoding import Column
from geosoftmax_experiments.ordinal.saved import OrdinalModel, _checksum, save_model
from geosoftmax_experiments.store import ARRAY, Store
from geosoftmax_experiments.superres.commands import words
from geosoftmax_experiments.superres.localisation import choose_settings
from geosoftmax_experiments.superres.psf import Gaussian
from geosoftmax_experiments.superres.stacks import read_stack
from geosoftmax_experiments.vae.checkpoints import STATE, WEIGHTS, FolderIO, latest
from tests import hostile
from tests.experiments.keypoints.projects import write_project
from tests.experiments.superres.test_emitters import scene

#: Megabytes that a refusal may take: the bombs have a gigabyte or more.
MOST_MEMORY = 200
TRAIN = ["--limit", 60, "--epochs", 1, "--batch", 16, "--accelerator", "cpu"]
COMPARE = ["--losses", "softmax", "--weights", 1, "--seeds", 1, "--jobs", 1]
LOCALIZE = ["--psf", "110nm", "--pixel", "100nm", "--method", "maxima", "--threshold", 1000]

INSTALLED = stored.STORED
READERS = {}


def reader(*aimed):
    """Register a function that puts a file where a command will read it, and returns the command.

    Files whose names begin with one of `aimed` are meant for it.
    """

    def register(function):
        READERS[function.__name__.replace("_", " ")] = function, aimed
        return function

    return register


def call(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(hostile.MARKER, str(folder / "marker"))
        yield functools.cache(lambda kind: hostile.write(folder / kind, kind))


class Made:
    """What commands have made of good data; each is made when it is first asked for."""

    def __init__(self, folder):
        self.folder = folder

    @functools.cached_property
    def table(self):
        path = self.folder / "good.csv"
        path.write_text("a,b,rating\n1,2,0\n3,4,1\n")
        return path

    @functools.cached_property
    def model(self):
        arrays = {"coef": np.eye(2), "intercept": np.ones(2), "mean": np.ones(2)}
        columns, spread = [Column("rating"), Column("b")], np.ones(2)
        model = OrdinalModel("class", [0, 1], columns, 1.0, 1.0, "median", **arrays, spread=spread)
        save_model(model, self.folder / "model")
        return self.folder / "model"

    @functools.cached_property
    def stack(self):
        frames = scene(frames=3)[1].numpy().astype(np.uint16)
        tifffile.imwrite(self.folder / "stack.tif", frames, photometric="minisblack")
        return self.folder / "stack.tif"

    @functools.cached_property
    def positions(self):
        path = self.folder / "positions.csv"
        path.write_text("frame,x [nm],y [nm]\n1,20,30\n")
        return path

    @functools.cached_property
    def ordinal(self):
        return self._by(ordinal_compare(self.folder / "ordinal"))

    @functools.cached_property
    def run(self):
        return self._by(["vae", "train", *TRAIN, "-o", self.folder / "run"])

    @functools.cached_property
    def vae(self):
        return self._by(["vae", "compare", *TRAIN, *COMPARE, "-o", self.folder / "vae"])

    @functools.cached_property
    def project(self):
        write_project(self.folder / "project")
        return self.folder / "project"

    @functools.cached_property
    def keypoints(self):
        description = Description("softmax", {"width": 1.0}, "mode", (8, 12), 4, ("nose", "tail"))
        save_keypoints(description.build(), description, self.folder / "keypoints")
        return self.folder / "keypoints"

    @functools.cached_property
    def heat_maps(self):
        options = ["--data", self.project, *KEYPOINTS]
        return self._by(["keypoints", "compare", *options, "-o", self.folder / "heat-maps"])

    def _by(self, command):
        result = call(*command)
        assert result.exit_code == 0, result.output
        return command[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made"))


KEYPOINTS = ["--longest", 16, "--width", 4, "--steps", 2, "--batch", 2, "--device", "cpu"]
KEYPOINTS += ["--losses", "softmax", "--settings", 1, "--sizes", 8, "--kinds", "random"]
KEYPOINTS += ["--splits", 1, "--jobs", 1]


def ordinal_compare(folder):
    chosen = ["--sets", "ESL", "--models", "ridge", "--folds", 1, "--quick", "--jobs", 1]
    return ["ordinal", "compare", "--source", "skordinal", *chosen, "-o", folder]


# ------------------------------------------------------------------ the readers


@reader("csv", "latin")
def table_csv(file, made, here):
    shutil.copy(file, here / "table.csv")
    return ["ordinal", "fit", here / "table.csv", "--target", "rating", "-o", here / "out"]


@reader("parquet")
def table_parquet(file, made, here):
    shutil.copy(file, here / "table.parquet")
    return ["ordinal", "fit", here / "table.parquet", "--target", "rating", "-o", here / "out"]


def predict(made, here, table=None):
    table = table or made.table
    return ["ordinal", "predict", here / "model", table, "-o", here / "out.csv"]


@reader("parquet-truncated")
def table_to_predict(file, made, here):
    shutil.copytree(made.model, here / "model")
    shutil.copy(file, here / "table.parquet")
    return predict(made, here, here / "table.parquet")


@reader("csv", "latin")
def text_to_predict(file, made, here):
    shutil.copytree(made.model, here / "model")
    shutil.copy(file, here / "table.csv")
    return predict(made, here, here / "table.csv")


@reader("json")
def model_words(file, made, here):
    shutil.copytree(made.model, here / "model")
    shutil.copy(file, here / "model" / "model.json")
    return predict(made, here)


@reader("tensors")
def model_numbers(file, made, here):
    """The checksums are right: who sends a model can compute them."""
    shutil.copytree(made.model, here / "model")
    shutil.copy(file, here / "model" / "model.safetensors")
    words = json.loads((here / "model" / "model.json").read_text())
    words |= {"tensors_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    del words["sha256"]
    words["sha256"] = _checksum(words)
    (here / "model" / "model.json").write_text(json.dumps(words))
    return predict(made, here)


@reader("words")
def survey(file, made, here):
    folder = here / "ordinal-regression" / "toy" / "matlab"
    folder.mkdir(parents=True)
    shutil.copy(file, folder / "train_toy.0")
    (folder / "test_toy.0").write_text("0.1 0.2 1\n")
    os.environ["GEOSOFTMAX_DATA"] = str(here)
    return ["ordinal", "compare", "--sets", "toy", "--quick", "--jobs", 1, "-o", here / "out"]


@reader("json")
def ordinal_settings(file, made, here):
    shutil.copytree(made.ordinal, here / "ordinal")
    shutil.copy(file, here / "ordinal" / "settings.json")
    return ordinal_compare(here / "ordinal")


@reader("json")
def ordinal_unit(file, made, here):
    shutil.copytree(made.ordinal, here / "ordinal")
    (unit,) = (here / "ordinal" / "units").iterdir()
    shutil.copy(file, unit)
    return ordinal_compare(here / "ordinal")


def drawings(data, here):
    return ["vae", "train", "--data", data, "--accelerator", "cpu", "-o", here / "out"]


@reader("png", "eps", "gif")
def picture_png(file, made, here):
    (here / "pictures").mkdir()
    for k in range(12):
        hostile.picture(here / "pictures" / f"{k:02}.png")
    shutil.copy(file, here / "pictures" / "05.png")
    return drawings(here / "pictures", here)


@reader("jpeg", "webp", "tiff", "eps")
def picture_jpeg(file, made, here):
    (here / "pictures").mkdir()
    shutil.copy(file, here / "pictures" / "one.jpg")
    return [*drawings(here / "pictures", here), "--size", 8]


@reader("npy")
def bitmaps(file, made, here):
    shutil.copy(file, here / "bitmaps.npy")
    return drawings(here / "bitmaps.npy", here)


@reader("strokes", "json-deep")
def strokes(file, made, here):
    shutil.copy(file, here / "strokes.ndjson")
    return drawings(here / "strokes.ndjson", here)


@reader("gzip")
def mnist(file, made, here):
    (here / "mnist").mkdir()
    for part in ("train", "t10k"):
        shutil.copy(file, here / "mnist" / f"{part}-images-idx3-ubyte.gz")
    os.environ["GEOSOFTMAX_DATA"] = str(here)
    return drawings("mnist", here)


@reader("gzip", "xz")
def newsgroups(file, made, here):
    (here / "newsgroups").mkdir()
    shutil.copy(file, here / "newsgroups" / "20news-bydate.tar.gz")
    os.environ["GEOSOFTMAX_DATA"] = str(here)
    return ["taxonomy", "compare", "--jobs", 1, "-o", here / "out"]


def run_with(made, here, name, file):
    """Copy the run; put a file in place of one of its own."""
    shutil.copytree(made.run, here / "run")
    place = here / "run" / name if name not in (STATE, WEIGHTS) else latest(here / "run") / name
    shutil.copy(file, place)
    return here / "run"


@reader("json")
def settings_of_a_run(file, made, here):
    return ["vae", "sample", run_with(made, here, "run.json", file), "-o", here / "out.png"]


@reader("json-list", "json-deep")
def settings_of_a_run_that_goes_on(file, made, here):
    return ["vae", "train", *TRAIN, "-o", run_with(made, here, "run.json", file)]


@reader("tensors", "pickle")
def weights(file, made, here):
    return ["vae", "sample", run_with(made, here, WEIGHTS, file), "-o", here / "out.png"]


@reader("json")
def measurements(file, made, here):
    return ["vae", "train", *TRAIN, "-o", run_with(made, here, "metrics.jsonl", file)]


def compared_with(made, here, name, file):
    shutil.copytree(made.vae, here / "vae")
    shutil.copy(file, here / "vae" / name)
    return ["vae", "compare", *TRAIN, *COMPARE, "-o", here / "vae"]


@reader()
def vae_settings(file, made, here):
    return compared_with(made, here, "settings.json", file)


@reader()
def vae_timing(file, made, here):
    return compared_with(made, here, "timing.json", file)


@reader()
def vae_unit(file, made, here):
    return compared_with(made, here, "units/softmax.w1.s0.json", file)


@reader("tensors", "pickle")
def judge_of_samples(file, made, here):
    return compared_with(made, here, "judge.safetensors", file)


@reader("json")
def choice_of_a_scale(file, made, here):
    (here / "chosen").mkdir()
    shutil.copy(file, here / "chosen" / "choice.json")
    return ["vae", "train", *TRAIN, "--chosen", here / "chosen", "-o", here / "out"]


def results_with(here, name, file):
    (here / "results").mkdir()
    for kept in ("results.json", "pictures.npz"):
        source = file if kept == name else INSTALLED / "mnist" / kept
        shutil.copy(source, here / "results" / kept)
    return here / "results"


@reader("json")
def results(file, made, here):
    return ["vae", "report", results_with(here, "results.json", file), "-o", here / "out"]


@reader("zip", "npy-objects")
def drawings_of_results(file, made, here):
    return ["vae", "report", results_with(here, "pictures.npz", file), "-o", here / "out"]


@reader("csv", "latin")
def labels_of_frames(file, made, here):
    shutil.copytree(made.project, here / "project")
    shutil.copy(file, here / "project" / "labeled-data" / "v1" / "CollectedData_Ada.csv")
    return ["keypoints", "compare", "--data", here / "project", *KEYPOINTS, "-o", here / "out"]


@reader("png", "eps", "gif")
def labelled_frame(file, made, here):
    shutil.copytree(made.project, here / "project")
    shutil.copy(file, here / "project" / "labeled-data" / "v1" / "img005.png")
    return ["keypoints", "compare", "--data", here / "project", *KEYPOINTS, "-o", here / "out"]


def predict_points(made, here):
    frames = made.project / "labeled-data" / "v1"
    return ["keypoints", "predict", here / "model", frames, "-o", here / "out.csv"]


@reader("json")
def keypoints_words(file, made, here):
    shutil.copytree(made.keypoints, here / "model")
    shutil.copy(file, here / "model" / "model.json")
    return predict_points(made, here)


@reader("tensors", "pickle")
def keypoints_weights(file, made, here):
    """The checksum is right: who sends a model can compute it."""
    shutil.copytree(made.keypoints, here / "model")
    shutil.copy(file, here / "model" / "model.safetensors")
    words = json.loads((here / "model" / "model.json").read_text())
    words["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (here / "model" / "model.json").write_text(json.dumps(words))
    return predict_points(made, here)


@reader("json")
def keypoints_unit(file, made, here):
    shutil.copytree(made.heat_maps, here / "out")
    shutil.copy(file, here / "out" / "units" / "trial.random.8.softmax.width=1.json")
    return ["keypoints", "compare", "--data", made.project, *KEYPOINTS, "-o", here / "out"]


@reader("tiff")
def stack_tiff(file, made, here):
    shutil.copy(file, here / "stack.tif")
    return ["localize", here / "stack.tif", *LOCALIZE, "-o", here / "out.csv"]


@reader("npy", "pickle", "zip-bomb")
def stack_npy(file, made, here):
    shutil.copy(file, here / "stack.npy")
    return ["localize", here / "stack.npy", *LOCALIZE, "-o", here / "out.csv"]


@reader("tiff")
def beads_tiff(file, made, here):
    shutil.copy(file, here / "beads.tif")
    psf = ["--psf", here / "beads.tif", *LOCALIZE[2:]]
    return ["localize", made.stack, *psf, "-o", here / "out.csv"]


@reader("npy", "pickle", "zip-bomb")
def beads_npy(file, made, here):
    shutil.copy(file, here / "beads.npy")
    psf = ["--psf", here / "beads.npy", *LOCALIZE[2:]]
    return ["localize", made.stack, *psf, "-o", here / "out.csv"]


@reader("csv")
def table_of_a_spread_function(file, made, here):
    shutil.copy(file, here / "psf.csv")
    psf = ["--psf", here / "psf.csv", *LOCALIZE[2:]]
    return ["localize", made.stack, *psf, "-o", here / "out.csv"]


@reader("npy")
def part_of_a_stack(file, made, here):
    frames, _ = read_stack(made.stack)
    settings = choose_settings(frames, Gaussian(1.1), threshold=1000.0, alike=False)
    choices = {"method": "maxima", "pixel": 100.0, "gain": 1.0, "background": None, "device": "cpu"}
    digest = hashlib.sha256(made.stack.read_bytes()).hexdigest()
    made_with = words(settings, choices, digest)
    with Store(here / "out.csv.parts", made_with, ARRAY).opened():
        shutil.copy(file, here / "out.csv.parts" / "units" / "frames-0000000.npy")
    return ["localize", made.stack, *LOCALIZE, "-o", here / "out.csv"]


@reader("csv")
def positions(file, made, here):
    shutil.copy(file, here / "positions.csv")
    return ["localize-eval", here / "positions.csv", made.positions]


@reader("gzip", "npy")
def positions_of_picasso(file, made, here):
    with contextlib.suppress(ImportError):  # where it is installed; its import starts uname
        importlib.import_module("h5py")
    shutil.copy(file, here / "positions.hdf5")
    (here / "positions.yaml").write_text("Pixelsize: 100\n")
    return ["localize-eval", here / "positions.hdf5", made.positions]


@reader("json")
def how_a_table_was_made(file, made, here):
    shutil.copy(made.positions, here / "out.csv")
    shutil.copy(file, here / "out.csv.json")
    return ["localize", made.stack, *LOCALIZE, "-o", here / "out.csv"]


@reader("gzip", "csv-quote")
def true_positions(file, made, here):
    shutil.copy(file, here / "truth.csv.gz")
    return ["localize-eval", made.positions, here / "truth.csv.gz"]


@reader("json-list")
def installed_results(file, made, here):
    (here / "stored").mkdir()
    results_with(here / "stored", "results.json", file).rename(here / "stored" / "mnist")
    stored.STORED = here / "stored"
    return ["figures", "mnist", "-o", here / "out"]


@reader("zip-objects")
def installed_drawings(file, made, here):
    (here / "stored").mkdir()
    results_with(here / "stored", "pictures.npz", file).rename(here / "stored" / "mnist")
    stored.STORED = here / "stored"
    return ["figures", "mnist", "-o", here / "out"]


# ------------------------------------------------------------------ the test


WATCHED = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen")
started: list[str] | None = None


def _watch(event, arguments):
    if started is not None and event in WATCHED:
        started.append(f"{event}: {arguments[:2]}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def nothing_started():
    """See that no program is started, but for git, which tells our own commit."""
    global started
    started = []
    try:
        yield
        assert [found for found in started if "'git'" not in found] == []
    finally:
        started = None


def peak():
    """Return the most memory since the last call, in megabytes; 0 where it cannot be told."""
    try:
        status = Path("/proc/self/status").read_text()
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return 0
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def complaint(result, before):
    """Say what is wrong with the end of a command; None if nothing is."""
    lines = result.output.splitlines()
    if result.exit_code == 0:
        return "it was read"
    if not isinstance(result.exception, SystemExit):
        return f"a traceback: {result.exception!r}"
    error = [line for line in lines if line.startswith("Error: ")]
    if len(error) != 1 or lines[-2:-1] != error or not lines[-1].startswith("Hint: "):
        return f"not a line and a hint: {lines[-4:]}"
    if "--debug, before" in lines[-1]:
        return f"an error that nobody foresaw: {error}"
    if (more := peak() - before) > MOST_MEMORY:
        return f"it took {more} MB"
    return None


#: Read without harm: a TIFF whose one page is whole, whatever its suffix; the loop is not followed.
READ = {("picture png", "tiff-loop")}


def cases():
    """Each reader with the files that are meant for it, and with all others: some minutes."""
    for name, (_, aimed) in READERS.items():
        meant = [kind for kind in hostile.CORPUS if aimed and kind.startswith(("empty", *aimed))]
        others = [kind for kind in hostile.CORPUS if kind not in meant]
        if meant:
            yield pytest.param(name, meant, id=f"{name}, meant")
        yield pytest.param(name, others, id=f"{name}, others", marks=pytest.mark.slow)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning on torch 2.13
@pytest.mark.parametrize(("name", "kinds"), [*cases()])
def test_every_file_is_refused_in_a_line(name, kinds, corpus, made, tmp_path, monkeypatch):
    monkeypatch.setenv("GEOSOFTMAX_DATA", str(tmp_path))
    monkeypatch.setattr(stored, "STORED", INSTALLED)
    place, _ = READERS[name]
    complaints = {}
    for kind in kinds:
        here = tmp_path / kind
        here.mkdir()
        command = place(corpus(kind), made, here)
        monkeypatch.chdir(here)
        peak()
        before = peak()
        with nothing_started():
            result = call(*command)
        if (found := complaint(result, before)) and (name, kind) not in READ:
            complaints[kind] = found
        assert not Path(os.environ[hostile.MARKER]).exists(), kind
        assert not list(tmp_path.rglob("pwned*")), kind
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(here)
    assert complaints == {}


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # Lightning on torch 2.13
def test_states_of_checkpoints(corpus, made, tmp_path):
    """What training goes on from: not by the command, which takes a second to get there."""
    folder = shutil.copytree(latest(made.run), tmp_path / "epoch-000001")
    for kind in hostile.CORPUS:
        shutil.copy(corpus(kind), folder / STATE)
        with nothing_started(), pytest.raises(UserError, match=r"state.pt is"):
            FolderIO().load_checkpoint(folder)
        assert not Path(os.environ[hostile.MARKER]).exists()


def test_the_corpus_would_do_harm(corpus, tmp_path):
    """The pickles run code where they are trusted; the bombs are what they say."""
    marker = Path(os.environ[hostile.MARKER])
    for kind, load in {
        "pickle": lambda path: np.load(path, allow_pickle=True),
        "npy-objects": lambda path: np.load(path, allow_pickle=True),
        "torch-code": lambda path: torch.load(path, weights_only=False),
    }.items():
        load(corpus(kind))
        assert marker.read_text() == "it ran", kind
        marker.unlink()
    with tifffile.TiffFile(corpus("tiff-bomb")) as file:
        assert file.series[0].nbytes == 2**31
    for kind in hostile.CORPUS:
        assert corpus(kind).stat().st_size < 5_000_000, kind

"""Train one run in its folder, and continue it there.

The folder holds ``run.json`` (settings), ``metrics.jsonl`` (a line for each measurement),
``checkpoints/`` and, where asked for, ``tensorboard/``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.callbacks import Callback, Checkpoint, RichProgressBar
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.utilities.exceptions import SIGTERMException

from geosoftmax_experiments import files
from geosoftmax_experiments.data.drawings import Drawings
from geosoftmax_experiments.errors import Terminated, UserError
from geosoftmax_experiments.runs import end_with, quiet
from geosoftmax_experiments.store import claim, locked
from geosoftmax_experiments.vae.checkpoints import STATE, FolderIO, latest
from geosoftmax_experiments.vae.measures import MEASURES
from geosoftmax_experiments.vae.module import DrawingVAE
from geosoftmax_experiments.vae.settings import RunSettings

__all__ = ["Machine", "read_metrics", "time_steps", "train"]

#: Steps that do not count when steps are timed.
WARM_UP = 5
#: The variable that tells the processes of a run which one has started them.
PARENT = "GEOSOFTMAX_PARENT"
#: What every measurement holds.
SHOWN = {"epoch", "step", "seconds", "seconds_per_step", *MEASURES}


@dataclass(frozen=True)
class Machine:
    """Where and how a run is done: nothing that its result depends on, but for rounding.

    `accelerator`, `devices`, `nodes` and `strategy` are Lightning's. A checkpoint is written at the
    end of an epoch when `save_seconds` have passed since the last. Where that is possible, on one
    GPU, steps are recorded once and then replayed.
    """

    accelerator: str = "auto"
    devices: str = "1"
    nodes: int = 1
    strategy: str = "auto"
    save_seconds: float = 30.0
    talk: bool = True  # progress bar and TensorBoard
    replay: bool = True

    @property
    def on_gpu(self) -> bool:
        """Whether Lightning takes a GPU."""
        return torch.cuda.is_available() and self.accelerator != "cpu"


def train(
    settings: RunSettings, drawings: Drawings, folder: Path, machine: Machine, patience: float = 0.0
) -> Path:
    """Train a run, or what is left of it; return the path of its metrics.

    The folder is locked meanwhile. Where another process is there, `patience` seconds pass before
    that is an error.
    """
    module = DrawingVAE(settings, drawings, replay=machine.replay)
    metrics = folder / "metrics.jsonl"
    with _quiet(), _deterministic():
        callbacks = [
            Recorder(metrics),
            Saver(folder / "checkpoints", machine.save_seconds),
            Signals(),
        ]
        # Made first: settings that Lightning refuses leave no folder behind.
        trainer = _trainer(settings, machine, folder, callbacks, log_every_n_steps=module.logged)
        with _first_process(trainer, folder, patience):
            claim(folder / "run.json", asdict(settings), holds_results=metrics.exists())
            last = latest(folder)
            if last is None or last.name != _checkpoint_name(settings.epochs):
                _fit(trainer, module, last if last and (last / STATE).exists() else None)
    return metrics


@contextlib.contextmanager
def _first_process(trainer: pl.Trainer, folder: Path, patience: float) -> Iterator[None]:
    """Lock the folder, in the first process of a run; the others end with the one before them."""
    files.make_folder(folder)
    if trainer.is_global_zero:
        with locked(folder, patience):
            for place in (folder, folder / "checkpoints"):
                files.remove_partial(place)
            if trainer.world_size > 1:
                os.environ[PARENT] = str(os.getpid())
            yield
    else:
        if PARENT in os.environ:  # not where a launcher of a cluster has started it
            end_with(int(os.environ[PARENT]))
        yield


def _fit(trainer: pl.Trainer, module: DrawingVAE, start: Path | None = None) -> None:
    """Train, from a checkpoint where there is one. A signal raises what it would elsewhere."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        trainer.fit(module, ckpt_path=start)
    except SystemExit as error:  # what Lightning makes of a KeyboardInterrupt, or of a SIGTERM
        behind = error.__context__
        if isinstance(error, SIGTERMException) or isinstance(behind, SIGTERMException):
            behind = Terminated()  # its own handler was there still: `Signals` comes later
        if not isinstance(behind, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)  # which it has let be ignored
        raise behind from None
    finally:
        module.forget_step()


def time_steps(settings: RunSettings, drawings: Drawings, machine: Machine, steps: int) -> float:
    """Return the seconds of a step of training, with all that belongs to it; nothing is kept."""
    module, clock = DrawingVAE(settings, drawings, replay=machine.replay), Clock()
    several = replace(settings, epochs=-(-(steps + WARM_UP) // module.steps), every=1)
    with _quiet(), _deterministic():
        trainer = _trainer(
            several, replace(machine, talk=False), Path(), [clock],
            max_steps=steps + WARM_UP, limit_val_batches=0,
        )  # fmt: skip
        _fit(trainer, module)
    return clock.seconds / steps


def _trainer(
    settings: RunSettings, machine: Machine, folder: Path, callbacks: list[Callback], **others: Any
) -> pl.Trainer:
    """Return Lightning's trainer."""
    logger = TensorBoardLogger(folder, name="", version="tensorboard") if machine.talk else False
    several = machine.devices not in ("1", "auto") or machine.nodes > 1
    try:
        return pl.Trainer(
            accelerator=machine.accelerator,
            devices=machine.devices,
            num_nodes=machine.nodes,
            strategy=machine.strategy,
            precision=settings.precision,  # type: ignore[arg-type]
            sync_batchnorm=several and torch.cuda.is_available(),
            max_epochs=settings.epochs,
            check_val_every_n_epoch=settings.every,
            num_sanity_val_steps=0,
            logger=logger,
            callbacks=[*callbacks, *([Bar()] if machine.talk else [])],
            enable_progress_bar=machine.talk,
            enable_model_summary=False,
            plugins=[FolderIO()],
            enable_checkpointing=any(isinstance(callback, Saver) for callback in callbacks),
            **others,
        )
    except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
        raise UserError(
            f"Lightning refuses these settings: {str(error).splitlines()[0]}",
            "See --accelerator, --devices, --strategy and --precision.",
        ) from None


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the measurements of a run."""
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf8").splitlines()]
    except (ValueError, OSError, RecursionError):
        rows = []
    if not rows or not all(isinstance(row, dict) and not SHOWN - row.keys() for row in rows):
        raise UserError(f"{path} is damaged.", "Train again, into another folder.")
    return rows


class Bar(RichProgressBar):
    """A progress bar that counts from one, without the name of the logger's folder.

    It moves when something is logged: what it shows is read from the GPU, which waits for it.
    """

    def __init__(self) -> None:
        super().__init__(refresh_rate=10)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *others: Any) -> None:
        """Move on."""
        if trainer.is_last_batch or trainer.global_step % pl_module.logged == 0:
            super().on_train_batch_end(trainer, pl_module, *others)

    def _get_train_description(self, current_epoch: int) -> str:
        return f"Epoch {current_epoch + 1}/{self.trainer.max_epochs}"

    def get_metrics(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> Any:
        """Return what is shown."""
        shown = super().get_metrics(trainer, pl_module)
        return {name: value for name, value in shown.items() if name != "v_num"}


class Recorder(Callback):
    """Writes a line of JSON for each measurement; keeps the time of training without measuring.

    Its lines are part of the checkpoint, and the file is written anew from them: a run that
    continues has each line once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[int, dict[str, Any]] = {}
        self.seconds = 0.0
        self._since: float | None = None
        self._before = 0.0

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it."""
        return {"rows": self.rows, "seconds": self.seconds, "before": self._before}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.rows, self.seconds = state_dict["rows"], state_dict["seconds"]
        self._before = state_dict["before"]

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock."""
        if batch_idx == 0:
            self._since = _now(pl_module)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock."""
        self._stop(pl_module)

    def on_validation_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Write a line."""
        pl_module.check_finite()
        epoch = trainer.current_epoch + 1
        steps = pl_module.settings.every * pl_module.steps
        measured = pl_module.measured()
        self.rows[epoch] = {
            "epoch": epoch,
            "step": trainer.global_step,
            "seconds": self.seconds,
            "seconds_per_step": (self.seconds - self._before) / steps,
            **measured,
        }
        self._before = self.seconds
        for logger in trainer.loggers:
            part = pl_module.settings.on
            known = {f"{part}/{k}": value for k, value in measured.items() if value is not None}
            logger.log_metrics(known, trainer.global_step)
        if trainer.is_global_zero:
            lines = [json.dumps(row) for _, row in sorted(self.rows.items())]
            files.write_text(self.path, "\n".join(lines) + "\n")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop the clock where nothing was measured."""
        self._stop(pl_module)

    def _stop(self, module: pl.LightningModule) -> None:
        if self._since is not None:
            self.seconds += _now(module) - self._since
            self._since = None


class Signals(Callback):
    """Lets SIGINT and SIGTERM do, before the next batch, what they did before training.

    In the middle of anything they may leave the queue of TensorBoard's writer without the news that
    something was put in: whoever closes the writer then waits for ever. A second signal does not
    wait. Lightning's own handler communicates, where there are several processes, in the middle of
    whatever these are doing.
    """

    def __init__(self) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._handlers: dict[int, Any] = {number: signal.getsignal(number) for number in numbers}
        self._received: int | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Replace Lightning's handler; a signal that is ignored stays so."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._handlers.items():
                signal.signal(number, self._remember if callable(handler) else handler)

    def on_train_batch_start(self, *others: Any) -> None:
        """Do what was asked for."""
        self._do()

    def on_validation_batch_start(self, *others: Any) -> None:
        """Do what was asked for."""
        self._do()

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Put the handlers back, and do what was asked for."""
        if threading.current_thread() is threading.main_thread():
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        self._do()

    def _remember(self, number: int, frame: Any) -> None:
        if self._received is not None:
            self._do()
        self._received = number

    def _do(self) -> None:
        if self._received is not None:
            signal.signal(self._received, self._handlers[self._received])
            signal.raise_signal(self._received)


class Clock(Callback):
    """Measures training from the end of the `WARM_UP` steps on."""

    seconds = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *others: Any) -> None:
        """Start after the steps that warm up."""
        if trainer.global_step == WARM_UP:
            self.seconds = -_now(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Stop."""
        self.seconds += _now(pl_module)


class Saver(Checkpoint):
    """Saves at the end of an epoch when it is time, and at the end of the last."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = folder
        self.seconds = seconds
        self._last = time.monotonic()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Save what is finite."""
        pl_module.check_finite()
        epoch = trainer.current_epoch + 1
        due = epoch == trainer.max_epochs or time.monotonic() - self._last >= self.seconds
        if trainer.strategy.broadcast(due):  # clocks differ: the first process decides
            trainer.save_checkpoint(self.folder / _checkpoint_name(epoch))
            self._last = time.monotonic()


def _checkpoint_name(epoch: int) -> str:
    return f"epoch-{epoch:06}"


def _now(module: pl.LightningModule) -> float:
    if module.device.type == "cuda":
        torch.cuda.synchronize(module.device)
    return time.perf_counter()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let Lightning say what matters: not what hardware is unused, nor tips."""
    loggers = quiet(logging.WARNING, "pytorch_lightning", "lightning.pytorch")
    with loggers, warnings.catch_warnings():
        # Lightning 2.6 calls what torch 2.13 deprecates.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        # Only where a CPU was asked for.
        warnings.filterwarnings("ignore", "GPU available but not used", UserWarning)
        yield


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    """Let torch take algorithms that give the same bits each time, where it has them."""
    memory: Any = torch.utils.deterministic
    before = (torch.are_deterministic_algorithms_enabled(),
              torch.is_deterministic_algorithms_warn_only_enabled(),
              memory.fill_uninitialized_memory)  # fmt: skip
    memory.fill_uninitialized_memory = False  # a check of torch's that costs time
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as cuBLAS wants it for that
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = before[2]

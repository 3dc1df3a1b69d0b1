"""Training on Lightning.

All that is random derives from (seed, epoch, step): the order of the drawings and the noise of the
codes. So a run that continues from the end of an epoch does what it would have done. Drawings are
bytes on the device; a batch is picked there by its numbers, and each process takes every n-th row
of the one batch that they share. On one GPU a step is recorded once and then replayed.
"""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import SingleDeviceStrategy
from torch import Tensor

from geosoftmax import Cost
from geosoftmax_experiments.data.drawings import Drawings, as_distributions
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.replay import Step, record
from geosoftmax_experiments.vae.layers import layer_of
from geosoftmax_experiments.vae.measures import Means, measure
from geosoftmax_experiments.vae.models import VAE, Code
from geosoftmax_experiments.vae.settings import RunSettings, derive_seed

__all__ = ["DrawingVAE", "build_net"]

#: Drawings beyond this many bytes stay in the memory of the host, or on its disk.
ON_DEVICE = 4 << 30
EVALUATION_BATCH = 500
#: Every so many steps are logged.
LOGGED = 10
#: Where annealing starts, as a part of the scale of the cost.
WIDE = 0.1
#: Where steps can be replayed, and in which precisions: others scale the loss by what happened.
REPLAYING = ("cuda",)
REPLAYED = ("32-true", "bf16-mixed")


def build_net(settings: RunSettings, offset: Tensor | None = None) -> VAE:
    """Return a network with its first weights: the same for the same seed, whatever the loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(settings.seed, "weights"))
        return VAE(settings.architecture, settings.shape, settings.latent, offset, settings.gain)


class DrawingVAE(pl.LightningModule):
    """A variational auto-encoder with one of the output layers.

    Parameters
    ----------
    settings : RunSettings
    drawings : Drawings
    replay : bool
        Replay steps, where that is possible.
    """

    def __init__(self, settings: RunSettings, drawings: Drawings, *, replay: bool = True) -> None:
        super().__init__()
        split = drawings.split()
        self.settings = settings
        self.layer = layer_of(settings.loss, settings.smoothing)
        self._train = drawings.tensor(split.train)
        self._test = drawings.tensor(getattr(split, settings.on))
        self._cost = self._cost_now = settings.cost
        self._measuring_cost = settings.paper_cost
        self.net = build_net(settings, self._offset())
        if settings.compile:
            self.net.compile()
        self._generator = torch.Generator()
        self._order: tuple[int, Tensor] | None = None
        self._bad_step = torch.tensor(-1)
        self._means = Means()
        self._replay = replay
        self._replayed: Step | None = None

    @property
    def steps(self) -> int:
        """Steps of an epoch; drawings that do not fill a batch wait for another epoch."""
        return len(self._train) // self.settings.batch

    @property
    def logged(self) -> int:
        """The steps from one that is logged to the next; an epoch has one at least."""
        return min(LOGGED, self.steps)

    def _offset(self) -> Tensor | None:
        if self.settings.start == "zero":
            return None
        mean = as_distributions(self._train).mean(0).double()
        mean = 0.99 * mean + 0.01 / mean.numel()  # some ink everywhere
        return self.layer.start(mean / mean.sum(), self._cost).float()

    # -------------------------------------------------------------- Lightning's hooks

    def setup(self, stage: str) -> None:
        """See that the processes can share a batch."""
        if self.settings.batch % self.trainer.world_size:
            raise UserError(
                f"{self.trainer.world_size} processes cannot share a batch of "
                f"{self.settings.batch}.",
                "Let --batch be a multiple of them.",
            )

    def cost_at(self, epoch: int) -> Cost:
        """Return the cost of the output layer in an epoch: from wide to narrow, where asked for."""
        epochs = self.settings.anneal * self.settings.epochs
        if epoch >= epochs:
            return self._cost
        return self._cost * WIDE ** (1 - epoch / epochs)

    def on_fit_start(self) -> None:
        """Move the data to the device."""
        if self._train.nbytes <= ON_DEVICE:
            self._train = self._train.to(self.device)
        self._test = self._test.to(self.device)
        self._cost = self._cost.to(self.device)
        self._measuring_cost = self._measuring_cost.to(self.device)
        self._bad_step = self._bad_step.to(self.device)
        self._generator = torch.Generator(self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        fused = self.device.type == "cuda"
        return torch.optim.Adam(self.parameters(), self.settings.learning_rate, fused=fused)

    def on_train_start(self) -> None:
        """Record a step, where steps can be replayed."""
        replay = self._replay and self._can_replay()
        self._ready_optimizer(replay)
        self._replayed = self._record() if replay else None
        if replay and self._replayed is None:
            self._ready_optimizer(replay=False)

    def on_train_batch_start(self, batch: int, batch_idx: int) -> None:
        """Set the learning rate of the step."""
        if self.settings.decay:
            done = (self.current_epoch * self.steps + batch) / (self.settings.epochs * self.steps)
            rate = self.settings.learning_rate * (1 + math.cos(math.pi * done)) / 2
            for group in self.trainer.optimizers[0].param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(rate)
                else:
                    group["lr"] = rate

    def on_train_end(self) -> None:
        """Forget the recorded step: what it points to is moved."""
        self.forget_step()

    def train_dataloader(self) -> Any:
        """Numbers of steps: `training_step` picks the drawings."""
        return range(self.steps)

    def val_dataloader(self) -> Any:
        """Numbers of batches."""
        return range(math.ceil(len(self._test) / EVALUATION_BATCH))

    def training_step(self, batch: int, batch_idx: int) -> Tensor:
        """Return ``hw ℓ + weight · latent KL`` of a batch; replayed, the whole step is done."""
        rows = self._rows(batch)
        noise = self._noise(self.settings.batch, "train", self.current_epoch, batch)
        step = self.current_epoch * self.steps + batch
        loss, rate = (self._replayed or self._loss)(rows, noise, step)
        if self.trainer.loggers and (step + 1) % self.logged == 0:
            values = {"train/loss": loss.detach().clone(), "train/latent_kl": rate.detach().clone()}
            self.log_dict(values, prog_bar=True)
        return loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Differentiate; a replayed step has done so."""
        if self._replayed is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """Forget the gradients; a replayed step has its own."""
        if self._replayed is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Let the optimizer do the step, or replay it, which is `training_step`."""
        if self._replayed is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            optimizer_closure()

    def on_validation_epoch_start(self) -> None:
        """Forget the measures before."""
        self._means = Means()

    def validation_step(self, batch: int, batch_idx: int) -> None:
        """Measure reconstructions from sampled codes: those the latent KL is the rate of."""
        rank, world = self.trainer.global_rank, self.trainer.world_size
        images = self._test[batch * EVALUATION_BATCH : (batch + 1) * EVALUATION_BATCH]
        noise = self._noise(len(images), "test", batch)
        alpha = as_distributions(images[rank::world])
        if not len(alpha):
            return
        scores, mean, log_variance = self.net(alpha, noise)
        beta = self.layer.link(scores, self._cost_now)
        values = measure(alpha, beta, self._measuring_cost)
        values["latent_kl"] = Code(mean, log_variance).rate()
        values["reconstruction"] = self.layer.loss(scores, alpha, self._cost_now)
        self._means.add(values)

    def measured(self) -> dict[str, float | None]:
        """Return the means of the last measurement, over all processes."""
        return self._means.reduce(self.device)

    def forget_step(self) -> None:
        """Give back the memory of the recorded step."""
        self._replayed = None
        self.zero_grad(set_to_none=True)

    def check_finite(self) -> None:
        """Stop where the loss was not finite; no checkpoint has been written since."""
        if (step := int(self._bad_step)) >= 0:
            self._not_finite("loss", step)

    # -------------------------------------------------------------- steps

    def _loss(self, rows: Tensor, noise: Tensor, step: Tensor | int) -> tuple[Tensor, Tensor]:
        """Return the loss of some rows of the drawings, and the latent KL in it."""
        alpha = as_distributions(self._train[rows].to(self.device, non_blocking=True))
        scores, mean, log_variance = self.net(alpha, noise)
        self._see_that_finite(scores)
        # On GPUs the whole loss is one kernel; on CPUs the term of the drawings alone is left out.
        objective = self.layer.objective if self.device.type == "cpu" else self.layer.loss
        reconstruction = objective(scores, alpha, self._cost_now).mean()
        rate = Code(mean, log_variance).rate().mean()
        loss = math.prod(self.settings.shape) * reconstruction + self.settings.weight * rate
        bad = ~torch.isfinite(loss.detach()) & (self._bad_step < 0)
        self._bad_step.copy_(torch.where(bad, step, self._bad_step))
        return loss, rate

    def _can_replay(self) -> bool:
        """Whether all steps are the same operations on one device, and no more than ours."""
        settings, trainer = self.settings, self.trainer
        return (
            self.device.type in REPLAYING
            and self._train.device == self.device
            and isinstance(trainer.strategy, SingleDeviceStrategy)
            and trainer.accumulate_grad_batches == 1
            and not trainer.gradient_clip_val
            and settings.precision in REPLAYED
            and not settings.compile
            and not settings.anneal
        )

    def _ready_optimizer(self, replay: bool) -> None:
        """Put its rate and its counters where steps look for them, whatever a checkpoint says."""
        rate, cuda = self.settings.learning_rate, self.device.type == "cuda"
        optimizer = self.trainer.optimizers[0]
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(rate, device=self.device) if replay else rate
            group["fused"], group["capturable"] = cuda, cuda and replay
        for state in optimizer.state.values():
            state["step"] = state["step"].to(self.device if cuda else "cpu")

    def _record(self) -> Step | None:
        """Record a whole step: loss, gradient, optimizer."""
        self._cost_now = self._cost
        optimizer = self.trainer.optimizers[0]
        mixed = self.settings.precision == "bf16-mixed"

        def step(*inputs: Tensor) -> tuple[Tensor, Tensor]:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(self.device.type, torch.bfloat16, mixed, cache_enabled=False):
                loss, rate = self._loss(*inputs)
            loss.backward()
            optimizer.step()
            return loss.detach(), rate.detach()

        def state() -> dict[str, Tensor]:
            found = {"bad step": self._bad_step, **dict(self.named_buffers())}
            for name, parameter in self.named_parameters():
                moments = optimizer.state.get(parameter, {})
                found |= {name: parameter, **{f"{name}: {k}": v for k, v in moments.items()}}
            return found

        size = self.settings.batch
        rows = torch.arange(size, device=self.device)
        noise = torch.zeros(size, self.settings.latent, device=self.device)
        return record(step, (rows, noise, torch.zeros_like(self._bad_step)), state)

    def _rows(self, step: int) -> Tensor:
        """Return the numbers of this process's drawings in a step."""
        if self._order is None or self._order[0] != self.current_epoch:
            generator = torch.Generator().manual_seed(
                derive_seed(self.settings.seed, "order", self.current_epoch)
            )
            order = torch.randperm(len(self._train), generator=generator)
            self._order = (self.current_epoch, order.to(self._train.device))
            self._cost_now = self.cost_at(self.current_epoch)
        size = self.settings.batch
        rows = self._order[1][step * size : (step + 1) * size]
        return rows[self.trainer.global_rank :: self.trainer.world_size]

    def _noise(self, rows: int, *purpose: object) -> Tensor:
        """Return this process's rows of the noise of a whole batch."""
        self._generator.manual_seed(derive_seed(self.settings.seed, *purpose))
        noise = torch.randn(
            rows, self.settings.latent, generator=self._generator, device=self.device
        )
        return noise[self.trainer.global_rank :: self.trainer.world_size]

    def _see_that_finite(self, scores: Tensor) -> None:
        """Look at the scores where that costs nothing: on a GPU it would wait for them."""
        if scores.device.type == "cpu" and not bool(torch.isfinite(scores).all()):
            self._not_finite("output of the decoder", self.trainer.global_step)

    def _not_finite(self, what: str, step: int) -> None:
        raise UserError(
            f"The {what} is not finite at step {step} (epoch {step // self.steps + 1}, "
            f"{self.settings.loss}, weight {self.settings.weight:g}).",
            "The last good checkpoint is kept. Take a smaller --learning-rate, or --precision "
            "32-true.",
        )

"""Training steps. What is random, or changes with time, is drawn before a step and given to it.

So all steps are the same operations, and none waits for the device. A GPU records one of them and
replays it: launching its several hundred kernels one by one takes longer than the kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from geosoftmax_experiments.keypoints.augmentation import augment, draw_moves
from geosoftmax_experiments.keypoints.model import Model, Recipe
from geosoftmax_experiments.replay import Step, record

__all__ = ["AdamW", "Training", "one_cycle"]

#: The share of the steps in which the learning rate rises; then it falls along a cosine.
RISE = 0.1
#: The momentum at both ends of the cycle, and at its top.
SLOW, FAST = 0.95, 0.85
#: Of AdamW: the share of the squared gradients that is kept, what keeps divisors from 0, the decay.
BETA, EPSILON, DECAY = 0.999, 1e-8, 1e-3
#: Torch exports no operations on lists of tensors to type checkers.
_torch: Any = torch
#: The largest norm of a gradient.
CLIP = 10.0
#: Where steps are replayed.
REPLAYING = ("cuda",)
#: Whether convolutions are tried out when a step is recorded: with few channels, and those of a
#: pixel side by side, cuDNN's first guess is slow.
SEARCHED = True


def one_cycle(peak: float, steps: int) -> Iterator[tuple[float, ...]]:
    """Yield the numbers of each step of `AdamW`, with learning rate and momentum in one cycle.

    They are those of torch's AdamW with its OneCycleLR. Making one of torch's optimisers imports
    its compiler, which takes a second.
    """
    first, last = peak / 25, peak / 25 / 10**4
    top, end = RISE * steps - 1, steps - 1
    for step in range(steps):
        if step <= top:
            done = step / top if top else 1.0
            rate, momentum = _cosine(first, peak, done), _cosine(SLOW, FAST, done)
        else:
            done = (step - top) / (end - top)
            rate, momentum = _cosine(peak, last, done), _cosine(FAST, SLOW, done)
        yield (
            1 - rate * DECAY,
            momentum,
            1 - momentum,
            rate / (1 - momentum ** (step + 1)),
            1 / math.sqrt(1 - BETA ** (step + 1)),
        )


def _cosine(start: float, end: float, done: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * done))


class AdamW:
    """AdamW, with all that changes from step to step in one tensor.

    The momentum changes with the learning rate. Torch's AdamW takes it from the host, so a step
    that is recorded would keep the one of its recording.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self._means = [torch.zeros_like(parameter) for parameter in self.parameters]
        self._squares = [torch.zeros_like(parameter) for parameter in self.parameters]

    def moments(self) -> dict[str, Tensor]:
        """Return all tensors that steps change, besides the parameters, by name."""
        named = {"mean": self._means, "square": self._squares}
        return {f"{name} {k}": value for name, several in named.items()
                for k, value in enumerate(several)}  # fmt: skip

    @torch.no_grad()
    def step(self, numbers: Tensor) -> None:
        """Change the parameters by their gradients; `one_cycle` yields the numbers."""
        decay, momentum, fresh, rate, root = numbers.unbind()
        gradients = [parameter.grad for parameter in self.parameters]
        _torch._foreach_mul_(self._means, momentum)
        _torch._foreach_add_(self._means, _torch._foreach_mul(gradients, fresh))
        _torch._foreach_mul_(self._squares, BETA)
        _torch._foreach_addcmul_(self._squares, gradients, gradients, 1 - BETA)
        divisors = _torch._foreach_sqrt(self._squares)
        _torch._foreach_mul_(divisors, root)
        _torch._foreach_add_(divisors, EPSILON)
        changes = _torch._foreach_mul(self._means, rate)
        _torch._foreach_div_(changes, divisors)
        _torch._foreach_mul_(self.parameters, decay)
        _torch._foreach_sub_(self.parameters, changes)


class Training:
    """A network under training.

    Parameters
    ----------
    model : Model
    frames : Tensor, shape (n, H, W), uint8
        On the device of the model.
    places : Tensor, shape (n, parts, 2)
        In index units of the maps; NaN is missing.
    recipe : Recipe
    seed : int
        Of order and augmentation.
    replay : bool
        Whether steps are replayed on a GPU.
    """

    def __init__(
        self,
        model: Model,
        frames: Tensor,
        places: Tensor,
        recipe: Recipe,
        seed: int,
        *,
        replay: bool = True,
    ) -> None:
        self.model = model.train()
        self._frames, self._places, self._batch = frames, places, recipe.batch
        self._order = torch.Generator().manual_seed(seed)
        self._noise = torch.Generator(frames.device).manual_seed(seed)
        self._waiting = torch.empty(0, dtype=torch.int64)
        self._optimiser = AdamW(model.parameters())
        self._numbers = one_cycle(recipe.learning_rate, recipe.steps)
        self._replayed: Step | None = None
        kind = frames.device.type
        if kind == "cuda":
            model.network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        if replay and kind in REPLAYING:
            with torch.backends.cudnn.flags(enabled=True, benchmark=SEARCHED, allow_tf32=True):
                self._replayed = self._record()

    def advance(self, steps: int) -> Tensor:
        """Do so many steps; return the loss of the last one."""
        device = self._frames.device
        drawn = zip(*(self._draw() for _ in range(steps)), strict=True)
        chosen, moves, numbers = (torch.stack(several).to(device) for several in drawn)
        step = self._replayed or self._step
        loss = torch.empty(0)
        for k in range(steps):
            (loss,) = step(chosen[k], moves[k], self._grain(), numbers[k])
        return loss

    def finish(self) -> Model:
        """Return the network, to predict with; give back the memory of the recorded step."""
        recorded, self._replayed = self._replayed is not None, None
        self.model.zero_grad(set_to_none=True)
        if recorded:
            # Torch keeps the memory of a graph that is gone: other processes on the GPU need it.
            torch.cuda.empty_cache()
        return self.model.eval()

    def _draw(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the host gives to a step: its frames, how they move, and AdamW's numbers."""
        while len(self._waiting) < self._batch:
            order = torch.randperm(len(self._frames), generator=self._order)
            self._waiting = torch.cat([self._waiting, order])
        chosen, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
        moves = draw_moves(self._batch, self._order)
        return chosen, moves, torch.tensor(next(self._numbers))

    def _grain(self) -> Tensor:
        shape = (self._batch, *self._frames.shape[1:])
        return torch.randn(shape, generator=self._noise, device=self._frames.device)

    def _step(
        self, chosen: Tensor, moves: Tensor, grain: Tensor, numbers: Tensor
    ) -> tuple[Tensor, ...]:
        """Do a step; return the loss before it."""
        model, optimiser = self.model, self._optimiser
        frames, places = self._frames[chosen] / 255, self._places[chosen]
        seen, moved = augment(frames, places, model.shape, moves, grain)
        loss = model.head.loss(model(seen), moved)
        model.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(optimiser.parameters, CLIP)
        optimiser.step(numbers)
        return (loss.detach(),)

    def _record(self) -> Step | None:
        """Record a step; None where that is not possible: then steps are done one by one."""
        device = self._frames.device
        chosen = torch.arange(self._batch, device=device) % len(self._frames)
        moves = torch.zeros(5, self._batch, device=device)
        numbers = torch.tensor([1.0, 0.9, 0.1, 0.0, 1.0], device=device)  # of a rate of 0
        grain = torch.zeros(self._batch, *self._frames.shape[1:], device=device)

        def state() -> dict[str, Tensor]:
            return self.model.tensors() | self._optimiser.moments()

        return record(self._step, (chosen, moves, grain, numbers), state)

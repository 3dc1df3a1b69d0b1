"""What is taken unless something else is asked for, by set and by architecture.

Plain values: the command line says them in its help before it imports what computes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["ARCHITECTURES", "COMPARED", "LOSSES", "OTHER", "PAPER_P", "PARTS", "PRESETS", "STARTS",
           "P", "Preset", "describe"]  # fmt: skip

#: The output layers, in the order of tables and legends; `layers` has them.
LOSSES = ("softmax", "geometric", "smoothed", "potential", "sigmoid", "softmax-smoothed", "paper")
#: Those that are compared unless others are asked for.
COMPARED = ("softmax", "sigmoid", "paper", "smoothed")
#: The exponent of the distance between pixels, and that of the paper.
P, PAPER_P = 1.0, 2.0
#: The drawings that runs are measured on.
PARTS = ("test", "validation")
#: Where scores begin.
STARTS = ("zero", "mean")
#: Runs that share a GPU: one alone leaves it idle between its small kernels.
GPU_JOBS = 4


class Architecture(NamedTuple):
    """Usual settings of an architecture."""

    latent: int  # the paper's
    learning_rate: float
    gain: float
    weights: tuple[float, ...]  # of the latent KL, in a comparison


class Preset(NamedTuple):
    """Usual settings of a set; None where they are those of the architecture."""

    epochs: int
    batch: int
    seeds: int = 3  # of a comparison
    measurements: int = 40  # about so many
    scale: float = 1.0  # of the distance between pixels, p = 1
    smoothing: float = 1.0  # of scores, where they are smoothed
    paper_scale: float = 0.5  # of the squared distance: the paper's, and that of D in all reports
    learning_rate: float | None = None
    gain: float | None = None
    weights: tuple[float, ...] | None = None


ARCHITECTURES = {
    "mlp": Architecture(100, 1e-3, 3.0, (0.1, 0.3, 1.0, 2.0, 5.0, 10.0)),
    "dcgan": Architecture(256, 3e-4, 1.0, (1.0, 3.0, 10.0, 20.0, 40.0, 80.0)),
}
#: All was chosen on validation drawings, scale and smoothing by `geosoftmax vae choose`
#: (docs/results/choices). Strokes of cats, and drawings of one's own, have the scale and smoothing
#: of a trial on cats, which looked at test drawings of split 0.
PRESETS = {
    "digits": Preset(80, 128, seeds=1, measurements=4, scale=4.0, paper_scale=2.0,
                     learning_rate=3e-3, gain=1.0, weights=(0.02, 0.06, 0.2)),
    "cats": Preset(400, 512),
    "mnist": Preset(240, 512, measurements=20, scale=2.0, learning_rate=2e-3,
                    weights=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
    "drawings": Preset(60, 128, measurements=20, scale=2.0),
    "cat-strokes": Preset(20, 128),
}  # fmt: skip
OTHER = Preset(100, 128)  # one's own drawings


def describe(name: str) -> str:
    """Return the usual value of a setting, and those of the sets and architectures that differ.

    Examples
    --------
    >>> describe("learning_rate")
    '0.001; dcgan 0.0003; digits 0.003; mnist 0.002'
    """
    values = {key: getattr(row, name, None) for key, row in (ARCHITECTURES | PRESETS).items()}
    usual = getattr(OTHER, name, None) or values["mlp"]
    others = (f"{key} {_text(v)}" for key, v in values.items() if v is not None and v != usual)
    return "; ".join([_text(usual), *others])


def _text(value: Any) -> str:
    return f"{value[0]:g} to {value[-1]:g}" if isinstance(value, tuple) else f"{value:g}"

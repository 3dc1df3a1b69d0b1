"""The table of losses: for each the settings that are tried, at most six, the usual one first."""

from __future__ import annotations

from typing import Any

from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.keypoints.heads import Geometric, Head, ZeroOne
from geosoftmax_experiments.keypoints.rivals import (
    DSNT,
    MSE,
    ScoreMap,
    SimCC,
    SoftArgmax,
    Softmax,
    Wasserstein,
)

__all__ = ["CONTROLS", "LABELS", "LOSSES", "OURS", "Setting", "build_head", "setting_name"]

Setting = dict[str, Any]
OURS = "geometric"
#: Points as targets too, and no geometry: with sparse distributions, and without.
CONTROLS = ("zero-one", "cross-entropy")
_WIDTHS = (1.0, 1.5, 2.0, 0.75, 3.0)

LOSSES: dict[str, tuple[type[Head], tuple[Setting, ...]]] = {
    OURS: (
        Geometric,
        (
            {"p": 1, "scale": 4.0},
            {"p": 1, "scale": 2.0},
            {"p": 1, "scale": 1.0},
            {"p": 1, "scale": 8.0},
            {"p": 1, "scale": 2.0, "smooth": True},
            {"p": 2, "scale": 0.5},
        ),
    ),
    "zero-one": (ZeroOne, tuple({"scale": scale} for scale in (1.0, 4.0, 2.0, 0.5, 8.0, 16.0))),
    "cross-entropy": (Softmax, ({"width": 0.0},)),
    "mse": (MSE, tuple({"width": width} for width in (*_WIDTHS, 4.0))),
    "softmax": (Softmax, tuple({"width": width} for width in (*_WIDTHS, 0.5))),
    "js": (
        Softmax,
        tuple({"width": width, "divergence": "js"} for width in (*_WIDTHS, 0.0)),
    ),
    "soft-argmax": (
        SoftArgmax,
        tuple({"gain": gain, "power": power} for power in (1, 2) for gain in (1.0, 10.0, 3.0)),
    ),
    "dsnt": (
        DSNT,
        tuple({"width": w, "weight": weight} for weight in (1.0, 0.3, 3.0) for w in (1.0, 2.0)),
    ),
    "simcc": (
        SimCC,
        tuple({"bins": bins, "width": width} for bins in (4, 2) for width in (4.0, 2.0, 6.0)),
    ),
    "deeplabcut": (
        ScoreMap,
        tuple(
            {"radius": radius, "weight": weight}
            for weight in (0.05, 0.5)
            for radius in (2.1, 1.5, 3.0)
        ),
    ),
    "wasserstein": (
        Wasserstein,
        (
            {"p": 1, "epsilon": 0.1},
            {"p": 2, "epsilon": 0.1},
            {"p": 1, "epsilon": 1.0},
            {"p": 2, "epsilon": 1.0},
            {"p": 1, "epsilon": 1.0, "width": 1.0},
            {"p": 2, "epsilon": 1.0, "width": 1.0},
        ),
    ),
}

LABELS = {
    OURS: "g-logistic, points",
    "zero-one": "zero-one cost, points (control)",
    "cross-entropy": "softmax, points (control)",
    "mse": "MSE heat maps",
    "softmax": "softmax, KL to Gaussians",
    "js": "softmax, JS to Gaussians",
    "soft-argmax": "soft-argmax",
    "dsnt": "DSNT",
    "simcc": "SimCC",
    "deeplabcut": "DeepLabCut's score map",
    "wasserstein": "Wasserstein",
}


def setting_name(setting: Setting) -> str:
    """Return a setting as a few words, for files and tables."""
    return ",".join(
        f"{key}={value:g}" if isinstance(value, (int, float)) else f"{key}={value}"
        for key, value in setting.items()
    )


def build_head(loss: str, setting: Setting, shape: tuple[int, int], parts: int) -> Head:
    """Return the head of a loss with a setting."""
    if loss not in LOSSES:
        raise UserError(f"There is no loss {loss!r}.", f"Take some of {', '.join(LOSSES)}.")
    return LOSSES[loss][0](shape, parts, **setting)

"""Figure 3: loss and Hausdorff divergence during training, on the set ``car``."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from geosoftmax_experiments.data.ordinal import load_fold
from geosoftmax_experiments.errors import UserError
from geosoftmax_experiments.ordinal.calibration import SCORES, draw, train

__all__ = ["draw_training"]


def draw_training(console: Console) -> Figure:
    """Train linear and richer scores, and draw both curves, on train and validation samples."""
    try:
        fold = load_fold("survey", "car", 0)
    except UserError as error:
        raise UserError(
            f"Figure 3 needs the set car. {error.message}",
            "Let GEOSOFTMAX_DATA name a folder that holds ordinal-regression/car; or draw the same "
            "on a set that is installed: geosoftmax ordinal calibration --source skordinal --set "
            "ESL.",
        ) from None
    curves = pd.concat([train(fold, scores, 300, 0, console) for scores in SCORES])
    return draw(curves, fold.name)

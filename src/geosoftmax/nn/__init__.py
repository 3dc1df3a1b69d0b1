"""The functions as torch Modules.

A module holds its cost as buffers: it moves, is saved and is loaded with the module. With
``learn_scale=True`` a scalar that multiplies the cost is learnt with the other parameters; `cost`
is the scaled one, to predict with. `LearntPoints` and `LearntEmbeddings`, in place of a cost, are
learnt as a whole. Learn both from distributions: with class indices alone the loss falls with every
entry of the cost, whatever the scores are, and nothing keeps it from zero.
"""

from geosoftmax.learnt import LearntEmbeddings, LearntPoints
from geosoftmax.nn.layers import (
    GeometricLogSumExp,
    GeometricSoftmax,
    PotentialSoftmax,
    SmoothScores,
)
from geosoftmax.nn.losses import GeometricLogisticLoss, HausdorffDivergence, PotentialLogisticLoss

__all__ = [
    "GeometricLogSumExp",
    "GeometricLogisticLoss",
    "GeometricSoftmax",
    "HausdorffDivergence",
    "LearntEmbeddings",
    "LearntPoints",
    "PotentialLogisticLoss",
    "PotentialSoftmax",
    "SmoothScores",
]

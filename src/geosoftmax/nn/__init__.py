"""The functions as torch Modules.

A module stores its cost as buffers, which are moved, saved and loaded with the module. With
``learn_scale=True``, a scalar that multiplies the cost is learnt with the other parameters; the
attribute `cost` is the scaled cost, for predictions. Pass `LearntPoints` or `LearntEmbeddings` in
place of a cost to learn the geometry itself. Learn scales and geometries from distributions. With
class indices alone, a smaller cost always has a smaller loss, whatever the scores are, so the cost
shrinks to zero.
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

"""The definition of every operation, in plain torch, on any device. It calls no faster backend.

Functions take arrays, and an object that multiplies by ``K`` (`rows.Kernel`). They do not know
`Cost`.
"""

from geosoftmax.backends.reference.accelerated import accelerate, descend
from geosoftmax.backends.reference.certificate import bracket, certify
from geosoftmax.backends.reference.exact import active_set, exchange, policy, threshold
from geosoftmax.backends.reference.lbfgs import lbfgs
from geosoftmax.backends.reference.rows import (
    Kernel,
    Rows,
    certificate_dtype,
    distribution,
    merge,
    obstacle,
    peaks,
)
from geosoftmax.backends.reference.sinkhorn import Multiply, SinkhornRows, shifted_solve, sinkhorn
from geosoftmax.backends.reference.splitting import Spectrum, spectrum, split

__all__ = [
    "Kernel",
    "Multiply",
    "Rows",
    "SinkhornRows",
    "Spectrum",
    "accelerate",
    "active_set",
    "bracket",
    "certificate_dtype",
    "certify",
    "descend",
    "distribution",
    "exchange",
    "lbfgs",
    "merge",
    "obstacle",
    "peaks",
    "policy",
    "shifted_solve",
    "sinkhorn",
    "spectrum",
    "split",
    "threshold",
]

"""Every operation in plain torch: what it means, on any device. It calls nothing that is faster.

Functions take arrays, and products with ``K`` as an object that has them (`rows.Kernel`); they know
no `Cost`.
"""

from geosoftmax.backends.reference.accelerated import accelerate
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

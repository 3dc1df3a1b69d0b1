"""Compiled kernels for CPUs: arrays in, arrays out.

A kernel reads the geometry from tables (`tables`). There is one module per method:

===============  =========================================  ===============
module           method                                     tables
===============  =========================================  ===============
`threshold`      zero-one: a threshold, as for sparsemax    `ZeroOneTables`
`hull`           line with p = 1: a concave majorant        `LineTables`
`policy`         tree: policy iteration over supports       `TreeTables`
`active_set`     small and dense: principal pivoting        `DenseTables`
===============  =========================================  ===============

Their ``kernel(tables)`` is a `Kernel` with ``solve``, ``softmax``, ``loss`` and ``solve_rows``.
`exchange` solves on large supports, `sinkhorn` the Sinkhorn problem, and `matvec` multiplies by
``K``.

Kernels release the interpreter lock, and run on a thread pool of this package. So they can be
called from several threads and after a fork, and they respect ``torch.set_num_threads``. Rows share
no state: results do not depend on the batch or on the number of threads.
"""

from __future__ import annotations

from geosoftmax.backends.numba import active_set, hull, policy, threshold
from geosoftmax.backends.numba.calls import Kernel, Rows
from geosoftmax.backends.numba.exchange import exchange
from geosoftmax.backends.numba.products import matvec
from geosoftmax.backends.numba.sinkhorn import sinkhorn
from geosoftmax.backends.numba.tables import (
    DenseTables,
    FactorTables,
    LineTables,
    TreeTables,
    ZeroOneTables,
    dense_tables,
    factor_tables,
    line_tables,
    tree_tables,
    zero_one_tables,
)

__all__ = [
    "DenseTables",
    "FactorTables",
    "Kernel",
    "LineTables",
    "Rows",
    "TreeTables",
    "ZeroOneTables",
    "active_set",
    "dense_tables",
    "exchange",
    "factor_tables",
    "hull",
    "line_tables",
    "matvec",
    "policy",
    "sinkhorn",
    "threshold",
    "tree_tables",
    "zero_one_tables",
]

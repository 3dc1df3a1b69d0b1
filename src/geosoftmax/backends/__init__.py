"""Arrays in, arrays out: `reference` in plain torch, `numba` for CPUs, `triton` for GPUs.

Backends do not know `Cost`. `solvers` prepares their tables and calls them.
"""

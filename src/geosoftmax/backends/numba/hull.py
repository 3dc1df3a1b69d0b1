"""Line with p = 1: the smallest concave, non-decreasing majorant, by one scan."""

from __future__ import annotations

import numpy as np

from geosoftmax.backends.numba.calls import Kernel, finish, obstacle, to_distribution
from geosoftmax.backends.numba.certificate import bracket_from
from geosoftmax.backends.numba.products import from_the_left
from geosoftmax.backends.numba.runtime import inner, jit
from geosoftmax.backends.numba.tables import LineTables


def kernel(tables: LineTables) -> Kernel:
    """Return the method with these tables."""
    return Kernel(_rows, tables, len(tables.E))


@jit
def _rows(call, E, D, first, last):
    d = E.shape[0]
    fields = np.empty((3, d))  # one piece of memory: where it is large, malloc keeps it longer
    b, x, h = fields[0], fields[1], fields[2]
    index = np.empty(d, dtype=np.int32)
    unit = x[:0]
    worst = 0.0
    for row in range(first, last):
        peak = obstacle(call, row, b)
        _scan(b, E, D, index, x, h)
        bu, uh = _products(b, x, E, h)
        energy, low, high = bracket_from(b, x, h, bu, uh, unit, 1.0)
        to_distribution(b, x, energy)
        worst = finish(call, row, b, x, low, high, peak, np.int64(1), worst)
    return worst


@inner
def _scan(b, E, D, index, decay, rest):
    """Solve one row, in coordinates that cannot overflow; `decay` becomes u.

    Between neighbours a < m < z of the envelope, with decays E and D = 1 - E² over each gap, m lies
    on or below the chord when b_m (D_am + E_am² D_mz) ≤ b_a E_am D_mz + b_z E_mz D_am. The two ends
    are neighbours with b = 0, E = 0, D = 1. What m stands above its chord is u_m D_am D_mz.

    `index` lists the vertices; `decay` and `rest` hold E and D from the vertex before. Vertex m is
    at class m or later: so u takes the place of decays that are done with.
    """
    d = b.shape[0]
    top = 0
    index[0] = 0
    decay[0] = 0.0
    rest[0] = 1.0
    below = 0.0  # b of the vertex below the top
    b_top = b[0]
    for z in range(1, d):
        bz = b[z]
        e = E[z]
        r = D[z]
        e1 = decay[top]
        r1 = rest[top]
        joined = r1 + e1 * e1 * r
        while b_top * joined <= below * e1 * r + bz * e * r1:
            e = e1 * e
            r = joined
            top -= 1
            if top < 0:
                b_top = 0.0
                break
            b_top = below
            below = b[index[top - 1]] if top > 0 else 0.0
            e1 = decay[top]
            r1 = rest[top]
            joined = r1 + e1 * e1 * r
        top += 1
        index[top] = z
        decay[top] = e
        rest[top] = r
        below = b_top
        b_top = bz
    while top > 0 and b[index[top]] <= b[index[top - 1]] * decay[top]:
        top -= 1
    e2 = 0.0
    r2 = 1.0
    bz = 0.0
    end = d
    for m in range(top, -1, -1):
        here = index[m]
        e1 = decay[m]
        r1 = rest[m]
        ba = b[index[m - 1]] if m > 0 else 0.0
        above = b[here] * (r1 + e1 * e1 * r2) - ba * e1 * r2 - bz * e2 * r1
        for i in range(here + 1, end):
            decay[i] = 0.0
        decay[here] = max(above / r1 / r2, 0.0)
        e2 = e1
        r2 = r1
        bz = b[here]
        end = here
    for i in range(end):
        decay[i] = 0.0


@inner
def _products(b, u, E, h):
    """Compute h = K u; return ⟨b,u⟩ and uᵀKu."""
    from_the_left(u, E, h)
    last = b.shape[0] - 1
    bu = b[last] * u[last]
    uh = u[last] * h[last]
    carried = 0.0
    for i in range(last - 1, -1, -1):  # as from_the_right, with the sums of the certificate
        carried = E[i + 1] * (carried + u[i + 1])
        h[i] += carried
        bu += b[i] * u[i]
        uh += u[i] * h[i]
    return bu, uh

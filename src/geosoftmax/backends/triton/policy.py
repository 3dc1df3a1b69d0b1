"""Policy iteration on trees: exact, in one launch, one program for each row.

`reference.prune` with solves on the tree, level by level. Nodes lie in breadth-first order, so that
siblings are neighbours: what they send to their parent is summed by a scan that begins anew with
each family. All in float64; every round drops the outputs that are not positive, until none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import certify, store_bounds, store_distribution
from geosoftmax.backends.triton.tiles import Outputs, on_device, outputs

#: Nodes of a tree that fit into registers, and levels below the root: each takes its turn.
MOST_NODES = 4096
DEEPEST = 100


class PolicyTables(NamedTuple):
    """What solves on a tree read, made once by `make_tables`."""

    #: Outputs, and levels below the root.
    size: int
    deepest: int
    #: For each node: parent, depth, whether a family begins, last child, output. In int32.
    links: Tensor
    #: ``r`` and ``D`` of the edge above each node, in float64.
    edges: Tensor


def make_tables(
    parents: Tensor, levels: Sequence[int], outputs: Tensor, r: Tensor, D: Tensor
) -> PolicyTables:
    """Make the tables of a tree whose nodes are in breadth-first order.

    `levels` says where each level begins, and the end; `outputs` which node each output is. The
    edge above a node has ``r = exp(-c/2)`` and ``D = 1 - r²``, where ``c`` is its length.
    No host synchronisation is needed: a cost that is learnt makes its tables at every step.
    """
    n, size = len(parents), len(outputs)
    here = torch.arange(n, device=parents.device)
    begins = torch.zeros_like(parents)
    for start in levels[1:-1]:
        begins[start] = 1
    last_child = torch.full_like(parents, -1)
    last_child.scatter_reduce_(0, parents[1:], here[1:], "amax")
    output = torch.full_like(parents, -1).scatter(0, outputs, here[:size])
    family = torch.ones_like(parents)
    family[1:] = (parents[1:] != parents[:-1]).long()
    links = torch.stack([parents, begins.cumsum(0), family, last_child, output])
    edges = torch.stack([r, D]).to(torch.float64)
    return PolicyTables(size, len(levels) - 2, links.to(torch.int32), edges)


def solve(tables: PolicyTables, scores: Tensor) -> Outputs:
    """From scores to the distribution, ``u``, its bracket and the rounds."""
    f = scores.contiguous()
    found = outputs(f, 1)
    nodes = tables.links.shape[1]
    side = max(16, triton.next_power_of_2(nodes))
    slack = settings.rounding_allowance(nodes, torch.float64)
    with on_device(f):
        _solve[(found.lower.numel(),)](
            f, found, tables.links, tables.edges, nodes, tables.size, slack,
            N=side, DEEPEST=tables.deepest, num_warps=min(16, max(1, side // 256)),
        )  # fmt: skip
    return found


@triton.jit
def _within_family(begins_a, x_a, y_a, begins_b, x_b, y_b):
    x = tl.where(begins_b > 0, x_b, x_a + x_b)
    y = tl.where(begins_b > 0, y_b, y_a + y_b)
    return begins_a | begins_b, x, y


@triton.jit
def _from_children(x, y, family, last_child):
    """Return the sums of both signals over the children of each node."""
    _, x, y = tl.associative_scan((family, x, y), 0, _within_family)
    index = tl.maximum(last_child, 0)
    x, y = tl.gather(x, index, 0), tl.gather(y, index, 0)
    return tl.where(last_child >= 0, x, 0.0), tl.where(last_child >= 0, y, 0.0)


@triton.jit
def _solve(
    scores, found, links, edges, nodes, width, slack,
    N: tl.constexpr, DEEPEST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    node = tl.arange(0, N)
    real = node < nodes
    parent = tl.load(links + node, mask=real, other=0)
    depth = tl.load(links + nodes + node, mask=real, other=-1)
    family = tl.load(links + 2 * nodes + node, mask=real, other=1)
    last_child = tl.load(links + 3 * nodes + node, mask=real, other=-1)
    output = tl.load(links + 4 * nodes + node, mask=real, other=-1)
    r = tl.load(edges + node, mask=real, other=0.0)
    D = tl.load(edges + nodes + node, mask=real, other=1.0)
    inside = output >= 0
    place = row * width + tl.maximum(output, 0)
    f = tl.load(scores + place, mask=inside, other=float("-inf")).to(tl.float64)
    peak = tl.max(f, 0)
    b = tl.where(inside, tl.exp((f - peak) * 0.5), 0.0)
    none = tl.zeros([N], tl.float64)

    held = b > 0
    u = b
    rounds = 0
    going = peak == peak
    while going:
        rounds += 1
        # Each node with all below it is ½ λ h² - η h, as its parent sees it.
        curvature, force = none, none
        for k in range(DEEPEST):
            at = depth == DEEPEST - k
            softer = 1.0 + D * curvature
            sent_curvature = tl.where(held, r * r / D, r * r * curvature / softer)
            sent_force = tl.where(held, r * b / D, r * force / softer)
            curvature_above, force_above = _from_children(
                tl.where(at, sent_curvature, 0.0), tl.where(at, sent_force, 0.0), family, last_child
            )
            above = depth == DEEPEST - k - 1
            curvature = tl.where(above, curvature_above, curvature)
            force = tl.where(above, force_above, force)
        h = tl.where(depth == 0, tl.where(held, b, force / (1.0 + curvature)), 0.0)
        for k in range(DEEPEST):
            free = (r * tl.gather(h, parent, 0) + D * force) / (1.0 + D * curvature)
            h = tl.where(depth == k + 1, tl.where(held, b, free), h)
        pull = (h - r * tl.gather(h, parent, 0)) / D
        passed, _ = _from_children(r * pull, none, family, last_child)
        u = tl.where(held, pull - passed, 0.0)
        still = held & (u > 0)
        going = tl.sum((still != held).to(tl.int32), 0) > 0
        held = still

    # h = Ku: what comes from below, and from everywhere
    below = u
    for k in range(DEEPEST):
        arriving, _ = _from_children(
            tl.where(depth == DEEPEST - k, r * below, 0.0), none, family, last_child
        )
        below = tl.where(depth == DEEPEST - k - 1, below + arriving, below)
    h = tl.where(depth == 0, below, 0.0)
    for k in range(DEEPEST):
        h = tl.where(depth == k + 1, D * below + r * tl.gather(h, parent, 0), h)
    bu, uh, gap = certify(b, u, h, 1.0, "line")
    store_distribution(found, place, inside, b, u, bu, uh, "line")
    store_bounds(found, row, None, peak, bu, uh, gap, slack, rounds)

"""Trees: the exact envelope in one launch, one program for each row.

`reference.prune` with `TreeCost.solve` level by level. Nodes lie in breadth-first order, so that
siblings are neighbours: what they send to their parent is summed by a scan that begins anew with
each family. All in float64; every round drops the outputs that are not positive, until none is.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import reference
from geosoftmax.backends.triton.tiles import on_device, outputs
from geosoftmax.costs import TreeCost
from geosoftmax.costs.base import Cost


def prune_tree(cost: Cost, scores: Tensor, tol: float, max_iter: int) -> tuple[Tensor, ...]:
    """From scores to the distribution, ``u``, its bracket and the rounds."""
    assert isinstance(cost, TreeCost)
    f = scores.contiguous()
    found = outputs(f, 1)
    nodes, deepest = len(cost.parents), len(cost.levels) - 2
    side = max(16, triton.next_power_of_2(nodes))
    slack = reference.rounding_allowance(nodes, torch.float64)
    links, edges = cost._once("tree_tables", lambda: _tables(cost))
    with on_device(f):
        _prune[(found[2].numel(),)](
            f, *found, links, edges, nodes, cost.size, slack,
            N=side, DEEPEST=deepest, num_warps=min(16, max(1, side // 256)),
        )  # fmt: skip
    return found


def _tables(cost: TreeCost) -> tuple[Tensor, Tensor]:
    """Return, for each node, parent, depth, whether a family begins, last child, output; r and D.

    Made without a word to the host: a cost that is learnt makes them at every step.
    """
    parents = cost.parents
    n = len(parents)
    here = torch.arange(n, device=parents.device)
    begins = torch.zeros_like(parents)
    for start in cost.levels[1:-1]:
        begins[start] = 1
    last_child = torch.full_like(parents, -1)
    last_child.scatter_reduce_(0, parents[1:], here[1:], "amax")
    output = torch.full_like(parents, -1).scatter(0, cost.outputs, here[: cost.size])
    family = torch.ones_like(parents)
    family[1:] = (parents[1:] != parents[:-1]).long()
    links = torch.stack([parents, begins.cumsum(0), family, last_child, output])
    return links.to(torch.int32), torch.stack(cost.edges(torch.float64))


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
def _prune(
    scores, alpha, u_out, lower, upper, iterations, links, edges, nodes, width, slack,
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
    bu = tl.sum(b * u, 0)
    scale = bu / tl.sum(u * h, 0)
    h = h * scale
    v = tl.where(inside, tl.maximum(b - h, 0.0), 0.0)
    v_sum = tl.sum(v, 0)
    gap = (2 * tl.sum(v * h, 0) + v_sum * v_sum) / (bu * scale)
    value = peak + tl.log(bu * scale)
    tl.store(alpha + place, (u * b / bu).to(alpha.dtype.element_ty), mask=inside)
    tl.store(u_out + place, (u * scale).to(u_out.dtype.element_ty), mask=inside)
    tl.store(lower + row, value - slack)
    tl.store(upper + row, value + gap + slack)
    tl.store(iterations + row, rounds.to(tl.int64))

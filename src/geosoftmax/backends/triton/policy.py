"""Policy iteration on trees: exact, in one launch, one program per row.

It is `reference.policy`, with solves on the tree, level by level. Nodes are in breadth-first order,
so that siblings are neighbours: a segmented scan sums what they send to their parent. All is
float64. Each round drops the outputs that are not positive, until there are none. Levels are read
from memory block by block, so that trees may be large.

Most outputs are in no support, because a single other output covers them. So rounds go over short
lists: the remaining outputs, and the nodes above them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from geosoftmax.backends import settings
from geosoftmax.backends.triton.certificate import store_bounds
from geosoftmax.backends.triton.tiles import Outputs, on_device, outputs

#: Levels: each takes its turn.
DEEPEST = 1000
#: Outputs, as they are numbered.
MOST_OUTPUTS = 1 << 28
#: Nodes that a program looks at together: in small trees, and in those of more than so many nodes.
SMALL_BLOCK, BLOCK, LARGE = 256, 1024, 16384
#: Warps of a program, and registers of a thread: two programs share a multiprocessor.
WARPS, REGISTERS = 8, 128
#: Programs at once, at most: each has memory of its own, 21 bytes for each node.
MOST_PROGRAMS = 264


class TreeArrays(NamedTuple):
    """What the kernel reads."""

    #: Where each level begins, and the end. In int32.
    levels: Tensor
    #: For each node: its parent; and a code, of 1 where a family begins, 2 where it ends, 4 where
    #: there are children, and 8 times the number of the output, from 1 on. In int32.
    links: Tensor
    #: ``r`` and ``D`` of the edge above each node, in float64.
    edges: Tensor


class Memory(NamedTuple):
    """What each program has of its own."""

    #: Two numbers for each node.
    first: Any
    second: Any
    #: For each level, from its beginning on, the nodes that matter: 4 times their number, 1 more
    #: for the first of a family, 2 more if nodes below it matter.
    lists: Any
    #: Of each node: 1 if it may be in the support, and 2 if it matters.
    marks: Any
    #: How many nodes of each level matter.
    counts: Any


class PolicyTables(NamedTuple):
    """What solves on a tree read, made once by `make_tables`."""

    #: Outputs, and levels with that of the root.
    size: int
    depth: int
    #: Nodes of a block.
    block: int
    arrays: TreeArrays


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
    changes = torch.ones(n + 1, dtype=parents.dtype, device=parents.device)
    changes[1:-1] = (parents[1:] != parents[:-1]).long()
    childless = torch.ones_like(parents).scatter(0, parents[1:], 0)
    output = torch.full_like(parents, -1).scatter(0, outputs, here[:size])
    code = changes[:-1] + 2 * changes[1:] + 4 * (1 - childless) + 8 * (output + 1)
    links = torch.stack([parents, code])
    edges = torch.stack([r, D]).to(torch.float64)
    block = BLOCK if n > LARGE else SMALL_BLOCK
    bounds = parents.new_empty(len(levels), dtype=torch.int32)
    for level, start in enumerate(levels):
        bounds[level] = start
    arrays = TreeArrays(bounds, links.to(torch.int32), edges)
    return PolicyTables(size, len(levels) - 1, block, arrays)


def solve(tables: PolicyTables, scores: Tensor) -> Outputs:
    """From scores to the distribution, ``u``, its bracket and the rounds."""
    f = scores.contiguous()
    found = outputs(f, 1)
    nodes, rows = tables.arrays.links.shape[1], found.lower.numel()
    programs = min(rows, MOST_PROGRAMS)
    memory = Memory(
        f.new_empty((programs, nodes), dtype=torch.float64),
        f.new_empty((programs, nodes), dtype=torch.float64),
        f.new_empty((programs, nodes), dtype=torch.int32),
        f.new_empty((programs, nodes), dtype=torch.int8),
        f.new_empty((programs, tables.depth), dtype=torch.int32),
    )
    slack = settings.rounding_allowance(nodes, torch.float64)
    with on_device(f):
        _solve[(programs,)](
            f, found, memory, tables.arrays, rows, nodes, tables.size, tables.depth, slack,
            BLOCK=tables.block, num_warps=WARPS, maxnreg=REGISTERS,
        )  # fmt: skip
    return found


@triton.jit
def _add_within_family(begins_a, x_a, y_a, begins_b, x_b, y_b):
    x = tl.where(begins_b > 0, x_b, x_a + x_b)
    y = tl.where(begins_b > 0, y_b, y_a + y_b)
    return begins_a | begins_b, x, y


@triton.jit
def _most_within_family(begins_a, x_a, begins_b, x_b):
    return begins_a | begins_b, tl.where(begins_b > 0, x_b, tl.maximum(x_a, x_b))


@triton.jit
def _count_within_family(begins_a, x_a, begins_b, x_b):
    return begins_a | begins_b, tl.where(begins_b > 0, x_b, x_a + x_b)


@triton.jit
def _add_both(x_a, y_a, x_b, y_b):
    return x_a + x_b, y_a + y_b


@triton.jit
def _family_sums(x, y, begins, carried_x, carried_y, BLOCK: tl.constexpr):
    """Sum both signals within families, up to each node; the first family began in another block.

    Returns the sums, and those of the last node to carry on with.
    """
    begun, x, y = tl.associative_scan((begins, x, y), 0, _add_within_family)
    x = tl.where(begun > 0, x, x + carried_x)
    y = tl.where(begun > 0, y, y + carried_y)
    last = tl.arange(0, BLOCK) == BLOCK - 1
    ends = tl.reduce((tl.where(last, x, 0.0), tl.where(last, y, 0.0)), 0, _add_both)
    return x, y, ends[0], ends[1]


@triton.jit
def _family_most(x, begins, carried, BLOCK: tl.constexpr):
    """As `_family_sums`, the largest entries, which are not negative, instead of sums."""
    begun, x = tl.associative_scan((begins, x), 0, _most_within_family)
    x = tl.where(begun > 0, x, tl.maximum(x, carried))
    last = tl.arange(0, BLOCK) == BLOCK - 1
    return x, tl.sum(tl.where(last, x, 0.0), 0)


@triton.jit
def _obstacle(scores, output, peak):
    f = tl.load(scores + tl.maximum(output, 0), mask=output >= 0, other=float("-inf"))
    return tl.where(output >= 0, tl.exp((f.to(tl.float64) - peak) * 0.5), 0.0)


@triton.jit
def _solve(all_scores, found, memory, tree, rows, nodes, width, depth, slack, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    memory = Memory(
        memory.first + program * nodes, memory.second + program * nodes,
        memory.lists + program * nodes, memory.marks + program * nodes,
        memory.counts + program * depth,
    )  # fmt: skip
    row = program
    while row < rows:
        scores = all_scores + row * width
        peak = _peak(scores, width, BLOCK)
        _cover(scores, memory, tree, nodes, depth, peak, BLOCK)
        _list(memory, tree, nodes, depth, BLOCK)
        rounds = 0
        going = peak == peak
        while going:
            rounds += 1
            _upwards(scores, memory, tree, nodes, depth, peak, BLOCK)
            going = _downwards(scores, memory, tree, nodes, depth, peak, BLOCK) > 0
        bu, uh = _multiply(scores, memory, tree, nodes, depth, peak, BLOCK)
        gap = _store(scores, found, row, width, memory, tree, nodes, depth, peak, bu, uh, BLOCK)
        store_bounds(found, row, None, peak, bu, uh, gap, slack, rounds)
        tl.debug_barrier()  # before the memory is that of the next row
        row += tl.num_programs(0)


@triton.jit
def _peak(scores, width, BLOCK: tl.constexpr):
    """Return the largest score, NaN if a row has no solution."""
    j = tl.arange(0, BLOCK)
    most = tl.full([BLOCK], float("-inf"), tl.float64)
    for start in range(0, width, BLOCK):
        f = tl.load(scores + start + j, mask=start + j < width, other=float("-inf"))
        most = tl.maximum(most, f.to(tl.float64))
    peak = tl.max(most, 0)
    wrong = tl.zeros([BLOCK], tl.int32)
    for start in range(0, width, BLOCK):
        f = tl.load(scores + start + j, mask=start + j < width, other=float("-inf"))
        wrong += tl.where(f.to(tl.float64) - peak <= 0.0, 0, 1)  # NaN and all infinities fail
    return tl.where(tl.sum(wrong, 0) > 0, float("nan"), peak)


# ------------------------------------------------------------------ all nodes


@triton.jit
def _read(tree, nodes, node, real):
    """Return parent, where families begin and end, where there are children, output, and r."""
    parent = tl.load(tree.links + node, mask=real, other=0)
    code = tl.load(tree.links + nodes + node, mask=real, other=1)
    r = tl.load(tree.edges + node, mask=real, other=0.0)
    return parent, code & 1, (code & 2) > 0, (code & 4) > 0, (code >> 3) - 1, r


@triton.jit
def _cover(scores, memory, tree, nodes, depth, peak, BLOCK: tl.constexpr):
    """Mark what no other output covers alone: others, with b_i < K_ij b_j, are in no support."""
    most = memory.second
    for k in range(1, depth):
        begin = tl.load(tree.levels + depth - k)
        end = tl.load(tree.levels + depth - k + 1)
        carried = tl.full([], 0.0, tl.float64)
        for start in range(begin, end, BLOCK):
            node = start + tl.arange(0, BLOCK)
            parent, begins, ends, has_children, output, r = _read(tree, nodes, node, node < end)
            below = tl.load(most + node, mask=has_children, other=0.0)
            below = tl.maximum(below, _obstacle(scores, output, peak))
            tl.store(most + node, below, mask=has_children)
            sent, carried = _family_most(r * below, begins, carried, BLOCK)
            tl.store(most + parent, sent, mask=ends)
        tl.debug_barrier()
    for level in range(depth):
        begin = tl.load(tree.levels + level)
        end = tl.load(tree.levels + level + 1)
        for start in range(begin, end, BLOCK):
            node = start + tl.arange(0, BLOCK)
            real = node < end
            parent, _, _, has_children, output, r = _read(tree, nodes, node, real)
            b = _obstacle(scores, output, peak)
            here = tl.maximum(b, tl.load(most + node, mask=has_children, other=0.0))
            here = tl.maximum(here, r * tl.load(most + parent, mask=real & (node > 0), other=0.0))
            tl.store(most + node, here, mask=has_children)
            held = (b > 0) & (b >= here * (1 - 1e-12))
            tl.store(memory.marks + node, held.to(tl.int8), mask=real)
        tl.debug_barrier()


@triton.jit
def _list(memory, tree, nodes, depth, BLOCK: tl.constexpr):
    """List the nodes that matter: those that are held, and those above them."""
    for k in range(1, depth + 1):
        begin = tl.load(tree.levels + depth - k)
        end = tl.load(tree.levels + depth - k + 1)
        carried = tl.full([], 0, tl.int32)
        count = tl.full([], 0, tl.int32)
        for start in range(begin, end, BLOCK):
            node = start + tl.arange(0, BLOCK)
            real = node < end
            parent, begins, ends, has_children, _, _ = _read(tree, nodes, node, real)
            mark = tl.load(memory.marks + node, mask=real, other=0).to(tl.int32)
            below = tl.load(memory.first + node, mask=has_children, other=0.0) > 0.0
            matters = ((mark > 0) | below).to(tl.int32)
            begun, before = tl.associative_scan((begins, matters), 0, _count_within_family)
            before = tl.where(begun > 0, before, before + carried)
            tl.store(memory.first + parent, before.to(tl.float64), mask=ends & (node > 0))
            place = begin + count + tl.cumsum(matters, 0) - 1
            entry = 4 * node + tl.where(before == 1, 1, 0) + tl.where(below, 2, 0)
            tl.store(memory.lists + place, entry, mask=matters > 0)
            tl.store(memory.marks + node, (mark + 2 * matters).to(tl.int8), mask=real)
            last = tl.arange(0, BLOCK) == BLOCK - 1
            ends_here = tl.reduce((tl.where(last, before, 0), matters), 0, _add_both)
            carried = ends_here[0]
            count += ends_here[1]
        tl.store(memory.counts + depth - k, count)
        tl.debug_barrier()


# ------------------------------------------------------------------ nodes that matter


@triton.jit
def _read_listed(memory, tree, nodes, begin, count, at):
    """Return node, parent, where families begin and end, what matters below, output, r and D."""
    real = at < count
    entry = tl.load(memory.lists + begin + at, mask=real, other=1)
    following = tl.load(memory.lists + begin + at + 1, mask=at + 1 < count, other=1)
    node = entry >> 2
    parent = tl.load(tree.links + node, mask=real, other=0)
    output = (tl.load(tree.links + nodes + node, mask=real, other=0) >> 3) - 1
    r = tl.load(tree.edges + node, mask=real, other=0.0)
    D = tl.load(tree.edges + nodes + node, mask=real, other=1.0)
    ends = real & ((following & 1) > 0)
    return node, parent, entry & 1, ends, real & ((entry & 2) > 0), output, r, D


@triton.jit
def _upwards(scores, memory, tree, nodes, depth, peak, BLOCK: tl.constexpr):
    """Each node with all below it is ½ λ h² - η h, as its parent sees it: store λ and η."""
    for k in range(1, depth):
        begin = tl.load(tree.levels + depth - k)
        count = tl.load(memory.counts + depth - k)
        carried_curvature = tl.full([], 0.0, tl.float64)
        carried_force = tl.full([], 0.0, tl.float64)
        for start in range(0, count, BLOCK):
            at = start + tl.arange(0, BLOCK)
            node, parent, begins, ends, below, output, r, D = _read_listed(
                memory, tree, nodes, begin, count, at
            )
            curvature = tl.load(memory.first + node, mask=below, other=0.0)
            force = tl.load(memory.second + node, mask=below, other=0.0)
            held = (tl.load(memory.marks + node, mask=at < count, other=0) & 1) > 0
            sent = r / tl.where(held, D, 1.0 + D * curvature)
            force = tl.where(held, _obstacle(scores, output, peak), force)
            curvature, force, carried_curvature, carried_force = _family_sums(
                sent * r * tl.where(held, 1.0, curvature), sent * force, begins,
                carried_curvature, carried_force, BLOCK,
            )  # fmt: skip
            tl.store(memory.first + parent, curvature, mask=ends)
            tl.store(memory.second + parent, force, mask=ends)
        tl.debug_barrier()


@triton.jit
def _downwards(scores, memory, tree, nodes, depth, peak, BLOCK: tl.constexpr):
    """From λ and η to u and h in their places. Drop what is not positive; return how many were."""
    dropped = tl.zeros([BLOCK], tl.int32)
    for level in range(depth):
        begin = tl.load(tree.levels + level)
        count = tl.load(memory.counts + level)
        for start in range(0, count, BLOCK):
            at = start + tl.arange(0, BLOCK)
            real = at < count
            node, parent, _, _, below, output, r, D = _read_listed(
                memory, tree, nodes, begin, count, at
            )
            curvature = tl.load(memory.first + node, mask=below, other=0.0)
            force = tl.load(memory.second + node, mask=below, other=0.0)
            held = (tl.load(memory.marks + node, mask=real, other=0) & 1) > 0
            above = r * tl.load(memory.second + parent, mask=real & (node > 0), other=0.0)
            D = tl.where(node > 0, D, 1.0)
            free = (above + D * force) / (1.0 + D * curvature)
            h = tl.where(held, _obstacle(scores, output, peak), free)
            # What the edge above pulls, less what those below do.
            u = tl.where(held, (h - above) / D + (curvature * h - force), 0.0)
            still = held & (u > 0)
            dropped += (still != held).to(tl.int32)
            tl.store(memory.first + node, u, mask=real)
            tl.store(memory.second + node, h, mask=real)
            tl.store(memory.marks + node, still.to(tl.int8) + 2, mask=real)
        tl.debug_barrier()
    return tl.sum(dropped, 0)


@triton.jit
def _multiply(scores, memory, tree, nodes, depth, peak, BLOCK: tl.constexpr):
    """Store h = Ku where it matters: from below, then from everywhere. Returns ⟨b,u⟩ and ⟨u,h⟩."""
    for k in range(1, depth + 1):
        begin = tl.load(tree.levels + depth - k)
        count = tl.load(memory.counts + depth - k)
        carried = tl.full([], 0.0, tl.float64)
        unused = tl.full([], 0.0, tl.float64)
        for start in range(0, count, BLOCK):
            at = start + tl.arange(0, BLOCK)
            real = at < count
            node, parent, begins, ends, below, _, r, _ = _read_listed(
                memory, tree, nodes, begin, count, at
            )
            h = tl.load(memory.first + node, mask=real, other=0.0)
            h += tl.load(memory.second + node, mask=below, other=0.0)
            tl.store(memory.second + node, h, mask=real)
            sent, _, carried, unused = _family_sums(r * h, r * h, begins, carried, unused, BLOCK)
            tl.store(memory.second + parent, sent, mask=ends & (node > 0))
        tl.debug_barrier()
    bu, uh = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for level in range(depth):
        begin = tl.load(tree.levels + level)
        count = tl.load(memory.counts + level)
        for start in range(0, count, BLOCK):
            at = start + tl.arange(0, BLOCK)
            real = at < count
            node, parent, _, _, _, output, r, D = _read_listed(
                memory, tree, nodes, begin, count, at
            )
            h = tl.load(memory.second + node, mask=real, other=0.0)
            above = r * tl.load(memory.second + parent, mask=real & (node > 0), other=0.0)
            h = tl.where(node > 0, D * h + above, h)
            tl.store(memory.second + node, h, mask=real)
            u = tl.load(memory.first + node, mask=real, other=0.0)
            bu += _obstacle(scores, output, peak) * u
            uh += u * h
        tl.debug_barrier()
    return tl.sum(bu, 0), tl.sum(uh, 0)


@triton.jit
def _store(
    scores, found, row, width, memory, tree, nodes, depth, peak, bu, uh, BLOCK: tl.constexpr
):
    """Store the distribution; return the gap, as `certificate.certify` does, from all outputs."""
    scale = bu / uh
    kind = found.alpha.dtype.element_ty
    v_sum, vh = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for level in range(depth):
        begin = tl.load(tree.levels + level)
        end = tl.load(tree.levels + level + 1)
        for start in range(begin, end, BLOCK):
            node = start + tl.arange(0, BLOCK)
            real = node < end
            parent, _, _, has_children, output, r = _read(tree, nodes, node, real)
            matters = tl.load(memory.marks + node, mask=real, other=0) > 1
            u = tl.load(memory.first + node, mask=matters, other=0.0)
            h = r * tl.load(memory.second + parent, mask=real & (node > 0), other=0.0)
            h = tl.where(matters, tl.load(memory.second + node, mask=matters, other=0.0), h)
            tl.store(memory.second + node, h, mask=has_children)
            b = _obstacle(scores, output, peak)
            v = tl.maximum(b - h * scale, 0.0)
            v_sum += v
            vh += v * h
            place = row * width + output
            tl.store(found.alpha + place, (u * b / bu).to(kind), mask=output >= 0)
            tl.store(found.u + place, (u * scale).to(kind), mask=output >= 0)
        tl.debug_barrier()
    total = tl.sum(v_sum, 0)
    return (2 * tl.sum(vh, 0) * scale + total * total) / (bu * scale)

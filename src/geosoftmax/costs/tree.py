"""Taxonomies: distances along a tree."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from geosoftmax.costs.base import ScaledCost, reads_values, unit_scale, wide
from geosoftmax.costs.traits import Tree
from geosoftmax.validation import as_float_tensor, check_has_values, check_signal
from geosoftmax.validation.trees import (
    breadth_first,
    check_outputs,
    check_parents,
    choose_outputs,
    hint,
    read_taxonomy,
)

#: The inverse of a shorter edge overflows in float64.
SHORTEST = 1e-300


class TreeCost(ScaledCost):
    """``C_ij`` is the length of the path from ``i`` to ``j`` along a tree.

    Products, solves and the geometric softmax take linear time and memory.

    Parameters
    ----------
    parents : sequence of int
        The parent of each node; -1 for the root. Nodes may have any order.
    lengths : float or sequence of float
        The length of the edge from each node to its parent. That of the root is not used.
    outputs : {"nodes", "leaves"} or sequence of int
        Which nodes are outputs, and in which order.

    Examples
    --------
    >>> TreeCost([-1, 0, 0, 1], lengths=[0, 1, 2, 5]).matrix()
    tensor([[0., 1., 2., 6.],
            [1., 0., 3., 5.],
            [2., 3., 0., 8.],
            [6., 5., 8., 0.]], dtype=torch.float64)
    """

    # Nodes are stored so that parents come before children, level by level.
    parents: Tensor  # (n,), in the stored order; the root is its own parent
    lengths: Tensor  # (n,), of the edge to the parent; not used at the root
    outputs: Tensor  # (d,), the node of each output
    levels: tuple[int, ...]  # the first node of each level, and n
    names: tuple[str, ...] | None  # of the outputs
    groups: tuple[str, ...] = ()  # the names of the inner nodes, level by level
    group_nodes: tuple[int, ...] = ()  # the node of each group
    tensor_names = ("scale", "lengths", "parents", "outputs")
    static_names = ("shape", "signature", "levels", "names", "groups", "group_nodes")
    has_linear_product = True

    @reads_values
    def __init__(
        self,
        parents: Any,
        lengths: Any = 1.0,
        *,
        outputs: str | Sequence[int] = "nodes",
    ) -> None:
        parent_list = check_parents(parents)
        n = len(parent_list)
        length = as_float_tensor("lengths", lengths).detach().to(torch.float64)
        if length.dim() > 1 or (length.dim() == 1 and length.shape[0] != n):
            raise ValueError(
                f"lengths must be one number or one for each of the {n} nodes; "
                f"got shape {tuple(length.shape)}."
            )
        check_has_values("lengths", length)
        length = length.expand(n).clone()
        order, depths = breadth_first(parent_list)
        root = order[0]
        length[root] = 1.0
        _check_lengths(length)
        place = [0] * n
        for k, node in enumerate(order):
            place[node] = k
        chosen = check_outputs(outputs, parent_list)
        levels = [k for k in range(n) if k == 0 or depths[k] != depths[k - 1]] + [n]
        above = [place[parent_list[v]] if v != root else 0 for v in order]
        self._set(
            {
                "signature": f"TreeCost|{','.join(map(str, levels))}",
                "shape": (len(chosen),),
                "levels": tuple(levels),
                "names": None,
                "scale": unit_scale(),
                "lengths": length[torch.tensor(order)],
                "parents": torch.tensor(above),
                "outputs": torch.tensor([place[v] for v in chosen]),
            }
        )

    @classmethod
    def from_dict(
        cls,
        tree: Mapping[str, Any],
        lengths: float | Mapping[str, float] = 1.0,
        *,
        outputs: Literal["leaves", "nodes"] = "leaves",
        order: Sequence[str] | None = None,
    ) -> TreeCost:
        """Build a taxonomy from nested names.

        The cost has the attributes `names`, of the outputs, and `groups`, of the inner nodes, level
        by level.

        Parameters
        ----------
        tree : mapping
            A group is a mapping, or a list of names of leaves. A leaf is None, or a number, the
            length of its edge. If there are several names at the top, they get a root without a
            name. Names of outputs must differ, and so must names of groups.
        lengths : float or mapping of names to floats
            One length for every edge. Or the lengths of the edges above some groups or leaves; all
            other edges have length 1.
        outputs : {"leaves", "nodes"}
            Whether groups are outputs too.
        order : sequence of str
            The names of all outputs, in the order of the classes in your data. By default, the
            order of the tree.

        Examples
        --------
        >>> tree = {"cat": None, "wheels": ["car", "bus"]}
        >>> cost = TreeCost.from_dict(tree, lengths={"wheels": 2.0, "bus": 0.5})
        >>> cost.names, cost.matrix()[0].tolist()
        (('cat', 'car', 'bus'), [0.0, 4.0, 3.5])
        >>> cost = TreeCost.from_dict(tree, order=["bus", "car", "cat"])
        >>> cost.names, cost.index("cat"), cost.groups
        (('bus', 'car', 'cat'), 2, ('wheels',))
        """
        found = read_taxonomy(tree, lengths)
        chosen = choose_outputs(found, outputs, order)
        cost = cls(found.parents, found.lengths, outputs=chosen)
        place = {node: k for k, node in enumerate(breadth_first(found.parents)[0])}
        groups = sorted(found.inner, key=lambda node: place[node])
        names = tuple(found.names[v] for v in chosen)
        group_names = tuple(found.names[v] for v in groups)
        group_nodes = tuple(place[v] for v in groups)
        inner = _digest([*group_names, *map(str, group_nodes)])
        named = {
            "names": names,
            "groups": group_names,
            "group_nodes": group_nodes,
            "signature": f"{cost.signature}|names:{_digest(names)}|groups:{inner}",
        }
        for name, value in named.items():
            object.__setattr__(cost, name, value)
        return cost

    @classmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        levels = tuple([int(start) for start in signature.split("|")[1].split(",")])
        return {"shape": (tensors[3].shape[0],), "levels": levels, "names": None}

    def __repr__(self) -> str:
        nodes = self.parents.shape[0]
        text = f"{self.shape[0]} outputs" + ("" if nodes == self.shape[0] else f" of {nodes} nodes")
        if self.names is not None:
            first = ", ".join(map(repr, self.names if len(self.names) <= 4 else self.names[:2]))
            text += f": {first}" + (f", …, {self.names[-1]!r}" if len(self.names) > 4 else "")
        return f"TreeCost({text}){self._scale_text()}"

    def check(self) -> None:
        super().check()
        _check_lengths(self.lengths[1:])  # that of the root is not used

    # ------------------------------------------------------------------ names

    def index(self, name: str) -> int:
        """Return the index of the output with this name, as in targets and distributions.

        Examples
        --------
        >>> TreeCost.from_dict({"pets": ["cat", "dog"], "bus": None}).index("bus")
        2
        """
        names, groups = self._named()
        if not isinstance(name, str):
            raise TypeError(
                f"name must be a text; got {name!r}. For several names, use "
                "torch.tensor([cost.index(name) for name in names])."
            )
        if name in names:
            return names.index(name)
        if name in groups:
            raise ValueError(
                f"{name!r} is a group, not an output. group_sums(alpha, {name!r}) gives its "
                "probability."
            )
        raise ValueError(f"no output has the name {name!r}{hint(str(name), names)}")

    def group_sums(self, alpha: Tensor, group: str | None = None) -> Tensor:
        """Sum a distribution over each inner node and all outputs below it.

        Parameters
        ----------
        alpha : Tensor, shape (*batch, d)
            A distribution over the outputs, or any signal.
        group : str, optional
            The name of one group.

        Returns
        -------
        Tensor, shape (*batch, len(cost.groups)), or batch for one group
            The sum over each group, in the order of `groups`. Differentiable.

        Examples
        --------
        >>> cost = TreeCost.from_dict({"pets": ["cat", "dog"], "wheels": ["bus", "van"]})
        >>> cost.groups, cost.group_sums(torch.tensor([0.5, 0.25, 0.25, 0.0]))
        (('pets', 'wheels'), tensor([0.7500, 0.2500]))
        >>> cost.group_sums(torch.tensor([0.5, 0.25, 0.25, 0.0]), "pets")
        tensor(0.7500)
        """
        names, groups = self._named()
        check_signal("alpha", alpha, self)
        if group is not None and group not in groups:
            if group in names:
                why = f"{group!r} is an output, not a group. Use alpha[..., cost.index({group!r})]."
            else:
                why = f"no group has the name {group!r}{hint(str(group), groups)}"
            raise ValueError(why)
        below = self._to_nodes(alpha, 0.0)
        for level, above in self._upwards():
            below = below.index_add(-1, above, below[..., level])
        if group is not None:
            return below[..., self.group_nodes[groups.index(group)]]
        return below[..., list(self.group_nodes)]

    def _named(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.names is None:
            raise ValueError(
                "the nodes of this tree have no names. TreeCost.from_dict builds one with names."
            )
        return self.names, self.groups

    # ------------------------------------------------------------------

    def matvec(self, u: Tensor) -> Tensor:
        r, D = self._edges(u.dtype)
        below = self._to_nodes(u, 0.0)
        for level, above in self._upwards():
            sent = r[level] * below[..., level]
            below = below.index_add(-1, above, sent)
        total = [below[..., :1]]
        for level, above in self._downwards():
            start = level.start - total[-1].shape[-1]
            arriving = total[-1].index_select(-1, above - start)
            total.append(D[level] * below[..., level] + r[level] * arriving)
        return torch.cat(total, -1).index_select(-1, self.outputs)

    def log_matvec(self, g: Tensor) -> Tensor:
        half = (wide(self.scale) / 2 * wide(self.lengths)).to(g.dtype)
        log_D = torch.log(-torch.expm1(-2 * half))
        below = self._to_nodes(g, -math.inf)
        for level, above in self._upwards():
            sent = below[..., level] - half[level]
            below = _log_index_add(below, above, sent)
        total = [below[..., :1]]
        for level, above in self._downwards():
            start = level.start - total[-1].shape[-1]
            arriving = total[-1].index_select(-1, above - start) - half[level]
            total.append(torch.logaddexp(below[..., level] + log_D[level], arriving))
        return torch.cat(total, -1).index_select(-1, self.outputs)

    def solve(self, rhs: Tensor, support: Tensor) -> Tensor:
        """Interpolate ``h`` from the support along the tree; ``x`` is the force that this takes.

        ``½ hᵀK⁻¹h = ½ h_root² + ½ Σ (h_i - r_i h_parent)² / D_i``. Elimination of the free nodes,
        from the leaves upwards, leaves a force at each node, ``force + curvature (h - near)``.
        Along an edge of length near 0 the curvature is huge, and ``h`` is close to the value of an
        output of the support. Then ``near`` is that value, and ``h`` is stored as ``near + off``,
        so that the difference of two nearly equal numbers is not lost to rounding.
        """
        r, D = self._edges(rhs.dtype)
        fixed = self._to_nodes(support, False)
        near = torch.where(fixed, self._to_nodes(rhs, 0.0), 0.0)
        curvature, force = torch.zeros_like(near), torch.zeros_like(near)
        for level, above in self._upwards():
            held, rl, Dl = fixed[..., level], r[level], D[level]
            at, lam, pull = near[..., level], curvature[..., level], force[..., level]
            sent = torch.where(held, rl.square() / Dl, rl.square() * lam / (1 + Dl * lam))
            stiff = sent > 1
            at_rest = torch.where(stiff, 1 / (1 + rl), 1 / Dl)  # what an output pulls, over r at
            pull = torch.where(
                held,
                -rl * at_rest * at,
                rl * (pull - Dl * at_rest * lam * at) / (1 + Dl * lam),
            )
            at = torch.where(stiff, at, 0.0)
            near = torch.where(fixed, near, _stiffest(near, above, sent, at))
            shift = sent * (near.index_select(-1, above) - at)
            curvature = curvature.index_add(-1, above, sent)
            force = force.index_add(-1, above, pull + shift)
        root = -(near[..., :1] + force[..., :1]) / (1 + curvature[..., :1])
        off = [torch.where(fixed[..., :1], 0.0, root)]
        x = [near[..., :1] + force[..., :1]]
        for level, above in self._downwards():
            start = level.start - off[-1].shape[-1]
            rl, Dl, at = r[level], D[level], near[..., level]
            near_above, off_above = near[..., above], off[-1].index_select(-1, above - start)
            parent, beyond = near_above + off_above, (near_above - at) + off_above
            short = rl > 0.5
            arriving = torch.where(short, beyond - Dl / (1 + rl) * parent, rl * parent - at)
            free = (arriving - Dl * force[..., level]) / (1 + Dl * curvature[..., level])
            off.append(torch.where(fixed[..., level], 0.0, free))
            x.append(
                at
                + force[..., level]
                - torch.where(
                    short, rl / Dl * beyond + rl / (1 + rl) * at, rl * (parent - rl * at) / Dl
                )
            )
        return (torch.cat(x, -1) * fixed).index_select(-1, self.outputs)

    def expected(self, alpha: Tensor) -> Tensor:
        """Return ``C α``, from the root downwards: an edge brings only the mass below it nearer."""
        lengths = (self.scale * self.lengths).to(alpha.dtype)
        below = self._to_nodes(alpha, 0.0)
        for level, above in self._upwards():
            below = below.index_add(-1, above, below[..., level])
        mass = below[..., :1]
        total = [(lengths[1:] * below[..., 1:]).sum(-1, keepdim=True)]
        for level, above in self._downwards():
            start = level.start - total[-1].shape[-1]
            parent = total[-1].index_select(-1, above - start)
            total.append(parent + lengths[level] * (mass - 2 * below[..., level]))
        return torch.cat(total, -1).index_select(-1, self.outputs)

    def matrix(self) -> Tensor:
        n = self.parents.shape[0]
        lengths = wide(self.lengths)
        distance = torch.zeros((n, n), dtype=lengths.dtype, device=self.device)
        parents = self.parents.tolist()
        for k in range(1, n):
            row = distance[parents[k], :k] + lengths[k]
            distance[k, :k] = row
            distance[:k, k] = row
        return self.scale * distance[self.outputs][:, self.outputs]

    # ------------------------------------------------------------------

    @property
    def structure(self) -> Literal["tree"]:
        return "tree"

    def as_tree(self) -> Tree:
        r, D = (x.detach() for x in self._edges(torch.float64))
        return Tree(self.parents, self.outputs, r, D, self.levels)

    def _edges(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return ``r = exp(-length/2)`` and ``D = 1 - r²`` of the edge above each node."""
        half = wide(self.scale) / 2 * wide(self.lengths[1:])  # so that r² + D is 1 to all digits
        root = torch.zeros(1, dtype=half.dtype, device=half.device)
        r = torch.cat([root, torch.exp(-half)])
        return r.to(dtype), torch.cat([root + 1, -torch.expm1(-2 * half)]).to(dtype)

    def _to_nodes(self, signal: Tensor, fill: float | bool) -> Tensor:
        n = self.parents.shape[0]
        nodes = torch.full((*signal.shape[:-1], n), fill, dtype=signal.dtype, device=signal.device)
        index = self.outputs.expand(signal.shape)
        return nodes.scatter(-1, index, signal)

    def _downwards(self) -> list[tuple[slice, Tensor]]:
        """Yield each level below the root, with the parents of its nodes."""
        levels = [slice(a, b) for a, b in itertools.pairwise(self.levels[1:])]
        return [(level, self.parents[level]) for level in levels]

    def _upwards(self) -> list[tuple[slice, Tensor]]:
        return self._downwards()[::-1]


def _log_index_add(total: Tensor, index: Tensor, sent: Tensor) -> Tensor:
    """Write ``log(exp(total) + Σ exp(sent))`` into the indexed entries."""
    where = index.expand(sent.shape)
    peak = total.scatter_reduce(-1, where, sent, "amax").detach()
    safe = torch.where(torch.isinf(peak), torch.zeros_like(peak), peak)
    summed = torch.exp(total - safe).scatter_add(
        -1, where, torch.exp(sent - safe.gather(-1, where))
    )
    return torch.log(summed) + safe


def _stiffest(near: Tensor, above: Tensor, sent: Tensor, at: Tensor) -> Tensor:
    """Set each entry to the `at` with the largest `sent` among those sent to it."""
    where = above.expand(sent.shape)
    most = torch.zeros_like(near).scatter_reduce(-1, where, sent, "amax")
    largest = sent == most.gather(-1, where)
    least = torch.full_like(near, -math.inf)
    chosen = least.scatter_reduce(-1, where, at.masked_fill(~largest, -math.inf), "amax")
    return torch.where(torch.isinf(chosen), near, chosen)


def _check_lengths(lengths: Tensor) -> None:
    if not bool((torch.isfinite(lengths) & (lengths > SHORTEST)).all()):
        raise ValueError(
            f"edge lengths must be above {SHORTEST:g} and finite: at distance 0, two outputs "
            "are the same. Merge such outputs."
        )


def _digest(names: Sequence[str]) -> str:
    """Return a short hash of the names and their order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()[:8]

"""Taxonomies: distances along a tree."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from geosoftmax.costs.base import ScaledCost, unit_scale, wide
from geosoftmax.costs.traits import Tree
from geosoftmax.validation import as_float_tensor


class TreeCost(ScaledCost):
    """``C_ij`` is the length of the path from ``i`` to ``j`` along a tree.

    Products, solves and the geometric softmax take linear time and memory.

    Parameters
    ----------
    parents : sequence of int
        The parent of each node; -1 for the root. Any order.
    lengths : float or sequence of float
        The length of the edge from each node to its parent (that of the root is not used).
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
    outputs: Tensor  # (d,), where the outputs are stored
    levels: tuple[int, ...]  # where each level begins, and the end
    names: tuple[str, ...] | None
    tensor_names = ("scale", "lengths", "parents", "outputs")
    static_names = ("shape", "signature", "levels", "names")
    has_linear_product = True

    def __init__(
        self,
        parents: Any,
        lengths: Any = 1.0,
        *,
        outputs: str | Sequence[int] = "nodes",
    ) -> None:
        parent_list = _check_parents(parents)
        n = len(parent_list)
        length = as_float_tensor("lengths", lengths).detach().to(torch.float64)
        if length.dim() > 1 or (length.dim() == 1 and length.shape[0] != n):
            raise ValueError(
                f"lengths must be one number or one for each of the {n} nodes; "
                f"got shape {tuple(length.shape)}."
            )
        length = length.expand(n).clone()
        order, depths = _breadth_first(parent_list)
        root = order[0]
        length[root] = 1.0
        if not bool((torch.isfinite(length) & (length > 0)).all()):
            raise ValueError(
                "edge lengths must be positive and finite: at distance 0, two are one output."
            )
        place = [0] * n
        for k, node in enumerate(order):
            place[node] = k
        chosen = _check_outputs(outputs, parent_list)
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
        cls, tree: Mapping[str, Any], lengths: float = 1.0, *, outputs: str = "leaves"
    ) -> TreeCost:
        """Build a taxonomy from nested names.

        A value is a mapping (a subtree), a list of leaf names, a number (a leaf, with the length of
        its edge), or None (a leaf). Several names at the top hang below an unnamed root. The order
        of the outputs is the order of the names, each of which is there once; `names` holds them.

        Examples
        --------
        >>> cost = TreeCost.from_dict({"cat": None, "wheels": {"car": None, "bus": None}})
        >>> cost.names, cost.matrix()[1].tolist()
        (('cat', 'car', 'bus'), [3.0, 0.0, 2.0])
        """
        if not isinstance(tree, Mapping):
            raise TypeError(f"a tree is a mapping of names; got {type(tree).__name__}.")
        parents, edges, names = [-1], [0.0], [""]
        _walk(tree.items(), 0, float(lengths), parents, edges, names)
        if len(parents) == 1:
            raise ValueError("the tree has no names.")
        chosen = [v for v in _check_outputs(outputs, parents) if v != 0]  # the root has no name
        _check_names([names[v] for v in chosen])
        cost = cls(parents, edges, outputs=chosen)
        object.__setattr__(cost, "names", tuple(names[v] for v in chosen))
        return cost

    @classmethod
    def read_signature(cls, signature: str, tensors: list[Tensor]) -> dict[str, Any]:
        levels = tuple([int(start) for start in signature.split("|")[1].split(",")])
        return {"shape": (tensors[3].shape[0],), "levels": levels, "names": None}

    def __repr__(self) -> str:
        nodes = self.parents.shape[0]
        inner = "" if nodes == self.shape[0] else f" of {nodes} nodes"
        return f"TreeCost({self.shape[0]} outputs{inner}){self._scale_text()}"

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
        """Interpolate ``h`` from the support along the tree; ``x`` is what drives it.

        ``½ hᵀK⁻¹h = ½ h_root² + ½ Σ (h_i - r_i h_parent)² / D_i``. Eliminating the free nodes from
        the leaves upwards leaves ``½ λ h² - η h`` at each node, with positive terms only.
        """
        r, D = self._edges(rhs.dtype)
        h = self._to_nodes(rhs, 0.0)
        fixed = self._to_nodes(support, False)
        curvature = torch.zeros_like(h)
        force = torch.zeros_like(h)
        for level, above in self._upwards():
            lam, eta, held = curvature[..., level], force[..., level], fixed[..., level]
            rl, Dl = r[level], D[level]
            lam_up = torch.where(held, rl.square() / Dl, rl.square() * lam / (1 + Dl * lam))
            eta_up = torch.where(held, rl * h[..., level] / Dl, rl * eta / (1 + Dl * lam))
            curvature = curvature.index_add(-1, above, lam_up)
            force = force.index_add(-1, above, eta_up)
        root = torch.where(fixed[..., :1], h[..., :1], force[..., :1] / (1 + curvature[..., :1]))
        values = [root]
        for level, above in self._downwards():
            start = level.start - values[-1].shape[-1]
            parent = values[-1].index_select(-1, above - start)
            free = (r[level] * parent + D[level] * force[..., level]) / (
                1 + D[level] * curvature[..., level]
            )
            values.append(torch.where(fixed[..., level], h[..., level], free))
        h = torch.cat(values, -1)
        # At the root r = 0 and D = 1, so that its own term is h_root.
        pull = (h - r * h.index_select(-1, self.parents)) / D
        above = self.parents[1:]
        x = pull.index_add(-1, above, -r[1:] * pull[..., 1:])
        return (x * fixed).index_select(-1, self.outputs)

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
        """``r = exp(-length/2)``, ``D = 1 - r²`` of the edge above each node; r = 0 at the root."""
        half = wide(self.scale) / 2 * wide(self.lengths[1:])
        root = torch.zeros(1, dtype=half.dtype, device=half.device)
        r = torch.cat([root, torch.exp(-half)])
        return r.to(dtype), torch.cat([root + 1, -torch.expm1(-2 * half)]).to(dtype)

    def _to_nodes(self, signal: Tensor, fill: float | bool) -> Tensor:
        n = self.parents.shape[0]
        nodes = torch.full((*signal.shape[:-1], n), fill, dtype=signal.dtype, device=signal.device)
        index = self.outputs.expand(signal.shape)
        return nodes.scatter(-1, index, signal)

    def _downwards(self) -> list[tuple[slice, Tensor]]:
        """Each level below the root, with the parents of its nodes."""
        levels = [slice(a, b) for a, b in itertools.pairwise(self.levels[1:])]
        return [(level, self.parents[level]) for level in levels]

    def _upwards(self) -> list[tuple[slice, Tensor]]:
        return self._downwards()[::-1]


def _log_index_add(total: Tensor, index: Tensor, sent: Tensor) -> Tensor:
    """``log(exp(total) + Σ exp(sent))`` into the indexed entries."""
    where = index.expand(sent.shape)
    peak = total.scatter_reduce(-1, where, sent, "amax").detach()
    safe = torch.where(torch.isinf(peak), torch.zeros_like(peak), peak)
    summed = torch.exp(total - safe).scatter_add(
        -1, where, torch.exp(sent - safe.gather(-1, where))
    )
    return torch.log(summed) + safe


def _check_parents(parents: Any) -> list[int]:
    values = torch.as_tensor(parents)
    if values.dim() != 1 or values.numel() == 0:
        raise ValueError(f"parents must be a non-empty vector; got shape {tuple(values.shape)}.")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        raise TypeError(f"parents must be integers; got {values.dtype}.")
    listed = values.tolist()
    n = len(listed)
    if any(p < -1 or p >= n for p in listed):
        raise ValueError(f"parents must lie in 0…{n - 1}, or be -1 for the root.")
    if listed.count(-1) != 1:
        raise ValueError(
            f"a tree has exactly one root (parent -1); got {listed.count(-1)}. "
            "Hang several trees below one new root."
        )
    return listed


def _breadth_first(parents: list[int]) -> tuple[list[int], list[int]]:
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    order, depths = [parents.index(-1)], [0]
    for k in range(len(parents)):
        if k >= len(order):
            raise ValueError("parents contain a cycle: some nodes never reach the root.")
        order += children[order[k]]
        depths += [depths[k] + 1] * len(children[order[k]])
    return order, depths


def _check_outputs(outputs: str | Sequence[int], parents: list[int]) -> list[int]:
    n = len(parents)
    if outputs == "nodes":
        return list(range(n))
    if outputs == "leaves":
        inner = set(parents)
        return [v for v in range(n) if v not in inner]
    if isinstance(outputs, str):
        raise ValueError(f"outputs must be 'nodes', 'leaves' or indices; got {outputs!r}.")
    chosen = torch.as_tensor(outputs).tolist()
    if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= v < n for v in chosen):
        raise ValueError(f"outputs must be distinct node indices in 0…{n - 1}.")
    return chosen


def _walk(
    items: Iterable[tuple[Any, Any]], parent: int, length: float,
    parents: list[int], edges: list[float], names: list[str],
) -> None:  # fmt: skip
    for name, below in items:
        node = len(parents)
        parents.append(parent)
        edges.append(float(below) if isinstance(below, (int, float)) else length)
        names.append(str(name))
        if isinstance(below, Mapping):
            _walk(below.items(), node, length, parents, edges, names)
        elif isinstance(below, (list, tuple)):
            _walk(((leaf, None) for leaf in below), node, length, parents, edges, names)
        elif below is not None and not isinstance(below, (int, float)):
            raise TypeError(f"{name!r} must map to names, a length or None; got {below!r}.")


def _check_names(names: list[str]) -> None:
    """Refuse an output that cannot be told from another by its name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"the name {twice[0]!r} is there more than once among the outputs. Say where each one "
            f"belongs in its name, such as 'pets/{twice[0]}'."
        )

"""The input of trees: parents, or nested names; lengths of edges; the order of classes."""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch

from geosoftmax.validation.costs import check_has_values

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_parents(parents: Any) -> list[int]:
    """Return the parents as a list; check that there is one root, whose parent is -1."""
    check_has_values("parents", parents)
    try:
        values = torch.as_tensor(parents)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            "parents must be integers: for each node the index of its parent, and -1 for the root; "
            f"got {parents!r}. TreeCost.from_dict builds a tree from names."
        ) from None
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
            "To join several trees, add a new root."
        )
    return listed


def breadth_first(parents: list[int]) -> tuple[list[int], list[int]]:
    """Return the nodes level by level, and their depths; refuse cycles."""
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


def check_outputs(outputs: str | Sequence[int], parents: list[int]) -> list[int]:
    """Return the indices of the nodes that are outputs."""
    n = len(parents)
    if outputs == "nodes":
        return list(range(n))
    if outputs == "leaves":
        inner = set(parents)
        return [v for v in range(n) if v not in inner]
    if isinstance(outputs, str):
        raise ValueError(f"outputs must be 'nodes', 'leaves' or indices; got {outputs!r}.")
    try:
        nodes = torch.as_tensor(outputs)
    except (TypeError, ValueError, RuntimeError):
        nodes = None
    if nodes is None or nodes.dim() != 1 or (len(nodes) and nodes.dtype not in _INTEGERS):
        raise TypeError(
            f"outputs must be 'nodes', 'leaves' or a list of node indices; got {outputs!r}."
        )
    chosen = nodes.tolist()
    if not chosen or len(set(chosen)) != len(chosen) or not all(0 <= v < n for v in chosen):
        raise ValueError(f"outputs must be distinct node indices in 0…{n - 1}.")
    return chosen


# ------------------------------------------------------------------ taxonomies


class Taxonomy(NamedTuple):
    """A tree of names. Parents come before their children; the root is first and has no name."""

    parents: list[int]
    #: The length of the edge above each node; not used at the root.
    lengths: list[float]
    names: list[str]

    @property
    def inner(self) -> list[int]:
        """The nodes with children, without the root."""
        return sorted(set(self.parents[1:]) - {0})

    @property
    def leaves(self) -> list[int]:
        """The nodes without children."""
        return sorted(set(range(1, len(self.parents))) - set(self.parents))


def read_taxonomy(tree: Any, lengths: Any) -> Taxonomy:
    """Read nested names, as for `TreeCost.from_dict`."""
    if not isinstance(tree, Mapping):
        raise TypeError(f"tree must be a mapping of names; got {type(tree).__name__}.")
    if not tree:
        raise ValueError("the tree is empty. Give it at least one name.")
    found = Taxonomy([-1], [1.0], [""])
    own: list[float | None] = [None]
    _read_group(found, own, tree, 0)
    _refuse_twice([found.names[v] for v in found.leaves], "outputs")
    _refuse_twice([found.names[v] for v in found.inner], "groups")
    _set_lengths(found, own, lengths)
    return found


def choose_outputs(taxonomy: Taxonomy, outputs: Any, order: Any) -> list[int]:
    """Return the nodes that are outputs, in the order of the classes."""
    if not isinstance(outputs, str) or outputs not in ("leaves", "nodes"):
        raise ValueError(
            f"outputs must be 'leaves' or 'nodes' where the tree has names; got {outputs!r}. "
            "Pass the order of the classes as order=[...]."
        )
    n = len(taxonomy.parents)
    chosen = taxonomy.leaves if outputs == "leaves" else list(range(1, n))
    names = [taxonomy.names[v] for v in chosen]
    _refuse_twice(names, "outputs")
    if order is None:
        return chosen
    place = dict(zip(names, chosen, strict=True))
    ordered = _read_order(order)
    for name in ordered:
        if name not in place:
            group = outputs == "leaves" and name in taxonomy.names
            why = "a group, not an output." if group else f"no output{hint(name, names)}"
            raise ValueError(f"order has {name!r}, which is {why}")
    given = set(ordered)
    missing = [name for name in names if name not in given]
    if missing:
        raise ValueError(f"order must have all {len(names)} outputs; it lacks {_listed(missing)}.")
    return [place[name] for name in ordered]


def hint(name: str, names: Iterable[str]) -> str:
    """Return the end of a message: the name that the user may have meant."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]!r}?" if near else "."


# ------------------------------------------------------------------ names


def _read_group(
    found: Taxonomy, own: list[float | None], group: Mapping[Any, Any], parent: int
) -> None:
    """Add the entries of a mapping below a node; write the lengths of leaves into `own`."""
    for name, below in group.items():
        node = _add(found, own, name, parent)
        if below is None:
            continue
        if isinstance(below, Real) and not isinstance(below, bool):
            own[node] = float(below)
        elif isinstance(below, Mapping):
            _refuse_empty(name, below)
            _read_group(found, own, below, node)
        elif isinstance(below, (list, tuple)):
            _refuse_empty(name, below)
            for leaf in below:
                _refuse_nested(name, leaf)
                _add(found, own, leaf, node)
        else:
            raise TypeError(
                f"{name!r} must map to names (a mapping or a list), a length or None; "
                f"got {below!r}."
            )


def _add(found: Taxonomy, own: list[float | None], name: Any, parent: int) -> int:
    if not isinstance(name, str):
        below = f" below {found.names[parent]!r}" if parent else ""
        raise TypeError(
            f"names must be text; got {name!r} ({type(name).__name__}){below}. Write {str(name)!r}."
        )
    if not name:
        raise ValueError("a name is empty. Give every node a name.")
    found.parents.append(parent)
    found.lengths.append(1.0)
    found.names.append(str(name))
    own.append(None)
    return len(found.parents) - 1


def _refuse_empty(name: str, below: Any) -> None:
    if len(below) == 0:
        raise ValueError(
            f"the group {name!r} is empty. Remove it, or write None for a class without classes "
            f"below it: {{{name!r}: None}}."
        )


def _refuse_nested(name: str, leaf: Any) -> None:
    if isinstance(leaf, (Mapping, list, tuple, set)):
        raise TypeError(
            f"the list below {name!r} has {leaf!r}, a group without a name. A list must have only "
            f"names of classes. Write groups within groups as mappings, such as "
            f"{{{name!r}: {{'class': None, 'group': ['class', 'class']}}}}."
        )


def _refuse_twice(names: Sequence[str], among: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(
            f"the name {twice[0]!r} appears more than once among the {among}. Make the names "
            f"different, such as 'pets/{twice[0]}'."
        )


def _read_order(order: Any) -> list[str]:
    if isinstance(order, (str, Mapping, set, frozenset)) or not isinstance(order, Iterable):
        raise TypeError(
            f"order must be a list with the names of all outputs; got {type(order).__name__}."
        )
    names = list(order)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"order must have names; got {name!r} ({type(name).__name__}).")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"order has {twice[0]!r} more than once.")
    return names


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


# ------------------------------------------------------------------ lengths


def _set_lengths(found: Taxonomy, own: Sequence[float | None], lengths: Any) -> None:
    """Set the length of every edge: its own, else the one for its name, else the default."""
    given = lengths if isinstance(lengths, Mapping) else {}
    default = 1.0 if isinstance(lengths, Mapping) else _read_length("lengths", lengths)
    count = Counter(found.names[1:])
    for name in given:
        if name not in count:
            raise ValueError(
                f"lengths has {name!r}, which is not in the tree{hint(str(name), count)}"
            )
        if count[name] > 1:
            raise ValueError(
                f"lengths has {name!r}, which is a group and an output: which edge is meant? "
                "Rename one of them."
            )
    for node, name in enumerate(found.names):
        length = own[node]
        if length is not None and name in given:
            raise ValueError(
                f"{name!r} has a length in the tree, {length:g}, and one in lengths, "
                f"{given[name]!r}: remove one of them."
            )
        if length is None:
            length = given.get(name, default)
        found.lengths[node] = _read_length(f"lengths: the edge above {name!r}", length)


def _read_length(what: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = None
    if number is None or isinstance(value, (str, bool)):
        raise TypeError(
            f"{what} must be a number; got {type(value).__name__}. Give one length for all edges, "
            "or a mapping from names to the lengths of the edges above them."
        )
    if not (math.isfinite(number) and number > 0):
        raise ValueError(
            f"{what} must be positive and finite; got {number:g}. "
            "At distance 0, two outputs would be the same."
        )
    return number

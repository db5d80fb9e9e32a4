"""Slice pushdown in graphs of torch.compile(backend="halyard"): what is sliced away at the end is not computed.

Logits of a prompt's last token, or a classifier on the first, need one row of the last layer: its queries, attention, norms and products
are made for that row alone, its keys and values for all. A node is narrowed where all its users want the same rows of it; where that
ends, the rows are taken by a slice. Along a dynamic dimension that holds for one row, the last or one that is counted from the first.
"""

import math
import operator
from typing import NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.node import map_arg

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_fused_attention_overrideable.default
PRODUCTS = (aten.mm.default, aten.addmm.default)
NORMS = (aten._fused_rms_norm.default, aten.native_layer_norm.default)
VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
ELEMENTWISE = (aten._to_copy.default, aten.clone.default)


class Rows(NamedTuple):
    """`count` elements of a tensor, x[:, begin:end], x being [before, size, behind], which no view of the tensor changes. Sizes may be symbolic."""

    before: int
    size: int
    behind: int
    begin: int
    end: int
    count: int

    def along(self, shape, dim, outer=1, inner=1):
        """The same rows in a dimension that is [outer, size, inner]."""
        return self._replace(before=math.prod(shape[:dim]) * outer, behind=math.prod(shape[dim + 1:]) * inner)

    def same(self, other):
        return other is not None and all(map(_equal, self, other))


def push_down(graph):
    """Rewrites an FX graph of AOTAutograd in place."""
    taken = {}  # of a node that is narrowed: its rows, and those of its operands
    for node in reversed(graph.nodes):
        rows = _wanted(node, taken) if node.op == "call_function" else None
        operands = _operands(node, rows) if rows is not None else None
        if operands is not None:
            taken[node] = rows, operands
    if any(node.target in (ATTENTION, *PRODUCTS) for node in taken):
        _rebuild(graph, taken)


def _equal(a, b):
    """Without a guard: symbolic sizes are equal where that is known."""
    return statically_known_true(a == b)


def _shape(node):
    """None of what is no tensor."""
    value = node.meta.get("val")
    value = value[0] if isinstance(value, (list, tuple)) and value else value
    return list(value.shape) if isinstance(value, torch.Tensor) else None


def _quotient(a, b):
    """None where it is not known to be whole."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    return 1 if _equal(a, b) else None


def _place(rows, shape):
    """(dim, outer, inner): the dimension that has the rows in it, as [outer, size, inner]; None where they are in no single one."""
    for dim, size in enumerate(shape):
        outer, inner = _quotient(rows.before, math.prod(shape[:dim])), _quotient(rows.behind, math.prod(shape[dim + 1:]))
        if outer is not None and inner is not None and _equal(size, outer * rows.size * inner):
            return dim, outer, inner
    return None


def _narrow_shape(rows, shape):
    dim, outer, inner = _place(rows, shape)
    return [*shape[:dim], outer * rows.count * inner, *shape[dim + 1:]]


def _start(node):
    """The rows that a slice or selection takes of its operand; None where they are most of it."""
    if (node.target, len(node.args)) not in ((aten.slice.Tensor, 4), (aten.select.int, 3)) or node.kwargs:
        return None
    shape, (dim, begin, *end) = _shape(node.args[0]), node.args[1:]
    if shape is None or not all(isinstance(number, int) for number in (dim, begin, *end)):
        return None
    dim, size, largest = dim % len(shape), shape[dim], torch.iinfo(torch.int64).max
    end = end[0] if end else begin + 1 if begin != -1 else largest
    if isinstance(size, int):
        begin, end = (max(min(place + size if place < 0 else place, size), 0) for place in (begin, end))
        count = end - begin if 0 < end - begin <= size // 2 else 0
    else:
        count = int(begin == -1 and end == largest or node.target is aten.select.int and begin >= 0)
    return Rows(1, size, 1, begin, end, count).along(shape, dim) if count else None


def _wanted(node, taken):
    """The rows that all users want of the node; None where they differ or one wants it whole."""
    def asked(user):
        return taken[user][1].get(node) if user in taken else _start(user) if user.args and user.args[0] is node else None

    first, *others = [asked(user) for user in node.users] or [None]
    return first if first is not None and all(map(first.same, others)) else None


def _aligned(node, rows, operands):
    """Of operands that are broadcast to the node's shape: those that have the rows' dimension."""
    shape = _shape(node)
    dim, outer, inner = _place(rows, shape)
    found = {}
    for operand in operands:
        sizes = _shape(operand)
        if sizes is None or len(sizes) > len(shape):
            return None
        here = dim - len(shape) + len(sizes)
        if here >= 0 and _equal(sizes[here], shape[dim]):
            found[operand] = rows.along(sizes, here, outer, inner)
        elif here >= 0 and not _equal(sizes[here], 1):
            return None
    return found


def _operands(node, rows):
    """{operand: rows} of the operands that the node's rows take rows of; None where the op cannot be narrowed to them."""
    shape, target = _shape(node), node.target
    place = _place(rows, shape) if shape is not None else None
    if place is None or not isinstance(place[1] * place[2], int) or map_arg(node.kwargs, lambda used: None) != node.kwargs:
        return None
    if target is operator.getitem:
        made = node.args[0]
        return {made: rows} if node.args[1] == 0 and made.target in (ATTENTION, *NORMS) and len(made.users) == 1 and _operands(made, rows) else None
    dim, first = place[0], node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
    if first is None or _shape(first) is None:
        return None
    if target in VIEWS or target is aten.unsqueeze.default:
        return {first: rows} if _place(rows, _shape(first)) else None
    if target is aten.permute.default:
        return {first: rows.along(_shape(first), node.args[1][dim] % len(shape), *place[1:])}
    if target in PRODUCTS:
        left, right = node.args[-2:]
        if dim != 0 or left is right:
            return None
        summand = _aligned(node, rows, node.args[:-2])
        return None if summand is None or right in summand else {**summand, left: rows.along(_shape(left), 0, *place[1:])}
    if target in NORMS:
        return {first: rows} if dim < len(shape) - len(node.args[1]) else None
    if target is ATTENTION:
        return _of_attention(node, rows, place)
    if isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags:
        rope = str(target) == "halyard.rope.default"  # pairs of numbers are turned along the last dimension
        if target in ELEMENTWISE or torch.Tag.pointwise in target.tags or rope and dim < len(shape) - 1:
            return _aligned(node, rows, dict.fromkeys(node.all_input_nodes))
    return None


def _is_last_causal(node, rows):
    """Of a causal attention, the last query: no key is hidden from it."""
    last = rows.begin == (rows.size - 1 if isinstance(rows.size, int) else -1)
    return last and _equal(_shape(node.args[1])[-2], rows.size)


def _of_attention(node, rows, place):
    query, key, value, mask, dropout, causal = (*node.args, *(None, 0.0, False)[len(node.args) - 3:])[:6]
    if place != (2, 1, 1) or len(_shape(node)) != 4 or query in (key, value) or dropout or causal and not _is_last_causal(node, rows):
        return None
    found = _aligned(node, rows, [mask] if mask is not None else [])
    return None if found is None else {**found, query: rows.along(_shape(query), 2)}


def _rebuild(graph, taken):
    made, cut, instead = {}, {}, {}

    def narrowed(node, rows):
        if node in taken:
            return made[node]
        key = node, rows.begin, rows.end, _place(rows, _shape(node))
        if key not in cut:
            cut[key] = _cut(graph, node, rows)
        return cut[key]

    for node in list(graph.nodes):
        if node in taken:
            rows, operands = taken[node]
            with graph.inserting_before(node):
                args = list(map_arg(node.args, lambda used: narrowed(used, operands[used]) if used in operands else used))
                target = node.target
                if target in VIEWS:
                    dim = _place(rows, _shape(node))[0]
                    target, args[1] = aten.reshape.default, [*args[1][:dim], _narrow_shape(rows, _shape(node))[dim], *args[1][dim + 1:]]
                elif target is ATTENTION and len(args) > 5:
                    args[5] = False
                made[node] = graph.call_function(target, tuple(args), node.kwargs)
            made[node].meta = {**node.meta, "val": _narrow_value(rows, node)}
        elif node.op == "call_function" and node.args and node.args[0] in taken and _start(node) is not None:
            replacement = made[node.args[0]]
            if node.target is aten.select.int:
                with graph.inserting_before(node):
                    replacement = graph.call_function(aten.select.int, (replacement, node.args[1], 0))
                replacement.meta = dict(node.meta)
            instead[node] = replacement
    for node, replacement in instead.items():
        node.replace_all_uses_with(replacement)
    graph.eliminate_dead_code()


def _cut(graph, node, rows):
    """A slice of a node that stays whole."""
    dim, outer, inner = _place(rows, _shape(node))
    steps = [(aten.slice.Tensor, (dim, rows.begin, rows.end))] if outer == inner == 1 else [
        (aten.reshape.default, ([rows.before, rows.size, rows.behind],)), (aten.slice.Tensor, (1, rows.begin, rows.end)),
        (aten.reshape.default, (_narrow_shape(rows, _shape(node)),))]
    for target, args in steps:
        value = target(node.meta["val"], *args)
        node = graph.call_function(target, (node, *args))
        node.meta["val"] = value
    return node


def _narrow_value(rows, node):
    """The traced value with fewer rows, its dimensions in memory in the same order."""
    whole = node.meta["val"]
    if isinstance(whole, (list, tuple)):
        return (_narrow_fake(rows, whole[0]), *whole[1:])
    return _narrow_fake(rows, whole)


def _narrow_fake(rows, whole):
    shape, strides, step = _narrow_shape(rows, list(whole.shape)), [0] * whole.dim(), 1
    steps = [step if isinstance(step, int) else step.node.hint for step in whole.stride()]
    for dim in sorted(range(whole.dim()), key=lambda dim: (steps[dim], -dim)):
        strides[dim] = step
        step *= shape[dim]
    return whole.new_empty_strided(shape, strides)

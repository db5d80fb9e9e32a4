"""Patterns in graphs of torch.compile(backend="halyard"): what models spell out in small ops becomes the one op that they mean.

A pattern is replaced only where nothing else uses a value inside it, which a training's forward graph often does: its backward does.
RMS norms and rotary embeddings keep f32 until the end, where a model that computes in 16 bits rounds in between as well.
"""

import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.node import map_arg

aten = torch.ops.aten
LARGEST_MASK = 1 << 26  # elements of a mask that is looked at


def replace_joint(graph):
    """Rewrites a training's graph before it is parted into forward and backward: that the halves of cosines are equal is known in the forward alone."""
    _whole_slices(graph)
    _ropes(graph)
    graph.eliminate_dead_code()


def replace(graph):
    """Rewrites an FX graph of AOTAutograd in place."""
    _whole_slices(graph)
    _ropes(graph)
    causal = {}
    for node in list(graph.nodes):
        if node.target is aten.mul.Tensor:
            _rms_norm(graph, node)
        elif node.target is aten._scaled_dot_product_fused_attention_overrideable.default:
            _causal_mask(node, causal)
            for place in (1, 2):
                _repeated_heads(node, place)
    graph.eliminate_dead_code()


def _is(node, target, users=1):
    return isinstance(node, torch.fx.Node) and node.target is target and len(node.users) == users


def _value(node):
    return node.meta["val"]


def _cast_from(node, dtype, users=1):
    """What was cast to the type; the node itself where it was not."""
    if _is(node, aten._to_copy.default, users) and node.kwargs == {"dtype": dtype}:
        return node.args[0]
    return node


def _whole_slices(graph):
    """x[:] is x. Dynamic shapes leave them in the graph."""
    for node in list(graph.nodes):
        if node.target is aten.slice.Tensor and tuple(node.args[2:]) == (0, torch.iinfo(torch.int64).max) and all(user.op != "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _rms_norm(graph, node):
    """weight * cast(x32 * rsqrt(mean(x32 ** 2) + eps)), x32 = cast(x); the casts are there where x is no f32."""
    for weight, normed in (node.args, node.args[::-1]):
        if not isinstance(weight, torch.fx.Node) or not isinstance(_value(weight), torch.Tensor) or _value(weight).dim() != 1:
            continue
        scaled = _cast_from(normed, _value(node).dtype)
        if not _is(scaled, aten.mul.Tensor) or not _is(scaled.args[1], aten.rsqrt.default):
            continue
        wide, shifted = scaled.args[0], scaled.args[1].args[0]
        if not _is(shifted, aten.add.Tensor) or shifted.kwargs or not isinstance(shifted.args[1], float) or not _is(shifted.args[0], aten.mean.dim):
            continue
        mean = shifted.args[0]
        if list(mean.args[1:]) != [[-1], True] or mean.kwargs or not _is(mean.args[0], aten.pow.Tensor_Scalar) or mean.args[0].args != (wide, 2):
            continue
        x = _cast_from(wide, torch.float32, users=2)
        if _value(wide).dtype != torch.float32 or not _value(x).dtype == _value(weight).dtype == _value(node).dtype or _value(x).shape[-1] != _value(weight).shape[0]:
            continue
        with graph.inserting_before(node):
            both = graph.call_function(aten._fused_rms_norm.default, (x, [_value(weight).shape[0]], weight, shifted.args[1]))
            norm = graph.call_function(operator.getitem, (both, 0))
        both.meta["val"], norm.meta["val"] = (_value(node), None), _value(node)
        node.replace_all_uses_with(norm)
        return


# ---- rotary position embedding ----

_KEEP_HALVES = {aten.cos.default, aten.sin.default, aten._to_copy.default, torch.ops.prims.convert_element_type.default, aten.alias.default}


def _equal_halves(node):
    """Whether the last dimension is cat((freqs, freqs)) behind ops that keep it so."""
    while isinstance(node, torch.fx.Node):
        if node.target is aten.cat.default:
            parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
            return len(parts) == 2 and parts[0] is parts[1] and dim in (-1, _value(node).dim() - 1)
        if node.target in (aten.unsqueeze.default, aten.slice.Tensor):
            if (node.args[1] if len(node.args) > 1 else 0) in (-1, _value(node).dim() - 1):
                return False
        elif node.target is aten.mul.Tensor:
            factor = node.args[1]
            if isinstance(factor, torch.fx.Node) and isinstance(_value(factor), torch.Tensor) and _value(factor).dim() > 0:
                return False
        elif node.target not in _KEEP_HALVES:
            return False
        node = node.args[0]
    return False


def _half_of(node):
    """("first" or "second", x) of a slice that is a half of x along the last dimension."""
    if not _is(node, aten.slice.Tensor) or len(node.args) != 4:
        return None, None
    x, dim, start, end = node.args
    size = _value(x).shape[-1]
    if not isinstance(size, int) or size % 2 or dim not in (-1, _value(x).dim() - 1):
        return None, None
    return {(0, size // 2): "first", (size // 2, size): "second"}.get((start, min(end, size))), x


def _negated(node):
    return node.args[0] if _is(node, aten.neg.default) else None


def _rotated(node):
    """x of cat((-x2, x1)), x1 and x2 being its halves; None where it is something else."""
    if not _is(node, aten.cat.default) or len(node.args) != 2 or node.args[1] not in (-1, _value(node).dim() - 1) or len(node.args[0]) != 2:
        return None
    (second, x), (first, same) = _half_of(_negated(node.args[0][0])), _half_of(node.args[0][1])
    return x if (first, second) == ("first", "second") and x is same else None


def _spread(node):
    """A half that slice_scatter puts among zeros, and where: what the gradient of a slice is."""
    if not _is(node, aten.slice_scatter.default) or len(node.args) != 5 or not isinstance(node.args[0], torch.fx.Node):
        return None, None
    zeros, half, dim, start, end = node.args
    size = _value(node).shape[-1]
    if zeros.target is not aten.full.default or zeros.args[1] != 0 or not isinstance(size, int) or dim not in (-1, _value(node).dim() - 1):
        return None, None
    return {(0, size // 2): "first", (size // 2, size): "second"}.get((start, min(end, size))), half


def _rotated_back(node):
    """x of cat((x2, -x1)) as the gradient of the rotation has it, each half added to zeros; None where it is something else."""
    if not _is(node, aten.add.Tensor) or node.kwargs:
        return None
    for one, other in (node.args, node.args[::-1]):
        (low, half), (high, negated) = _spread(one), _spread(other)
        if (low, high) == ("first", "second"):
            (second, x), (first, same) = _half_of(half), _half_of(_negated(negated))
            return x if (first, second) == ("first", "second") and x is same and len(x.users) == 2 else None
    return None


def _turn(node):
    """(x, cos, sin, inverse) of x * cos + rotated(x) * sin, or of its gradient x * cos + rotated_back(x * sin)."""
    for straight, turned in (node.args, node.args[::-1]):
        if not _is(straight, aten.mul.Tensor):
            continue
        inverse = not _is(turned, aten.mul.Tensor)
        product = _rotated_back(turned) if inverse else turned
        if product is None or not _is(product, aten.mul.Tensor, users=2 if inverse else 1):
            continue
        for x, cos in (straight.args, straight.args[::-1]):
            for other, sin in (product.args, product.args[::-1]):
                if isinstance(x, torch.fx.Node) and x is (other if inverse else _rotated(other)):
                    return x, cos, sin, inverse
    return None


def _ropes(graph):
    halves = {}

    def half(angles):
        if angles not in halves:
            dim = _value(angles).dim() - 1
            with graph.inserting_after(angles):
                halves[angles] = graph.call_function(aten.slice.Tensor, (angles, dim, 0, _value(angles).shape[-1] // 2))
            halves[angles].meta = {**angles.meta, "val": aten.slice.Tensor(_value(angles), *halves[angles].args[1:])}
        return halves[angles]

    for node in list(graph.nodes):
        found = _turn(node) if node.target is aten.add.Tensor and not node.kwargs else None
        if found is None:
            continue
        x, cos, sin, inverse = found
        if not _equal_halves(cos) or not _equal_halves(sin) or _value(x).shape != _value(node).shape or _value(cos).shape[-1] != _value(x).shape[-1]:
            continue
        if not _value(x).dtype == _value(cos).dtype == _value(sin).dtype == _value(node).dtype or not _value(node).dtype.is_floating_point:
            continue
        with graph.inserting_before(node):
            rope = graph.call_function(torch.ops.halyard.rope.default, (x, half(cos), half(sin), inverse))
        rope.meta = dict(node.meta)
        node.replace_all_uses_with(rope)


# ---- attention ----

def _repeated_heads(attention, place):
    """Keys and values that a model repeats for the heads that share them: attention takes them as they are."""
    flat = attention.args[place]
    if not _is(flat, aten.view.default) or not _is(flat.args[0], aten.clone.default) or not _is(flat.args[0].args[0], aten.expand.default):
        return
    wide = flat.args[0].args[0].args[0]
    if not _is(wide, aten.unsqueeze.default) or wide.args[1] != 2 or _value(wide).dim() != 5:
        return
    heads, repeated = _value(wide.args[0]), _value(flat.args[0])
    if list(_value(flat).shape) == [heads.shape[0], heads.shape[1] * repeated.shape[2], *heads.shape[2:]]:
        attention.update_arg(place, wide.args[0])


def _needed(node, is_given):
    """The node and what it depends on, short of what is given; None where that includes an input, or random numbers."""
    needed = dict.fromkeys([node])
    for later in (order := [node]):
        if later.op != "call_function" or isinstance(later.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in later.target.tags:
            return None
        fresh = dict.fromkeys(used for used in later.all_input_nodes if used not in needed and not is_given(used))
        order.extend(fresh)
        needed.update(fresh)
    return needed


def _constant(node):
    """The value of a node that depends on no input, computed in the host's memory; None where it does, or draws random numbers."""
    found = _needed(node, lambda used: False)
    if found is None or not all(isinstance(each.target, torch._ops.OpOverload) for each in found):
        return None
    values = {}
    for each in node.graph.nodes:
        if each in found:
            args, kwargs = map_arg((each.args, each.kwargs), values.__getitem__)
            values[each] = each.target(*args, **{**kwargs, **({"device": torch.device("cpu")} if "device" in kwargs else {})})
    return values[node]


def _hides_the_future(added):
    """Whether a mask adds nothing below and on the diagonal, and hides all above it; or is the last row of such a mask."""
    shape = added.shape
    if not added.dtype.is_floating_point or shape[-2] not in (1, shape[-1]) or shape.numel() > LARGEST_MASK:
        return False
    below = torch.ones(shape[-2:], dtype=torch.bool).tril(shape[-1] - shape[-2])  # for every sequence and head that the mask has
    return bool(torch.where(below, added == 0, added <= torch.finfo(added.dtype).min).all())


def _is_causal(mask):
    shape = _value(mask).shape
    if not all(isinstance(size, int) for size in shape) or shape.numel() > LARGEST_MASK:
        return False
    added = _constant(mask)
    return added is not None and _hides_the_future(added)


def _mask_of(node):
    mask = node.args[3] if node.target is aten._scaled_dot_product_fused_attention_overrideable.default and len(node.args) == 4 else None
    return mask if isinstance(mask, torch.fx.Node) else None


def without_mask(args, causal=True):
    """The arguments of an attention that leaves out by itself what its mask would hide."""
    return *args[:3], None, 0.0, causal


def _causal_mask(attention, known):
    """A mask that is causal whatever the inputs are. `known`: masks looked at before."""
    mask = _mask_of(attention)
    if mask is None or not _value(attention.args[0]).shape[-2] == _value(attention.args[1]).shape[-2] == _value(mask).shape[-1]:
        return
    if mask not in known:
        with unset_fake_temporarily(), torch.no_grad():
            known[mask] = _is_causal(mask)
    if known[mask]:
        attention.args = without_mask(attention.args)


def causal_at(nodes, values):
    """Of a graph with dynamic shapes: the attentions whose mask depends on the shapes alone and is causal at those of this call."""
    def is_size(node):
        return node in values and isinstance(values[node], int)

    known, found = {}, set()
    for node in nodes:
        mask = _mask_of(node)
        if mask is None or values[node.args[0]].shape[-2] not in (1, values[node.args[1]].shape[-2]):
            continue
        if mask not in known:
            known[mask] = _needed(mask, is_size) is not None and values[mask].numel() <= LARGEST_MASK and _hides_the_future(values[mask].cpu())
        if known[mask]:
            found.add(node)
    return found

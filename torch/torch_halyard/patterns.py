"""Patterns in graphs of torch.compile(backend="halyard"): what models spell out in small ops becomes the one op that they mean.

A pattern is replaced only where nothing else uses a value inside it, which a training's forward graph often does: its backward does.
RMS norms keep f32 until the end, where a model that computes in 16 bits rounds before the weight as well.
"""

import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.node import map_arg

aten = torch.ops.aten
LARGEST_MASK = 1 << 26  # elements of a mask that is looked at


def replace(graph):
    """Rewrites an FX graph of AOTAutograd in place."""
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


def _constant(node):
    """The value of a node that depends on no input, computed in the host's memory; None where it does, or draws random numbers."""
    needed, found = [node], {node}
    for later in needed:
        if later.op != "call_function" or not isinstance(later.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in later.target.tags:
            return None
        fresh = dict.fromkeys(used for used in later.all_input_nodes if used not in found)
        needed.extend(fresh)
        found.update(fresh)
    values = {}
    for each in node.graph.nodes:
        if each in found:
            args, kwargs = map_arg((each.args, each.kwargs), values.__getitem__)
            values[each] = each.target(*args, **{**kwargs, **({"device": torch.device("cpu")} if "device" in kwargs else {})})
    return values[node]


def _is_causal(mask):
    """Whether it adds nothing below and on the diagonal, and hides all above it."""
    shape = _value(mask).shape
    if not all(isinstance(size, int) for size in shape) or shape.numel() != shape[-1] ** 2 or shape[-2] != shape[-1] or shape.numel() > LARGEST_MASK:
        return False
    added = _constant(mask)
    if added is None or not added.dtype.is_floating_point:
        return False
    below = torch.ones(shape[-2:], dtype=torch.bool).tril()
    return bool(torch.where(below, added == 0, added <= torch.finfo(added.dtype).min).all())


def _causal_mask(attention, known):
    """A mask that is causal whatever the inputs are: attention leaves out by itself what it hides. `known`: masks looked at before."""
    mask = attention.args[3] if len(attention.args) == 4 else None
    if not isinstance(mask, torch.fx.Node) or not _value(attention.args[0]).shape[-2] == _value(attention.args[1]).shape[-2] == _value(mask).shape[-1]:
        return
    if mask not in known:
        with unset_fake_temporarily(), torch.no_grad():
            known[mask] = _is_causal(mask)
    if known[mask]:
        attention.args = (*attention.args[:3], None, 0.0, True)

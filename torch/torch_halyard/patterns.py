"""Patterns in graphs of torch.compile(backend="halyard"): what models spell out in small ops becomes the one op that they mean.

A pattern is replaced only where nothing else uses a value inside it, which a training's forward graph often does: its backward does.
RMS norms keep f32 until the end, where a model that computes in 16 bits rounds before the weight as well.
"""

import operator

import torch

aten = torch.ops.aten


def replace(graph):
    """Rewrites an FX graph of AOTAutograd in place."""
    for node in list(graph.nodes):
        if node.target is aten.mul.Tensor:
            _rms_norm(graph, node)
        elif node.target is aten._scaled_dot_product_fused_attention_overrideable.default:
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

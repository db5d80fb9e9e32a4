"""What each op of the table is in PyTorch.

An entry takes a case and gives PyTorch's answer: a tensor, or a tuple in the order of the row's
outputs, with None for what PyTorch does not tell. `x` are the case's inputs, `a` its attributes.
"""

import math

import torch
import torch.nn.functional as F

ROUNDING = [None, "trunc", "floor"]
REDUCTION = ["none", "mean", "sum"]
DTYPE = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
    "bool": torch.bool, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2,
}


HALVES = (torch.float16, torch.bfloat16)


def unary(function):
    return lambda c: function(c.x[0])


def binary(function):
    return lambda c: function(c.x[0], c.x[1])


def scalar(function):
    return lambda c: function(c.x[0], c.a.value)


class Unanswered(Exception):
    """PyTorch has no answer to this case; the message says why."""


def div(c):
    a, b = torch.broadcast_tensors(c.x[0], c.x[1])
    mode = ROUNDING[c.a.rounding]
    if mode and not a.is_floating_point() and not b.is_floating_point():
        lowest = torch.iinfo(torch.promote_types(a.dtype, b.dtype)).min
        if ((a == lowest) & (b == -1)).any():
            raise Unanswered("the lowest integer divided by -1 ends the process")
    return torch.div(c.x[0], c.x[1], rounding_mode=mode)


def dims(c):
    """PyTorch's dim argument; None for all dimensions."""
    return tuple(c.a.dims) or None


def reduction(function):
    def run(c):
        if dims(c) is None:
            out = function(c.x[0])
            return out.reshape([1] * c.x[0].ndim) if c.a.keepdim else out
        return function(c.x[0], dim=dims(c), keepdim=c.a.keepdim)
    return run


def half_in_float(function):
    """PyTorch rounds to a half type at every step here; the reference once, at the end."""
    def run(x, *arguments):
        return function(x.float(), *arguments).to(x.dtype) if x.dtype in HALVES else function(x, *arguments)
    return run


def flattened(function):
    """For functions that reduce one dimension: all of them made one."""
    def run(c):
        x = c.x[0]
        chosen = sorted({d % max(x.ndim, 1) for d in c.a.dims}) or list(range(x.ndim))
        kept = [d for d in range(x.ndim) if d not in chosen]
        if not x.ndim:
            return function(x)
        out = function(x.permute(*kept, *chosen).reshape([x.shape[d] for d in kept] + [
            math.prod(x.shape[d] for d in chosen)]), -1)
        return out.reshape([1 if d in chosen else x.shape[d] for d in range(x.ndim)]) if c.a.keepdim else out
    return run


def index_reduction(function):
    def run(c):
        if not c.a.dims:
            out = function(c.x[0])
            return out.reshape([1] * c.x[0].ndim) if c.a.keepdim else out
        return function(c.x[0], dim=c.a.dims[0], keepdim=c.a.keepdim)
    return run


def backward(function, *wanted):
    """Gradients of `function` of the inputs `wanted` for dy = input 0, by torch.autograd."""
    def run(c):
        leaves = [c.x[i].detach().clone().requires_grad_() if i in wanted and c.x[i] is not None else c.x[i]
                  for i in range(len(c.x))]
        out = function(c, leaves)
        return tuple(torch.autograd.grad(out, [leaves[i] for i in wanted], c.x[0], allow_unused=True))
    return run


def optional_backward(function, count):
    """As PyTorch computes them: function(case) gives (output, [inputs or None])."""
    def run(c):
        out, leaves, dy = function(c)
        present = [leaf for leaf in leaves if leaf is not None]
        grads = iter(torch.autograd.grad(out, present, dy))
        return tuple(next(grads) if leaf is not None else None for leaf in leaves)[:count]
    return run


def leaf(t):
    return t.detach().clone().requires_grad_() if t is not None else None


def cumsum(c):
    x = c.x[0]
    if c.a.reverse and x.ndim:
        return torch.flip(torch.cumsum(torch.flip(x, [c.a.dim]), c.a.dim), [c.a.dim])
    return torch.cumsum(x, c.a.dim)


def arange(c):
    n = c.outputs[0]["shape"][0]
    wide = torch.float64 if c.dtype.is_floating_point else torch.int64
    return (c.a.start + torch.arange(n, dtype=wide) * c.a.step).to(c.dtype)


def cross_entropy(c, logits=None):
    logits = c.x[0] if logits is None else logits
    loss = DTYPE.get(c.a.dtype, logits.dtype)
    return F.cross_entropy(logits.to(loss), c.x[1].long(), None if c.x[2] is None else c.x[2].to(loss),
                           ignore_index=c.a.ignore_index, reduction=REDUCTION[c.a.reduction],
                           label_smoothing=c.a.label_smoothing)


def cross_entropy_backward(c):
    logits = leaf(c.x[0])
    loss = cross_entropy(c, logits)
    return torch.autograd.grad(loss, logits, c.x[3].to(loss.dtype))[0]


def layer_norm(c):
    shape = c.x[0].shape[c.x[0].ndim - c.a.norm_dims:]
    out, mean, rstd = torch.native_layer_norm(c.x[0], shape, c.x[1], c.x[2], c.a.eps)
    if out.dtype in HALVES:  # statistics of a half type are f32, as PyTorch's are on a GPU
        _, mean, rstd = torch.native_layer_norm(c.x[0].float(), shape, None, None, c.a.eps)
    return out, mean, rstd


def layer_norm_backward(c):
    x, weight = leaf(c.x[1]), leaf(c.x[4])
    shape = x.shape[x.ndim - c.a.norm_dims:]
    bias = torch.zeros(shape, dtype=x.dtype, requires_grad=True)
    if weight is None:
        weight = torch.ones(shape, dtype=x.dtype, requires_grad=True)
    if x.dtype in HALVES:  # PyTorch sums the weight's gradient in the half type
        wide = F.layer_norm(x.float(), shape, weight.float(), bias.float(), c.a.eps)
        return wide, [x, weight, bias], c.x[0].float()
    return F.layer_norm(x, shape, weight, bias, c.a.eps), [x, weight, bias], c.x[0]


def rms_norm(c):
    shape = c.x[0].shape[c.x[0].ndim - c.a.norm_dims:]
    return F.rms_norm(c.x[0], shape, c.x[1], c.a.eps), None


def rms_norm_backward(c):
    x, weight = leaf(c.x[1]), leaf(c.x[3])
    shape = x.shape[x.ndim - c.a.norm_dims:]
    if weight is None:
        weight = torch.ones(shape, dtype=x.dtype, requires_grad=True)
    return F.rms_norm(x, shape, weight, c.a.eps), [x, weight], c.x[0]


def batch_norm(c):
    out, mean, rstd = torch.native_batch_norm(c.x[0], c.x[1], c.x[2], c.x[3], c.x[4], c.a.training, 0.1, c.a.eps)
    if c.a.training and out.dtype in HALVES:
        _, mean, rstd = torch.native_batch_norm(c.x[0].float(), None, None, None, None, True, 0.1, c.a.eps)
    return (out, mean, rstd) if c.a.training else (out, None, None)


def batch_norm_update(c):
    mean, var = c.x[0].clone(), c.x[1].clone()
    F.batch_norm(c.x[2], mean, var, training=True, momentum=c.a.momentum, eps=c.a.eps)
    return mean, var


def batch_norm_backward(c):
    x, weight = c.x[1], c.x[4]
    mask = [True, True, True]
    if weight is None:
        weight = torch.ones(x.shape[1], dtype=x.dtype)
    mean, rstd = c.x[2], c.x[3]
    running_mean, running_var = mean.to(x.dtype), (1 / rstd.double() ** 2 - c.a.eps).to(x.dtype)
    return torch.ops.aten.native_batch_norm_backward(c.x[0], x, weight, running_mean, running_var, mean.to(x.dtype),
                                                     rstd.to(x.dtype), c.a.training, c.a.eps, mask)


def attention_mask(c, q, k, mask):
    """A mask of numbers that says what `causal` and the given mask say."""
    queries, keys = q.shape[-2], k.shape[-2]
    full = torch.zeros(queries, keys, dtype=torch.float64)
    if c.a.causal:
        shift = keys - queries if c.a.causal == 2 else 0
        full = full.masked_fill(~torch.ones(queries, keys, dtype=torch.bool).tril(shift), -math.inf)
    if mask is not None:
        full = full + (torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -math.inf)
                       if mask.dtype == torch.bool else mask.double())
    return full


def scale_of(c, size):
    return c.a.scale or 1 / math.sqrt(size)


def sdpa_formula(c, q, k, v, mask):
    """By the definition: PyTorch's own kernels differ in which masks and types they take."""
    group = q.shape[-3] // k.shape[-3]
    wide_k, wide_v = k.repeat_interleave(group, -3), v.repeat_interleave(group, -3)
    compute = torch.float64 if q.dtype == torch.float64 else torch.float32
    scores = q.to(compute) @ wide_k.to(compute).transpose(-1, -2) * scale_of(c, q.shape[-1])
    scores = scores + attention_mask(c, q, k, mask).to(compute)
    return (torch.softmax(scores, -1) @ wide_v.to(compute)).to(q.dtype), torch.logsumexp(scores, -1)


def sdpa(c):
    q, k, v, mask = c.x
    out, lse = sdpa_formula(c, q, k, v, mask)
    if q.dtype in (torch.float32, torch.float64) and q.numel():
        bias = attention_mask(c, q, k, mask).to(q.dtype)
        theirs = F.scaled_dot_product_attention(q, k, v, bias, scale=scale_of(c, q.shape[-1]), enable_gqa=True)
        torch.testing.assert_close(theirs, out, rtol=1e-4, atol=1e-5)
    return out, lse


def sdpa_backward(c):
    q, k, v = leaf(c.x[1]), leaf(c.x[2]), leaf(c.x[3])
    out, _ = sdpa_formula(c, q, k, v, c.x[6])
    return out, [q, k, v], c.x[0]


def paged_attention(c):
    q, k_cache, v_cache, table, start, context = c.x
    out = torch.empty(q.shape[0], q.shape[1], v_cache.shape[3], dtype=q.dtype)
    for s in range(table.shape[0]):
        first, last, length = int(start[s]), int(start[s + 1]), int(context[s])
        blocks = table[s].long()
        k = k_cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
        v = v_cache[blocks].flatten(0, 1)[:length].transpose(0, 1)
        queries = q[first:last].transpose(0, 1)
        group = q.shape[1] // k.shape[0]
        compute = torch.float64 if q.dtype == torch.float64 else torch.float32
        scores = queries.to(compute) @ k.repeat_interleave(group, 0).to(compute).transpose(-1, -2)
        scores = scores * scale_of(c, q.shape[-1])
        seen = torch.ones(last - first, length, dtype=torch.bool).tril(length - (last - first))
        probabilities = scores.masked_fill(~seen, -math.inf).softmax(-1)
        out[first:last] = (probabilities @ v.repeat_interleave(group, 0).to(compute)).transpose(0, 1).to(q.dtype)
    return out


def turned(x, cos, sin):
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    first, second = x.to(compute).chunk(2, -1)
    cos, sin = cos.to(compute), sin.to(compute)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x.dtype)


def rope_paged_attention(c):
    """One new token a sequence: turned, stored, then attention over its blocks."""
    k_cache, v_cache, qkv, cos, sin, table, context = c.x
    k_cache, v_cache = k_cache.clone(), v_cache.clone()
    kv_heads, block = k_cache.shape[2], k_cache.shape[1]
    heads, size = qkv.shape[1] - 2 * kv_heads, qkv.shape[2]
    compute = torch.float64 if qkv.dtype == torch.float64 else torch.float32
    out = torch.empty(qkv.shape[0], heads, size, dtype=qkv.dtype)
    for b in range(qkv.shape[0]):
        length, blocks = int(context[b]), table[b].long()
        if not 1 <= length <= table.shape[1] * block:
            raise IndexError("context_length")
        at = length - 1
        place = (blocks[at // block], at % block)
        k_cache[place] = turned(qkv[b, heads:heads + kv_heads], cos[at], sin[at])
        v_cache[place] = qkv[b, heads + kv_heads:]
        q = turned(qkv[b, :heads], cos[at], sin[at]).to(compute).unsqueeze(1)
        group = heads // kv_heads
        k, v = (cache[blocks].flatten(0, 1)[:length].transpose(0, 1).repeat_interleave(group, 0).to(compute)
                for cache in (k_cache, v_cache))
        probabilities = (q @ k.transpose(-1, -2) * (c.a.scale or size ** -0.5)).softmax(-1)
        out[b] = (probabilities @ v).squeeze(1).to(qkv.dtype)
    return k_cache, v_cache, out


def rope_cache(c):
    """New tokens turned, their keys and values stored where they have a slot."""
    k_cache, v_cache, qkv, cos, sin, position, slot = c.x
    k_cache, v_cache = k_cache.clone(), v_cache.clone()
    kv_heads, block = k_cache.shape[2], k_cache.shape[1]
    heads = qkv.shape[1] - 2 * kv_heads
    if int(position.max()) >= cos.shape[0] or int(slot.max()) >= k_cache.shape[0] * block:
        raise IndexError("position or slot")
    angles = [table[position.long()].unsqueeze(1) for table in (cos, sin)]
    both = turned(qkv[:, :heads + kv_heads], *angles)
    kept = slot >= 0
    places = (slot[kept].long() // block, slot[kept].long() % block)
    k_cache[places] = both[kept, heads:]
    v_cache[places] = qkv[kept, heads + kv_heads:]
    return k_cache, v_cache, both


def rope(c):
    x, cos, sin = c.x
    compute = torch.float64 if x.dtype == torch.float64 else torch.float32
    wide, cos, sin = x.to(compute), cos.to(compute), sin.to(compute)
    if c.a.inverse:
        sin = -sin
    half = x.shape[-1] // 2
    first, second = (wide[..., 0::2], wide[..., 1::2]) if c.a.interleaved else (wide[..., :half], wide[..., half:])
    a, b = first * cos - second * sin, second * cos + first * sin
    out = torch.stack([a, b], -1).flatten(-2) if c.a.interleaved else torch.cat([a, b], -1)
    return out.to(x.dtype)


def embedding_backward(c):
    padding = c.a.padding_index if c.a.padding_index >= 0 else -1
    return torch.ops.aten.embedding_dense_backward(c.x[0], c.x[1].long(), c.a.rows, padding, False)


def scatter(c):
    function = torch.Tensor.scatter_add if c.a.mode == 1 else torch.Tensor.scatter
    return function(c.x[0], c.a.dim, c.x[1].long(), c.x[2])


def index_put(c):
    return torch.ops.aten.index_put(c.x[0], [None if t is None else t.long() for t in c.x[2:]], c.x[1],
                                    c.a.accumulate)


def conv2d(c):
    return F.conv2d(c.x[0], c.x[1], c.x[2], c.a.stride, c.a.padding, c.a.dilation, c.a.groups)


def conv2d_backward(c):
    dy, x, weight = c.x
    return torch.ops.aten.convolution_backward(dy, x, weight, [weight.shape[0]], c.a.stride, c.a.padding, c.a.dilation,
                                               False, [0, 0], c.a.groups, [True, True, True])


def max_pool2d(c, x=None):
    return F.max_pool2d(c.x[0] if x is None else x, c.a.kernel, c.a.stride, c.a.padding, c.a.dilation, c.a.ceil_mode,
                        return_indices=True)


def max_pool2d_backward(c):
    x = leaf(c.x[2])
    return torch.autograd.grad(max_pool2d(c, x)[0], x, c.x[0])[0]


def avg_pool2d(c, x=None):
    return F.avg_pool2d(c.x[0] if x is None else x, c.a.kernel, c.a.stride, c.a.padding, c.a.ceil_mode,
                        c.a.count_padding, c.a.divisor or None)


def avg_pool2d_backward(c):
    x = leaf(c.x[1])
    return torch.autograd.grad(avg_pool2d(c, x), x, c.x[0])[0]


def adamw(c):
    param, m, v, grad = [t.clone() for t in c.x]
    p = torch.nn.Parameter(param)
    p.grad = grad
    optimizer = torch.optim.AdamW([p], lr=c.a.lr, betas=(c.a.beta1, c.a.beta2), eps=c.a.eps,
                                  weight_decay=c.a.weight_decay, maximize=c.a.maximize, foreach=False)
    optimizer.state[p] = {"step": torch.tensor(float(c.a.step - 1)), "exp_avg": m, "exp_avg_sq": v}
    optimizer.step()
    return p.detach(), m, v


def sgd(c):
    param, velocity, grad = c.x
    p = torch.nn.Parameter(param.clone())
    p.grad = grad.clone()
    optimizer = torch.optim.SGD([p], lr=c.a.lr, momentum=c.a.momentum, dampening=c.a.dampening,
                                weight_decay=c.a.weight_decay, nesterov=c.a.nesterov, maximize=c.a.maximize,
                                foreach=False)
    if velocity is not None and not c.a.first:
        optimizer.state[p] = {"momentum_buffer": velocity.clone()}
    optimizer.step()
    state = optimizer.state[p].get("momentum_buffer")
    return p.detach(), state


def unpack_i4(q):
    low, high = q & 15, q >> 4
    both = torch.stack([low, high], -1).flatten(-2).to(torch.int16)
    return torch.where(both < 8, both, both - 16)


def dequantized(q, described, scale):
    values = (unpack_i4(q) if described["dtype"] == "i4" else q).double()
    return (values.unflatten(-1, (scale.shape[-1], -1)) * scale.double().unsqueeze(-1)).flatten(-2) \
        if values.numel() else values


def quantize(c):
    x, group = c.x[0].double(), c.a.group or c.x[0].shape[-1]
    limit = {"i8": 127, "i4": 7, "f8e4m3": 448, "f8e5m2": 57344}[c.a.dtype]
    groups = x.unflatten(-1, (-1, group)) if x.numel() else x.unsqueeze(-1)
    largest = groups.abs().amax(-1, keepdim=True) if x.numel() else groups
    scale = torch.where(largest == 0, 1.0, largest / limit).float()
    q = (groups / scale.double()).flatten(-2)
    if c.a.dtype.startswith("f8"):
        q = q.clamp(-limit, limit).float().to(DTYPE[c.a.dtype])
    else:
        q = q.round().clamp(-limit, limit)
        if c.a.dtype == "i4":
            nibbles = q.to(torch.int16) & 15
            q = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).to(torch.uint8)
        else:
            q = q.to(torch.int8)
    return q, scale.squeeze(-1) if x.numel() else None


def linear_quantized(c):
    weight = dequantized(c.x[1], c.inputs[1], c.x[2])
    bias = c.x[3].double() if c.x[3] is not None else None
    return F.linear(c.x[0].double(), weight, bias).to(c.x[0].dtype)


def fused_linear(c):
    x, norm, weight, scale, bias, residual = c.x
    h = x.double()
    if norm is not None:
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + c.a.eps) * norm.double()
    weight = weight.double() if scale is None else dequantized(weight, c.inputs[2], scale)
    y = F.linear(h, weight, bias.double() if bias is not None else None)
    if c.a.gated:
        gate, up = y.chunk(2, -1)
        y = F.silu(gate) * up
    return (y + residual.double() if residual is not None else y).to(c.dtype)


def linear_int8(c):
    x = dequantized(c.x[0], c.inputs[0], c.x[1])
    weight = dequantized(c.x[2], c.inputs[2], c.x[3])
    bias = c.x[4].double() if c.x[4] is not None else None
    return F.linear(x, weight, bias).to(c.dtype)


def sparsify(c):
    weight = c.x[0]
    four = weight.reshape(weight.shape[0], weight.shape[1] // 4, 4)
    size = four.double().abs().nan_to_num(nan=math.inf, posinf=math.inf)
    place = torch.sort(size, dim=-1, descending=True, stable=True).indices[..., :2].sort(-1).values
    nibble = place[..., 0] | place[..., 1] << 2
    codes = (nibble[:, 0::2] | nibble[:, 1::2] << 4).to(torch.uint8)
    return four.gather(-1, place).flatten(1), codes


def linear_sparse(c):
    x, values, codes, bias = c.x
    nibble = torch.stack([codes & 15, codes >> 4], -1).flatten(1).long()
    place = torch.stack([nibble & 3, nibble >> 2], -1)
    dense = torch.zeros(*nibble.shape, 4, dtype=torch.float64)
    dense.scatter_(-1, place, values.double().unflatten(-1, (-1, 2)))
    return F.linear(x.double(), dense.flatten(1), bias.double() if bias is not None else None).to(x.dtype)


def pack_fractal_nz(c):
    rows, columns = c.x[0].shape
    return c.x[0].reshape(rows // 16, 16, columns // 16, 16).permute(2, 0, 1, 3).reshape(rows, columns)


def linear_fractal_nz(c):
    x, packed, bias = c.x
    rows, columns = packed.shape
    weight = packed.reshape(columns // 16, rows // 16, 16, 16).permute(1, 2, 0, 3).reshape(rows, columns)
    return F.linear(x.double(), weight.double(), bias.double() if bias is not None else None).to(x.dtype)


def sample(c):
    """Token by token as samplers are written: sort, cut, draw."""
    ids = []
    for row in range(c.x[0].shape[0]):
        logits = c.x[0][row].double()
        settings = [1, 0, 0, 1, 0] if c.x[1] is None else c.x[1][row].double().tolist()
        penalty, temperature, top_k, top_p, min_p = settings
        if c.x[1] is not None and c.x[3] is not None:
            punished = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(c.x[3][row], punished, logits)
        logits = torch.where(logits.isnan(), -math.inf, logits)
        order = logits.sort(descending=True, stable=True)
        if not len(logits) or order.values[0] == -math.inf:
            ids.append(-1)
            continue
        if temperature <= 0:
            ids.append(int(order.indices[0]))
            continue
        weights = torch.where(order.values == order.values[0], 1.0,
                              torch.exp((order.values - order.values[0]) / temperature))
        weights = weights[:int(top_k)] if top_k >= 1 else weights
        before = weights.cumsum(0) - weights
        kept = (before < top_p * weights.sum()) | (top_p >= 1)
        kept &= weights >= min_p
        kept[0] = True
        weights = weights * kept.cumprod(0)
        at = int((weights.cumsum(0) <= float(c.x[2][row]) * weights.sum()).sum())
        ids.append(int(order.indices[min(at, int((weights > 0).sum()) - 1)]))
    return torch.tensor(ids, dtype=torch.int64)


def fused_moe(c):
    x, gate_up, down, weight, expert = c.x
    out = torch.zeros_like(x, dtype=torch.float64)
    hidden = down.shape[2]
    for t in range(x.shape[0]):
        for k in range(weight.shape[1]):
            e = int(expert[t, k])
            both = gate_up[e].double() @ x[t].double()
            inner = F.silu(both[:hidden]) * both[hidden:]
            out[t] += weight[t, k].double() * (down[e].double() @ inner)
    return out.to(x.dtype)


EXPRESSIONS = {
    "copy": unary(torch.clone),
    "cast": lambda c: c.x[0].to(DTYPE[c.a.dtype]),
    "clone": unary(torch.clone),
    "neg": unary(torch.neg),
    "abs": unary(torch.abs),
    "sign": unary(torch.sign),
    "floor": unary(torch.floor),
    "ceil": unary(torch.ceil),
    "round": unary(torch.round),
    "trunc": unary(torch.trunc),
    "sqrt": unary(torch.sqrt),
    "rsqrt": unary(torch.rsqrt),
    "reciprocal": unary(torch.reciprocal),
    "exp": unary(torch.exp),
    "log": unary(torch.log),
    "cos": unary(torch.cos),
    "sin": unary(torch.sin),
    "tanh": unary(torch.tanh),
    "sigmoid": unary(torch.sigmoid),
    "erf": unary(torch.erf),
    "silu": unary(F.silu),
    # In double: PyTorch's f32 gelu of infinity is NaN where it is vectorised.
    "gelu": lambda c: F.gelu(c.x[0].double(), approximate="tanh" if c.a.approximate else "none").to(c.x[0].dtype),
    "relu": unary(torch.relu),
    "clamp": lambda c: torch.clamp(c.x[0], c.a.low, c.a.high),
    "isnan": unary(torch.isnan),
    "isfinite": unary(torch.isfinite),
    "logical_not": unary(torch.logical_not),
    "bitwise_not": unary(torch.bitwise_not),
    "add": lambda c: torch.add(c.x[0], c.x[1], alpha=c.a.alpha),
    "sub": lambda c: torch.sub(c.x[0], c.x[1], alpha=c.a.alpha),
    "mul": binary(torch.mul),
    "div": div,
    "pow": binary(torch.pow),
    "maximum": binary(torch.maximum),
    "minimum": binary(torch.minimum),
    "bitwise_and": binary(torch.bitwise_and),
    "bitwise_or": binary(torch.bitwise_or),
    "bitwise_xor": binary(torch.bitwise_xor),
    "shift_left": binary(torch.bitwise_left_shift),
    "shift_right": binary(torch.bitwise_right_shift),
    "eq": binary(torch.eq),
    "ne": binary(torch.ne),
    "lt": binary(torch.lt),
    "le": binary(torch.le),
    "gt": binary(torch.gt),
    "ge": binary(torch.ge),
    "logical_and": binary(torch.logical_and),
    "logical_or": binary(torch.logical_or),
    "logical_xor": binary(torch.logical_xor),
    "add_scalar": lambda c: torch.add(c.x[0], c.a.value, alpha=c.a.alpha),
    "sub_scalar": lambda c: torch.sub(c.x[0], c.a.value, alpha=c.a.alpha),
    "rsub_scalar": lambda c: torch.rsub(c.x[0], c.a.value, alpha=c.a.alpha),
    "mul_scalar": scalar(torch.mul),
    "div_scalar": lambda c: torch.div(c.x[0], c.a.value, rounding_mode=ROUNDING[c.a.rounding]),
    "pow_scalar": scalar(torch.pow),
    "rpow_scalar": lambda c: torch.pow(c.a.value, c.x[0]),
    "eq_scalar": scalar(torch.eq),
    "ne_scalar": scalar(torch.ne),
    "lt_scalar": scalar(torch.lt),
    "le_scalar": scalar(torch.le),
    "gt_scalar": scalar(torch.gt),
    "ge_scalar": scalar(torch.ge),
    "where": lambda c: torch.where(*c.x),
    "masked_fill": lambda c: c.x[0].masked_fill(c.x[1], c.a.value),
    "addcmul": lambda c: torch.addcmul(*c.x, value=c.a.value),
    "addcdiv": lambda c: torch.addcdiv(*c.x, value=c.a.value),
    "tril": lambda c: torch.tril(c.x[0], c.a.diagonal),
    "triu": lambda c: torch.triu(c.x[0], c.a.diagonal),
    "sigmoid_backward": lambda c: torch.ops.aten.sigmoid_backward(*c.x),
    "tanh_backward": lambda c: torch.ops.aten.tanh_backward(*c.x),
    "relu_backward": lambda c: torch.ops.aten.threshold_backward(c.x[0], c.x[1], 0),
    "silu_backward": lambda c: torch.ops.aten.silu_backward(*c.x),
    "gelu_backward": lambda c: torch.ops.aten.gelu_backward(
        *c.x, approximate="tanh" if c.a.approximate else "none"),
    "fill": lambda c: torch.full(c.outputs[0]["shape"], c.a.value, dtype=torch.float64
                                 if c.dtype.itemsize == 1 and c.dtype.is_floating_point else c.dtype).to(c.dtype),
    "arange": arange,
    "sum": reduction(torch.sum),
    "mean": reduction(torch.mean),
    "prod": flattened(half_in_float(torch.prod)),
    "max": reduction(torch.amax),
    "min": reduction(torch.amin),
    "any": reduction(torch.any),
    "all": reduction(torch.all),
    "var": lambda c: torch.var(c.x[0], dim=dims(c), correction=c.a.correction, keepdim=c.a.keepdim),
    "argmax": index_reduction(torch.argmax),
    "argmin": index_reduction(torch.argmin),
    "max_dim": lambda c: torch.max(c.x[0], c.a.dims[0], c.a.keepdim),
    "min_dim": lambda c: torch.min(c.x[0], c.a.dims[0], c.a.keepdim),
    "cumsum": cumsum,
    "sort": lambda c: torch.sort(c.x[0], dim=c.a.dim, descending=c.a.descending, stable=True),
    "topk": lambda c: torch.topk(c.x[0], c.a.k, c.a.dim, c.a.largest, c.a.sorted),
    "softmax": lambda c: torch.softmax(c.x[0], c.a.dim),
    "log_softmax": lambda c: torch.log_softmax(c.x[0], c.a.dim),
    "softmax_backward": lambda c: torch.ops.aten._softmax_backward_data(*c.x, c.a.dim, c.x[0].dtype),
    "log_softmax_backward": lambda c: torch.ops.aten._log_softmax_backward_data(*c.x, c.a.dim, c.x[0].dtype),
    "cross_entropy": cross_entropy,
    "cross_entropy_backward": cross_entropy_backward,
    "layer_norm": layer_norm,
    "layer_norm_backward": optional_backward(layer_norm_backward, 3),
    "rms_norm": rms_norm,
    "rms_norm_backward": optional_backward(rms_norm_backward, 2),
    "batch_norm": batch_norm,
    "batch_norm_update": batch_norm_update,
    "batch_norm_backward": batch_norm_backward,
    "mm": binary(torch.mm),
    "bmm": binary(torch.bmm),
    "addmm": lambda c: torch.addmm(*c.x, beta=c.a.beta, alpha=c.a.alpha),
    "linear": lambda c: F.linear(*c.x),
    "int_mm": lambda c: torch.mm(c.x[0].int(), c.x[1].int()),
    # PyTorch sums one integer operand in i64 and products of several in their own type; the table's row gives the
    # operands' type to both.
    "einsum": lambda c: torch.einsum(c.a.equation, *c.x).to(c.x[0].dtype),
    "sdpa": sdpa,
    "sdpa_backward": optional_backward(sdpa_backward, 3),
    "paged_attention": paged_attention,
    "rope_paged_attention": rope_paged_attention,
    "rope_cache": rope_cache,
    "rope": rope,
    "embedding": lambda c: F.embedding(c.x[1].long(), c.x[0],
                                       c.a.padding_index if c.a.padding_index >= 0 else None),
    "embedding_backward": embedding_backward,
    "gather": lambda c: torch.gather(c.x[0], c.a.dim, c.x[1].long()),
    "scatter": scatter,
    "index_select": lambda c: torch.index_select(c.x[0], c.a.dim, c.x[1]),
    "index_add": lambda c: torch.index_add(c.x[0], c.a.dim, c.x[1], c.x[2]),
    "index": lambda c: torch.ops.aten.index(c.x[0], [None if t is None else t.long() for t in c.x[1:]]),
    "index_put": index_put,
    "cat": lambda c: torch.cat(c.x, c.a.dim),
    "stack": lambda c: torch.stack(c.x, c.a.dim),
    "conv2d": conv2d,
    "conv2d_backward": conv2d_backward,
    "max_pool2d": max_pool2d,
    "max_pool2d_backward": max_pool2d_backward,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_backward": avg_pool2d_backward,
    "quantize": quantize,
    "dequantize": lambda c: dequantized(c.x[0], c.inputs[0], c.x[1]).to(c.dtype),
    "linear_quantized": linear_quantized,
    "linear_int8": linear_int8,
    "fused_linear": fused_linear,
    "sparsify_2_4": sparsify,
    "linear_sparse_2_4": linear_sparse,
    "pack_fractal_nz": pack_fractal_nz,
    "linear_fractal_nz": linear_fractal_nz,
    "fused_moe": fused_moe,
    "sample": sample,
    "adamw": adamw,
    "sgd": sgd,
}

# Ops that PyTorch does not have, and what holds them instead.
EXCUSED = {
    op: "the table defines its bits by Philox, PyTorch draws others; test_random.py recomputes them"
    for op in ("uniform", "normal", "randint", "bernoulli", "dropout")
}

"""Triton kernels of the provider `triton`: softmax, rms_norm and attention over contiguous tensors.

scripts/triton_cubins.py compiles VARIANTS ahead of time; src/backends/cuda/triton.c launches them with the parameters
in the order they have here.
"""
import triton
import triton.language as tl


@triton.jit
def softmax(out, x, n, BLOCK: tl.constexpr):
    """A program for each row, which it holds whole."""
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + row + at, mask=inside, other=-float("inf")).to(tl.float32)
    # NaN stays, as a maximum too; a row of -inf is NaN.
    weights = tl.exp(values - tl.max(values, 0))
    weights = tl.where(inside, weights, 0.0)
    tl.store(out + row + at, (weights / tl.sum(weights, 0)).to(out.dtype.element_ty), mask=inside)


@triton.jit
def rms_norm(out, x, weight, eps, n, BLOCK: tl.constexpr):
    """A program for each row, which it holds whole."""
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + row + at, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / n + eps)
    factors = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + at, (values * scale * factors).to(out.dtype.element_ty), mask=inside)


@triton.jit
def attend(total, largest, weight, query, k, v, begin, end, s, rows, scale, D: tl.constexpr, KEYS: tl.constexpr,
           CAUSAL: tl.constexpr, MASKED: tl.constexpr):
    """Adds the keys of [begin, end) to the rows' running softmax; logarithms are of base 2."""
    places = tl.arange(0, KEYS)
    columns = tl.arange(0, D)
    for start in range(begin, end, KEYS):
        keys = start + places
        at = keys[:, None] * D + columns[None, :]
        if MASKED:
            key = tl.load(k + at, mask=keys[:, None] < s, other=0.0)
            value = tl.load(v + at, mask=keys[:, None] < s, other=0.0)
        else:
            key = tl.load(k + at)
            value = tl.load(v + at)
        scores = tl.dot(query, tl.trans(key)) * scale
        if MASKED:
            seen = keys[None, :] < s
            if CAUSAL:
                seen = seen & (keys[None, :] <= rows[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - now[:, None])
        kept = tl.exp2(largest - now)
        weight = weight * kept + tl.sum(weights, 1)
        total = tl.dot(weights.to(value.dtype), value, total * kept[:, None])
        largest = now
    return total, largest, weight


@triton.jit
def attention(out, lse, q, k, v, scale, t, s, heads, group, wants_lse, D: tl.constexpr, ROWS: tl.constexpr,
              KEYS: tl.constexpr, CAUSAL: tl.constexpr):
    """Flash attention of ROWS queries of one head; `group` heads share keys and values."""
    head = tl.program_id(1).to(tl.int64)
    shared = head // heads * (heads // group) + head % heads // group
    first = tl.program_id(0) * ROWS
    rows = first + tl.arange(0, ROWS)
    columns = tl.arange(0, D)
    at = head * t * D + rows[:, None] * D + columns[None, :]
    query = tl.load(q + at, mask=rows[:, None] < t, other=0.0)
    k += shared * s * D
    v += shared * s * D
    scale = scale * 1.4426950408889634
    total = tl.zeros([ROWS, D], tl.float32)
    largest = tl.full([ROWS], -float("inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    end = s
    whole = s // KEYS * KEYS  # keys up to here need no mask
    if CAUSAL:
        end = tl.minimum(s, first + ROWS)
        whole = tl.minimum(whole, first // KEYS * KEYS)
    total, largest, weight = attend(total, largest, weight, query, k, v, 0, whole, s, rows, scale, D, KEYS, CAUSAL,
                                    False)
    total, largest, weight = attend(total, largest, weight, query, k, v, whole, end, s, rows, scale, D, KEYS, CAUSAL,
                                    True)
    tl.store(out + at, (total / weight[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < t)
    tl.store(lse + head * t + rows, (largest + tl.log2(weight)) * 0.6931471805599453,
             mask=(rows < t) & (wants_lse != 0))


def variants():
    """(name, kernel, signature of the parameters, constants, those that 16 divides, warps, stages)"""
    for dtype, pointer in ("f32", "*fp32"), ("f16", "*fp16"), ("bf16", "*bf16"):
        for block, warps in (1024, 4), (4096, 8), (8192, 16):
            constants = {"BLOCK": block}
            yield (f"softmax_{dtype}_{block}", softmax, {"out": pointer, "x": pointer, "n": "i32"}, constants,
                   ("out", "x", "n"), warps, 2)
            yield (f"rms_norm_{dtype}_{block}", rms_norm,
                   {"out": pointer, "x": pointer, "weight": pointer, "eps": "fp32", "n": "i32"}, constants,
                   ("out", "x", "weight", "n"), warps, 2)
    for dtype, pointer in ("f16", "*fp16"), ("bf16", "*bf16"):
        for size, rows, warps in (64, 128, 4), (128, 128, 8):
            for causal in 0, 1:
                yield (f"attention_{dtype}_{size}{'_causal' if causal else ''}", attention,
                       {"out": pointer, "lse": "*fp32", "q": pointer, "k": pointer, "v": pointer, "scale": "fp32",
                        "t": "i32", "s": "i32", "heads": "i32", "group": "i32", "wants_lse": "i32"},
                       {"D": size, "ROWS": rows, "KEYS": 64, "CAUSAL": bool(causal)}, ("out", "q", "k", "v"), warps, 3)

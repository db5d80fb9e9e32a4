"""Differential test: random calls through hy_run against PyTorch, by a generator of its own.

Unlike test_ops.py, which compares the reference on the cases of conformance, this draws operands, views, mixtures of
types, numbers and attributes itself, and runs what a user's call runs: the cpu's providers, in their order. The ops,
their arguments and the places of their attributes come from the library's table.

    python tests/torch/test_differential.py [CASES] [SEED]     38,000 and 1
"""
import ctypes
import math
import os
import pathlib
import random
import sys
from types import SimpleNamespace

import torch

from expressions import EXPRESSIONS, Unanswered

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ["none", "f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "bool"]
TYPES = [None, torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32,
         torch.int64, torch.uint8, torch.bool]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
ALL = [*FLOATS, *INTS, torch.bool]


# ---- the library ----

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("layout", ctypes.c_int), ("ndim", ctypes.c_int32),
                ("reserved", ctypes.c_int32), ("shape", ctypes.c_int64 * 8), ("stride", ctypes.c_int64 * 8)]


class Call(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int), ("n_in", ctypes.c_int32), ("n_out", ctypes.c_int32), ("reserved", ctypes.c_int32),
                ("inputs", ctypes.POINTER(Tensor)), ("outputs", ctypes.POINTER(Tensor)), ("attrs", ctypes.c_char * 128)]


class Field(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("offset", ctypes.c_size_t)]


class Argument(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("kind", ctypes.c_int)]


class Info(ctypes.Structure):
    _fields_ = [("op", ctypes.c_int), ("name", ctypes.c_char_p), ("inputs", ctypes.POINTER(Argument)),
                ("outputs", ctypes.POINTER(Argument)), ("n_inputs", ctypes.c_int), ("n_outputs", ctypes.c_int),
                ("attr_kind", ctypes.c_char_p), ("attrs", ctypes.POINTER(Field)), ("n_attrs", ctypes.c_int),
                ("dtypes", ctypes.c_uint32), ("alias", ctypes.c_int), ("differentiable", ctypes.c_bool)]


def load():
    lib = ctypes.CDLL(os.environ.get("HALYARD_LIBRARY", str(ROOT / "build/release/lib/libhalyard.so")))
    lib.hy_last_error.restype = ctypes.c_char_p
    lib.hy_op_at.restype = ctypes.POINTER(Info)
    device, stream = ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.hy_device_get(b"cpu", ctypes.byref(device)) == 0, lib.hy_last_error()
    assert lib.hy_stream_create(device, ctypes.byref(stream)) == 0, lib.hy_last_error()
    table = {}
    for i in range(lib.hy_op_count()):
        info = lib.hy_op_at(i).contents
        table[info.name.decode()] = info
    return lib, stream, table


LIB, STREAM, TABLE = load()


def attribute(kind, value):
    """The bytes of an attribute of that C type."""
    if kind == "hy_scalar":
        if value is None:
            return bytes(16)
        if isinstance(value, bool):
            return value.to_bytes(8, "little") + (10).to_bytes(8, "little")
        if isinstance(value, int):
            return value.to_bytes(8, "little", signed=True) + (8).to_bytes(8, "little")
        return bytes(ctypes.c_double(value)) + (2).to_bytes(8, "little")
    if kind == "double":
        return bytes(ctypes.c_double(value))
    if kind in ("int64_t", "uint64_t"):
        return value.to_bytes(8, "little", signed=kind == "int64_t")
    if kind == "bool":
        return bytes([bool(value)])
    if kind == "hy_pair":
        return b"".join(v.to_bytes(8, "little", signed=True) for v in value)
    if kind == "hy_dims":
        words = [*value, *[0] * (8 - len(value)), len(value)]
        return b"".join(v.to_bytes(8, "little", signed=True) for v in words)
    if kind == "hy_equation":
        return value.encode().ljust(96, b"\0")
    if kind == "hy_dtype":
        return NAMES.index(value).to_bytes(4, "little")
    return int(value).to_bytes(4, "little")


def run(name, inputs, attrs):
    """The outputs of a call, and its status; `inputs` are Operands or None."""
    info = TABLE[name]
    ins = (Tensor * max(len(inputs), 1))(*[t.described if t is not None else Tensor() for t in inputs])
    outs = (Tensor * 4)()
    call = Call(op=info.op, n_in=len(inputs), n_out=info.n_outputs, inputs=ins, outputs=outs)
    block = bytearray(128)
    for i in range(info.n_attrs):
        field = info.attrs[i]
        bits = attribute(field.type.decode(), attrs[field.name.decode()])
        block[field.offset:field.offset + len(bits)] = bits
    ctypes.memmove(ctypes.addressof(call) + Call.attrs.offset, bytes(block), 128)
    status = LIB.hy_infer(ctypes.byref(call), outs)
    if status:
        return status, None
    results = []
    for i in range(info.n_outputs):
        shape = list(outs[i].shape[:outs[i].ndim])
        results.append(torch.empty(shape, dtype=TYPES[outs[i].dtype]))
        outs[i].data = results[-1].data_ptr() or 64
    return LIB.hy_run(STREAM, ctypes.byref(call)), results


# ---- operands ----

class Operand:
    """A tensor as PyTorch has it, and the same values as a view of memory with strides of any kind."""

    def __init__(self, draw, values):
        self.values = values.contiguous()
        shape = list(values.shape)
        how = draw.choice(["plain", "plain", "transposed", "stepped", "flipped", "offset"]) if shape else "plain"
        d = draw.randrange(len(shape)) if shape else 0
        stride = list(self.values.stride())
        self.memory, first = self.values.clone(), 0
        if how == "transposed" and len(shape) > 1:
            order = list(range(len(shape)))
            draw.shuffle(order)
            self.memory = self.values.permute(order).contiguous()
            stride = [self.memory.stride(order.index(i)) for i in range(len(shape))]
        elif how == "stepped":
            wide = shape[:]
            wide[d] *= 2
            self.memory = torch.zeros(wide, dtype=values.dtype)
            index = [slice(None)] * len(shape)
            index[d] = slice(0, None, 2)
            self.memory[tuple(index)] = self.values
            stride = list(self.memory.stride())
            stride[d] *= 2
        elif how == "flipped" and shape[d] > 1:
            self.memory = self.values.flip(d).contiguous()
            stride = list(self.memory.stride())
            first = (shape[d] - 1) * stride[d]
            stride[d] = -stride[d]
        elif how == "offset":
            self.memory = torch.zeros(self.values.numel() + 3, dtype=values.dtype)
            self.memory[3:] = self.values.flatten()
            first = 3
        address = (self.memory.data_ptr() or 64) + first * self.memory.element_size()
        t = Tensor(data=address, dtype=TYPES.index(values.dtype), ndim=len(shape))
        for i, size in enumerate(shape):
            t.shape[i], t.stride[i] = size, stride[i]
        self.described = t


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 1e30, -1e30,
           88.0, -104.0, 65504.0, 1e-5, 3.0e38, -3.0e38]


class Draw(random.Random):
    def shape(self, least=0, most=4, size=9):
        return [self.choice([1, 2, 3, 4, 5, 7, 8, 17, 33][:size]) for _ in range(self.randint(least, most))]

    def values(self, shape, dtype, wild=0.0):
        """Mostly ordinary numbers; with `wild`, some from the ends of the type."""
        n = math.prod(shape)
        generator = torch.Generator().manual_seed(self.getrandbits(60))
        if dtype == torch.bool:
            return torch.randint(0, 2, shape, generator=generator).bool()
        if not dtype.is_floating_point:
            limits = torch.iinfo(dtype)
            low, high = (limits.min, limits.max) if self.random() < wild else (max(limits.min, -9), 9)
            return torch.randint(low, high, shape, generator=generator, dtype=torch.int64).to(dtype)
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * self.choice([1, 1, 3, 20] if wild else [1])
        x = x.flatten()
        for _ in range(n):
            if self.random() < wild * 0.3:
                x[self.randrange(n)] = self.choice(SPECIAL)
            if self.random() > 0.9:
                break
        return x.reshape(shape).to(dtype)

    def operand(self, shape, dtype, wild=0.0):
        return Operand(self, self.values(shape, dtype, wild))

    def broadcast(self, shape):
        """A shape that broadcasts to this one."""
        kept = shape[self.randint(0, len(shape)):] if self.random() < 0.3 else shape
        return [1 if self.random() < 0.15 else n for n in kept]

    def number(self, dtype=None):
        if dtype is not None and not dtype.is_floating_point or self.random() < 0.5:
            return self.choice([0, 1, -1, 2, 3, -7, 100])
        return self.choice([0.0, 1.0, -1.5, 2.0, 0.5, 3.25, 1e3])

    def types(self, name):
        mask = TABLE[name].dtypes
        return [t for i, t in enumerate(TYPES) if t is not None and mask >> i & 1]

    def pair(self, least, most):
        return self.randint(least, most), self.randint(least, most)

    def dim(self, ndim):
        return self.randint(-ndim, ndim - 1) if ndim else self.choice([0, -1])


# ---- the generator: by kind of attributes and by family ----

def elementwise(n):
    def make(name, d):
        shape, dtype = d.shape(), d.choice(d.types(name))
        inputs = [d.operand(shape if i == 0 else d.broadcast(shape), dtype, 0.5) for i in range(n)]
        if n > 1 and d.random() < 0.4:  # another type, or a number without dimensions
            k = d.randrange(n)
            other = d.choice(d.types(name))
            inputs[k] = d.operand([] if d.random() < 0.5 else d.broadcast(shape), other, 0.5)
        attrs = {}
        whole = all(not t.values.is_floating_point() for t in inputs)
        for i in range(TABLE[name].n_attrs):
            field = TABLE[name].attrs[i].name.decode()
            attrs[field] = {"alpha": lambda: d.number(torch.int64) if whole else d.number(),
                            "rounding": lambda: d.randint(0, 2),
                            "value": lambda: d.number(inputs[0].values.dtype if whole else None),
                            "approximate": lambda: d.random() < 0.5,
                            "low": lambda: d.choice([None, -1, 0.5]), "high": lambda: d.choice([2, 1.5]),
                            "diagonal": lambda: d.randint(-3, 3)}[field]()
        if whole and name in ("clamp",):
            attrs = {"low": d.choice([None, -3]), "high": 5}
        return inputs, attrs
    return make


def alike(n):
    def make(name, d):
        shape, dtype = d.shape(), d.choice(FLOATS)
        attrs = {"approximate": d.random() < 0.5} if TABLE[name].n_attrs else {}
        return [d.operand(shape, dtype) for _ in range(n)], attrs
    return make


def matrix(name, d):
    return [d.operand(d.shape(2, 4), d.choice(d.types(name)), 0.3)], {"diagonal": d.randint(-4, 4)}


def cast(name, d):
    dtype = d.choice(ALL)
    x = d.values(d.shape(), dtype, 0.0)
    return [Operand(d, x)], {"dtype": NAMES[TYPES.index(d.choice(ALL))]}


def where(name, d):
    shape = d.shape()
    a, b = d.choice(ALL), d.choice(ALL)
    return [d.operand(d.broadcast(shape), torch.bool), d.operand(shape, a, 0.5),
            d.operand(d.broadcast(shape), b, 0.5)], {}


def masked_fill(name, d):
    shape, dtype = d.shape(), d.choice(ALL)
    return [d.operand(shape, dtype, 0.5), d.operand(d.broadcast(shape), torch.bool)], {
        "value": d.number(dtype) if dtype != torch.bool else True}


def reduce(name, d):
    shape = d.shape(1, 4)
    dims = d.sample(range(len(shape)), d.randint(0, len(shape)))
    dims = [k - len(shape) if d.random() < 0.3 else k for k in dims]
    attrs = {"dims": dims, "keepdim": d.random() < 0.5, "correction": float(d.choice([0, 1]))}
    if name in ("argmax", "argmin", "max_dim", "min_dim"):
        attrs["dims"] = [d.dim(len(shape))]
    wild = 0.5 if name in ("max", "min", "any", "all", "max_dim", "min_dim", "argmax", "argmin") else 0.0
    x = d.values(shape, d.choice(d.types(name)), wild)
    if name == "prod" and x.is_floating_point():
        x = x.clamp(-2, 2)
    return [Operand(d, x)], attrs


def along(name, d):
    shape = d.shape(1, 4)
    wild = 0.5 if name == "sort" else 0.0
    x = d.values(shape, d.choice(d.types(name)), wild)
    if name in ("softmax", "log_softmax") and d.random() < 0.3:
        x = x * d.choice([100, 1e4])
    dim = d.dim(len(shape))
    attrs = {"dim": dim, "reverse": d.random() < 0.5, "descending": d.random() < 0.5, "largest": d.random() < 0.5,
             "sorted": True, "k": d.randint(1, shape[dim])}
    if name == "topk":  # without ties, whose order is nobody's
        n = x.numel()
        x = torch.randperm(n, generator=torch.Generator().manual_seed(d.getrandbits(60))).reshape(shape)
        x = x.to(d.choice([torch.float32, torch.int32, torch.float64, torch.int64]))
    return [Operand(d, x)], attrs


def products(name, d):
    dtype = d.choice(d.types(name))
    m, k, n, b = (d.choice([1, 2, 3, 5, 8, 17, 33, 64, 100]) for _ in range(4))
    b = min(b, 5)
    if name == "int_mm":
        return [d.operand([m, k], torch.int8, 1.0), d.operand([k, n], torch.int8, 1.0)], {}
    if name == "bmm":
        return [d.operand([b, m, k], dtype), d.operand([b, k, n], dtype)], {}
    if name == "mm":
        return [d.operand([m, k], dtype), d.operand([k, n], dtype)], {}
    if name == "addmm":
        return [d.operand(d.broadcast([m, n]), dtype), d.operand([m, k], dtype), d.operand([k, n], dtype)], {
            "beta": d.number(torch.int64), "alpha": d.number(torch.int64)}
    bias = d.operand([n], dtype) if d.random() < 0.5 else None
    return [d.operand([*d.shape(0, 2, 5), k], dtype), d.operand([n, k], dtype), bias], {}


def einsum(name, d):
    sizes = {label: d.choice([1, 2, 3, 5, 8]) for label in "abcde"}
    terms = ["".join(d.sample("abcde", d.randint(1, 3))) for _ in range(d.randint(1, 3))]
    present = sorted(set("".join(terms)))
    out = "".join(d.sample(present, d.randint(0, min(3, len(present)))))
    dtype = d.choice([torch.float32, torch.float64, torch.int64])
    inputs = [d.operand([sizes[label] for label in term], dtype) for term in terms]
    return inputs, {"equation": ",".join(terms) + "->" + out}


def indices(d, shape, below, dtype=None):
    values = torch.randint(0, below, shape, generator=torch.Generator().manual_seed(d.getrandbits(60)))
    return Operand(d, values.to(dtype or d.choice([torch.int32, torch.int64])))


def indexing(name, d):
    shape, dtype = d.shape(1, 3), d.choice(d.types(name))
    dim = d.dim(len(shape))
    wild = 0.0 if name in ("index_add", "scatter") else 0.5
    x = d.operand(shape, dtype, wild)
    if name == "embedding":
        return [d.operand([7, 5], dtype, 0.5), indices(d, d.shape(0, 2), 7)], {"padding_index": d.choice([-1, 2])}
    if name == "index_select":
        return [x, indices(d, [d.randint(1, 6)], shape[dim])], {"dim": dim}
    if name == "gather":
        index = [n if i == dim % len(shape) else d.randint(1, n) for i, n in enumerate(shape)]
        return [x, indices(d, index, shape[dim], torch.int64)], {"dim": dim}
    if name == "index_add":
        n = d.randint(1, 6)
        src = shape[:]
        src[dim] = n
        return [x, indices(d, [n], shape[dim]), d.operand(src, dtype)], {"dim": dim}
    lane = torch.randperm(shape[dim], generator=torch.Generator().manual_seed(d.getrandbits(60)))
    view = [1] * len(shape)
    view[dim] = shape[dim]
    index = lane.reshape(view).expand(shape).contiguous()
    return [x, Operand(d, index), d.operand(shape, dtype)], {"dim": dim, "mode": d.randint(0, 1)}


def join(name, d):
    shape, dtype = d.shape(1, 3), d.choice(ALL)
    dim, inputs = d.dim(len(shape)), []
    for _ in range(d.choice([1, 2, 3, 5, 70])):
        one = shape[:]
        if name == "cat":
            one[dim] = d.choice([0, 1, 2, 5])
        inputs.append(d.operand(one, d.choice(ALL) if d.random() < 0.2 else dtype, 0.5))
    return inputs, {"dim": dim}


def norm(name, d):
    shape, dtype = d.shape(1, 3), d.choice(FLOATS)
    dims = d.randint(1, len(shape))
    part = shape[len(shape) - dims:]
    weight = d.operand(part, dtype) if d.random() < 0.7 else None
    inputs = [d.operand(shape, dtype), weight]
    if name == "layer_norm":
        inputs.append(d.operand(part, dtype) if weight is not None and d.random() < 0.7 else None)
    return inputs, {"norm_dims": dims, "eps": d.choice([1e-6, 1e-5, 0.1])}


def cross_entropy(name, d):
    n, c = d.randint(1, 9), d.choice([1, 2, 5, 33, 100])
    dtype = d.choice([torch.float32, torch.float64])
    target = indices(d, [n], c)
    weight = Operand(d, d.values([c], dtype).abs() + 0.1) if d.random() < 0.5 else None
    return [Operand(d, d.values([n, c], dtype) * d.choice([1, 30])), target, weight], {
        "ignore_index": d.choice([-100, 0]), "reduction": d.randint(0, 2), "label_smoothing": d.choice([0.0, 0.1, 0.9]),
        "dtype": NAMES[0]}


def convolution(name, d):
    dtype, groups = d.choice([torch.float32, torch.float64]), d.choice([1, 1, 2])
    kernel = (d.randint(1, 4), d.randint(1, 4))
    channels, filters = groups * d.randint(1, 4), groups * d.randint(1, 4)
    x = d.operand([d.randint(1, 2), channels, d.randint(8, 12), d.randint(8, 12)], dtype)
    weight = d.operand([filters, channels // groups, *kernel], dtype)
    bias = d.operand([filters], dtype) if d.random() < 0.5 else None
    return [x, weight, bias], {"stride": d.pair(1, 3), "padding": d.pair(0, 2), "dilation": d.pair(1, 2), "groups": groups}


def pooling(name, d):
    kernel = (d.randint(1, 4), d.randint(1, 4))
    attrs = {"kernel": kernel, "stride": d.pair(1, 3),
             "padding": (d.randint(0, kernel[0] // 2), d.randint(0, kernel[1] // 2)), "dilation": (1, 1),
             "ceil_mode": d.random() < 0.5, "count_padding": d.random() < 0.5, "divisor": d.choice([0, 0, 3])}
    dtype = d.choice([torch.float32, torch.float64])
    x = torch.randperm(2 * 3 * 110, generator=torch.Generator().manual_seed(d.getrandbits(60))).reshape(2, 3, 10, 11)
    return [Operand(d, (x.to(dtype) - 300) / 16)], attrs


def attention(name, d):
    dtype, group, heads = d.choice(FLOATS), d.choice([1, 2]), d.randint(1, 3)
    b, t, s, e = d.randint(1, 2), d.choice([1, 2, 7, 33]), d.choice([1, 3, 17, 65]), d.choice([2, 8, 16, 64])
    mask = None
    if d.random() < 0.3:
        mask = d.operand([t, s], dtype)
    causal = d.choice([0, 0, 1]) if s < t else d.choice([0, 1, 2])
    q, k, v = (d.operand(shape, dtype) for shape in ([b, heads * group, t, e], [b, heads, s, e], [b, heads, s, e]))
    return [q, k, v, mask], {"scale": d.choice([0.125, 0.5, 1.0]), "causal": causal}


def optimizer(name, d):
    shape, dtype = d.shape(0, 2), d.choice([torch.float32, torch.float64])
    attrs = {"lr": d.choice([1e-3, 0.1]), "beta1": d.choice([0.9, 0.5]), "beta2": d.choice([0.999, 0.9]),
             "eps": d.choice([1e-8, 1e-3]), "weight_decay": d.choice([0.0, 0.1]), "step": d.choice([1, 2, 1000]),
             "maximize": d.random() < 0.3, "momentum": 0.9, "dampening": d.choice([0.0, 0.1]), "nesterov": False,
             "first": d.random() < 0.3}
    if name == "adamw":
        return [d.operand(shape, dtype), d.operand(shape, dtype), Operand(d, d.values(shape, dtype).abs()),
                d.operand(shape, dtype)], attrs
    return [d.operand(shape, dtype), d.operand(shape, dtype), d.operand(shape, dtype)], attrs


FAMILIES = {
    elementwise(1): "neg abs sign floor ceil round trunc sqrt rsqrt reciprocal exp log cos sin tanh sigmoid erf silu gelu "
                    "relu clamp isnan isfinite logical_not bitwise_not copy clone add_scalar sub_scalar rsub_scalar "
                    "mul_scalar div_scalar eq_scalar ne_scalar lt_scalar le_scalar gt_scalar ge_scalar",
    elementwise(2): "add sub mul div pow maximum minimum bitwise_and bitwise_or bitwise_xor eq ne lt le gt ge "
                    "logical_and logical_or logical_xor",
    alike(2): "sigmoid_backward tanh_backward relu_backward silu_backward gelu_backward",
    matrix: "tril triu", cast: "cast", where: "where", masked_fill: "masked_fill",
    reduce: "sum mean prod max min any all var argmax argmin max_dim min_dim",
    along: "softmax log_softmax cumsum sort topk",
    products: "mm bmm addmm linear int_mm", einsum: "einsum",
    indexing: "embedding index_select gather index_add scatter", join: "cat stack", norm: "layer_norm rms_norm",
    cross_entropy: "cross_entropy", convolution: "conv2d", pooling: "max_pool2d avg_pool2d", attention: "sdpa",
    optimizer: "adamw sgd",
}
GENERATORS = {name: make for make, names in FAMILIES.items() for name in names.split()}

# ---- comparing ----

RELATIVE = {torch.float64: 1e-11, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
UNIT = {torch.float64: 2.0**-48, torch.float32: 2.0**-20, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
SUMS = set("sum mean prod var cumsum mm bmm addmm linear einsum layer_norm rms_norm cross_entropy conv2d avg_pool2d sdpa "
           "softmax log_softmax index_add scatter adamw sgd".split())
# Little is left where sums cancel, and PyTorch rounds a factor's product first; its gelu far below 0 is 0.
CANCELS = set("gelu sigmoid_backward tanh_backward silu_backward gelu_backward".split())
CANCELS_IN_HALVES = set("add sub rsub_scalar".split())
# Of one number, or choosing among some: the sign of 0 is PyTorch's too.
SIGNED = set("neg abs floor ceil round trunc sqrt sin tanh erf copy clone cast mul mul_scalar where masked_fill cat stack "
             "gather index_select embedding tril triu".split())


def difference(name, ours, theirs, inputs, attrs):
    """None, or what is different, in words."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{list(ours.shape)}, PyTorch {theirs.dtype}{list(theirs.shape)}"
    if not ours.dtype.is_floating_point:
        wrong = ours != theirs
    else:
        # A number is as exact as the narrowest type that took part.
        kinds = [t.values.dtype for t in inputs if t is not None and t.values.dtype in RELATIVE] + [ours.dtype]
        kind = max(kinds, key=lambda t: RELATIVE[t])
        a, b = ours.double(), theirs.double()
        size = max((float(t.values.double().nan_to_num(0, 0, 0).abs().max()) for t in inputs if t is not None
                    and t.values.numel() and t.values.is_floating_point()), default=1.0)
        factor = max(abs(attrs.get("alpha", 1)), abs(attrs.get("value", 1)) if name == "rsub_scalar" else 1)
        cancels = name in CANCELS or (name in CANCELS_IN_HALVES and kind in (torch.float16, torch.bfloat16))
        terms = max((t.values.numel() for t in inputs if t is not None), default=1)
        least = 2.0**-22 if kind == torch.float16 else 2.0**-126
        if name in SUMS:
            least = UNIT[kind] * max(size, size * size) * math.sqrt(terms)
        elif cancels:
            least = UNIT[kind] * min(max(size, 1.0), 100.0) * factor
        close = (a - b).abs() <= RELATIVE[kind] * b.abs() + least
        wrong = ~(close | (a == b) | (a.isnan() & b.isnan()))
        if name in SIGNED:
            wrong |= (a == 0) & (b == 0) & (a.signbit() != b.signbit())
    if not bool(wrong.any()):
        return None
    at = wrong.flatten().nonzero()[0].item()
    return f"element {at} of {ours.numel()} is {ours.flatten()[at].item()}, PyTorch's {theirs.flatten()[at].item()}"


# What PyTorch has no kernel for, or says no to by rules of its own.
NO_KERNEL = ("not implemented for", "not supported", "does not support", "expected scalar type", "same dtype",
             "can't be cast", "ZeroDivisionError", "Subtraction, the `-` operator", "Integers to negative",
             "For integral input", "Boolean alpha", "result type", "value cannot be converted", "expected m1 and m2")


def documented(name, inputs, attrs):
    """Differences on purpose, each in docs/semantics.md."""
    floats = [t for t in inputs if t is not None and t.values.is_floating_point()]
    if name == "cast" and floats and not attrs["dtype"].startswith(("f", "bf")):
        return True  # a float outside an integer's range
    if name in ("div", "div_scalar") and not floats and attrs["rounding"]:
        divisor = inputs[1].values if name == "div" else torch.tensor(attrs["value"])
        return bool((divisor == 0).any()) or bool((divisor == -1).any())
    halves = (torch.float16, torch.bfloat16)
    if name == "div" and attrs["rounding"] and any(t.values.dtype in halves for t in floats):
        return not inputs[1].values.ndim  # PyTorch takes such a divisor as it is
    return False


def one(name, seed):
    """None where both agree or PyTorch has no answer; else the difference."""
    d = Draw(f"{name} {seed}")
    inputs, attrs = GENERATORS[name](name, d)
    if documented(name, inputs, attrs):
        return "skip"
    case = SimpleNamespace(op=name, x=[t.values.clone() if t is not None else None for t in inputs],
                           a=SimpleNamespace(**attrs), dtype=None, inputs=[], outputs=[])
    try:
        theirs = EXPRESSIONS[name](case)
    except Unanswered:
        return "skip"
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        theirs = error
    status, ours = run(name, inputs, attrs)
    shown = [f"{t.values.dtype}{list(t.values.shape)}" if t is not None else "none" for t in inputs[:4]]
    what = f"{name}({', '.join(shown)}; {attrs})"
    if isinstance(theirs, Exception):
        if status or any(text in str(theirs) for text in NO_KERNEL):
            return "skip"
        return f"{what}: PyTorch refuses it: {str(theirs)[:150]}"
    if status:
        return f"{what}: refused: {LIB.hy_last_error().decode()[:200]}"
    for mine, other in zip(ours, theirs if isinstance(theirs, tuple) else (theirs,)):
        problem = difference(name, mine, other, inputs, attrs) if other is not None else None
        if problem:
            return f"{what}: {problem}"
    return None


def compare(count, seed):
    torch.set_num_threads(1)
    names, compared, problems = sorted(GENERATORS), 0, []
    number = 0
    while compared < count:
        name = names[number % len(names)]
        outcome = one(name, seed * 1_000_003 + number)
        number += 1
        compared += outcome != "skip"
        if outcome not in (None, "skip"):
            problems.append(f"case {number - 1}: {outcome}")
    return compared, problems


def test_random_calls_agree_with_pytorch():
    compared, problems = compare(3000, int(os.environ.get("HALYARD_SEED", "1")))
    assert not problems, f"{len(problems)} of {compared} calls differ:\n" + "\n".join(problems[:20])


def test_every_family_is_of_the_table():
    assert not set(GENERATORS) - set(TABLE)


if __name__ == "__main__":
    wanted, first = [int(word) for word in (sys.argv[1:] + ["38000", "1"][len(sys.argv) - 1:])][:2]
    done, differ = compare(wanted, first)
    print("\n".join(differ[:400]))
    print(f"{done} calls compared, {len(differ)} differ")
    sys.exit(bool(differ))

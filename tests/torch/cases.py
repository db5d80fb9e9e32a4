"""Conformance cases of libhalyard_verify as PyTorch tensors."""

import ctypes
import json
import os
import pathlib
from types import SimpleNamespace

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
OK, NOT_FOUND, UNSUPPORTED = 0, 8, 10

# dtype name: (numpy type of the bits, PyTorch type)
DTYPES = {
    "f32": (np.float32, torch.float32),
    "f64": (np.float64, torch.float64),
    "f16": (np.float16, torch.float16),
    "bf16": (np.int16, torch.bfloat16),
    "i8": (np.int8, torch.int8),
    "i16": (np.int16, torch.int16),
    "i32": (np.int32, torch.int32),
    "i64": (np.int64, torch.int64),
    "u8": (np.uint8, torch.uint8),
    "bool": (np.uint8, torch.bool),
    "f8e4m3": (np.uint8, torch.float8_e4m3fn),
    "f8e5m2": (np.uint8, torch.float8_e5m2),
}


def load_library():
    path = os.environ.get("HALYARD_VERIFY_LIBRARY", ROOT / "build/release/lib/libhalyard_verify.so")
    lib = ctypes.CDLL(str(path))
    for name, result, *arguments in [
        ("hyv_op_count", ctypes.c_int),
        ("hyv_op_name", ctypes.c_char_p, ctypes.c_int),
        ("hyv_is_differentiable", ctypes.c_int, ctypes.c_int),
        ("hyv_case_count", ctypes.c_int, ctypes.c_int),
        ("hyv_last_error", ctypes.c_char_p),
        ("hyv_status_name", ctypes.c_char_p, ctypes.c_int),
        ("hyv_create", ctypes.c_void_p),
        ("hyv_make", ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int),
        ("hyv_reference", ctypes.c_int, ctypes.c_void_p),
        ("hyv_gradients", ctypes.c_int, ctypes.c_void_p),
        ("hyv_has_gradients", ctypes.c_int, ctypes.c_void_p),
        ("hyv_input_has_gradient", ctypes.c_int, ctypes.c_void_p, ctypes.c_int),
        ("hyv_gradient", ctypes.c_void_p, ctypes.c_int),
        ("hyv_describe", ctypes.c_void_p, ctypes.c_void_p),
        ("hyv_free", None, ctypes.c_void_p),
        ("hyv_destroy", None, ctypes.c_void_p),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


LIB = load_library()
OPS = [LIB.hyv_op_name(i).decode() for i in range(LIB.hyv_op_count())]


def number(value):
    return float.fromhex(value["f64"]) if isinstance(value, dict) else value


def read(tensor):
    """A copy of a tensor that Halyard describes: same values, contiguous."""
    if tensor is None:
        return None
    bits, dtype = DTYPES[tensor["dtype"]] if tensor["dtype"] in DTYPES else (np.uint8, torch.uint8)
    shape, stride = tensor["shape"], tensor["stride"]
    size = np.dtype(bits).itemsize
    if tensor["layout"] == "packed_i4":
        shape = shape[:-1] + [shape[-1] // 2]
        stride = list(np.cumprod([1] + shape[:0:-1])[::-1])
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    low = sum((n - 1) * s for n, s in zip(shape, stride) if s < 0)
    high = sum((n - 1) * s for n, s in zip(shape, stride) if s > 0)
    memory = (ctypes.c_char * ((high - low + 1) * size)).from_address(tensor["address"] + low * size)
    flat = np.frombuffer(memory, dtype=bits)[-low:]
    view = np.lib.stride_tricks.as_strided(flat, shape, [s * size for s in stride])
    copy = torch.from_numpy(np.array(view, order="C").reshape(shape))
    return copy.view(dtype) if copy.dtype != dtype else copy


class Case:
    """One generated call: `x` its inputs, `a` its attributes, both before the call ran."""

    def __init__(self, handle, description):
        self.handle = handle
        self.__dict__.update(description)
        self.x = [read(t) for t in self.inputs] if self.expected == OK or self.own_mistake else []
        self.a = SimpleNamespace(**{k: number(v) for k, v in self.attrs.items()})
        self.dtype = DTYPES.get((self.outputs[0] or {}).get("dtype"), (None, None))[1]

    def run(self):
        """Runs the reference: its status and outputs."""
        status = LIB.hyv_reference(self.handle)
        return status, [read(t) for t in self.outputs] if status == OK else None

    def gradients(self):
        """The tape's gradients: a status and, for each input, a tensor or None."""
        status = LIB.hyv_gradients(self.handle)
        if status != OK:
            return status, None
        found = []
        for i, tensor in enumerate(self.inputs):
            address = LIB.hyv_gradient(i)
            if not address:
                found.append(None)
                continue
            shape = tensor["shape"]
            stride = [int(np.prod(shape[d + 1:])) for d in range(len(shape))]
            found.append(read({**tensor, "address": address, "stride": stride}))
        return status, found


def generate(op, seed=1, quick=False):
    """Every case of an op, one at a time: each is valid until the next is asked for."""
    index = OPS.index(op)
    handle = LIB.hyv_create()
    for number in range(LIB.hyv_case_count(index)):
        status = LIB.hyv_make(handle, index, seed, number, quick)
        if status == NOT_FOUND:
            continue
        assert status == OK, LIB.hyv_last_error().decode()
        text = LIB.hyv_describe(handle)
        description = json.loads(ctypes.string_at(text))
        LIB.hyv_free(text)
        description["number"] = number
        yield Case(handle, description)
    LIB.hyv_destroy(handle)

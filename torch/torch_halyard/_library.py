"""The shim, by ctypes: loading it, and the reports of what ran where."""

import ctypes
import json
import os
import pathlib

_shim = None


def load():
    global _shim
    if _shim is not None:
        return _shim
    folder = pathlib.Path(os.environ.get("HALYARD_TORCH_LIBRARY") or pathlib.Path(__file__).parent)
    import torch

    built_for = folder / "torch_version.txt"
    minor = ".".join(torch.__version__.split(".")[:2])
    if built_for.exists() and built_for.read_text().strip() != minor:
        raise RuntimeError(
            f"torch_halyard was built for torch {built_for.read_text().strip()} and this is {minor}: "
            "install it again beside this torch, pip install --no-build-isolation ./torch")
    _shim = ctypes.CDLL(str(folder / "libtorch_halyard.so"))
    for name in ("absence", "fallbacks", "native_counts", "device_info"):
        getattr(_shim, f"torch_halyard_{name}").restype = ctypes.c_char_p
    for name in ("initial_seed", "get_offset", "fallback_total"):
        getattr(_shim, f"torch_halyard_{name}").restype = ctypes.c_uint64
    _shim.torch_halyard_manual_seed.argtypes = [ctypes.c_int, ctypes.c_uint64]
    _shim.torch_halyard_set_offset.argtypes = [ctypes.c_int, ctypes.c_uint64]
    if os.environ.get("HALYARD_TORCH_WARN") == "0":
        warn_fallback(False)
    if os.environ.get("HALYARD_STRICT") == "1":
        strict(True)
    return _shim


def shim():
    return load()


def device_info(index):
    text = shim().torch_halyard_device_info(index)
    return json.loads(text) if text else {}


def fallback_report():
    """What ran on the CPU instead of the device: a list of {op, count, reason, by, ...}, most often first.

    by="torch": an ATen op without a native kernel, run by PyTorch's CPU kernel. by="halyard": an op of the table that the
    device's backend lacks, run by Halyard's reference.
    """
    return sorted(json.loads(shim().torch_halyard_fallbacks()), key=lambda entry: -entry["count"])


def native_ops():
    """The names of the ATen ops with a native kernel."""
    return list(json.loads(shim().torch_halyard_native_counts()))


def native_report():
    """How often each ATen op ran natively: {op: count}, most often first."""
    counts = json.loads(shim().torch_halyard_native_counts())
    return dict(sorted(((op, n) for op, n in counts.items() if n), key=lambda item: -item[1]))


def clear_report():
    """Forgets all counts."""
    shim().torch_halyard_clear_counts()


def strict(on=True):
    """Makes every fallback to the CPU an error. Also HALYARD_STRICT=1."""
    shim().torch_halyard_set_strict(int(on))


def warn_fallback(on=True):
    """Whether an op's first fallback warns. Also HALYARD_TORCH_WARN=0."""
    shim().torch_halyard_set_warn(int(on))

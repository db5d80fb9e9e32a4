"""libhalyard, by ctypes: which one is loaded, the structs of its headers, and failures as exceptions.

A process has one libhalyard: the one that is loaded already (by torch_halyard, say), else HALYARD_LIBRARY, else the one in
this package, else the system's.
"""

import ctypes
import os
import pathlib
from ctypes import c_bool, c_char, c_char_p, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

SONAME = "libhalyard.so.0"
HERE = pathlib.Path(__file__).resolve().parent

STATUS = {1: "INVALID_ARGUMENT", 2: "SHAPE", 3: "DTYPE", 4: "LAYOUT", 5: "OVERLAP", 6: "INDEX", 7: "OUT_OF_MEMORY", 8: "NOT_FOUND",
          9: "UNAVAILABLE", 10: "UNSUPPORTED", 11: "FALLBACK_REFUSED", 12: "NOT_READY", 13: "DEVICE_FAILED", 14: "IO", 15: "FORMAT",
          16: "ABI_MISMATCH", 17: "INTERNAL", 18: "CANCELLED"}


class Error(RuntimeError):
    """A call of the library failed: `status` is the name of its code ("NOT_FOUND"), the text what went wrong."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


# ---- plugin.h ----

class Probe(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("stage", c_int), ("status", c_int), ("library", c_char * 256), ("reason", c_char * 512),
                ("remedy", c_char * 256)]


class DeviceInfo(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("name", c_char * 128), ("compute_major", c_int32), ("compute_minor", c_int32),
                ("memory_total", c_uint64), ("memory_free", c_uint64), ("max_shared_memory", c_uint64), ("core_count", c_int32),
                ("capabilities", c_uint32), ("dtypes", c_uint32), ("driver_version", c_char * 64), ("sdk_version", c_char * 64),
                ("pci", c_char * 16), ("properties", c_char * 512)]


# ---- device.h ----

class BackendReport(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("version", c_char_p), ("description", c_char_p), ("state", c_int),
                ("priority", c_int), ("device_count", c_int), ("probe", Probe)]


class ProviderReport(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("version", c_char_p), ("available", c_bool), ("probe", Probe)]


class FoundDevice(ctypes.Structure):
    _fields_ = [("selector", c_char * 32), ("info", DeviceInfo)]


# ---- stream.h ----

class MemoryStats(ctypes.Structure):
    _fields_ = [(name, c_uint64) for name in (
        "allocated", "allocated_peak", "reserved", "reserved_peak", "allocations", "frees", "backend_allocations", "retries",
        "out_of_memory", "limit")]


# ---- ops.h ----

class OpInfo(ctypes.Structure):
    _fields_ = [("op", c_int), ("name", c_char_p), ("inputs", c_void_p), ("outputs", c_void_p), ("n_inputs", c_int), ("n_outputs", c_int),
                ("attr_kind", c_char_p), ("attrs", c_void_p), ("n_attrs", c_int), ("dtypes", c_uint32), ("alias", c_int),
                ("differentiable", c_bool)]


class Placement(ctypes.Structure):
    _fields_ = [("provider", c_char_p), ("reason", c_int)]


class FallbackEntry(ctypes.Structure):
    _fields_ = [("op", c_int), ("dtype", c_int), ("reason", c_int), ("count", c_uint64), ("bytes_staged", c_uint64),
                ("device", c_char * 32), ("example", c_char * 160)]


def _open():
    try:
        return ctypes.CDLL(SONAME, mode=ctypes.DEFAULT_MODE | os.RTLD_NOLOAD)
    except OSError:
        pass
    named = os.environ.get("HALYARD_LIBRARY")
    if named:
        return ctypes.CDLL(named)
    packed = HERE / SONAME
    try:
        return ctypes.CDLL(str(packed) if packed.exists() else SONAME)
    except OSError as error:
        raise ImportError(f"libhalyard is not there ({error}): pip install ./python from a clone of Halyard, or name the file in "
                          "HALYARD_LIBRARY") from error


_texts = {"hy_version": [], "hy_last_error": [], "hy_backend_type_name": [c_int], "hy_op_name": [c_int], "hy_dtype_name": [c_int],
          "hy_support_text": [c_int], "hy_device_backend": [c_void_p], "hy_device_selector": [c_void_p], "hy_device_provider": [c_void_p]}
_statuses = {
    "hy_device_get": [c_char_p, ctypes.POINTER(c_void_p)], "hy_device_get_first": [c_char_p, ctypes.POINTER(c_void_p)],
    "hy_set_default": [c_char_p], "hy_set_current_device": [c_void_p], "hy_current_device": [ctypes.POINTER(c_void_p)],
    "hy_device_describe": [c_void_p, ctypes.POINTER(DeviceInfo)], "hy_device_sync": [c_void_p],
    "hy_device_set_threads": [c_void_p, c_int], "hy_device_threads": [c_void_p, ctypes.POINTER(c_int)],
    "hy_backend_at": [c_int, ctypes.POINTER(BackendReport)], "hy_backend_find": [c_char_p, ctypes.POINTER(BackendReport)],
    "hy_backend_provider_at": [c_char_p, c_int, ctypes.POINTER(ProviderReport)], "hy_load_plugin": [c_char_p],
    "hy_memory_get_stats": [c_void_p, ctypes.POINTER(MemoryStats)], "hy_empty_cache": [c_void_p],
    "hy_memory_set_limit": [c_void_p, c_uint64], "hy_place_op": [c_void_p, c_int, c_int, ctypes.POINTER(Placement)],
    "hy_trace_start": [c_char_p], "hy_trace_stop": [],
}

lib = _open()
for _name, _arguments in _texts.items():
    getattr(lib, _name).argtypes, getattr(lib, _name).restype = _arguments, c_char_p
for _name, _arguments in _statuses.items():
    getattr(lib, _name).argtypes = _arguments
lib.hy_device_index.argtypes = [c_void_p]
lib.hy_device_is_host.argtypes, lib.hy_device_is_host.restype = [c_void_p], c_bool
lib.hy_backend_is_available.argtypes, lib.hy_backend_is_available.restype = [c_char_p], c_bool
lib.hy_discover_devices.argtypes = [ctypes.POINTER(FoundDevice), c_int]
lib.hy_op_at.argtypes, lib.hy_op_at.restype = [c_int], ctypes.POINTER(OpInfo)
lib.hy_fallback_report.argtypes = [ctypes.POINTER(FallbackEntry), c_int]
lib.hy_fallback_count.restype = c_uint64
lib.hy_set_strict.argtypes = lib.hy_set_deterministic.argtypes = [c_bool]
lib.hy_deterministic.restype = c_bool
lib.hy_set_log_level.argtypes = [c_int]


def check(status):
    if status:
        raise Error(STATUS.get(status, str(status)), lib.hy_last_error().decode())


def encoded(text):
    return None if text is None else str(text).encode()


def decoded(text):
    return None if text is None else text.decode(errors="replace")

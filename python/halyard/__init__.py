"""Halyard from Python: the C API's devices, op table and reports, by ctypes.

    import halyard
    halyard.list_backends()                 # every known backend, and why one is missing
    device = halyard.get_device("echo:0")   # or None for the default
    device.info.memory_total, device.ops()["softmax"]["f32"]
    halyard.verify(device, op="softmax")    # conformance, by the command `halyard verify`
    halyard.fallback_report()
    halyard.PersistentKernel(folder).decode(100)   # a model's step, resident

A failure is halyard.Error, with the library's message.
"""

from halyard._library import Error
from halyard.devices import (
    Backend, Device, current_device, discover_devices, get_backend, get_device, is_available, list_backends, load_plugin,
    set_current_device, set_default, version)
from halyard.ops import (
    clear_fallbacks, deterministic, fallback_count, fallback_report, list_ops, set_deterministic, set_log_level, strict, trace_start,
    trace_stop)
from halyard.persistent import PersistentKernel
from halyard.verify import verify

__version__ = version()
__all__ = ["Backend", "Device", "Error", "PersistentKernel", "clear_fallbacks", "current_device", "deterministic", "discover_devices", "fallback_count",
           "fallback_report", "get_backend", "get_device", "is_available", "list_backends", "list_ops", "load_plugin",
           "set_current_device", "set_default", "set_deterministic", "set_log_level", "strict", "trace_start", "trace_stop", "verify",
           "version"]

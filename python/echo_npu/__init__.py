"""The ECHO NPU from Python: which implementation runs, what it can do, and the debug output of its SDK.

    import echo_npu
    echo_npu.get_backend_name()       # "cmodel", or what ECHO_NPU_BACKEND chose
    echo_npu.get_backend_info()       # {"name": ..., "version": ..., "features": [...]}
    echo_npu.set_debug_level(2)       # before the device is first used: 1 ops, 2 and transfers, 3 and runtime detail
"""

import os

import halyard

__all__ = ["get_backend_info", "get_backend_name", "get_debug_level", "is_available", "set_debug_level"]

_LEVEL = "ECHO_NPU_DEBUG_LEVEL"


def is_available():
    return halyard.is_available("echo")


def get_backend_name():
    """The implementation behind the driver: cmodel, rtlmodel, fpga or asic."""
    return get_backend_info()["name"]


def get_backend_info():
    """{"name", "version", "features"}: the implementation, the SDK's version, what the implementation says it has."""
    info = halyard.get_device("echo").info
    return {"name": info.properties["bottom"], "version": info.sdk_version, "features": info.properties["features"].split()}


def get_debug_level():
    return int(os.environ.get(_LEVEL) or 0)


def set_debug_level(level):
    """What the SDK writes to standard error, tagged [NPU], [CPU], [COPY] and [VIEW]: 0 nothing, 1 ops, 2 and transfers, 3 and runtime detail.

    The SDK reads it once, when the device is first used by the process; later changes reach child processes only.
    """
    if level not in (0, 1, 2, 3):
        raise ValueError(f"debug levels are 0, 1, 2 and 3, not {level!r}")
    os.environ[_LEVEL] = str(level)

"""PyTorch on Halyard: torch.device("npu") over any Halyard backend.

Imported by `import torch` itself through the entry point group torch.backends. HALYARD_TORCH_DEVICE renames the device,
HALYARD_BACKEND or HALYARD_DEVICES choose what npu:0, npu:1 ... are. Where torch has an NVIDIA GPU of its own and none of
these is set, the device waits for `import torch_halyard`: torch has one accelerator a process.
"""

import atexit
import os
import sys
from importlib.metadata import version as _version

from torch_halyard import _library
from torch_halyard._library import clear_report, fallback_report, native_report, strict, warn_fallback

__version__ = _version("torch_halyard")
__all__ = ["clear_report", "compile_report", "device_name", "fallback_report", "native_report", "strict", "warn_fallback"]

device_name = os.environ.get("HALYARD_TORCH_DEVICE") or "npu"


def compile_report():
    """What torch.compile(backend="halyard") captured, graph by graph, and where and why it was split: see torch_halyard.compile."""
    from torch_halyard import compile  # which loads Dynamo

    return compile.compile_report()


def _leaves_torch_to_cuda():
    """Whether `import torch` alone should leave torch as it is.

    A registered device becomes torch's accelerator, and autograd then finds no stream for tensors on cuda (an internal
    assert in torch 2.11). Looks for the driver's file, since asking CUDA itself would initialise it.
    """
    import torch

    chosen = any(os.environ.get(f"HALYARD_{name}") for name in ("BACKEND", "DEVICES", "TORCH_DEVICE"))
    return not chosen and torch.version.cuda is not None and os.path.exists("/dev/nvidiactl")


def _autoload():
    """The entry point. Whatever goes wrong, `import torch` goes on: the reason is printed, the device is absent."""
    try:
        if not _leaves_torch_to_cuda():
            _register()
    except Exception:  # an exception here would make `import torch` fail
        import traceback

        print(f"torch_halyard: the device {device_name} is absent; `import torch` goes on without it:", file=sys.stderr)
        traceback.print_exc()


def _register():
    import torch

    if hasattr(torch, device_name):
        if getattr(torch, device_name).__name__ == "torch_halyard.npu":
            return
        raise RuntimeError(f"torch.{device_name} is there already; HALYARD_TORCH_DEVICE chooses another name")
    _library.load()
    atexit.register(_library.shim().torch_halyard_settle_autograd)
    torch.utils.rename_privateuse1_backend(device_name)
    _library.shim().torch_halyard_device_named()
    from torch_halyard import npu, patches

    torch._register_device_module(device_name, npu)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    patches.apply(device_name)
    # Inductor keeps the code that it wrote on disk. To be raised when that of ours changes (inductor.py).
    from torch.compiler import config

    config.cache_key_tag += " halyard 1"
    if torch.distributed.is_available():
        from torch_halyard import distributed

        distributed.register(device_name)


import torch  # noqa: E402, which calls _autoload where that is not switched off

if not getattr(torch.__spec__, "_initializing", False):
    _register()

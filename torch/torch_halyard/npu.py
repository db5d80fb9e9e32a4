"""torch.npu: the device's module, with the functions that torch.cuda has."""

import types

import torch
from torch_halyard import _library, amp, random  # noqa: F401
from torch_halyard._library import device_info, shim
from torch_halyard.random import (  # noqa: F401
    get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all, set_rng_state,
    set_rng_state_all)

Stream = torch.Stream
Event = torch.Event


def is_available():
    return device_count() > 0


def device_count():
    return shim().torch_halyard_device_count()


def is_initialized():
    return True


def init():
    _lazy_init()


def _lazy_init():
    if not is_available():
        raise RuntimeError(f"no device: {shim().torch_halyard_absence().decode()}")


def _is_in_bad_fork():
    return bool(shim().torch_halyard_in_bad_fork())


# ---- devices ----

def _index(device=None, optional=True):
    """The index that None, an integer, a text or a torch.device means."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device if device >= 0 else current_device()
    device = torch.device(device)
    name = torch._C._get_privateuse1_backend_name()
    if device.type != name:
        raise ValueError(f"expected a device of type {name}, not {device}")
    if device.index is None:
        if not optional:
            raise ValueError(f"expected an index in {device}")
        return current_device()
    return device.index


_utils = types.SimpleNamespace(_get_device_index=_index)  # torch.load looks for it


def current_device():
    return torch.accelerator.current_device_index()


def set_device(device):
    torch.accelerator.set_device_index(_index(device))


class device:
    """The current device, inside a `with`."""

    def __init__(self, device):
        self.index = _index(device)
        self.before = -1

    def __enter__(self):
        self.before = current_device()
        set_device(self.index)
        return self

    def __exit__(self, *exception):
        set_device(self.before)
        return False


class device_of(device):
    def __init__(self, tensor):
        super().__init__(tensor.device if tensor.device.type != "cpu" else None)


def get_device_name(device=None):
    return device_info(_index(device)).get("name", "")


def get_device_properties(device=None):
    return types.SimpleNamespace(**device_info(_index(device)))


def get_device_capability(device=None):
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device, peer):
    return False


def is_bf16_supported(including_emulation=True):
    return _library_dtype(4)


def is_fp16_supported():
    return _library_dtype(3)


def _library_dtype(number):
    return bool(device_info(current_device()).get("dtypes", 0) >> number & 1)


def synchronize(device=None):
    torch.accelerator.synchronize(_index(device))


# ---- streams ----

def current_stream(device=None):
    return torch.accelerator.current_stream(_index(device))


def default_stream(device=None):
    index = _index(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=int(torch._C._autograd.DeviceType.PrivateUse1))


def set_stream(stream):
    torch.accelerator.set_stream(stream)


class stream:
    """The current stream, inside a `with`; None changes nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self.before_device = current_device()
            self.before = current_stream(self.stream.device)
            set_stream(self.stream)
        return self

    def __exit__(self, *exception):
        if self.stream is not None:
            set_stream(self.before)
            set_device(self.before_device)
        return False


StreamContext = stream


# ---- memory ----

def memory_stats(device=None):
    return torch.accelerator.memory_stats(_index(device))


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


reset_max_memory_allocated = reset_peak_memory_stats
reset_max_memory_cached = reset_peak_memory_stats


def mem_get_info(device=None):
    return torch.accelerator.get_memory_info(_index(device))


def empty_cache():
    torch.accelerator.empty_cache()


# ---- automatic mixed precision ----

def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]


# ---- Inductor looks here for what compiles for the device ----

def __getattr__(name):
    if name in ("Scheduling", "PythonWrapperCodegen", "CppWrapperCodegen", "WrapperFxCodegen"):
        from torch_halyard import inductor

        return getattr(inductor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

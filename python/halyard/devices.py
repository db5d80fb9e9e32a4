"""Backends and devices: discovery, selection, and why one is missing. See include/halyard/device.h."""

import ctypes
from dataclasses import dataclass

from halyard import _library
from halyard._library import check, decoded, encoded, lib

DTYPES = ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "bool", "f8e4m3", "f8e5m2", "i4")  # from number 1 on
CAPABILITIES = ("fp32", "fp16", "bf16", "fp8", "int8", "int4", "sparse_2_4", "flash_attention", "paged_attention", "fused_moe", "nccl",
                "hccl", "fp64")  # by bit
STAGES = ("none", "found", "loaded", "symbols", "version", "devices", "ready")
STATES = ("available", "missing", "failed")


def version():
    return lib.hy_version().decode()


def dtype_names(bits):
    return tuple(name for number, name in enumerate(DTYPES, 1) if bits >> number & 1)


@dataclass(frozen=True)
class DeviceInfo:
    selector: str
    name: str
    compute_capability: tuple
    memory_total: int
    memory_free: int
    max_shared_memory: int
    core_count: int
    capabilities: tuple
    dtypes: tuple
    driver_version: str
    sdk_version: str
    pci: str
    properties: dict


def _info(selector, raw):
    lines = (line.partition("=") for line in decoded(raw.properties).splitlines())
    return DeviceInfo(
        selector, decoded(raw.name), (raw.compute_major, raw.compute_minor), raw.memory_total, raw.memory_free, raw.max_shared_memory,
        raw.core_count, tuple(name for bit, name in enumerate(CAPABILITIES) if raw.capabilities >> bit & 1), dtype_names(raw.dtypes),
        decoded(raw.driver_version), decoded(raw.sdk_version), decoded(raw.pci), {key: value for key, _, value in lines if key})


class Device:
    """A device that get_device opened. It stays open as long as the process."""

    def __init__(self, handle):
        self._handle = handle

    @property
    def backend(self):
        return decoded(lib.hy_device_backend(self._handle))

    @property
    def index(self):
        return lib.hy_device_index(self._handle)

    @property
    def selector(self):
        return decoded(lib.hy_device_selector(self._handle))

    @property
    def provider(self):
        """The provider by whose name it was opened, or None."""
        return decoded(lib.hy_device_provider(self._handle))

    @property
    def is_host(self):
        """Whether the host may touch its memory."""
        return lib.hy_device_is_host(self._handle)

    @property
    def info(self):
        raw = _library.DeviceInfo(size=ctypes.sizeof(_library.DeviceInfo))
        check(lib.hy_device_describe(self._handle, ctypes.byref(raw)))
        return _info(self.selector, raw)

    @property
    def threads(self):
        n = ctypes.c_int()
        check(lib.hy_device_threads(self._handle, ctypes.byref(n)))
        return n.value

    @threads.setter
    def threads(self, n):
        check(lib.hy_device_set_threads(self._handle, n))

    def synchronize(self):
        check(lib.hy_device_sync(self._handle))

    def memory_stats(self):
        stats = _library.MemoryStats()
        check(lib.hy_memory_get_stats(self._handle, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in stats._fields_}

    def set_memory_limit(self, limit):
        """The most bytes that the caching allocator may hold; 0 for no limit."""
        check(lib.hy_memory_set_limit(self._handle, limit))

    def empty_cache(self):
        check(lib.hy_empty_cache(self._handle))

    def ops(self):
        """{op: {dtype: provider}} for the types of each op's row; None where calls fall back to the cpu.

        As the providers declare it: a provider may run calls that it does not declare, if not all of them.
        """
        from halyard.ops import list_ops

        placement = _library.Placement()
        table = {}
        for op in list_ops():
            row = table[op.name] = {}
            for dtype in op.dtypes:
                check(lib.hy_place_op(self._handle, op.number, DTYPES.index(dtype) + 1, ctypes.byref(placement)))
                row[dtype] = decoded(placement.provider)
        return table

    def __eq__(self, other):
        return isinstance(other, Device) and self._handle == other._handle

    def __hash__(self):
        return hash(self._handle)

    def __repr__(self):
        provider = f", provider={self.provider!r}" if self.provider else ""
        return f"halyard.Device({self.selector!r}{provider})"


def _device(function, *arguments):
    handle = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(handle)))
    return Device(handle.value)


def get_device(selector=None, fallback=()):
    """Opens "cuda:1", "cpu", a provider's name such as "openblas", or the default device (None).

    With `fallback`, a list of selectors, the first that is available of all of them.
    """
    if fallback:
        return _device(lib.hy_device_get_first, encoded(",".join([*([selector] if selector else []), *fallback])))
    return _device(lib.hy_device_get, encoded(selector))


def set_default(selectors):
    """The default device from now on: one selector, several separated by commas, or None for the library's own choice."""
    check(lib.hy_set_default(encoded(selectors)))


def current_device():
    """The calling thread's."""
    return _device(lib.hy_current_device)


def set_current_device(device):
    """For the calling thread; None for the default device."""
    check(lib.hy_set_current_device(device._handle if device is not None else None))


def discover_devices():
    """The devices of all available backends, best first; hardware that several backends offer is listed once."""
    count = lib.hy_discover_devices(None, 0)
    found = (_library.FoundDevice * max(count, 1))()
    count = min(lib.hy_discover_devices(found, count), count)
    return [_info(decoded(entry.selector), entry.info) for entry in found[:count]]


@dataclass(frozen=True)
class Provider:
    name: str
    version: str | None
    available: bool
    reason: str
    remedy: str


@dataclass(frozen=True)
class Backend:
    name: str
    type: int  # its number in known_backends.def; -1: none
    version: str | None
    description: str
    state: str  # "available", "missing" or "failed"
    priority: int
    device_count: int
    stage: str  # how far the probe came
    reason: str  # why no further
    remedy: str
    library: str

    @property
    def available(self):
        return self.state == "available"

    def providers(self):
        """Its providers, then known ones that this build does not include."""
        return list(_each(lambda index, raw: lib.hy_backend_provider_at(encoded(self.name), index, raw), _library.ProviderReport, lambda raw: Provider(
            decoded(raw.name), decoded(raw.version), raw.available, decoded(raw.probe.reason), decoded(raw.probe.remedy))))


def _backend(raw):
    return Backend(decoded(raw.name), raw.type, decoded(raw.version), decoded(raw.description), STATES[raw.state], raw.priority,
                   raw.device_count, STAGES[raw.probe.stage], decoded(raw.probe.reason), decoded(raw.probe.remedy),
                   decoded(raw.probe.library))


def _each(function, struct, convert):
    """What function(0), function(1) ... report, until NOT_FOUND."""
    index = 0
    while True:
        raw = struct()
        try:
            check(function(index, ctypes.byref(raw)))
        except _library.Error as error:
            if error.status == "NOT_FOUND":
                return
            raise
        yield convert(raw)
        index += 1


def list_backends(available=False):
    """Every known backend in order of priority, probed; with `available`, only those that can be used."""
    everything = _each(lib.hy_backend_at, _library.BackendReport, _backend)
    return [backend for backend in everything if backend.available or not available]


def get_backend(name):
    """By its name; a provider's name refers to its backend."""
    raw = _library.BackendReport()
    check(lib.hy_backend_find(encoded(name), ctypes.byref(raw)))
    return _backend(raw)


def is_available(name):
    """Whether this backend or provider can be used."""
    return lib.hy_backend_is_available(encoded(name))


def load_plugin(path):
    """Adds the backend of the plugin at this absolute path."""
    check(lib.hy_load_plugin(encoded(path)))

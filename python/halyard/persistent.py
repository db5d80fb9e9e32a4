"""PersistentKernel: a decoding or prefill step of a model, compiled to one launch. See include/halyard/persistent.h."""

import atexit
import ctypes
import sys
from ctypes import c_bool, c_char_p, c_double, c_int, c_int32, c_int64, c_uint64, c_void_p

from halyard._library import check, decoded, encoded, lib

MODES = ("decode", "prefill")
WEIGHTS = ("file", "f32", "bf16", "q8", "q4")


class GenerateOptions(ctypes.Structure):
    _fields_ = [("max_tokens", c_int64), ("temperature", c_double), ("top_k", c_int64), ("top_p", c_double), ("min_p", c_double),
                ("repetition_penalty", c_double), ("seed", c_uint64), ("stops", c_void_p), ("n_stops", c_int), ("ignore_end", c_bool),
                ("on_progress", c_void_p), ("progress_context", c_void_p)]


class Options(ctypes.Structure):
    _fields_ = [("mode", c_int), ("backend", c_char_p), ("fallback_backends", ctypes.POINTER(c_char_p)), ("n_fallback_backends", c_int32),
                ("world_size", c_int32), ("rank", c_int32), ("tokens", c_int64), ("positions", c_int64), ("weights", c_int),
                ("sampling", GenerateOptions), ("comm", c_void_p)]


class Stats(ctypes.Structure):
    _fields_ = [("steps", c_int64), ("launches", c_int64), ("waits", c_int64), ("nodes", c_int64), ("bytes", c_uint64), ("memory", c_uint64)]


lib.hy_persistent_defaults.argtypes, lib.hy_persistent_defaults.restype = [ctypes.POINTER(Options)], None
lib.hy_persistent_kernel_create.argtypes = [c_char_p, ctypes.POINTER(Options), ctypes.POINTER(c_void_p)]
lib.hy_persistent_kernel_destroy.argtypes, lib.hy_persistent_kernel_destroy.restype = [c_void_p], None
lib.hy_persistent_kernel_begin.argtypes = [c_void_p, ctypes.POINTER(c_int32), c_int64]
lib.hy_persistent_kernel_decode.argtypes = [c_void_p, c_int64, ctypes.POINTER(c_int32)]
lib.hy_persistent_kernel_prefill.argtypes = [c_void_p, ctypes.POINTER(c_int32), ctypes.POINTER(c_int32)]
lib.hy_persistent_kernel_stats.argtypes, lib.hy_persistent_kernel_stats.restype = [c_void_p, ctypes.POINTER(Stats)], None
for _name in ("device", "reasons"):
    getattr(lib, f"hy_persistent_kernel_{_name}").argtypes = [c_void_p]
    getattr(lib, f"hy_persistent_kernel_{_name}").restype = c_char_p


lib.hy_shutdown.argtypes, lib.hy_shutdown.restype = [], None
_shared = set()  # handles of open kernels that other ranks have a part of


def _leave_world():
    """mpirun expects MPI to be finalized. Not where a kernel is open still, since the others may wait for it; nor under torch_halyard, whose
    tensors outlive this."""
    if not _shared and "torch_halyard" not in sys.modules:
        lib.hy_shutdown()


def _number(names, name, what):
    if name not in names:
        raise ValueError(f"{what} is one of {', '.join(names)}, not {name!r}")
    return names.index(name)


class PersistentKernel:
    """A step of the model in a folder, resident on a device.

    mode="decode": begin(prompt), then decode(steps). mode="prefill": prefill(prompt), with prompts of `tokens` tokens. `backend` is a selector,
    None for the default device, and `fallback_backends` are tried after it; `reasons` tells why one was passed over. Sampling is greedy unless
    `temperature` is given, with top_k, top_p, min_p, repetition_penalty and seed. One thread may use it at a time.

    With `world_size` processes that mpirun started, `rank` being this one's number, the model is shared among them (tensor parallel): all make
    the same calls and get the same tokens.
    """

    def __init__(self, model_folder, *, mode="decode", backend=None, fallback_backends=(), world_size=1, rank=0, tokens=0, positions=4096,
                 weights="file", temperature=0.0, **sampling):
        self._handle = None
        options = Options()
        lib.hy_persistent_defaults(ctypes.byref(options))
        names = (c_char_p * max(len(fallback_backends), 1))(*map(encoded, fallback_backends))
        options.mode, options.weights = _number(MODES, mode, "mode"), _number(WEIGHTS, weights, "weights")
        options.backend, options.fallback_backends, options.n_fallback_backends = encoded(backend), names, len(fallback_backends)
        options.world_size, options.rank, options.tokens, options.positions = world_size, rank, tokens, positions
        options.sampling.temperature = temperature
        for name, value in sampling.items():
            if name not in ("top_k", "top_p", "min_p", "repetition_penalty", "seed"):
                raise TypeError(f"PersistentKernel has no option {name}")
            setattr(options.sampling, name, value)
        handle = c_void_p()
        check(lib.hy_persistent_kernel_create(encoded(model_folder), ctypes.byref(options), ctypes.byref(handle)))
        self._handle, self._tokens = handle, options.tokens
        if world_size > 1:
            atexit.unregister(_leave_world)
            atexit.register(_leave_world)
            _shared.add(handle.value)

    @property
    def device(self):
        """The selector of the device that it runs on."""
        return decoded(lib.hy_persistent_kernel_device(self._open()))

    @property
    def reasons(self):
        """Why backends before it were passed over, one text each."""
        return decoded(lib.hy_persistent_kernel_reasons(self._open())).splitlines()

    def begin(self, prompt):
        """A new sequence of token ids."""
        ids = (c_int32 * len(prompt))(*prompt)
        check(lib.hy_persistent_kernel_begin(self._open(), ids, len(prompt)))

    def decode(self, steps):
        """Runs that many steps and returns the tokens they choose, having waited once."""
        ids = (c_int32 * max(steps, 1))()
        check(lib.hy_persistent_kernel_decode(self._open(), steps, ids))
        return list(ids[:steps])

    def prefill(self, prompt):
        """The token that follows a prompt of exactly `tokens` tokens."""
        if len(prompt) != self._tokens:
            raise ValueError(f"the step was compiled for prompts of {self._tokens} tokens, and this one has {len(prompt)}")
        token = c_int32()
        check(lib.hy_persistent_kernel_prefill(self._open(), (c_int32 * len(prompt))(*prompt), ctypes.byref(token)))
        return token.value

    def stats(self):
        """{steps, launches, waits, nodes, bytes, memory}."""
        stats = Stats()
        lib.hy_persistent_kernel_stats(self._open(), ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in Stats._fields_}

    def close(self):
        """Gives its memory and threads back; also done where it is no longer referred to."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _shared.discard(handle.value)
        lib.hy_persistent_kernel_destroy(handle)

    def _open(self):
        if self._handle is None:
            raise ValueError("the PersistentKernel is closed")
        return self._handle

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is not None:
            self.close()

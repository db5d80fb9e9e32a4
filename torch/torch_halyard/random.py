"""torch.npu.random: the default generators. A state is 16 bytes, the seed and the number of Philox blocks drawn."""

import struct

import torch
from torch_halyard._library import shim


def _index(device):
    from torch_halyard import npu

    return npu._index(device)


def _count():
    return shim().torch_halyard_device_count()


def manual_seed(seed):
    shim().torch_halyard_manual_seed(_index(None), int(seed) & (2**64 - 1))


def manual_seed_all(seed):
    for index in range(_count()):
        shim().torch_halyard_manual_seed(index, int(seed) & (2**64 - 1))


def initial_seed():
    return shim().torch_halyard_initial_seed(_index(None))


def seed():
    manual_seed(torch.seed())


def seed_all():
    manual_seed_all(torch.seed())


def get_rng_state(device=None):
    index = _index(device)
    state = struct.pack("<QQ", shim().torch_halyard_initial_seed(index), shim().torch_halyard_get_offset(index))
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def set_rng_state(state, device=None):
    index = _index(device)
    start, offset = struct.unpack("<QQ", bytes(state.cpu().tolist()))
    shim().torch_halyard_manual_seed(index, start)
    shim().torch_halyard_set_offset(index, offset)


def get_rng_state_all():
    return [get_rng_state(index) for index in range(_count())]


def set_rng_state_all(states):
    for index, state in enumerate(states):
        set_rng_state(state, index)

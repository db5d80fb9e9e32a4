"""torch.distributed's backend "halyard", for tensors on the device: torch/csrc/process_group.h.

Also registered as "hccl", the name that accelerate and others ask for on npu. Gloo joins the processes, by the launcher's store.
"""

import itertools

import torch
import torch.distributed as dist

NAMES = ("halyard", "hccl")
_numbers = itertools.count()


def register(device):
    for name in NAMES:
        if not hasattr(dist.Backend, name.upper()):
            dist.Backend.register_backend(name, _group(device), devices=[device])
    _be_the_default(device)


def _be_the_default(device):
    """A group's default backend is the one for the device, as with NCCL. PyTorch 2.13 takes Gloo, or none, unless the group was asked for by this one's
    name, and DDP then fails.
    """
    original = dist.ProcessGroup._register_backend

    def _register_backend(self, for_device, kind, *backend):
        original(self, for_device, kind, *backend)
        if for_device.type == device and kind == dist.ProcessGroup.BackendType.CUSTOM:
            self._set_default_backend(kind)

    dist.ProcessGroup._register_backend = _register_backend


def _group(device):
    def made(store, rank, size, timeout):
        """The shim has no Python in it: a group that holds both backends is handed over by a name, for as long as that takes."""
        from torch._C._distributed_c10d import _register_process_group, _unregister_process_group

        name = f"halyard {next(_numbers)}"
        group = dist.ProcessGroup(rank, size)
        group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, dist.ProcessGroupGloo(store, rank, size, timeout))
        _register_process_group(name, group)
        try:
            torch.ops.halyard.process_group_add_backend(name)
        finally:
            _unregister_process_group(name)
        return group._get_backend(torch.device(device))
    return made

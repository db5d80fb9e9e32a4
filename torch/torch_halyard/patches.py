"""What PyTorch 2.13 gets wrong for a renamed device, put right. Each patch does nothing where PyTorch is right already."""

import torch


def apply(name):
    _dlpack_device(name)
    _printing(name)


def _printing(name):
    """Printing selects elements by masks; it does so on a copy in the host's memory, not op by op by the fallback."""
    from torch import _tensor_str

    original = _tensor_str._tensor_str

    def printed(self, indent):
        return original(self.cpu() if self.device.type == name else self, indent)

    _tensor_str._tensor_str = printed


def _dlpack_device(name):
    """Tensor.__dlpack_device__ knows the device only under the name privateuse1."""
    from torch.utils.dlpack import DLDeviceType

    original = torch.Tensor.__dlpack_device__

    def __dlpack_device__(self):
        if self.device.type == name:
            return DLDeviceType.kDLExtDev, self.device.index
        return original(self)

    torch.Tensor.__dlpack_device__ = __dlpack_device__

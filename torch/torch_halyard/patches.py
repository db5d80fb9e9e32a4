"""What PyTorch 2.13 gets wrong for a renamed device, put right. Each patch does nothing where PyTorch is right already."""

import contextlib
import warnings

import torch


def apply(name):
    _dlpack_device(name)
    _printing(name)
    _module_moves(name)


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


def _module_moves(name):
    """module.to(device) keeps its Parameters, as between cpu and cuda: an optimizer made before the move still holds them.

    PyTorch lists the devices whose tensors may take each other's place, and the renamed one is not among them; swapping the
    tensors has the same effect.
    """
    future = torch.__future__

    def crosses(module, device):
        kinds = {p.device.type for p in module.parameters()} | {device.type}
        return name in kinds and len(kinds) > 1

    @contextlib.contextmanager
    def swapping():
        before = future.get_swap_module_params_on_conversion()
        future.set_swap_module_params_on_conversion(True)
        try:
            yield
        finally:
            future.set_swap_module_params_on_conversion(before)

    def keeping(original, device_of):
        def moved(self, *args, **kwargs):
            device = device_of(*args, **kwargs)
            if device is None or not crosses(self, device):
                return original(self, *args, **kwargs)
            try:
                with swapping():
                    return original(self, *args, **kwargs)
            except RuntimeError as error:
                if "swap" not in str(error):
                    raise
                warnings.warn(f"{type(self).__name__} gets new Parameters on {device}, since something holds on to the old ones: make its "
                              "optimizer after the move", stacklevel=2)
                return original(self, *args, **kwargs)
        moved.__name__, moved.__doc__ = original.__name__, original.__doc__
        return moved

    module = torch.nn.Module
    module.to = keeping(module.to, lambda *args, **kwargs: torch._C._nn._parse_to(*args, **kwargs)[0])
    module.cpu = keeping(module.cpu, lambda: torch.device("cpu"))
    setattr(module, name, keeping(getattr(module, name), lambda device=None: torch.device(name)))

"""Inductor, PyTorch's default compiler, on host-memory devices: its C++ kernels for the CPU, run on the device's memory.

torch.npu hands these classes over when Inductor first asks for them. Matrix products and what else Inductor does not write
itself are called as ops, and so run natively. A device whose memory the host cannot follow is refused.
"""

import functools
import sys

import torch
from torch._dynamo.device_interface import DeviceInterface, register_interface_for_device
from torch._inductor import ir, lowering, utils
from torch._inductor.codegen import wrapper
from torch._inductor.codegen.common import register_device_op_overrides
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides
from torch._inductor.codegen.wrapper_fxir import WrapperFxCodegen  # noqa: F401
from torch._inductor.scheduler import BaseSchedulerNode
from torch._inductor.virtualized import V
from torch_halyard import npu

aten = torch.ops.aten


class Scheduling(CppScheduling):
    def __init__(self, scheduler):
        for index in range(npu.device_count()):
            properties = npu.get_device_properties(index)
            if not properties.host_memory:
                raise RuntimeError(
                    f"Inductor's kernels run on the host's memory, and {properties.selector}'s is not: compile with "
                    'torch.compile(model, backend="halyard")')
        super().__init__(scheduler)


class _HostKernels:
    """Calls of C++ kernels in a wrapper of Inductor's, and memory for their results."""

    def _generate_kernel_call_helper(self, kernel_name, call_args, *, device=None, triton=True, **rest):
        device = device or V.graph.get_current_device_or_throw()
        if triton or device.type != torch._C._get_privateuse1_backend_name():
            return super()._generate_kernel_call_helper(kernel_name, call_args, device=device, triton=triton, **rest)
        self.writeline(self.wrap_kernel_call(kernel_name, call_args))
        for arg in call_args:
            if arg in V.graph.mutated_inputs:
                self.writeline(f"torch.ops.halyard.note_write({arg})")

    def make_allocation(self, name, device, *rest, **options):
        """With the device's index, since Inductor makes no device current but a GPU."""
        return super().make_allocation(name, device, *rest, **options).replace(f"device='{device.type}'", f"device='{device}'")


class SubgraphWrapperCodegen(_HostKernels, wrapper.SubgraphPythonWrapperCodegen):
    pass


class PythonWrapperCodegen(_HostKernels, wrapper.PythonWrapperCodegen):
    @staticmethod
    def create(is_subgraph, *rest):
        return SubgraphWrapperCodegen(*rest) if is_subgraph else PythonWrapperCodegen()


class CppWrapperCodegen:
    @staticmethod
    def create(*_):
        raise RuntimeError("Inductor's cpp_wrapper knows no device but PyTorch's own: leave torch._inductor.config.cpp_wrapper off")


class Interface(DeviceInterface):
    Event, Stream = torch.Event, torch.Stream
    device, stream = npu.device, npu.stream
    current_device, set_device, device_count = npu.current_device, npu.set_device, npu.device_count
    current_stream, set_stream = npu.current_stream, npu.set_stream
    is_available, synchronize, get_device_properties = npu.is_available, npu.synchronize, npu.get_device_properties
    memory_allocated = npu.memory_allocated

    class Worker:
        set_device, current_device, get_device_properties = npu.set_device, npu.current_device, npu.get_device_properties

    @staticmethod
    def exchange_device(index):
        before = npu.current_device()
        npu.set_device(index)
        return before

    @staticmethod
    def maybe_exchange_device(index):
        return Interface.exchange_device(index) if index >= 0 else npu.current_device()

    @staticmethod
    def get_raw_stream(index):
        return 0  # what the host runs is done when the call returns

    @staticmethod
    def get_compute_capability(device=None):
        return ""

    @staticmethod
    def is_bf16_supported(including_emulation=False):
        return True

    @staticmethod
    def is_triton_capable(device=None):
        return False

    @staticmethod
    def raise_if_triton_unavailable(device=None):
        raise RuntimeError("Triton has no backend for this device")


def _register():
    name = torch._C._get_privateuse1_backend_name()
    register_device_op_overrides(name, CpuDeviceOpOverrides())
    register_interface_for_device(name, Interface)
    for index in range(npu.device_count()):
        register_interface_for_device(f"{name}:{index}", Interface)
    _write_cpp_for(name)


def _write_cpp_for(name):
    """PyTorch 2.13 knows by the name of the device which code generator serves it, not by what was registered."""
    BaseSchedulerNode.is_cpu = lambda self: getattr(self.get_device(), "type", None) in ("cpu", name)
    original = utils.get_current_backend

    def get_current_backend(device_type=None):
        return "cpp" if (device_type or V.graph.get_current_device_or_throw().type) == name else original(device_type)

    # The index of the largest element in a view of several dimensions counts elements in the view's order.
    for op in (aten.argmax, aten.argmin):
        for overload in (op, *(getattr(op, name) for name in op.overloads())):
            if overload in lowering.lowerings:
                lowering.lowerings[overload] = _contiguous_on(name, lowering.lowerings[overload])
    for module in list(sys.modules.values()):
        if module.__name__.startswith("torch._inductor") and vars(module).get("get_current_backend") is original:
            module.get_current_backend = get_current_backend


def _contiguous_on(name, lower):
    @functools.wraps(lower)
    def lowered(x, *rest, **options):
        return lower(ir.ExternKernel.require_contiguous(x) if ir.get_device_type(x) == name else x, *rest, **options)
    return lowered


_register()

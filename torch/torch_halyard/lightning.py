"""Lightning on the device: import this, then Trainer(accelerator="npu", strategy="npu", devices=1).

Lightning knows its accelerators and strategies by registries; importing the module enters both. The strategy must be named, since
Lightning's own choice for an accelerator that it does not know is a strategy on the cpu.
"""

import torch
from lightning.fabric.accelerators.registry import _AcceleratorRegistry
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.accelerators.accelerator import Accelerator
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from torch_halyard import device_name, npu


class NPUAccelerator(Accelerator):
    """The devices of torch_halyard."""

    def setup_device(self, device):
        if device.type != device_name:
            raise ValueError(f"NPUAccelerator was given the device {device}: Trainer(strategy={device_name!r}) chooses its own")
        npu.set_device(device)

    def get_device_stats(self, device):
        return npu.memory_stats(device)

    def teardown(self):
        npu.empty_cache()

    @staticmethod
    def parse_devices(devices):
        """A number of devices, -1 or "auto" for all of them, indices as a list or between commas."""
        if isinstance(devices, str) and devices not in ("auto", "-1"):
            devices = [int(word) for word in devices.split(",")] if "," in devices else int(devices)
        if devices in ("auto", "-1", -1):
            devices = npu.device_count()
        chosen = list(range(devices)) if isinstance(devices, int) else list(devices)
        if not chosen or not set(chosen) <= set(range(npu.device_count())):
            raise ValueError(f"devices={devices!r}: there are {npu.device_count()} devices of type {device_name}")
        return chosen

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device(device_name, index) for index in devices]

    @staticmethod
    def auto_device_count():
        return npu.device_count()

    @staticmethod
    def is_available():
        return npu.is_available()

    @staticmethod
    def name():
        return device_name

    @classmethod
    def register_accelerators(cls, accelerator_registry: _AcceleratorRegistry):
        if cls.name() not in accelerator_registry:
            accelerator_registry.register(cls.name(), cls, description=cls.__name__)


class NPUStrategy(SingleDeviceStrategy):
    """Training on one device, the current one."""

    strategy_name = device_name

    def __init__(self, device=None, **options):
        super().__init__(device=device or torch.device(device_name, npu.current_device()), **options)

    @classmethod
    def register_strategies(cls, strategy_registry):
        if cls.strategy_name not in strategy_registry:
            strategy_registry.register(cls.strategy_name, cls, description=cls.__name__)


NPUAccelerator.register_accelerators(AcceleratorRegistry)
NPUStrategy.register_strategies(StrategyRegistry)

"""torch_npu over Halyard: transformers, accelerate and others choose the device npu only where this name can be imported.

The device's own module under a second name, and the one op that transformers imports. Ascend's other ops are not here.
"""

import torch
import torch_halyard
from torch_npu.attention import npu_fusion_attention  # noqa: F401

if torch_halyard.device_name != "npu":
    raise ImportError(f"torch_npu stands for the device npu, and HALYARD_TORCH_DEVICE calls it {torch_halyard.device_name}")

npu = torch.npu
__version__ = torch_halyard.__version__

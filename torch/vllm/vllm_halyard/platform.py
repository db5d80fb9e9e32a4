"""The platform: what vLLM asks about a device, and the choices that hold on every Halyard backend: no compiled graphs of vLLM's own,
no quantised caches, one stream."""

import os

import torch
import torch_halyard
from vllm.platforms.interface import Platform, PlatformEnum


class HalyardPlatform(Platform):
    _enum = PlatformEnum.OOT
    device_name = device_type = torch_halyard.device_name
    dispatch_key = "PrivateUse1"
    dist_backend = "halyard"
    device_control_env_var = "HALYARD_DEVICES"
    simple_compile_backend = "eager"

    @classmethod
    def _module(cls):
        return getattr(torch, cls.device_type)

    @classmethod
    def get_device_name(cls, device_id=0):
        return cls._module().get_device_name(device_id)

    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return cls._module().get_device_properties(device_id).total_memory

    @classmethod
    def get_current_memory_usage(cls, device=None):
        return cls._module().memory_allocated(device)

    @classmethod
    def set_device(cls, device):
        cls._module().set_device(device)

    @classmethod
    def manual_seed_all(cls, seed):
        cls._module().manual_seed_all(seed)

    @classmethod
    def inference_mode(cls):
        return torch.no_grad()

    @classmethod
    def is_pin_memory_available(cls):
        return False

    @classmethod
    def opaque_attention_op(cls):
        return True

    @classmethod
    def num_compute_units(cls, device_id=0):
        return max(cls._module().get_device_properties(device_id).multi_processor_count, 1)

    @classmethod
    def get_attn_backend_cls(cls, selected_backend, attn_selector_config, num_heads=None):
        if attn_selector_config.use_mla or attn_selector_config.use_sparse:
            raise NotImplementedError("multi-head latent and sparse attention are not supported on Halyard's devices")
        return "vllm_halyard.attention.PagedAttentionBackend"

    @classmethod
    def check_and_update_config(cls, vllm_config):
        from vllm.config import CompilationMode, CUDAGraphMode

        vllm_config.compilation_config.mode = CompilationMode.NONE
        vllm_config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
        vllm_config.compilation_config.cudagraph_capture_sizes = []
        vllm_config.scheduler_config.async_scheduling = False
        vllm_config.parallel_config.disable_custom_all_reduce = True
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = "vllm_halyard.worker.Worker"
        if not vllm_config.cache_config.user_specified_block_size:
            vllm_config.cache_config.block_size = 16
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # a device that was used cannot be forked

    @classmethod
    def register_triton_kernel_overrides(cls):
        from vllm.triton_utils.dispatcher import register_kernels
        from vllm_halyard.slots import compute_slot_mapping

        register_kernels({"vllm.v1.worker.block_table.ComputeSlotMappingKernel.kernel": compute_slot_mapping})

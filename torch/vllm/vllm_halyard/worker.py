"""A process of vLLM's that holds a device: vLLM's own worker and model runner, without what is CUDA's alone."""

import contextlib

import torch
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_random_seed
from vllm.v1.worker.gpu_model_runner import GPUModelRunner
from vllm.v1.worker.gpu_worker import Worker as GPUWorker
from vllm.v1.worker.gpu_worker import init_worker_distributed_environment
from vllm.v1.worker.worker_base import CompilationTimes


class ModelRunner(GPUModelRunner):
    def _to_list(self, sampled_token_ids):
        return sampled_token_ids.tolist()


class Worker(GPUWorker):
    def init_device(self):
        self.device = torch.device(current_platform.device_type, self.local_rank)
        current_platform.set_device(self.device)
        init_worker_distributed_environment(
            self.vllm_config, self.rank, self.distributed_init_method, self.local_rank, current_platform.dist_backend)
        set_random_seed(self.model_config.seed)
        self.model_runner = ModelRunner(self.vllm_config, self.device)

    def _maybe_get_memory_pool_context(self, tag):
        return contextlib.nullcontext()  # sleep mode's pools are CUDA's

    def determine_available_memory(self):
        """For the KV cache: as much as was asked for, else that share of what is free once the model is loaded."""
        asked = self.cache_config.kv_cache_memory_bytes
        free, _ = torch.accelerator.get_memory_info(self.device)
        return asked if asked is not None else int(free * self.cache_config.gpu_memory_utilization)

    def compile_or_warm_up_model(self):
        set_random_seed(self.model_config.seed)
        return CompilationTimes(language_model=0.0, encoder=0.0)

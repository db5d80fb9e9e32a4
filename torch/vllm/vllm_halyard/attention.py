"""Attention over vLLM's paged KV cache by torch.ops.halyard.paged_attention, prompts and decoding steps in one call."""

from dataclasses import dataclass

import torch
from vllm.v1.attention.backend import AttentionBackend, AttentionImpl, AttentionMetadataBuilder, AttentionType
from vllm.v1.kv_cache_interface import KVCacheLayout


class PagedAttentionBackend(AttentionBackend):
    supported_dtypes = [torch.float32, torch.bfloat16, torch.float16]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16"]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name():
        return "CUSTOM"  # one of vLLM's own names, or it is unknown

    @staticmethod
    def get_impl_cls():
        return PagedAttention

    @staticmethod
    def get_builder_cls():
        return MetadataBuilder

    @classmethod
    def supported_kv_cache_layouts(cls):
        return (KVCacheLayout.LBNHC,)  # the heads of a token together, as the op table has it


@dataclass
class Metadata:
    tokens: int  # without padding
    query_start: torch.Tensor
    context_length: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor


class MetadataBuilder(AttentionMetadataBuilder):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common, fast_build=False):
        if common.causal is not True:
            raise NotImplementedError("attention that is not causal is not supported on Halyard's devices")
        return Metadata(common.num_actual_tokens, common.query_start_loc, common.seq_lens, common.block_table_tensor, common.slot_mapping)


def _keys_and_values(kv_cache, size):
    """Two views [blocks, block size, kv heads, size] of [blocks, kv heads, block size, 2 size]."""
    cache = kv_cache.transpose(1, 2)
    return cache[..., :size], cache[..., size:]


class PagedAttention(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None):
        options = {"alibi_slopes": alibi_slopes, "sliding_window": sliding_window, "logits_soft_cap": logits_soft_cap, "sinks": sinks}
        for name, value in options.items():
            if value:
                raise NotImplementedError(f"attention with {name} is not supported on Halyard's devices")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attention of type {attn_type} is not supported on Halyard's devices")
        self.num_heads, self.head_size, self.scale, self.num_kv_heads = num_heads, head_size, float(scale), num_kv_heads or num_heads
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        block_size = kv_cache.shape[2]
        slots = slot_mapping[:key.shape[0]]
        place = slots // block_size, slots % block_size
        for cache, new in zip(_keys_and_values(kv_cache, self.head_size), (key, value)):
            cache[place] = new[:len(slots)]

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        if attn_metadata is None:  # while vLLM measures memory
            return output
        m = attn_metadata
        keys, values = _keys_and_values(kv_cache, self.head_size)
        output[:m.tokens] = torch.ops.halyard.paged_attention(
            query[:m.tokens], keys, values, m.block_table, m.query_start, m.context_length, self.scale).view_as(output[:m.tokens])
        return output

"""Where the keys and values of new tokens go: vLLM's kernel for Triton, by PyTorch's ops."""

import torch


def compute_slot_mapping(num_tokens, max_num_tokens, query_start_loc_ptr, positions_ptr, block_table_ptr, block_table_stride, slot_mapping_ptr,
                         KV_CACHE_BLOCK_SIZE, TOTAL_CP_WORLD_SIZE=1, TOTAL_CP_RANK=0, CP_KV_CACHE_INTERLEAVE_SIZE=1, PAD_ID=-1, BLOCK_SIZE=1024):
    if TOTAL_CP_WORLD_SIZE != 1:
        raise NotImplementedError("context parallelism is not supported on Halyard's devices")
    positions = positions_ptr[:num_tokens]
    starts = query_start_loc_ptr.cpu().long()
    lengths = (starts[1:] - starts[:-1]).clamp(min=0)
    rows = torch.repeat_interleave(torch.arange(len(lengths)), lengths)[:num_tokens].to(positions.device)
    blocks = block_table_ptr[rows, positions // KV_CACHE_BLOCK_SIZE].long()
    slot_mapping_ptr[:num_tokens] = blocks * KV_CACHE_BLOCK_SIZE + positions % KV_CACHE_BLOCK_SIZE
    slot_mapping_ptr[num_tokens:max_num_tokens] = PAD_ID

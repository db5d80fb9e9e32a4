"""npu_fusion_attention over scaled_dot_product_attention, with the arguments that transformers' flash_attention_2 on npu uses."""

import torch
import torch.nn.functional as F

ALL, TOP_LEFT, DOWN_RIGHT = 0, 2, 3  # sparse_mode


def _attend(query, key, value, scale, dropout, sparse_mode, mask):
    """[batch, heads, length, size] each."""
    if sparse_mode == ALL:
        visible = None if mask is None else ~mask
    else:
        rows, columns = query.shape[-2], key.shape[-2]
        visible = torch.ones(rows, columns, dtype=torch.bool, device=query.device).tril(columns - rows if sparse_mode == DOWN_RIGHT else 0)
    return F.scaled_dot_product_attention(query, key, value, visible, dropout, scale=scale, enable_gqa=query.shape[1] != key.shape[1])


def npu_fusion_attention(query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, keep_prob=1.0,
                         actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=ALL):
    """The attention in front of a tuple, as Ascend's. True in `atten_mask` hides; sparse_mode 2 and 3 are causal, aligned top left and down right."""
    if pse is not None or padding_mask is not None or sparse_mode not in (ALL, TOP_LEFT, DOWN_RIGHT):
        raise NotImplementedError(f"npu_fusion_attention: pse, padding_mask and sparse_mode {sparse_mode} are not supported here")
    rest = (scale, 1.0 - keep_prob, sparse_mode, atten_mask)
    if input_layout == "BSND":
        heads = _attend(*(t.transpose(1, 2) for t in (query, key, value)), *rest)
        return (heads.transpose(1, 2),)
    if input_layout == "BNSD":
        return (_attend(query, key, value, *rest),)
    if input_layout == "TND":
        starts = zip((0, *actual_seq_qlen), actual_seq_qlen, (0, *actual_seq_kvlen), actual_seq_kvlen)
        parts = [_attend(query[a:b].transpose(0, 1)[None], key[c:d].transpose(0, 1)[None], value[c:d].transpose(0, 1)[None], *rest)
                 for a, b, c, d in starts]
        return (torch.cat([part[0].transpose(0, 1) for part in parts]),)
    raise NotImplementedError(f"npu_fusion_attention: the layouts are BSND, BNSD and TND, not {input_layout}")

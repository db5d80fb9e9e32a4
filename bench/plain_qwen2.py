"""Qwen2 in plain PyTorch, op for op as transformers computes it, with random weights, and LoRA on it."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SHAPE = dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2)


class Lora(nn.Module):
    """y = W x + B A x, W frozen."""

    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype, device=base.weight.device)
        self.b = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype, device=base.weight.device)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


class Block(nn.Module):
    """A layer of Qwen2 in plain PyTorch, op for op as transformers computes it."""

    def __init__(self, c):
        super().__init__()
        d, self.heads, self.groups = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.size = d // self.heads
        self.norm1, self.norm2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.q_proj, self.o_proj = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(d, self.groups * self.size) for _ in range(2))
        self.gate, self.up = (nn.Linear(d, c["intermediate_size"], bias=False) for _ in range(2))
        self.down = nn.Linear(c["intermediate_size"], d, bias=False)

    def forward(self, x, cos, sin):
        def norm(x, weight):
            f = x.float()
            return weight * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

        def rope(x):
            a, b = x.chunk(2, -1)
            return x * cos + torch.cat((-b, a), -1) * sin

        batch, tokens, _ = x.shape
        y = norm(x, self.norm1)
        q, k, v = (p(y).view(batch, tokens, -1, self.size).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rope(q), rope(k), v, is_causal=tokens > 1, enable_gqa=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(batch, tokens, -1))
        y = norm(x, self.norm2)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class PlainQwen2(nn.Module):
    def __init__(self, layers, c):
        super().__init__()
        self.size = c["hidden_size"] // c["num_attention_heads"]
        self.embed = nn.Embedding(c["vocab_size"], c["hidden_size"])
        nn.init.normal_(self.embed.weight, std=0.02)
        self.layers = nn.ModuleList(Block(c) for _ in range(layers))

    def forward(self, ids):
        x = self.embed(ids)
        angles = torch.arange(ids.shape[1], device=x.device, dtype=torch.float32)[:, None] * (
            1e-4 ** (torch.arange(0, self.size, 2, device=x.device, dtype=torch.float32) / self.size))
        angles = torch.cat((angles, angles), -1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x @ self.embed.weight.t()


def add_lora(model, rank=8):
    """LoRA on q, k, v and o; everything else is frozen."""
    model.requires_grad_(False)
    for part in list(model.modules()):
        for child in ("q_proj", "k_proj", "v_proj", "o_proj"):
            base = getattr(part, child, None)
            if isinstance(base, nn.Linear):
                part.add_module(child, Lora(base, rank))
    return model

"""PyTorch on npu over the cuda backend against PyTorch's own cuda device, eager both, in one run, in turns, on one GPU.

    HALYARD_BACKEND=cuda python bench/torch_cuda.py [--layers 24] [--rounds 10] [--ops]

A model of Qwen2.5-0.5B's shape in bf16: forward passes and a LoRA step (forward, backward, AdamW). Prints the least time of
the rounds and the time until the host had enqueued everything: where the two are near each other, the host is what is measured.
Losses and logits are compared first. --ops times the model's ops one by one.
"""

import argparse
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch_halyard

SHAPE = dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2)
WAIT = {"cuda": torch.cuda.synchronize, "npu": lambda: torch.npu.synchronize()}


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


class HuggingFace(nn.Module):
    def __init__(self, layers, c):
        super().__init__()
        from transformers import Qwen2Config, Qwen2ForCausalLM

        self.model = Qwen2ForCausalLM(Qwen2Config(**c, num_hidden_layers=layers, tie_word_embeddings=True))

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


def made(kind, layers, shape):
    """The same model on both devices."""
    torch.manual_seed(0)
    host = kind(layers, shape).to(torch.bfloat16).eval()
    return {device: copy.deepcopy(host).to(device) for device in WAIT}


def with_lora(models):
    for device, model in models.items():
        torch.manual_seed(1)
        model.requires_grad_(False)
        for name, part in list(model.named_modules()):
            for child in ("q_proj", "k_proj", "v_proj", "o_proj"):
                if isinstance(getattr(part, child, None), nn.Linear):
                    base = getattr(part, child)
                    part.add_module(child, Lora(base.cpu()).to(torch.bfloat16).to(device))
    return models


def timed(functions, rounds):
    """{device: (least time, the host's part of it)}, called in turns."""
    best = {}
    for device, function in functions.items():
        for _ in range(3):
            function()
        WAIT[device]()
    for _ in range(rounds):
        for device, function in functions.items():
            start = time.perf_counter()
            function()
            host = time.perf_counter() - start
            WAIT[device]()
            whole = time.perf_counter() - start
            if whole < best.get(device, (1e9,))[0]:
                best[device] = whole, host
    return best


def show(what, best, unit=1e3, suffix="ms"):
    (cuda, cuda_host), (npu, npu_host) = best["cuda"], best["npu"]
    print(f"{what:44} cuda {cuda * unit:9.3f} {suffix} (host {cuda_host * unit:9.3f})   npu {npu * unit:9.3f} {suffix} "
          f"(host {npu_host * unit:9.3f})   npu/cuda {npu / cuda:5.2f}", flush=True)


def forward(models, batch, tokens):
    ids = torch.randint(0, 1000, (batch, tokens))

    def run(device, there):
        def function():
            with torch.no_grad():
                return models[device](there)
        return function
    functions = {device: run(device, ids.to(device)) for device in models}
    logits = {device: function()[0, -1].float().cpu() for device, function in functions.items()}
    difference = ((logits["cuda"] - logits["npu"]).norm() / logits["cuda"].norm()).item()
    assert difference < 0.05, f"logits differ by {difference}"
    return functions, f"logits differ by {difference:.4f}"


def lora_step(models, batch, tokens):
    ids = torch.randint(0, 1000, (batch, tokens))
    losses = {}

    def run(device, there):
        optimizer = torch.optim.AdamW([p for p in models[device].parameters() if p.requires_grad], lr=1e-3)

        def function():
            logits = models[device](there)
            loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).float(), there[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[device] = loss
        return function
    functions = {device: run(device, ids.to(device)) for device in models}
    for _ in range(3):
        for function in functions.values():
            function()
    cuda, npu = (losses[d].item() for d in ("cuda", "npu"))
    assert abs(cuda - npu) < 0.05 * abs(cuda), f"losses {cuda} and {npu}"
    return functions, f"third losses {cuda:.4f} and {npu:.4f}"


def single_ops(rounds):
    def tensors(device, *shapes, dtype=torch.bfloat16):
        torch.manual_seed(2)
        return [torch.randn(s).to(dtype).to(device) for s in shapes]

    def loss_and_back(device):
        q, k, v = (t.requires_grad_() for t in tensors(device, (4, 14, 512, 64), (4, 14, 512, 64), (4, 14, 512, 64)))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        g = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True)

    def binary(function, *shapes, dtype=torch.bfloat16):
        def make(device):
            args = tensors(device, *shapes, dtype=dtype)
            return lambda: function(*args)
        return make

    ids = torch.randint(0, 1000, (2048,))
    cases = {
        "add, 1 element": binary(torch.add, (1,), (1,)),
        "add, 2048 x 896": binary(torch.add, (2048, 896), (2048, 896)),
        "mul by a row, 2048 x 896": binary(torch.mul, (2048, 896), (896,)),
        "silu, 2048 x 4864": binary(F.silu, (2048, 4864)),
        "to f32, 2048 x 896": binary(lambda x: x.float(), (2048, 896)),
        "mean of squares, 2048 x 896 f32": binary(lambda x: x.pow(2).mean(-1, keepdim=True), (2048, 896), dtype=torch.float32),
        "cat of halves, 14 x 2048 x 64": binary(lambda x: torch.cat((-x[..., 32:], x[..., :32]), -1), (14, 2048, 64)),
        "linear, 1 x 896 -> 4864": binary(F.linear, (1, 896), (4864, 896)),
        "linear, 128 x 896 -> 4864": binary(F.linear, (128, 896), (4864, 896)),
        "linear, 2048 x 896 -> 4864": binary(F.linear, (2048, 896), (4864, 896)),
        "linear, 2048 x 4864 -> 896": binary(F.linear, (2048, 4864), (896, 4864)),
        "linear with bias, 2048 x 896 -> 896": binary(F.linear, (2048, 896), (896, 896), (896,)),
        "weight's gradient, 8 x 2048 by 2048 x 896": binary(lambda g, x: g.t() @ x, (2048, 8), (2048, 896)),
        "input's gradient, 2048 x 4864 by 4864 x 896": binary(torch.mm, (2048, 4864), (4864, 896)),
        "logits, 2048 x 896 -> 151936": binary(F.linear, (2048, 896), (151936, 896)),
        "sdpa causal, 4 x 14 x 512 x 64": binary(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *[(4, 14, 512, 64)] * 3),
        "sdpa backward, 4 x 14 x 512 x 64": loss_and_back,
        "embedding, 2048 of 151936 x 896": lambda d: (lambda w, i: lambda: F.embedding(i, w))(*tensors(d, (151936, 896)), ids.to(d)),
        "cross entropy, 2048 x 151936 f32": lambda d: (lambda x, i: lambda: F.cross_entropy(x, i))(*tensors(d, (2048, 151936), dtype=torch.float32), ids.to(d)),
    }
    for what, make in cases.items():
        def many(function):
            def run():
                for _ in range(50):
                    function()
            return run
        best = timed({d: many(make(d)) for d in ("cuda", "npu")}, rounds)
        show(what, {d: (a / 50, b / 50) for d, (a, b) in best.items()}, unit=1e6, suffix="us")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without transformers")
    options = parser.parse_args()
    try:
        import transformers
        kind = PlainQwen2 if options.plain else HuggingFace
        words = "plain PyTorch" if options.plain else f"transformers {transformers.__version__}"
    except ImportError:
        kind, words = PlainQwen2, "plain PyTorch"
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, npu is {torch.npu.get_device_properties(0).selector}, {words}")
    models = made(kind, options.layers, SHAPE)
    for batch, tokens in ((1, 1), (1, 128), (1, 2048)):
        functions, note = forward(models, batch, tokens)
        show(f"forward of {batch} x {tokens}, {options.layers} layers", timed(functions, options.rounds))
        print("  " + note)
    models = with_lora(models)
    for batch, tokens in ((1, 128), (4, 512)):
        functions, note = lora_step(models, batch, tokens)
        show(f"LoRA step of {batch} x {tokens}, {options.layers} layers", timed(functions, options.rounds))
        print("  " + note)
    print("fell back:", torch_halyard.fallback_report() or "nothing")
    if options.ops:
        del models
        single_ops(options.rounds)


if __name__ == "__main__":
    main()

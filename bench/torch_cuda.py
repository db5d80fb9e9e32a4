"""PyTorch on npu over the cuda backend against PyTorch's own cuda device, eager both, in one run, in turns, on one GPU.

    HALYARD_BACKEND=cuda python bench/torch_cuda.py [--layers 24] [--rounds 10] [--lora] [--ops]

A model of Qwen2.5-0.5B's shape in bf16: forward passes and a LoRA step (forward, backward, AdamW). Prints the least time of
the rounds and the time until the host had enqueued everything: where the two are near each other, the host is what is measured.
Losses and logits are compared first. --ops times the forward pass's ops one by one.

Forward passes of both devices are in one process. A LoRA step has a process for each device, in turns all the same: autograd of
torch 2.11 fails on cuda where another device is registered (PyTorch issue 161129).
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from plain_qwen2 import SHAPE, PlainQwen2, add_lora

WAIT = {"cuda": torch.cuda.synchronize, "npu": lambda: torch.npu.synchronize()}


class HuggingFace(nn.Module):
    def __init__(self, layers, c):
        super().__init__()
        from transformers import Qwen2Config, Qwen2ForCausalLM

        self.model = Qwen2ForCausalLM(Qwen2Config(**c, num_hidden_layers=layers, tie_word_embeddings=True))

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


def made(kind, layers, shape):
    """The same model on both devices; made on the GPU, where half a billion random numbers take no time."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = kind(layers, shape).to(torch.bfloat16).eval()
    return {"cuda": model, "npu": copy.deepcopy(model).cpu().to("npu")}


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


class Worker:
    """A process that takes LoRA steps on one device, each when it is told to."""

    def __init__(self, device, options):
        command = [sys.executable, os.path.abspath(__file__), "--worker", device, "--layers", str(options.layers)]
        command += ["--plain"] * options.plain
        environment = dict(os.environ, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self, batch, tokens):
        """[whole time, the host's part of it, that of forward, backward and optimizer, loss]"""
        self.process.stdin.write(f"{batch} {tokens}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a LoRA step failed: exit status {self.process.wait()}")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        if status := self.process.wait():
            raise SystemExit(f"a worker ended badly: exit status {status}")


def work(options):
    """The worker's side: the same weights on every device, since they are made on the CPU."""
    device = options.worker
    if device == "npu":
        import torch_halyard  # noqa: F401  registers the device
    torch.manual_seed(0)
    host = add_lora(kind_of(options)[0](options.layers, SHAPE).to(torch.bfloat16).eval())
    model = host.to(device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for line in sys.stdin:
        torch.manual_seed(1)
        ids = torch.randint(0, 1000, tuple(map(int, line.split()))).to(device)
        WAIT[device]()
        marks = [time.perf_counter()]
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]).float(), ids[:, 1:].reshape(-1))
        marks.append(time.perf_counter())
        optimizer.zero_grad()
        loss.backward()
        marks.append(time.perf_counter())
        optimizer.step()
        marks.append(time.perf_counter())
        WAIT[device]()
        whole = time.perf_counter() - marks[0]
        print(json.dumps([whole, marks[-1] - marks[0], *(b - a for a, b in zip(marks, marks[1:])), loss.item()]), flush=True)


def lora_steps(workers, rounds, batch, tokens):
    for _ in range(3):
        losses = {device: worker.step(batch, tokens)[-1] for device, worker in workers.items()}
    cuda, npu = losses["cuda"], losses["npu"]
    assert abs(cuda - npu) < 0.05 * abs(cuda), f"losses {cuda} and {npu}"
    best = {}
    for _ in range(rounds):
        for device, worker in workers.items():
            best[device] = min(best.get(device, [1e9]), worker.step(batch, tokens))
    parts = "; ".join(f"{device} " + ", ".join(f"{t * 1e3:.2f}" for t in times[2:5]) for device, times in best.items())
    note = f"losses {cuda:.4f} and {npu:.4f}; host's ms in forward, backward, AdamW: {parts}"
    return {device: times[:2] for device, times in best.items()}, note


def single_ops(rounds):
    def tensors(device, *shapes, dtype=torch.bfloat16):
        torch.manual_seed(2)
        return [torch.randn(s).to(dtype).to(device) for s in shapes]

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


def kind_of(options):
    """The model's class, and what it is called."""
    try:
        import transformers
    except ImportError:
        return PlainQwen2, "plain PyTorch"
    return (PlainQwen2, "plain PyTorch") if options.plain else (HuggingFace, f"transformers {transformers.__version__}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lora", action="store_true", help="LoRA steps alone")
    parser.add_argument("--ops", action="store_true")
    parser.add_argument("--plain", action="store_true", help="without transformers")
    parser.add_argument("--worker", choices=("cuda", "npu"), help="what this script starts for LoRA steps")
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # a run that is cut short leaves what it has measured
    if options.worker:
        work(options)
        return
    workers = {device: Worker(device, options) for device in ("cuda", "npu")}
    for batch, tokens in ((1, 128), (4, 512)):
        best, note = lora_steps(workers, options.rounds, batch, tokens)
        show(f"LoRA step of {batch} x {tokens}, {options.layers} layers", best)
        print("  " + note)
    for worker in workers.values():
        worker.close()
    if options.lora:
        return
    import torch_halyard

    kind, words = kind_of(options)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; npu is {torch.npu.get_device_properties(0).selector}; {words}")
    models = made(kind, options.layers, SHAPE)
    for batch, tokens in ((1, 1), (1, 128), (1, 2048)):
        functions, note = forward(models, batch, tokens)
        show(f"forward of {batch} x {tokens}, {options.layers} layers", timed(functions, options.rounds))
        print("  " + note)
    print("fell back:", torch_halyard.fallback_report() or "nothing")
    if options.ops:
        del models
        single_ops(options.rounds)


if __name__ == "__main__":
    main()

"""PyTorch on npu against PyTorch on the cpu, in one run, in turns: a tiny add, copies, and a model of Qwen2.5-0.5B's shape.
Then torch.compile(backend="halyard") against eager, both on npu.

    python bench/torch_device.py [--layers 24] [--dtype bfloat16] [--rounds 5]
    HALYARD_THREADS=1 python bench/torch_device.py --compiled --processor-time --layers 4 --rounds 50    # on a busy machine

Prints the least time of the rounds for each, and their ratio: below 1, npu is faster.
"""

import argparse
import time

import torch
import torch_halyard
from plain_qwen2 import add_lora

clock = time.perf_counter


def least(functions, rounds):
    """The least time of each function, called in turns so that a noisy machine disturbs all alike."""
    times = [[] for _ in functions]
    for function in functions:
        function()
    for _ in range(rounds):
        for function, list_ in zip(functions, times):
            start = clock()
            function()
            list_.append(clock() - start)
    return [min(list_) for list_ in times]


def line(what, cpu, npu, unit=1e3, suffix="ms"):
    print(f"{what:34} cpu {cpu * unit:10.3f} {suffix}   npu {npu * unit:10.3f} {suffix}   npu/cpu {npu / cpu:5.2f}", flush=True)


def repeated(function, n):
    def run():
        for _ in range(n):
            function()
        torch.npu.synchronize()
    return run


def small_ops(rounds):
    n = 2000
    for what, shape, function in [("add, 1 element", (1,), lambda x: lambda: x + x), ("add, 1024 elements", (1024,), lambda x: lambda: x + x),
                                  ("add a number, 1 element", (1,), lambda x: lambda: x + 1.0),
                                  ("mm, 8 x 8", (8, 8), lambda x: lambda: x @ x)]:
        host = torch.ones(shape)
        times = least([repeated(function(t), n) for t in (host, host.to("npu"))], rounds)
        line(what, *(t / n for t in times), unit=1e6, suffix="us")


def copies(rounds):
    host, out = torch.ones(1 << 24), torch.empty(1 << 24)
    there = host.to("npu")
    times = least([lambda: out.copy_(host), lambda: there.copy_(host)], rounds)
    line("copy 64 MiB to the device", *times)
    times = least([lambda: out.copy_(host), lambda: out.copy_(there)], rounds)
    line("copy 64 MiB back", *times)


def model(layers, dtype, rounds):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=layers, num_attention_heads=14,
                         num_key_value_heads=2, tie_word_embeddings=True)
    with torch.device("cpu"):
        host = Qwen2ForCausalLM(config).to(dtype).eval()
    there = Qwen2ForCausalLM(config).to(dtype).eval()
    there.load_state_dict(host.state_dict())
    there = there.to("npu")
    ids = torch.randint(0, 1000, (1, 128))
    with torch.no_grad():
        line(f"forward, 128 tokens, {layers} layers",
             *least([lambda: host(ids, logits_to_keep=1), lambda: (there(ids.to("npu"), logits_to_keep=1), torch.npu.synchronize())], rounds))

        def decode(m, device):
            cache = m(ids.to(device), use_cache=True).past_key_values
            token = ids[:, :1].to(device)

            def step():
                m(token, past_key_values=cache, use_cache=True).logits.argmax(-1).item()
            return step

        line("decode, one token", *least([decode(host, "cpu"), decode(there, "npu")], max(rounds, 8)))

    def training(m, device):
        add_lora(m)
        here = ids.to(device)

        def step():
            m.zero_grad()
            loss = m(here, labels=here, use_cache=False).loss
            loss.backward()
            loss.item()
        return step

    line("LoRA step of 1 x 128", *least([training(host, "cpu"), training(there, "npu")], rounds))


def compiled(layers, dtype, rounds):
    """torch.compile(backend="halyard"), with and without packed weights, against eager, all on npu."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch._dynamo.config.recompile_limit = 64  # both models are one piece of code, compiled for each row in two ways
    shapes = {"tiny": dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2),
              f"0.5B, {layers} layers": dict(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=layers,
                                             num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True)}
    for name, shape in shapes.items():
        eager = Qwen2ForCausalLM(Qwen2Config(**shape)).to(dtype).to("npu")
        ways = [eager, *(torch.compile(eager, backend="halyard", options={"pack_weights": packs}) for packs in (False, True))]
        for tokens, kept in (1, 1), (128, 1), (128, 0):
            ids = torch.randint(0, 500, (1, tokens)).to("npu")

            def forward(model):
                with torch.no_grad():
                    model(ids, use_cache=False, logits_to_keep=kept).logits[0, -1].argmax(-1).item()

            compare(f"{name}, {tokens} to {'the last' if kept else 'all'} logits", forward, ways, rounds)

        def step(model):
            eager.zero_grad()
            model(ids, labels=ids, use_cache=False).loss.backward()
            torch.npu.synchronize()

        if name != "tiny":
            add_lora(eager)
        compare(f"{name}, {'LoRA' if name != 'tiny' else 'training'} step", step, ways, rounds)
    splits = [split for graph in torch_halyard.compile_report() for split in graph["splits"]]
    print("split by:", splits or "nothing")


def compare(what, function, ways, rounds):
    for way in ways[1:]:
        for _ in range(2):
            function(way)
    eager, plain, packed = least([lambda way=way: function(way) for way in ways], rounds)
    print(f"{what:34} eager {eager * 1e3:8.3f} ms   compiled {packed * 1e3:10.3f} ms   compiled/eager {packed / eager:5.2f}, "
          f"without packed weights {plain / eager:5.2f}", flush=True)


def main():
    global clock
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compiled", action="store_true", help="torch.compile alone")
    parser.add_argument("--processor-time", action="store_true", help="of all threads, instead of time that passed")
    options = parser.parse_args()
    if options.processor_time:
        clock = time.process_time
    print(f"torch {torch.__version__}, npu is {torch.npu.get_device_properties(0).selector}, {torch.get_num_threads()} threads")
    if not options.compiled:
        small_ops(options.rounds)
        copies(options.rounds)
        model(options.layers, getattr(torch, options.dtype), options.rounds)
    compiled(options.layers, getattr(torch, options.dtype), max(options.rounds, 10))
    print("fell back:", torch_halyard.fallback_report() or "nothing")


if __name__ == "__main__":
    main()

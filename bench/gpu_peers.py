"""Halyard on an NVIDIA GPU beside PyTorch and transformers on the same GPU, in one run: one table.

    python bench/gpu_peers.py [--only TEXT] [--limit SECONDS] [--json FILE]

Needs a GPU, torch of a CUDA build, transformers, and Halyard's build. Sections, each a process of its own:

    decode     Qwen2.5-0.5B's shape in bf16, 1 and 64 sequences: transformers, eager and compiled (static cache, CUDA graphs)
    prefill    prompts of 512 and 2048, and 8 of 512: transformers, eager and compiled
    train      LoRA of rank 16 on q, k, v and o, 8 x 512: transformers and a plain PyTorch model, both under torch.compile
    gemm       products: torch.matmul and linear (cuBLAS)
    attention  forward and backward: scaled_dot_product_attention by the faster of flash and cuDNN
    rows       norms, softmax, cross entropy, sums, elementwise ops: torch's

Weights are random. The single calls of both sides are timed in turns, 8 in a queue; models one side after the other. Halyard's
figures are those of `halyard bench --backend cuda:0`. PyTorch's npu device beside its cuda device is bench/torch_cuda.py.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time

VOCAB, BATCH, LENGTH, RANK = 151936, 8, 512, 16
PROMPTS = ((1, 512), (1, 2048), (8, 512))
DEVICE = "cuda"


# ---- rows ----

def row_of(name, shape, ours, theirs, unit, peer):
    """Rates: more is better. A time is better where it is less, and a memory too."""
    less = unit in ("ms", "GB")
    ratio = None if not ours or not theirs else theirs / ours if less else ours / theirs
    return dict(name=name, shape=shape, ours=ours, theirs=theirs, unit=unit, peer=peer, ratio=ratio and round(ratio, 3))


def say(row):
    print(json.dumps(row), flush=True)


def halyard_rows(options, *benchmarks):
    command = [options.halyard, "bench", *benchmarks, "--backend", options.backend, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return [row for row in map(json.loads, done.stdout.splitlines()) if "name" in row]


# ---- models ----

def transformers_model():
    import torch
    from half_billion import make_model

    torch.manual_seed(0)
    model = make_model("bf16").eval().to(DEVICE)
    model.generation_config.eos_token_id = None
    return model


def generation_rate(model, batch, tokens=(8, 56), **how):
    """Tokens a second beside the prompt's: from two lengths, the best of three each; None where noise is larger."""
    import torch

    ids = torch.randint(0, VOCAB, (batch, 16), device=DEVICE)
    mask = torch.ones_like(ids)

    def seconds(count):
        start = time.perf_counter()
        model.generate(ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0,
                       **how)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(tokens[0])
    seconds(tokens[1])
    short, long = (min(seconds(count) for _ in range(3)) for count in tokens)
    return batch * (tokens[1] - tokens[0]) / (long - short) if long > short else None


def decode(options):
    ours = {"64 sequences" in row["shape"]: row["value"] for row in halyard_rows(options, "decode", "--dtype", "bf16")
            if row["name"] == "decode"}
    model = transformers_model()
    for batch in (1, 64):
        shape = f"{batch} sequence{'s' if batch > 1 else ''}"
        mine = ours.get(batch > 1)
        say(row_of("decode", shape, mine, generation_rate(model, batch), "tok/s", "transformers"))
        compiled = generation_rate(model, batch, cache_implementation="static")
        say(row_of("decode", shape, mine, compiled, "tok/s", "transformers, static cache, compiled"))


def best_seconds(function, rounds=10):
    import torch

    best = float("inf")
    for i in range(rounds + 3):
        start = time.perf_counter()
        function()
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        if i >= 3:
            best = min(best, time.perf_counter() - start)
    return best


def prefill(options):
    import torch

    ours = {row["shape"].split(", ")[-1]: row["value"] for row in halyard_rows(options, "prefill", "--dtype", "bf16")
            if row["name"] == "prefill"}
    model = transformers_model()
    for batch, length in PROMPTS:
        ids = torch.randint(0, VOCAB, (batch, length), device=DEVICE)
        mine = ours[str(length) if batch == 1 else f"{batch}x{length}"]
        compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
        for peer, run in (("transformers", model), ("transformers, compiled", compiled)):
            with torch.no_grad():
                seconds = best_seconds(lambda: run(ids, use_cache=True, logits_to_keep=1))
            say(row_of("prefill", f"{batch}x{length}", mine, batch * length / seconds, "tok/s", peer))
        torch.compiler.reset()


def step_rate(model, loss_of):
    """Tokens a second of a step of LoRA on the model under torch.compile, and the most GB that it held."""
    import torch
    from plain_qwen2 import add_lora

    gc.collect()  # a model that was measured before
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()
    add_lora(model, RANK)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=DEVICE == "cuda")
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), device=DEVICE)
    compiled = torch.compile(lambda ids: loss_of(model, ids))

    def step():
        compiled(ids).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    rate = BATCH * LENGTH / best_seconds(step)
    return rate, torch.cuda.max_memory_allocated() / 1e9 if DEVICE == "cuda" else None


def train(options):
    import torch
    import torch.nn.functional as F
    from plain_qwen2 import SHAPE, PlainQwen2

    def plain_model():
        torch.manual_seed(0)
        with torch.device(DEVICE):
            return PlainQwen2(24, SHAPE).to(torch.bfloat16)

    def loss_of_logits(logits, ids):
        return F.cross_entropy(logits.reshape(-1, VOCAB).float(), ids[:, 1:].reshape(-1))

    peers = {
        "transformers, compiled": (lambda: transformers_model().train(),
                                   lambda m, ids: loss_of_logits(m(ids[:, :-1], use_cache=False).logits, ids)),
        "plain PyTorch, compiled": (plain_model, lambda m, ids: loss_of_logits(m(ids[:, :-1]), ids)),
    }
    ours = [row for row in halyard_rows(options, "train") if row["name"] in ("train", "train memory")]
    for peer, (make, loss_of) in peers.items():
        rate, memory = step_rate(make(), loss_of)
        for row in ours:
            by = row["shape"].partition("captured")
            by = "".join(by[1:]) or "by calls"
            theirs = rate if row["name"] == "train" else memory
            say(row_of(row["name"], f"LoRA {RANK}, {BATCH}x{LENGTH}, {by}", row["value"], theirs, row["unit"], peer))
        torch.compiler.reset()


# ---- single calls ----

def fastest_attention(make):
    """A maker of turns whose attention is that of the faster of flash and cuDNN."""
    def made(row):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        def under(backend):
            with sdpa_kernel(backend):
                turns = make(row)
            run = turns.run

            def call(i):
                with sdpa_kernel(backend):
                    return run(i)
            turns.run = call
            return turns.take(), turns

        candidates = []
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
            try:
                candidates.append(under(backend))
            except RuntimeError:  # it has no kernel for this
                pass
        return min(candidates, key=lambda c: c[0])[1] if candidates else make(row)
    return made


def calls(options, *benchmarks):
    import torch
    import torch_peer

    torch.set_default_device(DEVICE)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch_peer.Turns.queued = 8
    if DEVICE == "cuda":
        torch_peer.Turns.wait = staticmethod(torch.cuda.synchronize)
        for name in ("sdpa", "sdpa_backward"):
            torch_peer.MAKERS[name] = fastest_attention(torch_peer.MAKERS[name])

    def show(row):
        say(row_of(row["name"], f"{row['shape']} {row['dtype']}", row["value"], row["peer_value"], row["unit"],
                   "torch " + torch.__version__))

    command = [options.halyard, "bench", *benchmarks, "--backend", options.backend, "--json", "--peer", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as halyard:
        torch_peer.answer(halyard, show)
    if halyard.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {halyard.returncode}")


SECTIONS = {
    "decode": decode,
    "prefill": prefill,
    "train": train,
    "gemm": lambda options: calls(options, "gemm"),
    "attention": lambda options: calls(options, "attention"),
    "rows": lambda options: calls(options, "norm", "softmax", "elementwise"),
}


# ---- the run ----

def run_section(name, options):
    """Rows of a section, and what went wrong, or None; a section that is cut short leaves the rows it had."""
    command = [sys.executable, os.path.abspath(__file__), "--section", name, "--halyard", options.halyard, "--backend",
               options.backend]
    rows = []
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    os.set_blocking(child.stdout.fileno(), False)
    deadline, left = time.monotonic() + options.limit, b""
    while True:
        over = child.poll() is not None
        left += child.stdout.read() or b""
        *lines, left = left.split(b"\n")
        for line in lines:
            if line.startswith(b'{"name"'):
                rows.append(json.loads(line))
                show_row(rows[-1])
        if over:
            return rows, None if child.returncode == 0 else f"{name}: exit status {child.returncode}"
        if time.monotonic() > deadline:
            os.killpg(child.pid, 9)  # the session that was started above
            child.wait()
            return rows, f"{name}: cut after {options.limit} s"
        time.sleep(0.1)


def show_row(row):
    def number(value):
        return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    print(f"{row['name']:<14} {row['shape']:<36} {number(row['ours']):>10} {number(row['theirs']):>10} {row['unit']:<7} "
          f"{number(row['ratio']):>6}  {row['peer']}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="TEXT", help="sections whose name contains this; several by commas")
    parser.add_argument("--limit", type=float, default=150, metavar="SECONDS", help="of a section (150)")
    parser.add_argument("--json", metavar="FILE", help="write rows and errors there too")
    parser.add_argument("--halyard", default="build/release/bin/halyard")
    parser.add_argument("--backend", default="cuda:0", help="Halyard's device (cuda:0)")
    parser.add_argument("--section", choices=SECTIONS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.section:
        SECTIONS[options.section](options)
        return
    wanted = [n for n in SECTIONS if not options.only or any(text in n for text in options.only.split(","))]
    if not wanted:
        sys.exit(f"gpu_peers: no section contains '{options.only}'; there are {', '.join(SECTIONS)}")
    try:
        import torch
    except ImportError:
        sys.exit("gpu_peers: this interpreter has no torch; run with one that has a CUDA build of it")
    if not torch.cuda.is_available():
        sys.exit(f"gpu_peers: torch {torch.__version__} sees no NVIDIA GPU; run on a machine with one, with a CUDA build of torch")
    if not os.access(options.halyard, os.X_OK):
        sys.exit(f"gpu_peers: {options.halyard} is not there; build with `cmake --build --preset release`, or say --halyard")
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}; a ratio above 1 is Halyard's lead")
    print(f"{'':<14} {'':<36} {'halyard':>10} {'peer':>10} {'':<7} {'ratio':>6}")
    rows, errors = [], []
    for name in wanted:
        more, error = run_section(name, options)
        rows += more
        if error:
            errors.append(error)
            print(error, flush=True)
    if options.json:
        with open(options.json + ".new", "w") as file:
            json.dump(dict(device=device, torch=torch.__version__, rows=rows, errors=errors), file, indent=1)
        os.replace(options.json + ".new", options.json)
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()

"""`halyard bench train` beside PEFT: a LoRA step at Qwen2.5-0.5B's shape, r = 16 on q, k, v, o.

Run with an interpreter that has torch, transformers and peft:

    python bench/peft_peer.py --halyard build/release/bin/halyard --threads 2

It runs Halyard's benchmark, then the same step in PEFT with random weights, and prints Halyard's JSON
row with PEFT as the peer. Rates are the best of several steps on both sides; the machine should have
nothing else to do.
"""

import argparse
import json
import subprocess
import time

import torch
from peft import LoraConfig, get_peft_model

from half_billion import DTYPES, VOCAB, make_model

BATCH, LENGTH = 4, 256


def add_adapter(model):
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules=targets))


def peft_rate(dtype, rounds):
    model = add_adapter(make_model(dtype))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    best = 0.0
    for round in range(rounds + 1):
        # The first, a small one, warms up.
        ids = torch.randint(0, VOCAB, (BATCH, LENGTH) if round else (1, 32))
        start = time.perf_counter()
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        if round:
            best = max(best, ids.numel() / (time.perf_counter() - start))
    return best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--halyard", default="build/release/bin/halyard")
    parser.add_argument("--model", help="a folder of the shape, for Halyard; without it its weights are random")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", choices=list(DTYPES), default="f32", help="of Halyard's weights")
    parser.add_argument("--peer-dtype", choices=list(DTYPES), default="f32", help="of PEFT's; f32 is its faster one")
    parser.add_argument("--rounds", type=int, default=2, help="steps of PEFT")
    options = parser.parse_args()
    command = [options.halyard, "bench", "train", "--dtype", options.dtype, "--json", "--threads", str(options.threads)]
    command += ["--model", options.model] if options.model else []
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    row = next(row for row in map(json.loads, output.splitlines()) if row["name"] == "train")
    torch.set_num_threads(options.threads)
    peer = peft_rate(options.peer_dtype, options.rounds)
    row.update(peer=f"peft {options.peer_dtype}", peer_value=round(peer, 2), ratio=round(row["value"] / peer, 3))
    print(json.dumps(row))


if __name__ == "__main__":
    main()

"""`halyard bench decode prefill` beside transformers on PyTorch, in turns in one run.

Run with an interpreter that has torch and transformers:

    python bench/transformers_peer.py --dtype bf16 --threads 2

Both sides have Qwen2.5-0.5B's shape; transformers' weights are random, and so are Halyard's without
--model. Each of --rounds rounds runs Halyard's benchmark and then, in every type of --peer-dtypes, reads
a prompt of 512 and generates some tokens in transformers; the best of each counts. Prints Halyard's JSON
rows with transformers' faster type as the peer. The machine should have nothing else to do.
"""

import argparse
import json
import subprocess
import time

import torch

from half_billion import DTYPES, VOCAB, make_model

PROMPT, TOKENS = 512, 4


def halyard_rows(options):
    command = [options.halyard, "bench", *options.kinds, "--dtype", options.dtype, "--json", "--threads",
               str(options.threads)] + (["--model", options.model] if options.model else [])
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {row["name"]: row for row in map(json.loads, output.splitlines()) if row["name"] in options.kinds}


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


@torch.no_grad()
def transformers_rates(model, kinds):
    """Tokens a second by kind; the head sees the last token only, as in Halyard."""
    ids = torch.randint(0, VOCAB, (1, PROMPT if "prefill" in kinds else 16))
    spent, output = seconds(lambda: model(ids, use_cache=True, logits_to_keep=1))
    rates = {"prefill": PROMPT / spent}
    best = float("inf")
    for _ in range(TOKENS if "decode" in kinds else 0):
        ids = output.logits[:, -1:].argmax(-1)
        spent, output = seconds(lambda: model(ids, past_key_values=output.past_key_values, use_cache=True))
        best = min(best, spent)
    rates["decode"] = 1 / best
    return {kind: rates[kind] for kind in kinds}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=["prefill"], help="prefill (the default), decode")
    parser.add_argument("--halyard", default="build/release/bin/halyard")
    parser.add_argument("--model", help="a folder of the shape, for Halyard")
    parser.add_argument("--dtype", default="bf16", help="of Halyard's weights")
    parser.add_argument("--peer-dtypes", nargs="+", choices=list(DTYPES), default=["f32", "bf16"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    models = {dtype: make_model(dtype).eval() for dtype in options.peer_dtypes}
    ours, theirs = {}, {}
    for _ in range(options.rounds):
        for kind, row in halyard_rows(options).items():
            if row["value"] > ours.get(kind, {"value": 0})["value"]:
                ours[kind] = row
        for dtype, model in models.items():
            for kind, rate in transformers_rates(model, options.kinds).items():
                theirs[kind, dtype] = max(rate, theirs.get((kind, dtype), 0))
    for kind, row in ours.items():
        rates = {dtype: round(theirs[kind, dtype], 2) for dtype in models}
        best = max(rates, key=rates.get)
        row.update(peer=f"transformers {best}", peer_value=rates[best], ratio=round(row["value"] / rates[best], 3),
                   peers=rates)
        print(json.dumps(row))


if __name__ == "__main__":
    main()

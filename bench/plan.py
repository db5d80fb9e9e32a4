"""halyard plan against real runs: the estimate for two ranks beside two ranks of each mpirun, at Qwen2.5-0.5B's shape.

    python bench/plan.py [--model DIR] [--dtypes f32,bf16] [--rounds 2] [--program build/release/bin/halyard]

What is measured is user processor time a token and rank, with one thread each: the slope between runs of 4 and of 20 tokens, so
that loading and the prompt drop out; and by the clock the best run's time a token. The clock says little on a machine that others
use. Processor time still grows there: others take the caches and the memory's bandwidth, and a rank that waits for one that has no
core spins up to a thousand times in each of 50 collectives before it yields. The rate that plan takes is fitted to one process in
the same run (--read), and shown beside the estimate by plan's own constants.
"""

import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import tempfile

LAUNCHERS = {"mpirun.mpich": [], "mpirun.openmpi": ["--oversubscribe", "--bind-to", "none"]}
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", HALYARD_LOG="0")
SHORT, LONG = 4, 20


def make_model(folder):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    Qwen2ForCausalLM(Qwen2Config(vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                                 num_key_value_heads=2, tie_word_embeddings=True)).bfloat16().save_pretrained(folder)


def run(line):
    """Seconds of processor time, and by the clock a token of decoding."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    said = subprocess.run(line, check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, 1 / json.loads(said)["decode_tok_s"]


def token_time(options, dtype, launcher=None, ranks=1):
    """Seconds of processor time a token and rank, one for each round, and the least by the clock."""
    def line(tokens):
        words = [options.program, "run", "--model", str(options.model), "--ids", "5,300,12,77", "--max-tokens", str(tokens), "--dtype", dtype,
                 "--ignore-end", "--json", "--threads", "1"]
        return [launcher, *LAUNCHERS[launcher], "-n", str(ranks), *words, "--parallel", "tensor"] if launcher else words
    rounds = [(run(line(LONG)), run(line(SHORT))[0]) for _ in range(options.rounds)]
    return [(long - short) / (LONG - SHORT) / ranks for (long, _), short in rounds], min(clock for (_, clock), _ in rounds)


def estimate(options, dtype, devices, *more):
    """Seconds a token and the bytes a device reads for it, by halyard plan."""
    said = subprocess.run([options.program, "plan", "--model", str(options.model), "--devices", str(devices), "--link", "5", "--context", "16",
                           "--dtype", dtype, "--json", *more], check=True, capture_output=True, text=True).stdout
    row = next(row for row in json.loads(said)["splits"] if row["split"] == "tensor")
    return 1 / row["tok_s"], row["weight_bytes"]


def mean(list_):
    return sum(list_) / len(list_)


def spread(list_):
    return f"{1e3 * mean(list_):.1f} ms ({1e3 * min(list_):.1f} to {1e3 * max(list_):.1f})"


def against(what, estimated, measured):
    print(f"  {what}: {1e3 * estimated:.1f} ms, {100 * (estimated / mean(measured) - 1):+.0f}%")


def compare(options, dtype):
    alone, clock = token_time(options, dtype)
    own, bytes_read = estimate(options, dtype, 1)
    # What plan adds to the reading, a time for each layer: the difference between its estimate and the bytes at a known rate.
    layers = estimate(options, dtype, 1, "--read", "1")[0] - bytes_read / 1e9
    rate = bytes_read / max(mean(alone) - layers, 1e-6) / 1e9
    print(f"{dtype}: one process {spread(alone)} a token, {rate:.1f} GB/s; by the clock {1e3 * clock:.1f} ms", flush=True)
    against("plan's constants", own, alone)
    for launcher in filter(shutil.which, LAUNCHERS):
        two, clock = token_time(options, dtype, launcher, 2)
        print(f"{dtype}: two ranks of {launcher} {spread(two)} a token and rank; by the clock {1e3 * clock:.1f} ms a token", flush=True)
        against("plan's constants", estimate(options, dtype, 2)[0], two)
        against(f"plan --read {rate:.1f}", estimate(options, dtype, 2, "--read", f"{rate:.4f}")[0], two)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", default=str(pathlib.Path(__file__).resolve().parents[1] / "build/release/bin/halyard"))
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        if not options.model:
            options.model = folder
            make_model(folder)
        for dtype in options.dtypes.split(","):
            compare(options, dtype)


if __name__ == "__main__":
    main()

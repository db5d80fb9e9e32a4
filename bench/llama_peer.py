"""`halyard bench decode prefill` beside llama.cpp's llama-bench, in turns in one run.

    python bench/llama_peer.py --llama-bench PATH --model DIR q8=Q8_0.gguf q4=Q4_0.gguf bf16=BF16.gguf

Each pair names a format of Halyard's and a GGUF file of the same shape. Without --model, Halyard's
weights are random in the shape of Qwen2.5-0.5B, whose GGUF files the others should then have. Both
programs generate 32 tokens and read a prompt of 512, in turns for --rounds rounds; the best of each
counts. Prints Halyard's JSON rows with llama.cpp as the peer, and a table with --table. The machine
should have nothing else to do.
"""

import argparse
import json
import subprocess

KINDS = {"prefill": ("-p", 512), "decode": ("-n", 32)}


def run_halyard(arguments, format):
    command = [arguments.halyard, "bench", "decode", "prefill", "--dtype", format, "--json", "--threads",
               str(arguments.threads)] + (["--model", arguments.model] if arguments.model else [])
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def run_llama(arguments, path):
    """Tokens a second by kind."""
    command = [arguments.llama_bench, "-m", path, "-t", str(arguments.threads), "-r", "1", "-o", "json"]
    for option, count in KINDS.values():
        command += [option, str(count)]
    tests = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {"decode" if test["n_gen"] else "prefill": test["avg_ts"] for test in tests}


def compare(arguments, format, path):
    best, theirs = {}, {}
    for _ in range(arguments.rounds):
        for row in run_halyard(arguments, format):
            if row["name"] in KINDS and row["value"] > best.get(row["name"], {"value": 0})["value"]:
                best[row["name"]] = row
        for kind, rate in run_llama(arguments, path).items():
            theirs[kind] = max(rate, theirs.get(kind, 0))
    for kind, rate in theirs.items():
        best[kind].update(peer="llama.cpp", peer_value=rate, ratio=best[kind]["value"] / rate)
    return best.values()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="FORMAT=GGUF")
    parser.add_argument("--halyard", default="build/release/bin/halyard")
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    for pair in arguments.pairs:
        format, _, path = pair.partition("=")
        for row in compare(arguments, format, path):
            if not arguments.table:
                print(json.dumps(row), flush=True)
                continue
            peer = f"{row['peer_value']:8.1f} {row['peer']} {row['ratio']:5.2f}x"
            floor = f"{100 * row['of_floor']:4.0f}% of its floor" if row["of_floor"] else ""
            print(f"{row['name']:8} {row['dtype']:5} {row['value']:8.1f} {row['unit']:6} {peer} {floor}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Figures: bench/results/*.jsonl become docs/performance.md and the table in README.md.

    scripts/figures.py            writes both
    scripts/figures.py --check    fails where they are not what the results say
    scripts/figures.py record NAME --machine M [--threads N] [--with SCRIPT] -- BENCHMARK ...
                                  measures, and keeps the rows as bench/results/NAME.jsonl
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench/results"
PAGE = ROOT / "docs/performance.md"
README = ROOT / "README.md"
HALYARD = ROOT / "build/release/bin/halyard"

INTRODUCTION = """# Performance

Written by `scripts/figures.py` from [bench/results](../bench/results/README.md). Every figure comes from `halyard
bench` or a script in `bench/` that runs it in turns with a peer; *of roofline* compares with what the machine can do
at most, measured in the same run. Machines are noisy and differ: ratios carry over, seconds do not. A ratio above 1
means that Halyard is faster. What was tried, what helped and what did not is in the [notes](notes/gemm.md):
[gemm](notes/gemm.md), [attention](notes/attention.md), [rows](notes/rows.md), [decode](notes/decode.md),
[training](notes/training.md); what is not reached, and why, in [gaps](notes/gaps.md).
"""

# Section, heading, what to know about its figures.
SECTIONS = [
    ("core", "Dispatch, memory, copies", "A call of one element is all overhead: checks, dispatch, one addition."),
    ("gemm", "GEMM", "Roofline: 2 m n k operations at the measured FMA peak. MKL is what PyTorch multiplies with; both sides took "
     "turns, call by call. *Median* is that of the ratios of neighbouring calls. [Notes](notes/gemm.md)."),
    ("quantised", "Quantised layers", "One row is bound by reading n k bytes (half of that for int4) and the scales; "
     "512 rows by the multiply instructions. [Notes](notes/gemm.md#quantised-layers)."),
    ("attention", "Attention", "Shapes are query heads / KV heads x queries x keys x head size. Roofline: 4 operations for each query, "
     "key that it sees, and column; 2.5 times that for the gradient. [Notes](notes/attention.md)."),
    ("rows", "Elementwise ops, softmax, norms", "Bytes read and written. *Of memcpy* compares with the C library's copy on the same "
     "threads, in the same run. [Notes](notes/rows.md)."),
    ("image", "Images", "The tensors fit into the shared cache, so a copy in memory is no upper bound. [Notes](notes/rows.md#images)."),
    ("models", "Language models", "Decoding's roofline is reading all weights once per token. [Notes](notes/decode.md)."),
    ("training", "Training", "Roofline: the FMA peak over the multiply-adds of a step. [Notes](notes/training.md)."),
    ("npu", "The ECHO NPU's functional model", "On the cpu, beside the cpu backend's own GEMM. "
     "[More](backends/echo.md#speed)."),
]

# For the README: file, name, shape, dtype, what it says there.
HEADLINES = [
    ("models-A", "decode", "qwen2.5-0.5b", "bf16", "decode, Qwen2.5-0.5B, bf16"),
    ("models-A", "decode", "qwen2.5-0.5b", "q8", "the same, int8"),
    ("models-A", "decode", "qwen2.5-0.5b", "q4", "the same, int4"),
    ("models-A", "prefill", "qwen2.5-0.5b, 512 tokens", "bf16", "prefill of 512 tokens, bf16"),
    ("training-A", "train", "qwen2.5-0.5b, LoRA r=16, 4x256 tokens", "f32", "LoRA training, f32"),
    ("gemm-A", "mm", "1024x1024x1024", "f32", "GEMM of 1024, f32"),
    ("gemm-B-16", "mm", "1024x1024x1024", "bf16", "GEMM of 1024, bf16, AMX"),
    ("attention-A", "sdpa", "14/2x1024x1024x64 causal", "f32", "attention, 1024 tokens, causal"),
    ("rows-A", "softmax", "4096x4096", "bf16", "softmax, 4096x4096, bf16"),
    ("core-A", "hy_run add", "1", "f32", "a call of one element"),
]


def number(x):
    if abs(x) >= 100:
        return f"{x:.0f}"
    return f"{x:.3g}" if abs(x) < 10 else f"{x:.1f}".removesuffix(".0")


def ratio(x):
    return f"{x:.2f}" if x < 2 else number(x)


def percent(x):
    return f"{100 * x:.0f}%"


def spread(rows, key, form):
    """The values of a key over the runs: one, or a range."""
    values = [row[key] for row in rows if row.get(key) is not None]
    if not values:
        return ""
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"


class Results:
    """A file: its head, and its rows gathered by what they measure."""

    def __init__(self, path):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line]
        self.name, self.head, self.groups = path.stem, lines[0], {}
        for row in lines[1:]:
            key = (row["name"], row["shape"], row["dtype"], row["peer"])
            self.groups.setdefault(key, []).append(row)

    def peers(self):
        return sorted({key[3] for key in self.groups if key[3]})

    def columns(self):
        """Heading and cell of each column that has something in it."""
        peers = self.peers()
        only_ratio = any(key[3] and not spread(rows, "peer_value", number) for key, rows in self.groups.items())
        name_them = len(peers) > 1 or only_ratio

        def peer_cell(key, rows):
            value = spread(rows, "peer_value", number)
            return f"{value} {key[3]}".strip() if name_them and key[3] else value

        every = [
            ("op", lambda key, rows: key[0]),
            ("shape", lambda key, rows: key[1]),
            ("dtype", lambda key, rows: key[2]),
            ("Halyard", lambda key, rows: f"{spread(rows, 'value', number)} {rows[0]['unit']}".strip()),
            ("of roofline", lambda key, rows: spread(rows, "of_floor", percent)),
            ("of memcpy", lambda key, rows: spread(rows, "of_memcpy", percent)),
            ("peer" if name_them else (peers or [""])[0], peer_cell),
            ("ratio", lambda key, rows: spread(rows, "ratio", ratio)),
            ("median", lambda key, rows: spread(rows, "ratio_median", ratio)),
        ]
        return [(title, cell) for title, cell in every if any(cell(*item) for item in self.groups.items())]

    def table(self, machines):
        threads = self.head["threads"]
        versions = f"; {'' if len(self.peers()) > 1 else self.peers()[0] + ' '}{self.head['peer_version']}" \
            if "peer_version" in self.head else ""
        columns = self.columns()
        lines = [f"{machines[self.head['machine']]}, {threads} thread{'s' if threads > 1 else ''}{versions}:", "",
                 "| " + " | ".join(title for title, _ in columns) + " |", "|---" * len(columns) + "|"]
        for key, rows in self.groups.items():
            lines.append("| " + " | ".join(cell(key, rows) for _, cell in columns) + " |")
        return lines


def page(results, machines):
    lines = [INTRODUCTION]
    for section, heading, about in SECTIONS:
        files = [r for r in results if r.name.partition("-")[0] == section]
        if not files:
            continue
        lines += [f"## {heading}", "", wrap(about), ""]
        for result in files:
            lines += result.table(machines) + [""]
    known = {section for section, _, _ in SECTIONS}
    for result in results:
        if result.name.partition("-")[0] not in known:
            sys.exit(f"bench/results/{result.name}.jsonl: no such section; the sections are {', '.join(sorted(known))}")
    return "\n".join(lines).rstrip() + "\n"


def wrap(text):
    import textwrap
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def headlines(results, machines):
    by_name = {r.name: r for r in results}
    lines = ["| | Halyard | peer | ratio | machine |", "|---|---|---|---|---|"]
    used = []
    for file, name, shape, dtype, text in HEADLINES:
        result = by_name[file]
        key = next(k for k in result.groups if k[:3] == (name, shape, dtype))
        rows = result.groups[key]
        peer = f"{spread(rows, 'peer_value', number)} {key[3]}" if key[3] else ""
        machine = result.head["machine"]
        used.append(machine)
        lines.append(f"| {text} | {spread(rows, 'value', number)} {rows[0]['unit']} | {peer} | "
                     f"{spread(rows, 'ratio', ratio)} | {machine} |")
    where = "; ".join(f"{m}: {machines[m]}" for m in dict.fromkeys(used))
    return "\n".join(lines + ["", f"{where}."]) + "\n"


def with_headlines(readme, table):
    begin, end = "<!-- figures: scripts/figures.py -->\n", "<!-- end of figures -->\n"
    if readme.count(begin) != 1 or readme.count(end) != 1:
        sys.exit(f"README.md needs {begin.strip()} and {end.strip()} once each")
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: begin + table + end, readme, flags=re.S)


def record(arguments):
    command = [str(HALYARD), "bench", "--json"]
    if arguments.peer_script:
        command = [sys.executable, arguments.peer_script, "--halyard", str(HALYARD)]
    command += ["--threads", str(arguments.threads)] + arguments.benchmarks
    rows = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    version = subprocess.run([HALYARD, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]
    head = {"machine": arguments.machine, "threads": arguments.threads, "version": version,
            "date": datetime.date.today().isoformat(), "command": " ".join(arguments.benchmarks)}
    path = RESULTS / f"{arguments.name}.jsonl"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(head) + "\n" + rows)
    Results(part)  # rows that cannot be read are found here, not by the next reader
    os.replace(part, path)
    print(f"figures: {len(rows.splitlines())} rows in {path.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    commands = parser.add_subparsers(dest="command")
    recorder = commands.add_parser("record")
    recorder.add_argument("name")
    recorder.add_argument("--machine", required=True)
    recorder.add_argument("--threads", type=int, default=os.cpu_count())
    recorder.add_argument("--with", dest="peer_script")
    recorder.add_argument("benchmarks", nargs="+")
    arguments = parser.parse_args()
    machines = json.loads((RESULTS / "machines.json").read_text())
    if arguments.command == "record":
        if arguments.machine not in machines:
            sys.exit(f"bench/results/machines.json has no machine {arguments.machine}; it has {', '.join(machines)}")
        return record(arguments)
    results = [Results(path) for path in sorted(RESULTS.glob("*.jsonl"))]
    texts = {PAGE: page(results, machines), README: with_headlines(README.read_text(), headlines(results, machines))}
    stale = [path for path, text in texts.items() if path.read_text() != text]
    if arguments.check:
        sys.exit(f"not what bench/results says: {', '.join(p.name for p in stale)}; run scripts/figures.py" if stale else 0)
    for path in stale:
        path.write_text(texts[path])


if __name__ == "__main__":
    main()

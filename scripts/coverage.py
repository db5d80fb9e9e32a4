#!/usr/bin/env python3
"""Lines of src/ that the tests run, by folder: what gcov knows of a build made with --coverage.

    coverage.py BUILD [--at-least PERCENT] [--files FOLDER]

--files lists the files of a folder, those with the most lines that never ran first, with these lines.
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parents[1]


def counts_of(note):
    """{file: {line: count}} of one object; an object that never ran has a note and only zeros."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", note.name], cwd=note.parent, capture_output=True,
                          text=True, check=True)
    counts = {}
    for text in done.stdout.splitlines():
        report = json.loads(text)
        for file in report["files"]:
            path = os.path.relpath(os.path.join(report["current_working_directory"], file["file"]), ROOT)
            if path.startswith("src" + os.sep):
                lines = counts.setdefault(path, collections.Counter())
                for line in file["lines"]:
                    lines[line["line_number"]] += line["count"]
    return counts


def gather(build):
    total = {}
    notes = sorted(note for note in build.rglob("*.gcno") if "/src/" in str(note.relative_to(build)))
    if not notes:
        sys.exit(f"coverage: {build} has no .gcno files; 'cmake --preset coverage' makes a build that has")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for counts in pool.map(counts_of, notes):
            for path, lines in counts.items():
                total.setdefault(path, collections.Counter()).update(lines)
                for line in lines:
                    total[path].setdefault(line, 0)
    return total


def folder_of(path):
    """The folder as the table names it: topics, not the instruction sets below them."""
    parts = path.split("/")[:-1]
    return "/".join(parts[:4])


def spans(lines):
    """[1, 2, 3, 7] as 1-3 7."""
    text, first = [], None
    for line in sorted(lines) + [None]:
        if first is not None and line != last + 1:
            text.append(str(first) if first == last else f"{first}-{last}")
            first = None
        if first is None:
            first = line
        last = line
    return " ".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--at-least", type=float, default=0, help="fail below this percentage of lines")
    parser.add_argument("--files", help="the files of this folder, with the lines that never ran")
    arguments = parser.parse_args()
    total = gather(arguments.build.resolve())
    if arguments.files:
        missed = {path: [n for n, count in lines.items() if not count] for path, lines in total.items()
                  if path.startswith(arguments.files.rstrip("/") + "/")}
        for path, lines in sorted(missed.items(), key=lambda item: -len(item[1])):
            print(f"{path}: {len(lines)} of {len(total[path])} never ran: {spans(lines)}")
        return
    folders = collections.defaultdict(lambda: [0, 0])
    for path, lines in total.items():
        for row in (folders[folder_of(path)], folders["total"]):
            row[0] += len(lines)
            row[1] += sum(1 for count in lines.values() if count)
    print("| folder | lines | run | |\n|---|---:|---:|---:|")
    for name in sorted(folders, key=lambda name: (name == "total", name)):
        lines, run = folders[name]
        print(f"| {name} | {lines} | {run} | {100 * run / lines:.1f} % |")
    lines, run = folders["total"]
    if 100 * run / lines < arguments.at_least:
        sys.exit(f"coverage: less than {arguments.at_least:g} % of the lines of src/ run")


main()

#!/usr/bin/env python3
"""The documents: links lead somewhere, paths exist, lines have a length that one can read, figures are those of bench/results."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST_COLUMNS = 160
WRITTEN = {"docs/ops.md"}  # by the program, with columns as wide as the table needs
FOLDERS = {"cpu/": "src/backends/cpu/"}  # the glossary's short form


def documents():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=ROOT, check=True, capture_output=True,
                           text=True).stdout.split()
    return [name for name in names if (ROOT / name).exists()]


def anchors(text):
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def broken_links(name, text):
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        if not file.exists():
            yield f"{name}: {target} does not exist"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{name}: {target} has no such heading"


def missing_paths(name, text):
    """In the tables of the glossary and of the how-to pages every file and folder in quotes exists."""
    for row in re.findall(r"^\|.*\|$", text, re.M):
        for path in re.findall(r"`([\w./-]+/[\w./-]*)`", row):
            for short, full in FOLDERS.items():
                if path.startswith(short):
                    path = full + path[len(short):]
            if not (ROOT / path).exists():
                yield f"{name}: {path} does not exist"


def main():
    wrong = []
    for name in documents():
        text = (ROOT / name).read_text()
        wrong += broken_links(name, text)
        if name == "docs/glossary.md":
            wrong += missing_paths(name, text)
        if name not in WRITTEN and not name.startswith("npu/"):
            wrong += [f"{name}:{i}: {len(line)} columns" for i, line in enumerate(text.splitlines(), 1)
                      if len(line) > MOST_COLUMNS]
    wrong += subprocess.run([sys.executable, ROOT / "scripts/figures.py", "--check"], capture_output=True, text=True,
                            check=False).stderr.splitlines()
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()

#!/usr/bin/env python3
"""The op coverage of docs/backends/ascend.md, from the backend's table.

    ascend_coverage.py           writes it into the page
    ascend_coverage.py --check   fails where the page is not up to date
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/backends/ascend.md"
TYPES = {"FLOATS": "f32 f16 bf16", "WORDS": "i32 i64", "BOOLS": "bool", "BYTES": "i8 u8", "0": "some calls"}
MOST_COLUMNS = 110


def table():
    rows = re.findall(r'^ASCEND_OP\((\w+), *\w+, *([^"]*?), *"([^"]*)"\)', (ROOT / "src/backends/ascend/ops.def").read_text(), re.M)
    declared = [row for row in rows if row[1].strip() != "0"]
    known = len(re.findall(r"^HY_OP\(", (ROOT / "include/halyard/ops.def").read_text(), re.M))
    lines = [f"{len(declared)} ops of {known} are declared, {len(rows) - len(declared)} more run where the call suits.", "",
             "| op | declared for | aclnn ops |", "|---|---|---|"]
    for op, types, names in rows:
        words = " ".join(TYPES[word.strip()] for word in types.split("|"))
        if len(names) > MOST_COLUMNS - 40:
            names = names[:names.rindex(" ", 0, MOST_COLUMNS - 44)] + " ..."
        lines.append(f"| {op} | {words} | {names} |")
    return "\n".join(lines)


def main():
    text = PAGE.read_text()
    begin, end = "<!-- coverage: scripts/ascend_coverage.py -->\n", "<!-- end of coverage -->"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    fresh = before + begin + table() + "\n" + end + after
    if "--check" in sys.argv:
        if fresh != text:
            print("docs/backends/ascend.md is not what scripts/ascend_coverage.py writes")
            return 1
        return 0
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""The op coverage of docs/backends/{ascend,cambricon}.md, from the backends' tables.

    vendor_coverage.py           writes it into the pages
    vendor_coverage.py --check   fails where a page is not up to date
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
WHAT = {"ascend": "aclnn ops", "cambricon": "CNNL functions"}
TYPES = {"FLOATS": "f32 f16 bf16", "HALVES": "f16 bf16", "WORDS": "i32 i64", "INT32": "i32", "BOOLS": "bool", "BYTES": "i8 u8", "0": "some calls"}
MOST_COLUMNS = 110


def table(backend):
    text = (ROOT / f"src/backends/{backend}/ops.def").read_text()
    rows = re.findall(rf'^{backend.upper()}_OP\((\w+), *\w+, *([^"]*?), *"([^"]*)"\)', text, re.M)
    declared = [row for row in rows if row[1].strip() != "0"]
    known = len(re.findall(r"^HY_OP\(", (ROOT / "include/halyard/ops.def").read_text(), re.M))
    lines = [f"{len(declared)} ops of {known} are declared, {len(rows) - len(declared)} more run where the call suits.", "",
             f"| op | declared for | {WHAT[backend]} |", "|---|---|---|"]
    for op, types, names in rows:
        words = " ".join(TYPES[word.strip()] for word in types.split("|"))
        names = " ".join(name for name in names.split() if not re.fullmatch(r"[A-Z_0-9]+", name))
        if len(names) > MOST_COLUMNS - 40:
            names = names[:names.rindex(" ", 0, MOST_COLUMNS - 44)] + " ..."
        lines.append(f"| {op} | {words} | {names} |")
    return "\n".join(lines)


def main():
    stale = 0
    for backend in WHAT:
        page = ROOT / f"docs/backends/{backend}.md"
        text = page.read_text()
        begin, end = "<!-- coverage: scripts/vendor_coverage.py -->\n", "<!-- end of coverage -->"
        before, rest = text.split(begin)
        fresh = before + begin + table(backend) + "\n" + end + rest.split(end)[1]
        if fresh != text and "--check" in sys.argv:
            print(f"{page.relative_to(ROOT)} is not what scripts/vendor_coverage.py writes")
            stale = 1
        elif fresh != text:
            page.write_text(fresh)
    return stale


if __name__ == "__main__":
    sys.exit(main())

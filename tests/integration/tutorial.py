"""Every piece of C in the plugin tutorial is in the example, word for word."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
example = (root / "examples/plugin/tiny.c").read_text()
tutorial = (root / "docs/tutorial-plugin.md").read_text()

pieces = re.findall(r"^```c\n(.*?)^```$", tutorial, re.S | re.M)
stale = [piece for piece in pieces if piece not in example]
for piece in stale:
    print("not in examples/plugin/tiny.c:\n" + piece)
lines = len(example.splitlines())
if f"{lines} lines" not in tutorial:
    stale.append("lines")
    print(f"the example has {lines} lines, the tutorial says otherwise")
sys.exit(0 if pieces and not stale else 1)

"""Every piece of C in the plugin tutorial is in one of the examples, word for word."""
import pathlib
import re
import sys

root = pathlib.Path(__file__).resolve().parents[2]
example = (root / "examples/plugin/tiny.c").read_text()
queued = (root / "examples/plugin/lazy.c").read_text()
tutorial = (root / "docs/tutorial-plugin.md").read_text()

pieces = re.findall(r"^```c\n(.*?)^```$", tutorial, re.S | re.M)
stale = [piece for piece in pieces if piece not in example and piece not in queued]
for piece in stale:
    print("neither in examples/plugin/tiny.c nor in lazy.c:\n" + piece)
for name, text in (("tiny.c", example), ("lazy.c", queued)):
    lines = len(text.splitlines())
    if f"{lines} lines" not in tutorial:
        stale.append(name)
        print(f"{name} has {lines} lines, the tutorial says otherwise")
sys.exit(0 if pieces and not stale else 1)

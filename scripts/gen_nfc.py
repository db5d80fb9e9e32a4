#!/usr/bin/env python3
"""Writes src/model/nfc_table.inc from Python's Unicode data: what canonical composition needs, Hangul left out."""
import sys
import unicodedata

decompositions, classes, compositions = [], [], []
for c in range(0x110000):
    if 0xD800 <= c < 0xE000 or 0xAC00 <= c < 0xD7A4:
        continue
    ch = chr(c)
    full = unicodedata.normalize("NFD", ch)
    if full != ch:
        decompositions.append((c, [ord(x) for x in full]))
        pair = unicodedata.decomposition(ch).split()
        # Composition exclusions are those that NFC itself does not put together again.
        if len(pair) == 2 and unicodedata.normalize("NFC", full) == ch:
            compositions.append((int(pair[0], 16), int(pair[1], 16), c))
    if unicodedata.combining(ch):
        classes.append((c, unicodedata.combining(ch)))

out = sys.stdout
out.write("// Written by scripts/gen_nfc.py from Unicode %s; do not edit.\n" % unicodedata.unidata_version)
out.write("static const decomposition decompositions[] = {\n")
for c, parts in decompositions:
    out.write("    {0x%x, {%s}},\n" % (c, ", ".join("0x%x" % p for p in parts)))
out.write("};\n\nstatic const combining_class classes[] = {\n")
first = None
for i, (c, k) in enumerate(classes):
    if first is None:
        first = c
    if i + 1 == len(classes) or classes[i + 1] != (c + 1, k):
        out.write("    {0x%x, 0x%x, %d},\n" % (first, c, k))
        first = None
out.write("};\n\nstatic const composition compositions[] = {\n")
for a, b, c in sorted(compositions):
    out.write("    {0x%x, 0x%x, 0x%x},\n" % (a, b, c))
out.write("};\n")

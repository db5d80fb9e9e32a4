#!/usr/bin/env python3
"""A picture of a command in a terminal: runs it in a pseudo-terminal and draws what is left on the screen as SVG.

    scripts/terminal_svg.py docs/images/demo.svg --until 'Asked for Verilog' -- halyard demo

The program is taken from build/release/bin; it runs in an empty folder, so that no path of this machine is in the picture.
"""
import argparse
import fcntl
import os
import pathlib
import pty
import re
import struct
import sys
import tempfile
import termios
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[1]
WIDTH, ADVANCE, LEADING, MARGIN = 96, 8.0, 17, 14
DIM = re.compile(r"^\s*(\(\d+ tokens a second|C, all parameters|\d+\.\d\d |[\u2800-\u28ff])")


def run(command):
    """What the command writes to a terminal of WIDTH columns."""
    with tempfile.TemporaryDirectory() as folder:
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
            os.chdir(folder)
            environment = dict(os.environ, TERM="xterm", NO_COLOR="1")
            environment["PATH"] = f"{ROOT}/build/release/bin:{environment['PATH']}"
            os.execvpe(command[0], command, environment)
        data = b""
        while True:
            try:
                more = os.read(terminal, 65536)
            except OSError:  # the other side is closed
                break
            if not more:
                break
            data += more
        _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"terminal_svg: {' '.join(command)} failed:\n{data.decode(errors='replace')}")
    return data.decode(errors="replace")


def screen(text):
    """The lines that stay: a carriage return goes back over the line, ESC [ K clears to its end."""
    lines, column = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif part[0] != "\x1b":
            lines[-1] = lines[-1][:column].ljust(column) + part + lines[-1][column + len(part):]
            column += len(part)
    return [line[at:at + WIDTH] for line in lines for at in range(0, max(len(line), 1), WIDTH)]


def svg(command, lines):
    shown = ["$ " + command] + lines
    width, height = int(WIDTH * ADVANCE + 2 * MARGIN), len(shown) * LEADING + 2 * MARGIN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(command)} in a terminal">',
           '<rect width="100%" height="100%" rx="8" fill="#16191d"/>',
           '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono, monospace" '
           'font-size="13" fill="#d7dce2" xml:space="preserve">']
    for i, line in enumerate(shown):
        line = line.rstrip()
        if not line.strip("\u2800 "):
            continue
        indent = len(line) - len(line.lstrip(" "))
        text = re.sub(r"[\x00-\x1f\x7f]", "\ufffd", line[indent:])  # XML has no place for them
        colour = ' fill="#8fd694"' if i == 0 else ' fill="#8b949e"' if DIM.match(line) else ""
        out.append(f'<text x="{MARGIN + indent * ADVANCE:g}" y="{MARGIN + i * LEADING + 12}" '
                   f'textLength="{len(text) * ADVANCE:g}" lengthAdjust="spacingAndGlyphs"{colour}>{escape(text)}</text>')
    return "\n".join(out + ["</g>", "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--until", help="leave out the lines from this text on")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    lines = screen(run(arguments.command))
    if arguments.until:
        at = next((i for i, line in enumerate(lines) if arguments.until in line), None)
        if at is None:
            sys.exit(f"terminal_svg: '{arguments.until}' is not in the output")
        lines = lines[:at] + ["..."]
    while lines and not lines[-1].strip():
        lines.pop()
    part = arguments.picture.with_suffix(".part")
    part.write_text(svg(" ".join(arguments.command), lines))
    os.replace(part, arguments.picture)


if __name__ == "__main__":
    main()

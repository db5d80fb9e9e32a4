#!/usr/bin/env python3
"""Leaving out a piece of an op breaks the build or a test.

Adds an op to a copy of the sources, with every piece that CONTRIBUTING.md asks for, and sees it
build and pass; then leaves out one piece at a time and sees the right step fail. Only what a new
row changes is compiled; everything else is linked from the build folder.

    leave_one_out.py BUILD      a build folder with compile_commands.json and cmocka's library
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
COLUMNS = ["35", "square", "HY_OUT(out)", "HY_IN(x)", "none", "HY_FLOATS", "square", "square", "ANY", "square",
           "ELEMENTS", "note", "square", "ROUNDED"]
COLUMN_NAMES = ["id", "name", "outputs", "inputs", "attrs", "dtypes", "dtype_rule", "shape_rule", "alias", "kernel",
                "split", "grad", "cases", "tolerance"]

# A new file and what it holds.
FILES = {
    "reference": ("src/ops/reference/square.c", """
#include "ops/reference/operand.h"
hy_status hy__ref_square(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    double row[HY__ROW];
    hy__operand_f(&w, 1, x->dtype, x->dtype, row);
    for (int64_t i = 0; i < w.n; i++) row[i] *= row[i];
    hy__result_f(&w, x->dtype, out->dtype, row);
  }
  return HY_OK;
}
"""),
    "dtype rule": ("src/ops/rules/square_dtype.c", """
#include "ops/internal.h"
hy_status hy__dtype_square(const hy_call* call, hy_tensor* out) {
  return hy__dtype_same(call, out);
}
"""),
    "shape rule": ("src/ops/rules/square_shape.c", """
#include "ops/internal.h"
hy_status hy__shape_square(const hy_call* call, hy_tensor* out) {
  return hy__shape_broadcast(call, out);
}
"""),
    # Its name begins as that of the rule `none` does, and it is a rule all the same.
    "gradient": ("src/ops/autograd/grad_square.c", """
#include "ops/autograd/grad.h"
HY__RULE(note, IN(0)) {
  g_give(g, 0, g_mul(g, g->dy, g_scale(g, g_in(g, 0), 2)));
}
"""),
    "case generator": ("src/verify/cases_square.c", """
#include "verify/case.h"
void hy__cases_square(hy__case* c) {
  hy__cases_unary(c);
}
"""),
}
# A line in a file that exists: path, the line before it, the line.
LINES = {
    "number in the ABI's list": ("tests/unit/abi_ops.def", "OP(34, bitwise_not)", "OP(35, square)"),
    "gradient case": ("tests/support/gradient_cases.inc", "CASE(neg, (X(2, 3)), NONE)", "CASE(square, (X(2, 3)), NONE)"),
    "PyTorch expression": ("tests/torch/expressions.py", '    "neg": unary(torch.neg),',
                           '    "square": unary(torch.square),'),
}
# What a new row changes; the op's own files come on top.
TABLE = ["src/ops/table.c", "src/ops/check_attrs.c", "src/ops/wrappers.c", "src/ops/autograd/wrappers.c", "src/verify/case.c",
         "src/verify/tolerance.c", "src/backends/cpu/providers/parallel_reference.c"]
TESTS = ["tests/unit/test_abi.c", "tests/unit/test_gradients.c"]

EXPRESSIONS_TEST = """
import sys
from unittest.mock import MagicMock
for name in ("torch", "torch.nn", "torch.nn.functional", "numpy", "pytest"):
    sys.modules[name] = MagicMock()
sys.path.insert(0, sys.argv[1])
import test_ops
test_ops.test_every_op_is_mapped_or_excused()
"""


class Failed(Exception):
    """A step that did not succeed: its name and what it said."""


def run(step, command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise Failed(step, done.stdout + done.stderr)
    return done.stdout


class Tree:
    """A copy of the sources with the op in it, and the objects of the build around it."""

    def __init__(self, folder, build):
        self.folder, self.build = folder, build
        for part in ("include", "src", "tests", "docs"):
            shutil.copytree(ROOT / part, folder / part)
        commands = json.loads((build / "compile_commands.json").read_text())
        self.commands = {os.path.relpath(c["file"], ROOT): c for c in commands}
        self.compiler = shlex.split(self.commands[TABLE[0]]["command"])[0]
        flags = shlex.split(self.commands[TABLE[0]]["command"])
        self.link_flags = [flag for flag in flags if flag.startswith("-fsan") or flag == "--coverage"]
        self.objects, self.rest = {}, {}
        cmocka = re.search(r"^CMOCKA_LIBRARY:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)
        archives = [str(build / "lib/libhalyard_test_support.a"), cmocka.group(1)]
        npu = [str(build / f"lib/libecho_{name}.a") for name in ("report", "npu", "cmodel", "ucode")]
        self.libraries = archives + [name for name in npu if os.path.exists(name)] + ["-ldl", "-lm", "-lpthread"]

    def compile(self, path, like=None):
        command = shlex.split(self.commands[like or path]["command"])
        target = self.folder / (path + ".o")
        at = command.index("-o")
        command[at + 1] = str(target)
        command[command.index("-c") + 1] = str(self.folder / path)
        command = [word.replace(f"-I{ROOT}/", f"-I{self.folder}/") if f"-I{self.build}" not in word else word
                   for word in command]
        command = [word.replace(f"-I{self.folder}/npu", f"-I{ROOT}/npu") for word in command]
        run(f"compile {path}", command + ["-O0"], cwd=self.build)
        self.objects[path] = str(target)

    def old_objects(self, *folders):
        """Those of the build, without the ones compiled here."""
        found = []
        for path, command in self.commands.items():
            if path.startswith(folders) and path not in TABLE:
                words = shlex.split(command["command"])
                found.append(os.path.join(command["directory"], words[words.index("-o") + 1]))
        return found

    def link(self, name, own, *folders, shared=False):
        key = folders
        if key not in self.rest:  # what stays the same, joined once
            self.rest[key] = str(self.folder / f"rest{len(self.rest)}.o")
            run("join", [self.compiler, "-r", "-nostdlib", "-o", self.rest[key], *self.old_objects(*folders)])
        mine = [o for path, o in self.objects.items() if path.startswith("src/")] + [self.objects[p] for p in own]
        target = str(self.folder / name)
        kind = ["-shared"] if shared else []
        run(f"link {name}", [self.compiler, *self.link_flags, *kind, "-o", target, *mine, self.rest[key],
                             *self.libraries])
        return target

    # ---- steps, from the cheapest on ----

    def build_all(self):
        for path in TABLE:
            self.compile(path)
        for path, _ in FILES.values():
            if (self.folder / path).exists():
                self.compile(path, like="src/verify/case.c" if "verify" in path else "src/ops/table.c")
        self.cli = self.link("halyard", [], "src/")

    def conform(self):
        for extra in ([], ["--gradients"], ["--determinism"]):
            said = run("verify", [self.cli, "verify", "--backend", "cpu", "--op", "square", *extra])
            if " 0 passed" in said:
                raise Failed("verify", said)

    def unit(self):
        library = [folder for folder in os.listdir(self.folder / "src") if folder not in ("cli", "bench")]
        folders = [f"src/{folder}/" for folder in library]
        for path in TESTS:
            self.compile(path)
            test = self.link(pathlib.Path(path).stem, [path], *folders)
            run(path, [test])

    def torch(self):
        library = [folder for folder in os.listdir(self.folder / "src") if folder not in ("cli", "bench")]
        folders = [f"src/{folder}/" for folder in library]
        self.compile("tests/torch/verify_api.c")
        path = self.link("libhalyard_verify.so", ["tests/torch/verify_api.c"], *folders, shared=True)
        run("tests/torch/test_ops.py", [sys.executable, "-c", EXPRESSIONS_TEST, str(self.folder / "tests/torch")],
            env={**os.environ, "HALYARD_VERIFY_LIBRARY": path, "PYTHONDONTWRITEBYTECODE": "1"})

    def docs(self):
        if run("ops", [self.cli, "ops", "--markdown"]) != (self.folder / "docs/ops.md").read_text():
            raise Failed("docs/ops.md", "docs/ops.md is old: make docs")

    # ---- pieces ----

    def set_row(self, columns):
        table = (ROOT / "include/halyard/ops.def").read_text()
        anchor = re.search(r"^HY_OP\(34, .*\n", table, re.M)
        row = f"HY_OP({', '.join(columns)})\n" if columns else ""
        (self.folder / "include/halyard/ops.def").write_text(table[:anchor.end()] + row + table[anchor.end():])

    def put(self, piece):
        if piece in FILES:
            path, text = FILES[piece]
            (self.folder / path).write_text(text)
        else:
            path, before, line = LINES[piece]
            text = (ROOT / path).read_text()
            assert text.count(before + "\n") == 1, f"{path} has no line {before}"
            (self.folder / path).write_text(text.replace(before + "\n", before + "\n" + line + "\n"))

    def take(self, piece):
        if piece in FILES:
            (self.folder / FILES[piece][0]).unlink()
            self.objects.pop(FILES[piece][0])
        else:
            shutil.copy(ROOT / LINES[piece][0], self.folder / LINES[piece][0])


def expect(what, step, said, action):
    """The action fails at the step, and says what is missing."""
    try:
        action()
    except Failed as failed:
        at, text = failed.args
        if step in at and said in text:
            print(f"without its {what}: {at} fails")
            return
        sys.exit(f"without its {what}: {at} fails, not {step} with {said!r}:\n{text}")
    sys.exit(f"without its {what} everything passes")


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder), build)
        tree.set_row(COLUMNS)
        for piece in (*FILES, *LINES):
            tree.put(piece)
        try:
            tree.build_all()
            expect("row in docs/ops.md", "docs/ops.md", "make docs", tree.docs)
            (tree.folder / "docs/ops.md").write_text(run("ops", [tree.cli, "ops", "--markdown"]))
            for step in (tree.docs, tree.conform, tree.unit, tree.torch):
                step()
        except Failed as failed:
            sys.exit("complete, and yet {} fails:\n{}".format(*failed.args))
        print("complete: everything passes")

        for i, name in enumerate(COLUMN_NAMES):
            tree.set_row(COLUMNS[:i] + COLUMNS[i + 1:])
            expect(f"column {name}", "compile src/ops/table.c", "error:", lambda: tree.compile("src/ops/table.c"))
        for i, source in ((10, "src/backends/cpu/providers/parallel_reference.c"), (13, "src/verify/tolerance.c")):
            tree.set_row(COLUMNS[:i] + [""] + COLUMNS[i + 1:])
            expect(f"word in the column {COLUMN_NAMES[i]}", f"compile {source}", "error:",
                   lambda path=source: tree.compile(path))
        tree.set_row(COLUMNS)
        tree.build_all()

        for piece, symbol in (("reference", "hy__ref_square"), ("dtype rule", "hy__dtype_square"),
                              ("shape rule", "hy__shape_square"), ("gradient", "hy__grad_note"),
                              ("case generator", "hy__cases_square")):
            tree.take(piece)
            expect(piece, "link", symbol, tree.build_all)
            tree.put(piece)
        tree.build_all()

        for piece, step, said, action in (
                ("number in the ABI's list", "tests/unit/test_abi.c", "add OP(35, square) to abi_ops.def", tree.unit),
                ("gradient case", "tests/unit/test_gradients.c", "square has a gradient and no case", tree.unit),
                ("PyTorch expression", "tests/torch/test_ops.py", "neither mapped to PyTorch nor excused: ['square']",
                 tree.torch)):
            tree.take(piece)
            expect(piece, step, said, action)
            tree.put(piece)


if __name__ == "__main__":
    main()

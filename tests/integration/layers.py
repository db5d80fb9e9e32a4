#!/usr/bin/env python3
"""The layers of the sources: who may include whom, one definition a tag, a heading in each file.

    layers.py               checks the tree this file is in
    layers.py --self-test   plants a violation of each kind in a small tree, and sees it caught
"""
import pathlib
import re
import subprocess
import sys
import tempfile

# Folders (or single files) of src/, each with what it may include besides itself and halyard/*.h.
# The longest name that fits a file is its own; what is not in the table may not exist.
MAY_INCLUDE = {
    "base": [],
    "core": ["base"],
    "ops": ["base", "core"],
    "graph": ["base", "core", "ops"],
    "comm": ["base", "core", "ops"],
    "model": ["base", "ops", "graph", "comm"],  # and not core: models are mathematics and shapes
    "verify": ["base", "core", "ops", "graph", "comm", "model"],
    # Benchmarks measure the cpu's thread pool itself.
    "bench": ["base", "core", "ops", "graph", "comm", "model", "verify", "backends/common"],
    "cli": ["base", "core", "ops", "graph", "comm", "model", "verify", "bench"],
    "backends/common": ["base"],
    # A backend knows the public headers, what all backends share, and itself.
    "backends/cpu": ["base", "backends/common", "backends/cpu"],
    "backends/*": ["base", "backends/common"],
    "backends/cuda": ["base", "backends/common", "backends/gpu"],  # one set of kernels for all GPUs
    "backends/hip": ["base", "backends/common", "backends/gpu"],
    "backends/hygon": ["base", "backends/common", "backends/gpu", "backends/hip"],  # HIP under another name
}

# The folders of the cpu backend, from the lowest up: each may include those before it.
CPU = ["runtime", "simd", "gemm", "attention", "quant", "rows", "ops", "fused", "providers"]
# What all of them may include: the interface between op families and kernels.
CPU_SHARED = ["backends/cpu/family.h"]
for i, folder in enumerate(CPU):
    MAY_INCLUDE[f"backends/cpu/{folder}"] = (
        ["base", "backends/common"] + CPU_SHARED + [f"backends/cpu/{lower}" for lower in CPU[:i]])
MAY_INCLUDE["backends/cpu/providers"].append("backends/cpu/provider.h")

SOURCES = ("*.c", "*.h", "*.inc", "*.def")
WITH_HEADINGS = ("src", "include", "tests", "examples", "npu")


def inside(path, folder):
    return path == folder or path.startswith(folder + "/")


def room_of(path):
    """The key of the table that a file of src/ belongs to, or None."""
    rooms = [room for room in MAY_INCLUDE if inside(path, room)]
    if rooms:
        return max(rooms, key=len)
    parts = path.split("/")
    return "backends/*" if parts[0] == "backends" and len(parts) > 2 else None


def home_of(path, room):
    """The folder that a file may include without an arrow."""
    return "/".join(path.split("/")[:2]) if room == "backends/*" else room


def includes(root, path):
    """The files of src/ that a file of src/ includes, with the line."""
    for number, line in enumerate((root / "src" / path).read_text().splitlines(), 1):
        found = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not found:
            continue
        name = found.group(1)
        beside = pathlib.PurePosixPath(path).parent / name
        if (root / "src" / beside).exists():
            yield number, str(beside)
        elif (root / "src" / name).exists():
            yield number, name


def against_the_arrows(root, files):
    for file in files:
        if not file.startswith("src/"):
            continue
        path = file[4:]
        room = room_of(path)
        if room is None:
            yield f"{file}: src/{path.split('/')[0]} is not in the table of tests/integration/layers.py"
            continue
        allowed = MAY_INCLUDE[room] + [home_of(path, room)]
        for number, target in includes(root, path):
            if not any(inside(target, other) for other in allowed):
                yield f"{file}:{number}: src/{room} may not include {target}"


def tags_defined_twice(root, files):
    """A tag of a header, or one that begins with hy_, has one definition; others are private to their .c."""
    places = {}
    for file in files:
        if not file.startswith(("src/", "include/")):
            continue
        text = re.sub(r"//.*|/\*.*?\*/", "", (root / file).read_text())
        for tag in re.findall(r"\b(?:struct|enum|union)\s+(\w+)\s*\{", text):
            places.setdefault(tag, []).append(file)
    for tag, found in sorted(places.items()):
        shared = tag.startswith("hy_") or any(not file.endswith(".c") for file in found)
        if len(found) > 1 and shared:
            yield f"{found[0]}: the tag {tag} is also defined in {', '.join(found[1:])}"


def without_heading(root, files):
    for file in files:
        if not file.startswith(WITH_HEADINGS):
            continue
        first = (root / file).read_text().lstrip().split("\n")[0]
        words = re.match(r"(?://|/\*)\s*(\w.*)", first)
        if not words or words.group(1).startswith(("clang-format", "NOLINT", "SPDX")):
            yield f"{file}:1: no heading: a comment that says what the file is"


CHECKS = (against_the_arrows, tags_defined_twice, without_heading)


def problems_of(root, files):
    return [problem for check in CHECKS for problem in check(root, files)]


# ---- planted violations ----

CLEAN = {
    "include/halyard/tensor.h": "// Tensors.\nstruct hy_tensor {\n  int x;\n};\n",
    "src/base/math.h": "// Small arithmetic.\n",
    "src/core/device.c": '// Devices.\n#include "base/math.h"\n#include "halyard/tensor.h"\nstruct job {\n};\n',
    "src/core/stream.c": "// Streams.\nstruct job {\n};  // private to each file\n",
    "src/backends/cpu/gemm/gemm.h": '// Matrix products.\n#include "backends/cpu/simd/vec.h"\n',
    "src/backends/cpu/simd/vec.h": "// Vectors.\n",
    "src/backends/tpu/backend.c": '// A backend.\n#include "base/math.h"\n#include "kernels.h"\n',
    "src/backends/tpu/kernels.h": "// Its kernels.\n",
}
PLANTED = [
    ("src/base/log.c", '// Logs.\n#include "core/device.c"\n', "src/base may not include core/device.c"),
    ("src/model/bert.c", '// BERT.\n#include "core/device.c"\n', "src/model may not include core/device.c"),
    ("src/backends/cpu/simd/half.h", '// Halves.\n#include "backends/cpu/gemm/gemm.h"\n',
     "src/backends/cpu/simd may not include backends/cpu/gemm/gemm.h"),
    ("src/backends/tpu/run.c", '// Runs.\n#include "backends/cpu/simd/vec.h"\n', "may not include backends/cpu/simd/vec.h"),
    ("src/attic/old.c", "// Old.\n", "src/attic is not in the table"),
    ("src/ops/tensor.h", "// Tensors.\nstruct hy_tensor {\n};\n", "the tag hy_tensor is also defined in"),
    ("src/core/job.h", "// Jobs.\ntypedef struct job {\n  int x;\n} job;\n", "the tag job is also defined in"),
    ("src/core/event.c", '#include "base/math.h"\n', "src/core/event.c:1: no heading"),
    ("src/core/event.h", "// clang-format off\n", "src/core/event.h:1: no heading"),
]


def self_test():
    failures = 0
    for path, text, expected in [(None, None, None), *PLANTED]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            tree = {**CLEAN, **({path: text} if path else {})}
            for name, content in tree.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            found = problems_of(root, sorted(tree))
        wrong = found if expected is None else [] if len(found) == 1 and expected in found[0] else [expected, found]
        if wrong:
            failures += 1
            print(f"self-test: {path or 'a clean tree'}: {wrong}")
    return failures


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(__file__).resolve().parents[2]
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *SOURCES], cwd=root,
                            capture_output=True, text=True, check=True).stdout.split()
    problems = problems_of(root, sorted({file for file in listed if (root / file).exists()}))
    print("\n".join(problems))
    return len(problems)


sys.exit(1 if main() else 0)

#!/usr/bin/env python3
"""The pages of docs/how-to, followed to the letter: every block is applied to a copy of the sources, which is then built
and verified; the files touched are those in the page's table and no others.

    how_to.py            the folder for the build is temporary; with CMAKE_C_COMPILER_LAUNCHER=ccache it is quick

A block is ```diff, then "--- file" with lines to add among lines that are there, or "+++ file" with all of a new file.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import heron
from leave_one_out import EXPRESSIONS_TEST

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGETS = ["halyard_cli", "halyard_guarded", "halyard_verify", "test_abi", "test_gradients", "test_cpu_functions",
           "test_registry"]


def fail(text):
    sys.exit(f"how_to: {text}")


def run(command, cwd, **environment):
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def copy_sources(folder):
    names = run(["git", "ls-files", "-co", "--exclude-standard"], ROOT).split("\n")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def apply(page, block, folder):
    """Applies a block and returns the file it is for."""
    head, *lines = block.rstrip("\n").split("\n")
    kind, _, name = head.partition(" ")
    path = folder / name
    if kind == "+++":
        if path.exists():
            fail(f"{page}: {name} is not new")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line[1:] + "\n" for line in lines))
        return name
    if kind != "---" or not path.exists():
        fail(f"{page}: there is no file {name}")
    before = "".join(line[1:] + "\n" for line in lines if not line.startswith("+"))
    after = "".join(line[1:] + "\n" for line in lines if not line.startswith("-"))
    text = path.read_text()
    if text.count(before) != 1:
        fail(f"{page}: {name} has these lines {text.count(before)} times:\n{before}")
    path.write_text(text.replace(before, after))
    return name


def follow(page, folder):
    """Applies all blocks of a page; the files that it names in its first table are those that it touches."""
    text = (ROOT / "docs/how-to" / page).read_text()
    blocks = re.findall(r"^```diff\n(.*?)^```$", text, re.S | re.M)
    touched = {apply(page, block, folder) for block in blocks}
    table = re.search(r"^\| file \|.*?\n\n", text, re.S | re.M).group(0)
    named = set(re.findall(r"^\| `([^`]+)`", table, re.M))
    if "make docs" in text:
        touched.add("docs/ops.md")
    if touched != named:
        fail(f"{page}: names {sorted(named - touched)} and does not touch them, touches {sorted(touched - named)} and does "
             "not name them")
    return touched


def build(folder):
    run(["cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_C_FLAGS_DEBUG=-O1",
         "-DHALYARD_BUILD_TESTS=ON"], folder)
    run(["cmake", "--build", "build", "--target", *TARGETS], folder)


def check_op(folder, halyard):
    (folder / "docs/ops.md").write_text(run([halyard, "ops", "--markdown"], folder))
    plugins = str(folder / "build/tests/plugins")
    for backend in ("cpu", "guarded"):
        for mode in ([], ["--gradients"], ["--determinism"]):
            said = run([halyard, "verify", "--op", "softsign", "--backend", backend, *mode], folder, HALYARD_PLUGIN_PATH=plugins)
            if " 0 passed" in said:
                fail(f"verify --op softsign on {backend} {mode} checked nothing:\n{said}")
    for test in ("test_abi", "test_gradients"):
        run([folder / "build/bin" / test], folder)
    run([sys.executable, "-c", EXPRESSIONS_TEST, folder / "tests/torch"], folder, PYTHONDONTWRITEBYTECODE="1",
        HALYARD_VERIFY_LIBRARY=str(folder / "build/lib/libhalyard_verify.so"))
    if "softsign" not in (folder / "docs/ops.md").read_text():
        fail("softsign is not in docs/ops.md")


def check_kernel(folder, halyard):
    row = re.search(r"^softsign .*$", run([halyard, "ops", "--backend", "cpu"], folder), re.M).group(0)
    if not re.search(r"f32.*(avx512|native)", row):
        fail(f"softsign in f32 has no kernel: {row}")
    for isa in ("scalar", "avx2", "avx512"):
        run([halyard, "verify", "--op", "softsign"], folder, HALYARD_CPU_ISA=isa)
    run([folder / "build/bin/test_cpu_functions"], folder)


def check_backend(folder, halyard):
    if not re.search(r"^  pocket +available", run([halyard, "info"], folder), re.M):
        fail("halyard info has no pocket")
    run([halyard, "verify", "--backend", "pocket"], folder)
    run([folder / "build/bin/test_registry"], folder)
    run([sys.executable, folder / "tests/integration/docs.py"], folder)


def check_style(folder, names):
    """What the pages add has the format and the layers of the rest."""
    sources = [name for name in names if name.endswith((".c", ".h"))]
    if shutil.which("clang-format-14"):
        run(["clang-format-14", "--dry-run", "-Werror", *sources], folder)
    layers = subprocess.run([sys.executable, folder / "tests/integration/layers.py"], cwd=folder, capture_output=True,
                            text=True, check=False).stdout
    against = [line for line in layers.splitlines() if line.split(":")[0] in names]
    if against:
        fail("\n".join(against))


def check_model(folder, halyard):
    """The made-up architecture answers as its formulas do, from the prompt on and token by token."""
    plugins = str(folder / "build/tests/plugins")
    for seed in (1, 2, 3):
        model = folder / f"heron{seed}"
        weights = heron.make(model, seed)
        wanted, lead = heron.answer(weights, [1, 2, 3, 4], 16)
        if lead < 1e-4 or len(set(wanted)) < 2:
            fail(f"heron {seed} says nothing that could be told apart: {wanted}, {lead}")
        for backend in ("cpu", "guarded"):
            said = run([halyard, "run", "--model", model, "--ids", "1,2,3,4", "--max-tokens", "16", "--json", "--backend",
                        backend], folder, HALYARD_PLUGIN_PATH=plugins)
            if json.loads(said)["ids"] != wanted:
                fail(f"heron {seed} on {backend} answers {said}, not {wanted}")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "stork"}))
    done = subprocess.run([halyard, "run", "--model", model, "--ids", "1"], capture_output=True, text=True, check=False)
    if done.returncode == 0 or "heron" not in done.stderr:
        fail(f"an unknown model type is not told which there are: {done.stderr}")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        copy_sources(folder)
        run(["git", "init", "-q"], folder)  # for those checks that ask git for the files
        touched = set()
        for page in ("op.md", "cpu-kernel.md", "backend.md", "model.md"):
            touched |= follow(page, folder)
        check_style(folder, sorted(touched))
        build(folder)
        halyard = folder / "build/bin/halyard"
        check_op(folder, halyard)
        check_kernel(folder, halyard)
        check_backend(folder, halyard)
        check_model(folder, halyard)
    print("how_to: the pages lead where they say")


main()

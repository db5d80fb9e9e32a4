"""The same tests over other backends, each in a process of its own: guarded (asynchronous, its memory faults when the host
touches it), echo, the simulated NPU, and ascend and cambricon over test libraries of the vendors' names, which end the
process with code 86 where they see misuse."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parent.parent / "build" / "release" / "tests"
PLUGINS = os.environ.get("HALYARD_PLUGIN_PATH") or str(TESTS / "plugins")
VENDORS = {"ASCEND_HOME_PATH": str(TESTS / "vendors" / "ascend"), "NEUWARE_HOME": str(TESTS / "vendors" / "cambricon")}


@pytest.mark.skipif(os.environ["HALYARD_BACKEND"] != "cpu", reason="started once, from the run over the cpu")
@pytest.mark.parametrize("backend, arguments, least", [
    ("guarded", ["test_device.py", "test_clients.py", "test_fallback.py", "test_compile.py", "test_inductor.py", "test_threads.py", "-k",
                 "not qwen2_forward_and_lora and not static_cache"], 150),
    ("echo", ["test_clients.py", "test_compile.py", "-k", "(test_clients and (qwen2 or lora)) or test_accelerator_graph"], 7),
    ("ascend", ["test_clients.py", "-k", "qwen2 or lora"], 5),
    ("cambricon", ["test_clients.py", "-k", "qwen2 or lora"], 5),
])
def test_backend(backend, arguments, least):
    run = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments], cwd=HERE,
                         capture_output=True, text=True,
                         env={**os.environ, **VENDORS, "HALYARD_BACKEND": backend, "HALYARD_PLUGIN_PATH": PLUGINS})
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", run.stdout).group(1)) >= least

"""The examples run as a user runs them."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples" / "torch"


@pytest.mark.parametrize("name, said", [("lenet.py", "loss"), ("qwen2_lora.py", "nothing fell back")])
def test_example(name, said):
    run = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert said in run.stdout

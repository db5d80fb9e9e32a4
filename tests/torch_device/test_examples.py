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


def test_chip_in_a_plugin():
    """LeNet trains on a plugin that was just written; a kernel that is added takes its op from the report."""
    run = subprocess.run([sys.executable, EXAMPLES / "chip_in_a_plugin.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    before, after = run.stdout.split("with a relu of the chip's own:")
    assert before.count("the same as on the cpu") == after.count("the same as on the cpu") == 1
    assert "halyard::relu (the op has no kernel)" in before and "halyard::relu (" not in after and "halyard::conv2d (" in after

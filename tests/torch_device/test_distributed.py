"""torch.distributed on npu: two and four ranks on this machine compute what one process computes.

Over the cpu Gloo works on the device's own memory, over echo on copies; guarded has communicators of its own, and
ascend and cambricon have HCCL and CNCL, here test libraries of those names.
"""

import os
import pathlib
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parent.parent / "build" / "release" / "tests"
PLUGINS = os.environ.get("HALYARD_PLUGIN_PATH") or str(TESTS / "plugins")
VENDORS = {"ASCEND_HOME_PATH": str(TESTS / "vendors" / "ascend"), "NEUWARE_HOME": str(TESTS / "vendors" / "cambricon")}


def launch(*command, module="torch.distributed.run", **variables):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = subprocess.run(
        [sys.executable, "-m", module, *command[:-1], *("--master_addr 127.0.0.1 --master_port" if "torch" in module else
                                                        "--main_process_ip 127.0.0.1 --main_process_port").split(), str(port), *command[-1]],
        cwd=HERE, capture_output=True, text=True, timeout=300,
        env={**os.environ, **VENDORS, "HALYARD_PLUGIN_PATH": PLUGINS, "HALYARD_TORCH_WARN": "0", "OMP_NUM_THREADS": "1", **variables})
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-6000:]
    return run.stdout


@pytest.mark.skipif(os.environ["HALYARD_BACKEND"] != "cpu", reason="starts the other backends itself")
@pytest.mark.parametrize("backend, ranks, checks", [
    ("cpu", 2, ["collectives", "ddp", "fsdp2", "tensor_parallel", "shutdown"]), ("cpu", 4, ["ddp", "fsdp2", "tensor_parallel"]),
    ("echo", 2, ["collectives", "shutdown"]), ("guarded", 2, ["collectives", "fsdp2"]),
    ("ascend", 2, ["collectives", "fsdp2"]), ("cambricon", 2, ["collectives"])])
def test_ranks(backend, ranks, checks):
    said = launch("--nproc_per_node", str(ranks), ["distributed_ranks.py", *checks], HALYARD_BACKEND=backend)
    assert [line for line in said.splitlines() if "agrees" in line] == [f"{check} agrees" for check in checks]


def test_accelerate_launch():
    """accelerate takes npu:0 and npu:1 and asks for the backend hccl: both devices may be the cpu."""
    said = launch("--num_processes", "2", ["distributed_accelerate.py"], module="accelerate.commands.launch", HALYARD_DEVICES="cpu:0,cpu:0")
    assert "npu:0 of 2, MULTI_NPU" in said and "npu:1 of 2, MULTI_NPU" in said and said.count("agrees") == 2

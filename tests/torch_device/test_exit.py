"""The end of a process that has trained: autograd's threads have put down what is Python's before Python ends."""

import subprocess
import sys
import threading
import time

import torch
from torch_halyard import _library


class Slow(torch.autograd.Function):
    """A backward that lasts until the other thread has begun to wait for it, and a little longer."""

    @staticmethod
    def forward(ctx, x, begun, waited, order):
        ctx.told = begun, waited, order
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        begun, waited, order = ctx.told
        begun.set()
        waited.wait(60)
        time.sleep(0.05)
        order.append("backward")
        return grad, None, None, None


def test_settling_waits_for_a_backward():
    begun, waited, order = threading.Event(), threading.Event(), []
    x = torch.ones(4, device="npu", requires_grad=True)
    thread = threading.Thread(target=lambda: Slow.apply(x, begun, waited, order).sum().backward())
    thread.start()
    assert begun.wait(60)
    waited.set()
    assert _library.shim().torch_halyard_settle_autograd() == 1
    order.append("settled")
    thread.join()
    assert order == ["backward", "settled"]


def test_processes_end_well_under_load():
    """Eight at once, so that their threads are interrupted: of these, one in ten was aborted at its end."""
    code = ("import torch, torch.nn as nn\n"
            "model, x = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)]).to('npu'), torch.randn(8, 32).to('npu')\n"
            "for _ in range(3): model(x).sum().backward()\n")
    runs = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) for _ in range(8)]
    for run in runs:
        error = run.communicate()[1]
        assert run.returncode == 0, error

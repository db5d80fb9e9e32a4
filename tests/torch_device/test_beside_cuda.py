"""torch's own cuda device beside npu, in one process. Skipped where torch has none; npu may be any backend, cuda's too."""

import os
import subprocess
import sys

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
DEVICES = ("cuda", "npu")


def net(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 64, 32), nn.GELU(), nn.Linear(32, 10)).to(device)


def trained(device, steps=5):
    torch.manual_seed(1)
    x, y = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    model = net(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_npu_trains_as_the_cpu_does():
    assert trained("npu") == pytest.approx(trained("cpu"), rel=2e-2)


def test_cuda_trains_where_npu_was_not_asked_for():
    """A registered device is torch's accelerator, and torch 2.11's autograd then fails on cuda: without a choice of ours
    `import torch` leaves torch as it is."""
    script = "import torch; x = torch.ones(3, device='cuda', requires_grad=True); (x * x).sum().backward(); print(x.grad.tolist())"
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HALYARD_")}
    said = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True, text=True, timeout=120)
    assert said.stdout.strip() == "[2.0, 2.0, 2.0]", said.stderr


def test_copies_between_them():
    x = torch.randn(37, 19)
    for a, b in (("cuda", "npu"), ("npu", "cuda")):
        assert torch.equal(x.to(a).to(b).cpu(), x)
        assert torch.equal(x.to(a).t()[3:].to(b).cpu(), x.t()[3:])
        assert torch.equal(x.to(a).to(b, torch.bfloat16).cpu(), x.bfloat16())
        there = torch.zeros(19, 37, device=b).t()
        assert torch.equal(there.copy_(x.to(a), non_blocking=True).cpu(), x)


def test_streams_events_graphs_and_random_numbers_of_cuda():
    stream = torch.cuda.Stream()
    x = torch.randn(256, 256, device="cuda")
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(stream):
        y = x @ x
        done = stream.record_event()
    done.synchronize()
    assert torch.allclose(y.cpu(), x.cpu() @ x.cpu(), atol=0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = x * 2
    x.fill_(3)
    graph.replay()
    assert z.cpu().eq(6).all()
    torch.manual_seed(5)
    first = torch.randn(8, device="cuda")
    torch.manual_seed(5)
    assert torch.equal(first, torch.randn(8, device="cuda"))


def test_memory_is_counted_apart():
    before = torch.npu.memory_allocated(), torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    assert torch.npu.memory_allocated() == before[0] and torch.cuda.memory_allocated() >= before[1] + (4 << 20)
    y = torch.empty(1 << 20, device="npu")
    assert torch.npu.memory_allocated() >= before[0] + (4 << 20)
    del x, y


def test_autocast_of_cuda():
    with torch.autocast("cuda", torch.bfloat16):
        assert (torch.randn(4, 4, device="cuda") @ torch.randn(4, 4, device="cuda")).dtype == torch.bfloat16
    with torch.autocast("npu", torch.bfloat16):
        assert (torch.randn(4, 4, device="npu") @ torch.randn(4, 4, device="npu")).dtype == torch.bfloat16


def test_tensors_of_both_are_refused():
    for op in (torch.add, torch.nextafter):  # native, and by the fallback
        for a, b in (DEVICES, DEVICES[::-1]):
            with pytest.raises(RuntimeError, match="same device"):
                op(torch.ones(3, device=a), torch.ones(3, device=b))

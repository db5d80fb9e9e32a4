"""The LeNet of examples/c against PyTorch's, step by step, on the cpu and on the simulated NPU."""

import os
import subprocess

import numpy as np
import pytest
import torch
from torch import nn

from models import BUILD


def lenet(backend, *arguments):
    result = subprocess.run([BUILD / "bin/lenet", *arguments], capture_output=True, text=True, timeout=300,
                            env={**os.environ, "HALYARD_BACKEND": backend, "HALYARD_LOG": "0"})
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("backend", ["cpu", "echo"])
def test_losses(backend, tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                        nn.Linear(84, 10))
    steps, batch = 12, 8
    images = torch.rand(steps, batch, 1, 28, 28)
    labels = torch.randint(0, 10, (steps, batch))
    parts = [p.detach().flatten() for p in net.parameters()]
    for x, y in zip(images, labels):
        parts += [x.flatten(), y.float()]
    torch.cat(parts).numpy().astype(np.float32).tofile(tmp_path / "lenet.bin")

    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    theirs = []
    for x, y in zip(images, labels):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())

    ours = [float(line) for line in lenet(backend, tmp_path / "lenet.bin", str(steps), str(batch)).split()]
    assert len(ours) == steps
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


@pytest.mark.parametrize("backend", ["cpu", "echo"])
def test_reads_digits(backend):
    right, _, total = lenet(backend).splitlines()[-1].split()[:3]
    assert int(right) > 0.9 * int(total)

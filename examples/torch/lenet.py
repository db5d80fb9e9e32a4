"""LeNet on npu: any PyTorch program, with the device's name changed.

    python examples/torch/lenet.py                          # the default backend
    HALYARD_BACKEND=echo python examples/torch/lenet.py     # the simulated NPU
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("npu")
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

# Ten blurred patterns with noise stand in for digits.
patterns = F.avg_pool2d(torch.randn(10, 1, 28, 28), 5, 1, 2)
for step in range(30):
    digits = torch.randint(0, 10, (64,))
    images = patterns[digits] + 0.1 * torch.randn(64, 1, 28, 28)
    loss = F.cross_entropy(model(images.to(device)), digits.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0 or step == 29:
        print(f"step {step:2d}  loss {loss.item():.4f}")
print(f"{torch.npu.get_device_name()}: {torch.npu.max_memory_allocated() / 2**20:.1f} MiB at most")

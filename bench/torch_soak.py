"""Memory over many training steps on npu: the process and the device must not grow.

    python bench/torch_soak.py [--steps 10000] [--compile]

Prints resident memory and the device's allocated and reserved bytes ten times, and fails where any of them has grown by more than
a hundredth between the first tenth, when caches fill, and the end.
"""

import argparse
import sys

import torch
import torch.nn as nn
import torch_halyard


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--compile", action="store_true", help='by torch.compile(backend="halyard")')
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(4 * 36), nn.Linear(4 * 36, 10)).to("npu")
    run = torch.compile(model, backend="halyard") if options.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first = None
    for step in range(options.steps):
        inputs, target = torch.randn(8, 1, 8, 8).to("npu"), torch.randint(0, 10, (8,)).to("npu")
        optimizer.zero_grad()
        nn.functional.cross_entropy(run(inputs), target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % max(options.steps // 10, 1) == 0:
            now = dict(resident=resident(), allocated=torch.npu.memory_allocated(), reserved=torch.npu.memory_reserved())
            print(f"step {step + 1:6}", *(f"{name} {value / 2**20:9.3f} MiB" for name, value in now.items()), flush=True)
            first = first or now
    grown = [name for name in first if now[name] > first[name] * 1.01]
    print("grown:", ", ".join(grown) or "nothing", "; fell back:", torch_halyard.fallback_report() or "nothing")
    sys.exit(bool(grown))


if __name__ == "__main__":
    main()

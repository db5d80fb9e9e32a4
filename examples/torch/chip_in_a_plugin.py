"""A new chip as torch.device("npu"): write its plugin, train LeNet on it, see what fell back, add a kernel, see it gone.

    python examples/torch/chip_in_a_plugin.py [FOLDER]      # a temporary folder where none is named

`halyard new-plugin` writes a backend of 250 lines for a made-up chip that has nine ops. LeNet trains on it at once: what the
chip lacks runs on the cpu and is counted. The counts say which kernel to write next; here that is relu, in two lines.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
NAME = "heron"


def write_plugin(folder):
    from halyard.verify import command

    subprocess.run([command(), "new-plugin", NAME, "--out", str(folder)], check=True)


def build(folder):
    """One source file, one header, nothing to link."""
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{INCLUDE}", folder / f"{NAME}.c", "-o", folder / f"libhalyard_{NAME}.so", "-lm"], check=True)


def add_relu(folder):
    """A declaration, to which conformance holds the chip, and the kernel."""
    source = folder / f"{NAME}.c"
    text = source.read_text()
    text = text.replace("{HY_OP_copy, F32},", "{HY_OP_copy, F32}, {HY_OP_relu, F32},", 1)
    text = text.replace("    default: return a;  // copy", "    case HY_OP_relu: return a < 0 ? 0 : a;\n    default: return a;  // copy", 1)
    source.write_text(text)


def on_the_chip(folder, *what):
    """A process of its own: a plugin is found when the device is first used."""
    environment = {**os.environ, "HALYARD_PLUGIN_PATH": str(folder), "HALYARD_BACKEND": NAME, "HALYARD_TORCH_WARN": "0", "HALYARD_LOG": "0"}
    return subprocess.run([sys.executable, __file__, *what], env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def train():
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torch_halyard

    def losses(device):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Flatten(), nn.Linear(400, 84), nn.ReLU(), nn.Linear(84, 10)).to(device)
        images, digits = torch.randn(8, 1, 28, 28).to(device), torch.randint(0, 10, (8,)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(4):
            loss = F.cross_entropy(model(images), digits)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()

    want, got = list(losses("cpu")), list(losses("npu"))
    print(f"{torch.npu.get_device_name()}: loss", *(f"{loss:.4f}" for loss in got))
    assert all(abs(a - b) < 1e-3 for a, b in zip(got, want)), f"the cpu has {want}"
    print("the same as on the cpu; the cpu stepped in for:")
    for entry in torch_halyard.fallback_report():
        print(f"  {entry['count']:3d} x {entry['op']} ({entry['reason']})")


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else temporary).resolve() / NAME
        write_plugin(folder)
        build(folder)
        print(on_the_chip(folder, "--train"))
        print("with a relu of the chip's own:")
        add_relu(folder)
        build(folder)
        print(on_the_chip(folder, "--verify"), end="")
        print(on_the_chip(folder, "--train"))


def verify():
    import halyard

    report = halyard.verify(NAME, op="relu", quick=True)
    print(f"halyard verify --op relu: {report['passed']} passed, {report['failed']} failed, {report['unsupported']} in types that it does not declare")
    assert report["failed"] == 0, report["output"]


if __name__ == "__main__":
    {"--train": train, "--verify": verify}.get(sys.argv[1] if len(sys.argv) > 1 else "", main)()

"""A module of two names: it must never hide a real torch_npu, so that installing beside one is refused."""

from importlib.metadata import packages_distributions

from setuptools import setup

others = set(packages_distributions().get("torch_npu", ())) - {"torch_halyard_npu"}
if others:
    raise SystemExit(f"torch_npu is there already, from {', '.join(sorted(others))}: torch_halyard_npu would hide it. In this environment "
                     "choose another device name, HALYARD_TORCH_DEVICE, and name the device where programs ask for one")
setup(packages=["torch_npu"])

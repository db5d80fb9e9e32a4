"""The PyTorch device under test: HALYARD_BACKEND chooses what npu:0 is, the cpu where it is not set."""

import os

os.environ.setdefault("HALYARD_BACKEND", "cpu")

import pytest
import torch
import torch_halyard


@pytest.fixture(autouse=True)
def fresh_counts():
    torch_halyard.clear_report()
    torch_halyard.warn_fallback(False)
    yield
    torch_halyard.strict(False)


@pytest.fixture
def native_only():
    """No fallback of PyTorch's kind may happen in the test."""
    yield
    assert [e for e in torch_halyard.fallback_report() if e["by"] == "torch"] == []


def pytest_report_header():
    return f"npu:0 is {torch.npu.get_device_properties(0).selector}"

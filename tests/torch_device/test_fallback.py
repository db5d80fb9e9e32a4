"""The fallback to the CPU can be seen, silenced and forbidden, and gives what the CPU gives."""

import warnings

import pytest
import torch
import torch_halyard


def reported():
    return {entry["op"]: entry for entry in torch_halyard.fallback_report()}


def test_report_and_warning():
    x = torch.rand(5, device="npu")
    torch_halyard.warn_fallback(True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = torch.lgamma(x), torch.lgamma(x)
    assert len(caught) == 1 and "strict(True)" in str(caught[0].message) and "lgamma" in str(caught[0].message)
    torch.testing.assert_close(first.cpu(), torch.lgamma(x.cpu()))
    assert reported()["aten::lgamma.out"]["count"] == 2
    torch_halyard.clear_report()
    assert reported() == {}


def test_reason_of_a_declined_call():
    z = torch.ones(3, dtype=torch.complex64, device="npu")
    torch.testing.assert_close((z + 1j).cpu(), z.cpu() + 1j)
    torch.testing.assert_close((z + z).cpu(), z.cpu() + z.cpu())
    assert reported()["aten::add.Tensor"]["count"] == 2 and "complex" in reported()["aten::add.Tensor"]["reason"]


def test_strict():
    x = torch.rand(5, device="npu")
    torch_halyard.strict(True)
    with pytest.raises(NotImplementedError, match="lgamma.*strict"):
        torch.lgamma(x)
    assert (x + 1).shape == (5,)
    repr(x)
    torch_halyard.strict(False)
    torch.lgamma(x)


def test_results_views_and_resized_outputs():
    x = torch.randn(4, 5).to("npu")
    for function in (lambda t: t.cumprod(1), lambda t: t.nonzero(), lambda t: t[t > 0], lambda t: torch.linalg.qr(t)[1].abs(),
                     lambda t: torch.logaddexp(t, t, out=torch.empty(0, device=t.device)), lambda t: t.clone().erfinv_(),
                     lambda t: torch.masked_select(t, t > 0), lambda t: torch.unique(t.round()),
                     lambda t: torch.nn.functional.interpolate(t[None, None], scale_factor=2.0)):
        torch.testing.assert_close(function(x).cpu(), function(x.cpu()), equal_nan=True)
    y = x.t().clone()
    y.t().atan_()
    torch.testing.assert_close(y.cpu(), x.cpu().t().atan())


def test_errors_are_pytorchs():
    x = torch.ones(2, 3, device="npu")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        x @ x
    with pytest.raises(RuntimeError, match="must match the size"):
        x + torch.ones(4, device="npu")
    with pytest.raises(RuntimeError, match="Subtraction"):
        (x > 0) - (x > 0)
    with pytest.raises(IndexError):
        torch.nn.functional.embedding(torch.tensor([9], device="npu"), x)
        torch.npu.synchronize()

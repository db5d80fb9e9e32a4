"""torch.compile without a backend: Inductor's C++ kernels on host-memory devices give what eager gives; other devices are refused."""

import copy

import pytest
import torch
import torch_halyard
from models import qwen2, tokens

HOST_MEMORY = torch.npu.get_device_properties(0).host_memory
on_host_memory = pytest.mark.skipif(not HOST_MEMORY, reason="Inductor's kernels run on the host's memory")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Nothing is taken from an earlier run; no processes are started to compile in."""
    import torch._inductor.config

    with pytest.MonkeyPatch.context() as patch, torch._inductor.config.patch(compile_threads=1):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        torch._dynamo.reset()
        yield


class Block(torch.nn.Module):
    """Elementwise chains, reductions by rows and columns, products, indices."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(16), torch.nn.Linear(16, 24), torch.nn.Linear(24, 16)

    def forward(self, x):
        y = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return torch.softmax(y, -1) * y.std(0), y.t().argmax(), y.sum()


@on_host_memory
def test_block_forward_and_backward(native_only):
    torch.manual_seed(0)
    model = Block().to("npu")
    twin = copy.deepcopy(model)
    fast = torch.compile(twin)
    x = torch.randn(10, 16, device="npu")
    want, got = model(x), fast(x)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert {t.device for t in got} == {torch.device("npu", 0)}
    (want[0].square().sum() + want[2]).backward()
    (got[0].square().sum() + got[2]).backward()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)
    assert torch_halyard.native_report()["aten::addmm"] > 0  # what Inductor calls as an op


@on_host_memory
def test_qwen2_forward_and_backward(native_only):
    model, ids = qwen2(num_hidden_layers=1).to("npu"), tokens(2, 9).to("npu")
    twin = copy.deepcopy(model)
    want, got = (m(ids, labels=ids, use_cache=False) for m in (model, torch.compile(twin)))
    torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-5)
    want.loss.backward()
    got.loss.backward()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.skipif(HOST_MEMORY, reason="for a device whose memory the host cannot touch")
def test_other_memory_is_refused():
    with pytest.raises(Exception, match='backend="halyard"'):
        torch.compile(lambda x: x.sin() + 1)(torch.ones(4, device="npu"))

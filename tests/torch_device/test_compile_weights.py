"""torch.compile(backend="halyard") keeps weights packed, and sees every change of them: whoever writes, whatever view it writes through."""

import gc

import pytest
import torch
import torch.nn as nn
import torch_halyard

ROWS, SIZE = 100, 96
packs = pytest.mark.skipif("cpu" not in torch.npu.get_device_properties(0).selector, reason="the backend packs nothing")


@pytest.fixture(autouse=True)
def fresh():
    from torch_halyard.compile import clear_compile_report

    torch._dynamo.reset()
    clear_compile_report()


class Adapted(nn.Module):
    """Two frozen layers, and a trained one between them: weights that a step multiplies by in both directions."""

    def __init__(self):
        super().__init__()
        self.first, self.adapter, self.last = (nn.Linear(SIZE, SIZE, bias=bias) for bias in (True, False, False))
        for layer in (self.first, self.last):
            layer.requires_grad_(False)

    def forward(self, x):
        return self.last(self.adapter(self.first(x)).relu())


def made(seed=0, dtype=torch.bfloat16):
    torch.manual_seed(seed)
    return Adapted().to("npu", dtype)


def inputs(dtype=torch.bfloat16):
    torch.manual_seed(9)
    return torch.randn(ROWS, SIZE).to("npu", dtype)


def step(run, model, x):
    """What a step computes."""
    model.zero_grad()
    y = run(x)
    y.float().square().mean().backward()
    return [y.detach().clone(), model.adapter.weight.grad.clone()]


def same(got, want):
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def packed():
    return [report["packed"] for report in torch_halyard.compile_report()]


def compiled(model, **options):
    return torch.compile(model, backend="halyard", options=options)


def settled(fast, model, x):
    """Steps until what stays is packed."""
    for _ in range(4):
        result = step(fast, model, x)
    return result


@packs
def test_weights_are_packed_for_both_directions():
    model, x = made(), inputs()
    fast, plain = compiled(model), compiled(model, pack_weights=False)
    want = settled(plain, model, x)
    assert packed() == [0, 0]
    same(settled(fast, model, x), want)
    forward, backward = packed()[2:]
    one = SIZE * SIZE * 2
    assert forward == 3 * one and backward >= one


@packs
def test_graphs_share_copies():
    model, x = made().requires_grad_(False), inputs()
    fast = compiled(model)
    held = []
    for rows in (ROWS, ROWS - 1, ROWS - 2):
        torch._dynamo.mark_static(part := x[:rows].clone())
        for _ in range(4):
            fast(part)
        held.append(torch.npu.memory_allocated())
    assert len(packed()) == 3 and len(set(packed())) == 1 and packed()[0] > 0
    assert held[2] - held[1] < packed()[0]


def overwritten(model, x):
    with torch.no_grad():
        model.last.weight.mul_(2)


def overwritten_behind_autograd(model, x):
    model.last.weight.data.mul_(2)
    model.first.weight.data[3:5] = 0.25


def swapped(model, x):
    model.last.weight.data = model.last.weight.data * 2


def loaded(model, x):
    model.load_state_dict(made(1).state_dict())


def trained(model, x):
    """Frozen weights are trained for a step, then frozen again."""
    model.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(x).float().square().mean().backward()
    optimizer.step()
    model.zero_grad(set_to_none=True)
    for layer in (model.first, model.last):
        layer.requires_grad_(False)


def replaced(model, x):
    """The weight is freed; another one is at its address, as likely as not."""
    shape = model.last.weight.shape
    model.last.weight = None
    gc.collect()
    model.last.weight = nn.Parameter(torch.full(shape, 0.125, device="npu", dtype=x.dtype), requires_grad=False)


def filled_from_the_host(model, x):
    model.last.weight.data.copy_(torch.full((SIZE, SIZE), 0.5))


def written_by_a_fallback(model, x):
    model.last.weight.data.lgamma_()
    assert [entry["op"] for entry in torch_halyard.fallback_report()] == ["aten::lgamma.out"]


def written_by_a_graph(model, x):
    graph = torch.accelerator.Graph()
    with graph:
        model.last.weight.data.mul_(2)
    graph.replay()


def written_by_a_compiled_function(model, x):
    def double(w):
        w.mul_(2)

    fast = compiled(double)
    for _ in range(3):
        fast(model.last.weight.data)


def written_by_inductor(model, x):
    def double(w):
        w.mul_(2)

    if torch.npu.get_device_properties(0).selector.startswith("cpu"):
        torch.compile(double)(model.last.weight.data)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("change", [overwritten, overwritten_behind_autograd, swapped, loaded, trained, replaced, filled_from_the_host,
                                    written_by_a_fallback, written_by_a_graph, written_by_a_compiled_function, written_by_inductor])
def test_a_change_is_seen(change, dtype):
    if change is written_by_a_graph and not hasattr(torch.accelerator, "Graph"):
        pytest.skip("torch 2.12")
    model, x = made(dtype=dtype), inputs(dtype)
    fast, plain = compiled(model), compiled(model, pack_weights=False)
    before = settled(fast, model, x)
    change(model, x)
    for _ in range(4):
        got, want = (step(run, model, x) for run in (fast, plain))
        same(got, want)
    if change is not written_by_inductor:
        assert not torch.equal(before[0], got[0])


@packs
def test_what_changes_often_is_packed_less():
    model, x = made().requires_grad_(False), inputs()
    fast = compiled(model)
    counts = []
    for call in range(64):
        if call % 4 == 0:
            model.last.weight.data.add_(0.01)
        fast(x)
        counts.append(packed()[0] // (SIZE * SIZE * 2))
    assert counts[3] == 3 and counts[-4:] == [2] * 4


@packs
def test_copies_go_with_the_compiled_function():
    model, x = made().requires_grad_(False), inputs()

    def allocated():
        gc.collect()
        return torch.npu.memory_allocated()

    before = allocated()
    fast = compiled(model)
    for _ in range(4):
        fast(x)
    assert allocated() > before + 3 * SIZE * SIZE * 2 - 1
    del fast
    torch._dynamo.reset()
    assert allocated() == before

"""torch.compile(backend="halyard") gives what eager gives, forward and backward; graphs are replayed, splits and shapes reported."""

import copy
import math
import re

import pytest
import torch
import torch.nn.functional as F
import torch_halyard
from models import ConvNet, LeNet, qwen2, tokens


def since(*version):
    """For what older versions of torch have not, for devices like this one."""
    return pytest.mark.skipif(tuple(map(int, torch.__version__.split(".")[:2])) < version, reason="torch {}.{}".format(*version))


@pytest.fixture(autouse=True)
def fresh():
    from torch_halyard.compile import clear_compile_report

    torch._dynamo.reset()
    clear_compile_report()


def compiled(thing, **options):
    return torch.compile(thing, backend="halyard", **options)


@pytest.mark.parametrize("make, data", [(LeNet, (4, 1, 28, 28)), (ConvNet, (4, 3, 16, 16))])
def test_training_steps(make, data, native_only):
    torch.manual_seed(0)
    model, inputs, target = make().to("npu"), torch.randn(5, *data).to("npu"), torch.randint(0, 5, (4,)).to("npu")
    twin = copy.deepcopy(model)
    fast = compiled(twin)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in (model, twin)]
    for x in inputs:
        for run, optimizer in zip((model, fast), optimizers):
            optimizer.zero_grad()
            F.cross_entropy(run(x), target).backward()
            optimizer.step()
    for (name, p), q in zip(model.state_dict().items(), twin.state_dict().values()):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-6, msg=lambda m: f"{name}: {m}")
    forward, backward = torch_halyard.compile_report()
    assert forward["graph"].startswith("forward") and backward["graph"].startswith("backward")
    for report in (forward, backward):
        assert report["captured"] == report["nodes"] and report["graphs"] == 1 and report["splits"] == []


def test_qwen2_forward_and_lora_like_step(native_only):
    model = qwen2().to("npu")
    fast = compiled(copy.deepcopy(model))
    for seed in range(4):
        ids = torch.randint(3, 128, (2, 9), generator=torch.Generator().manual_seed(seed)).to("npu")
        model.zero_grad()
        fast.zero_grad()
        want, got = (m(ids, labels=ids, use_cache=False) for m in (model, fast))
        torch.testing.assert_close(got.logits, want.logits, rtol=1e-4, atol=1e-5)
        want.loss.backward()
        got.loss.backward()
        for p, q in zip(model.parameters(), fast.parameters()):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-5)
    assert all(r["captured"] == r["nodes"] for r in torch_halyard.compile_report())


def test_generation_with_a_static_cache(native_only):
    """The cache is an input that every step writes; a step of decoding is one graph."""
    model, ids = qwen2().eval().to("npu"), tokens(2, 9).to("npu")
    want = model.generate(ids, max_new_tokens=8, do_sample=False)
    model.generation_config.cache_implementation = "static"
    model.forward = compiled(model.forward)
    for _ in range(2):
        assert model.generate(ids, max_new_tokens=8, do_sample=False).tolist() == want.tolist()
    decode = torch_halyard.compile_report()[-1]
    assert decode["captured"] == decode["nodes"] and decode["graphs"] == 1


def test_chains_are_fused():
    fast = compiled(lambda x, y: ((x * 2 + y).relu() * x - y, x.sum(0)))
    for x, y in torch.randn(4, 2, 6, 8, device="npu"):
        for got, want in zip(fast(x, y), ((x * 2 + y).relu() * x - y, x.sum(0))):
            torch.testing.assert_close(got, want)
    report, = torch_halyard.compile_report()
    assert report["calls"] == 6
    if torch.npu.get_device_properties(0).backend == "cpu":  # whose provider runs chains
        assert report["launches"] == 2


def test_outputs_are_not_overwritten_by_the_next_call():
    fast = compiled(lambda x: (x.exp() + 1, (x * 2).t()))
    kept = [(x, fast(x)) for x in torch.randn(6, 3, 4, device="npu")]
    for x, (a, b) in kept:
        torch.testing.assert_close(a, x.exp() + 1)
        torch.testing.assert_close(b, (x * 2).t())


def test_inputs_that_share_memory_and_views():
    fast = compiled(lambda a, b: (a * b + 1).sum(0) - b.mean())
    for seed in range(4):
        base = torch.randn(6, 8, device="npu")
        a, b = base.chunk(2, dim=1)
        torch.testing.assert_close(fast(a, b), (a * b + 1).sum(0) - b.mean())
    torch.testing.assert_close(fast(a, a), (a * a + 1).sum(0) - a.mean())


def test_written_inputs():
    def step(state, x):
        state.mul_(0.5).add_(x)
        return state.sum() * 2

    fast, a, b = compiled(step), torch.zeros(4, device="npu"), torch.zeros(4, device="npu")
    for _ in range(5):
        x = torch.randn(4, device="npu")
        torch.testing.assert_close(fast(a, x), step(b, x))
        torch.testing.assert_close(a, b)


def test_unsupported_nodes_split_the_graph_and_are_reported():
    fast = compiled(lambda x: ((x * 2).tanh() + torch.special.bessel_j0(x)).sin() * x)
    for _ in range(3):
        x = torch.randn(8, device="npu")
        torch.testing.assert_close(fast(x), ((x * 2).tanh() + torch.special.bessel_j0(x)).sin() * x)
    report, = torch_halyard.compile_report()
    assert [s["reason"] for s in report["splits"]] == ["falls back to the CPU"] and "bessel_j0" in report["splits"][0]["op"]
    assert report["graphs"] >= 1 and report["captured"] < report["nodes"]


def test_random_numbers_are_drawn_anew():
    fast = compiled(lambda x: F.dropout(x * 2, 0.5) * 3 + 1)
    x = torch.ones(1000, device="npu")
    results = [fast(x) for _ in range(4)]
    assert not any(torch.equal(a, b) for a, b in zip(results, results[1:]))
    report, = torch_halyard.compile_report()
    assert "draws random numbers" in {s["reason"] for s in report["splits"]}


def test_dynamic_shapes_are_captured_up_to_a_bound():
    from torch_halyard.compile import MAX_SHAPES

    fast = compiled(lambda x: (x @ x.t()).relu().sum(1) * x.shape[0], dynamic=True)
    for n in [*range(2, 2 + MAX_SHAPES + 2)] * 3:
        x = torch.randn(n, 4, device="npu")
        torch.testing.assert_close(fast(x), (x @ x.t()).relu().sum(1) * n)
    report, = torch_halyard.compile_report()
    assert report["shapes"] == MAX_SHAPES and report["captured"] > 0


def test_superoptimize(tmp_path, monkeypatch):
    """Layers of one input and a chain: the search may join, split or tile them, and the values stay."""
    monkeypatch.setenv("HALYARD_CACHE_DIR", str(tmp_path))

    def layers(x, a, b):
        return torch.nn.functional.silu(x @ a) * (x @ b)

    x, a, b = (torch.randn(64, 64, device="npu") for _ in range(3))
    searched = compiled(layers, options={"superoptimize": 0.2})
    for _ in range(3):
        torch.testing.assert_close(searched(x, a, b), layers(x, a, b), rtol=1e-4, atol=1e-4)
    (report,) = torch_halyard.compile_report()
    assert report["graphs"] == len(report["choices"]) == 1 and not report["splits"]
    assert list(tmp_path.rglob("*")), "the decision is kept on disk"


@pytest.mark.parametrize("options, said", [({"speed": 9}, "takes the options superoptimize and pack_weights, and was given speed"),
                                           ({"superoptimize": -1}, "a number of seconds, not -1")])
def test_wrong_options_are_refused(options, said):
    with pytest.raises(Exception, match=said):
        compiled(lambda x: x + 1, options=options)(torch.ones(2, device="npu"))


@since(2, 12)
def test_accelerator_graph():
    x, y = torch.randn(4, 8, device="npu"), torch.zeros(4, 8, device="npu")
    graph = torch.accelerator.Graph()
    with graph:
        y.add_(x).mul_(2)
        kept = y + 1
    assert y.count_nonzero().item() == 0
    graph.replay()
    x.fill_(1)
    before = y.clone()
    graph.replay()
    torch.testing.assert_close(y, (before + 1) * 2)
    torch.testing.assert_close(kept, y + 1)


@since(2, 12)
def test_what_the_host_does_cannot_be_captured():
    x = torch.ones(4, device="npu")
    for forbidden in (lambda: x.sum().item(), lambda: x.copy_(torch.zeros(4)), lambda: x.cpu(), lambda: torch.special.bessel_j0(x)):
        graph = torch.accelerator.Graph()
        with pytest.raises(RuntimeError, match="graph|captur"), graph:
            forbidden()
        assert x.sum().item() == 4  # the stream is usable


@since(2, 12)
def test_accelerator_graph_errors(tmp_path):
    graph = torch.accelerator.Graph()
    with pytest.raises(RuntimeError, match="nothing has been captured"):
        graph.replay()
    x = torch.ones(2, device="npu")
    with graph:
        x.add_(1)
    with pytest.raises(RuntimeError, match="reset"):
        graph.capture_begin()
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert "add" in (tmp_path / "graph.txt").read_text()
    graph.reset()
    with graph:
        x.mul_(3)
    graph.replay()
    assert x.tolist() == [3, 3]


# ---- patterns ----

def spelt_out_norm(x, weight, eps=1e-5):
    wide = x.float()
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * (wide * scale).to(x.dtype), scale


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_norms_that_are_spelt_out_become_one_op(dtype, tolerance):
    x, weight = torch.randn(3, 5, 16).to(dtype).to("npu"), torch.randn(16).to(dtype).to("npu")
    norm = compiled(lambda x, w: spelt_out_norm(x, w)[0].relu())
    want = spelt_out_norm(x, weight)[0].relu()
    for _ in range(3):
        torch.testing.assert_close(norm(x, weight), want, rtol=tolerance, atol=tolerance)
    assert torch_halyard.native_report()["aten::_fused_rms_norm"] > 0


def test_a_norm_whose_parts_are_used_stays():
    x, weight = torch.randn(4, 16, device="npu"), torch.randn(16, device="npu")
    torch_halyard.clear_report()
    for got, want in zip(compiled(spelt_out_norm)(x, weight), spelt_out_norm(x, weight)):
        torch.testing.assert_close(got, want)
    assert "aten::_fused_rms_norm" not in torch_halyard.native_report()


def test_heads_are_not_repeated_for_attention():
    def attend(q, k, v):
        k, v = (t[:, :, None].expand(2, 2, 3, 5, 8).reshape(2, 6, 5, 8) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

    q, k, v = (torch.randn(2, heads, 5, 8, device="npu") for heads in (6, 2, 2))
    fast = compiled(attend)
    for _ in range(3):
        torch.testing.assert_close(fast(q, k, v), attend(q, k, v))
    assert [graph["nodes"] for graph in torch_halyard.compile_report()] == [2]  # attention, and its first result


@pytest.mark.parametrize("hidden, causal", [(lambda i, j: j > i, True), (lambda i, j: (j > i) | (j < i - 3), False),
                                            (lambda i, j: j >= i + 2, False)])
def test_a_mask_that_is_causal_is_not_read(hidden, causal):
    """The mask depends on no input; another one stays."""
    def attend(q, k, v):
        place = torch.arange(9, device=q.device)
        mask = torch.where(hidden(place[:, None], place[None]), torch.finfo(q.dtype).min, 0.0)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype)[None, None])

    q, k, v = (torch.randn(2, 3, 9, 8, device="npu") for _ in range(3))
    want, fast = attend(q, k, v), compiled(attend)
    torch_halyard.clear_report()
    for _ in range(3):
        torch.testing.assert_close(fast(q, k, v), want)
    assert ("aten::arange" not in " ".join(torch_halyard.native_report())) == causal


@pytest.mark.parametrize("window, causal", [(99, True), (3, False)])
def test_dynamic_shapes_keep_the_patterns_of_attention(window, causal):
    """Repeated heads, x[:] and a causal mask, which is known at each shape alone: a window hides nothing of a short sequence."""
    def attend(q, k, v):
        place = torch.arange(q.shape[2], device=q.device)
        seen = (place[None] <= place[:, None]) & (place[None] > place[:, None] - window)
        mask = torch.where(seen, 0.0, torch.finfo(q.dtype).min)
        k, v = (t[:, :, None, :, :].expand(2, 2, 3, t.shape[2], 8).reshape(2, 6, t.shape[2], 8) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype)[None, None])

    fast = compiled(attend)
    for length in (9, 12, 11, 9, 12, 11, 9, 12, 11):
        q, k, v = (torch.randn(2, heads, length, 8, device="npu") for heads in (6, 2, 2))
        for t in (q, k, v):
            torch._dynamo.mark_dynamic(t, 2)
        torch.testing.assert_close(fast(q, k, v), attend(q, k, v), rtol=1e-5, atol=1e-5)
    from torch_halyard.compile import _compiled

    graph, = (reference() for reference in _compiled)
    texts = [torch.ops.halyard.graph_describe(step.number) for plan in graph.plans.values() for step in plan.steps if step.number is not None]
    calls = [line for text in texts for line in text.splitlines() if "sdpa(" in line]
    assert len(calls) == 3 and all(("none)" in call) == causal for call in calls)
    assert not any("copy(" in text for text in texts)  # of the heads


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def spelt_out_rope(x, freqs, halves=lambda f: torch.cat((f, f), dim=-1)):
    """x [batch, tokens, heads, size], turned as [batch, heads, tokens, size]."""
    angles = halves(torch.arange(x.shape[1], device=x.device)[:, None] * freqs)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    x = x.transpose(1, 2)
    return x * cos + rotate_half(x) * sin


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_rotary_embeddings_become_one_op(dtype, tolerance):
    """Held to f32: what is rounded once is no further from it than what is rounded after every op."""
    freqs = 1 / 100 ** torch.arange(0, 1, 1 / 4, device="npu")
    turned = compiled(lambda x, freqs: spelt_out_rope(x, freqs))
    for _ in range(3):
        x = torch.randn(2, 5, 3, 8).to(dtype).to("npu")
        torch.testing.assert_close(turned(x, freqs).float(), spelt_out_rope(x.float(), freqs), rtol=tolerance, atol=tolerance)
    report, = torch_halyard.compile_report()
    assert report["calls"] == (7 if dtype == torch.float32 else 9)  # arange, its cast, mul, cat, cos, sin, their casts, rope


def test_rotary_embeddings_turn_the_gradient_back():
    """The number of tokens changes from call to call, and x is used for something else as well."""
    from torch_halyard.compile import MAX_SHAPES

    freqs = torch.randn(4, device="npu")

    def step(x, freqs):
        return (spelt_out_rope(x, freqs).exp() * 2 + x.transpose(1, 2)).relu()

    fast = compiled(step)
    for length in [*range(9, 9 + MAX_SHAPES + 2)] * 2:
        inputs = [torch.randn(2, length, 3, 8, device="npu", requires_grad=True)]
        inputs.append(inputs[0].detach().clone().requires_grad_())
        torch._dynamo.mark_dynamic(inputs[0], 1)
        weight = torch.randn(2, 3, length, 8, device="npu")
        got, want = (run(x, freqs) for run, x in zip((fast, step), inputs))
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
        for result in (got, want):
            (result * weight).sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-5, atol=1e-5)
    forward, backward = torch_halyard.compile_report()
    assert forward["shapes"] == backward["shapes"] == MAX_SHAPES
    assert backward["calls"] == 7


@pytest.mark.parametrize("change", ["halves", "sign", "order", "sum"])
def test_what_is_almost_a_rotary_embedding_stays(change):
    freqs = torch.randn(4, device="npu")
    halves = (lambda f: torch.cat((f, 2 * f), dim=-1)) if change == "halves" else lambda f: torch.cat((f, f), dim=-1)

    def turn(x, freqs):
        angles = halves(torch.arange(x.shape[1], device=x.device)[:, None] * freqs)
        x = x.transpose(1, 2)
        first, second = x[..., :4], x[..., 4:]
        if change == "order":
            first, second = second, first
        other = torch.cat((first if change == "sign" else -second, second if change == "sign" else first), dim=-1)
        return (x * angles.cos() - other * angles.sin()) if change == "sum" else x * angles.cos() + other * angles.sin()

    fast = compiled(turn)
    for _ in range(3):
        x = torch.randn(2, 5, 3, 8, device="npu")
        torch.testing.assert_close(fast(x, freqs), turn(x, freqs), rtol=1e-5, atol=1e-5)


def test_qwen2s_layers_are_few_calls():
    """Of one layer: two norms, seven products, two rotations, attention, silu with its product, two sums."""
    ids, counts = tokens(1, 9).to("npu"), []
    for layers in (1, 2):
        fast = compiled(qwen2(num_hidden_layers=layers).to("npu"))
        with torch.no_grad():
            for _ in range(3):
                fast(ids, use_cache=False)
        counts.append(torch_halyard.compile_report()[-1])
    cpu = torch.npu.get_device_properties(0).backend == "cpu"  # others make a call more, and may run chains call by call
    assert counts[1]["calls"] - counts[0]["calls"] <= (16 if cpu else 17)
    if cpu:
        assert counts[1]["launches"] - counts[0]["launches"] <= 15


# ---- slices ----

def layer_weights():
    return [(torch.randn(rows, columns) * 0.3).to("npu") for rows, columns in [(16, 16)] * 4 + [(24, 16), (24, 16), (16, 24)]]


def decoder_layer(x, weights, causal, seen=None):
    """Attention with a mask or none, and a gated MLP, both behind norms."""
    def norm(x):
        return F.layer_norm(x, (16,))

    batch, length, _ = x.shape
    q, k, v = (F.linear(norm(x), weight).view(batch, length, 2, 8).transpose(1, 2) for weight in weights[:3])
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=causal)
    x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, 16), weights[3])
    gated = F.silu(F.linear(norm(x), weights[4])) * F.linear(norm(x), weights[5])
    return norm(x + F.linear(gated, weights[6]))


def calls_of(op):
    """The op's calls in the one hy_graph that was captured."""
    from torch_halyard.compile import _compiled

    graph, = (reference() for reference in _compiled)
    text, = (torch.ops.halyard.graph_describe(step.number) for plan in graph.plans.values() for step in plan.steps if step.number is not None)
    return [line for line in text.splitlines() if f"= {op}(" in line]


def result_rows(op):
    """The sizes but the last of what the op's calls give, in order."""
    shapes = [re.search(r"\[([\d, ]+)\]", line).group(1) for line in calls_of(op)]
    return [math.prod(map(int, shape.split(", ")[:-1])) for shape in shapes]


@pytest.mark.parametrize("pick, causal, masked, queries", [
    (lambda x: x[:, -1:], True, False, 1), (lambda x: x[:, 0], False, False, 1), (lambda x: x[:, 2:5], False, True, 3),
    (lambda x: x[:, 0], True, False, 9)])
def test_rows_that_are_sliced_away_are_not_computed(pick, causal, masked, queries):
    """Keys and values are made for all; queries too, where a causal attention hides keys from the ones that are taken."""
    x, weights = torch.randn(2, 9, 16, device="npu"), layer_weights()
    seen = (torch.rand(9, 9) > 0.3).fill_diagonal_(True).to("npu") if masked else None

    def layer(x, weights, seen):
        return pick(decoder_layer(x, weights, causal, seen))

    with torch.no_grad():
        want, fast = layer(x, weights, seen), compiled(layer)
        for _ in range(3):
            torch.testing.assert_close(fast(x, weights, seen), want, rtol=1e-4, atol=1e-5)
    taken = want[..., 0].numel()
    assert sorted(result_rows("linear")) == sorted([18, 18] + [2 * queries] + [taken] * 4)
    assert [count // 4 for count in result_rows("sdpa")] == [queries]


@pytest.mark.parametrize("pick, last", [(lambda x: x[:, -1:], True), (lambda x: x[:, 0], False)])
def test_dynamic_lengths_are_sliced_before_the_work(pick, last):
    """One row of a length that is not known; its causal mask is known at each shape alone, and hides nothing from the last row."""
    def layer(x, weights):
        place = torch.arange(x.shape[1], device=x.device)
        mask = torch.where(place[None] <= place[:, None], 0.0, torch.finfo(x.dtype).min)[None, None]
        return pick(decoder_layer(x, weights, False, mask))

    weights, fast = layer_weights(), compiled(layer)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 9, 16, device="npu")
            torch._dynamo.mark_dynamic(x, 1)
            torch.testing.assert_close(fast(x, weights), layer(x, weights), rtol=1e-4, atol=1e-5)
        x = torch.randn(2, 5, 16, device="npu")
        torch.testing.assert_close(fast(x, weights), layer(x, weights), rtol=1e-4, atol=1e-5)
    assert sorted(result_rows("linear")) == [2] * 5 + [18] * 2
    assert ("none)" in calls_of("sdpa")[0]) == last


def test_rows_that_are_used_elsewhere_are_computed():
    x, weights = torch.randn(2, 9, 16, device="npu"), layer_weights()

    def both(x, weights):
        whole = decoder_layer(x, weights, True)
        return whole[:, -1:], whole.sum()

    fast = compiled(both)
    with torch.no_grad():
        for _ in range(3):
            for got, want in zip(fast(x, weights), both(x, weights)):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert set(result_rows("linear")) == {18}


# ---- torch.profiler ----

@since(2, 13)
def test_profiler_shows_the_devices_kernels(tmp_path):
    import json

    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(16, 16, device="npu")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        (x @ x).relu()
    kernels = [event for event in profiler.events() if event.device_type.name == "NPU"]
    assert [event.name for event in kernels] == ["mm", "relu"] and all(event.time_range.elapsed_us() > 0 for event in kernels)
    averages = {event.key: event.device_time_total for event in profiler.key_averages()}
    assert averages["aten::mm"] > 0 and averages["aten::relu"] > 0  # each kernel belongs to its op
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "kernel"] == ["mm", "relu"]

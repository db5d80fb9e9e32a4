"""Real clients give on npu what they give on the cpu, without falling back."""

import copy

import pytest
import torch
import torch.nn.functional as F
from models import ConvNet, LeNet, qwen2, tokens


def train(model, device, data, target, optimizer, steps=6):
    model = copy.deepcopy(model).to(device)
    optimizer = optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.to(device)), target.to(device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.cpu() for name, value in model.state_dict().items()}


# Adam divides by the gradient's size: with an eps near the gradients' rounding, the smallest of them would decide the comparison.
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-5),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=1e-2, eps=1e-5, fused=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_lenet_trains_as_on_the_cpu(optimizer, native_only):
    torch.manual_seed(0)
    model, data, target = LeNet(), torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,))
    want, want_state = train(model, "cpu", data, target, OPTIMIZERS[optimizer])
    got, got_state = train(model, "npu", data, target, OPTIMIZERS[optimizer])
    assert got == pytest.approx(want, rel=1e-4) and got[-1] < got[0]
    for name in want_state:
        torch.testing.assert_close(got_state[name], want_state[name], rtol=1e-3, atol=1e-4)


def test_convnet_trains_as_on_the_cpu(native_only):
    torch.manual_seed(0)
    model, data, target = ConvNet(), torch.randn(8, 3, 16, 16), torch.randint(0, 5, (8,))
    want, want_state = train(model, "cpu", data, target, OPTIMIZERS["sgd"])
    got, got_state = train(model, "npu", data, target, OPTIMIZERS["sgd"])
    assert got == pytest.approx(want, rel=1e-4)
    for name in want_state:
        torch.testing.assert_close(got_state[name], want_state[name], rtol=1e-3, atol=1e-4)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(copy.deepcopy(model).to("npu")(data.to("npu")).cpu(), model(data), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_qwen2_forward_and_backward(attention, native_only):
    model = qwen2()
    model.set_attn_implementation(attention)
    there, ids = copy.deepcopy(model).to("npu"), tokens(2, 9)
    want, got = model(ids, labels=ids), there(ids.to("npu"), labels=ids.to("npu"))
    torch.testing.assert_close(got.logits.cpu(), want.logits, rtol=1e-4, atol=1e-5)
    assert got.loss.item() == pytest.approx(want.loss.item(), rel=1e-5)
    want.loss.backward()
    got.loss.backward()
    for (name, p), q in zip(model.named_parameters(), there.parameters()):
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-5, msg=lambda m: f"{name}: {m}")


def test_qwen2_generates(native_only):
    model = qwen2().eval()
    there, ids = copy.deepcopy(model).to("npu"), tokens(2, 9)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    want = model.generate(ids, attention_mask=mask, max_new_tokens=16, do_sample=False)
    got = there.generate(ids.to("npu"), attention_mask=mask.to("npu"), max_new_tokens=16, do_sample=False)
    assert got.tolist() == want.tolist()
    sampled = there.generate(ids.to("npu"), attention_mask=mask.to("npu"), max_new_tokens=4, do_sample=True, top_k=20, top_p=0.9)
    assert sampled.shape[1] <= 13


def test_qwen2_in_bf16(native_only):
    model = qwen2().to(torch.bfloat16).eval()
    there, ids = copy.deepcopy(model).to("npu"), tokens(2, 9)
    with torch.no_grad():
        torch.testing.assert_close(there(ids.to("npu")).logits.cpu().float(), model(ids).logits.float(), rtol=0.1, atol=0.05)


def test_lora_steps(native_only):
    from peft import LoraConfig, get_peft_model

    def steps(device):
        torch.manual_seed(0)
        model = get_peft_model(qwen2(), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0))
        model = model.to(device).train()
        ids = tokens(4, 12).to(device)
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
        losses = []
        for _ in range(6):
            optimizer.zero_grad()
            loss = model(ids, labels=ids).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        return losses

    want, got = steps("cpu"), steps("npu")
    assert got == pytest.approx(want, rel=1e-4) and got[-1] < got[0]


def test_autocast_and_grad_scaler():
    torch.manual_seed(0)
    model, data, target = LeNet().to("npu"), torch.randn(16, 1, 28, 28).to("npu"), torch.randint(0, 10, (16,)).to("npu")
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.05), torch.amp.GradScaler("npu", init_scale=1024.0)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("npu", dtype=torch.bfloat16):
            logits = model(data)
            loss = F.cross_entropy(logits, target)
        assert logits.dtype == torch.bfloat16 and loss.dtype == torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] and scaler.get_scale() == 1024.0
    optimizer.zero_grad()
    scaler.scale(model(data).sum() * float("inf")).backward()
    before = model.classes[0].weight.clone()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 512.0 and torch.equal(model.classes[0].weight, before)


def test_paged_attention(native_only):
    """torch.ops.halyard.paged_attention, which serving engines use, against attention over the same keys in order."""
    generator = torch.Generator().manual_seed(0)
    heads, kv_heads, size, block, lengths, new = 4, 2, 16, 8, [5, 19, 8], [5, 1, 3]
    k_cache, v_cache = torch.randn(2, 12, block, kv_heads, size, generator=generator)
    table = torch.randperm(12, generator=generator)[:9].view(3, 3).int()
    q = torch.randn(sum(new), heads, size, generator=generator)
    start = torch.tensor([0, *torch.tensor(new).cumsum(0)], dtype=torch.int32)
    arguments = [t.to("npu") for t in (q, k_cache, v_cache, table, start, torch.tensor(lengths, dtype=torch.int32))]
    got = torch.ops.halyard.paged_attention(*arguments).cpu()
    for row, (length, n) in enumerate(zip(lengths, new)):
        keys, values = (cache[table[row].long()].flatten(0, 1)[:length].transpose(0, 1) for cache in (k_cache, v_cache))
        visible = torch.ones(n, length, dtype=torch.bool).tril(length - n)
        queries = q[start[row]:start[row + 1]].transpose(0, 1)
        want = torch.nn.functional.scaled_dot_product_attention(queries[None], keys[None], values[None], visible, enable_gqa=True)[0]
        torch.testing.assert_close(got[start[row]:start[row + 1]], want.transpose(0, 1), rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="paged_attention"):
        torch.ops.halyard.paged_attention(arguments[0], *arguments[1:5], arguments[5][:1])

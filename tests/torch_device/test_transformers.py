"""Models of transformers, tiny and random: forward, backward and generation on npu as on the cpu, and how much of it ran natively."""

import copy

import models
import pytest
import torch
import torch_halyard
from models import images, tokens

CLIENTS = {
    "qwen2": lambda: dict(input_ids=tokens(2, 9), labels=tokens(2, 9)),
    "llama": lambda: dict(input_ids=tokens(2, 9), labels=tokens(2, 9)),
    "gpt2": lambda: dict(input_ids=tokens(2, 9), labels=tokens(2, 9)),
    "bert": lambda: dict(input_ids=tokens(2, 9), labels=tokens(2, 9), attention_mask=torch.tensor([[1] * 9, [1] * 6 + [0] * 3])),
    "vit": lambda: dict(pixel_values=images(2, 3, 16, 16), labels=torch.tensor([1, 3])),
    "whisper": lambda: dict(input_features=images(2, 8, 40), labels=tokens(2, 7)),
    "t5": lambda: dict(input_ids=tokens(2, 9), labels=tokens(2, 7), attention_mask=torch.tensor([[1] * 9, [1] * 6 + [0] * 3])),
}
GENERATORS = ("llama", "gpt2", "whisper", "t5")


def make(name):
    torch.manual_seed(0)
    return getattr(models, name)()


def there(inputs):
    return {key: value.to("npu") for key, value in inputs.items()}


def native_share(name, record_property):
    """The share of the calls that ran natively, told in the report; it must be all."""
    native = sum(torch_halyard.native_report().values())
    fallen = {entry["op"]: entry["count"] for entry in torch_halyard.fallback_report() if entry["by"] == "torch"}
    share = native / max(native + sum(fallen.values()), 1)
    record_property("native_share", f"{share:.4f}")
    print(f"{name}: {share:.1%} of {native + sum(fallen.values())} calls native; fell back: {fallen or 'nothing'}")
    assert not fallen


@pytest.mark.parametrize("name", CLIENTS)
def test_forward_and_backward(name, record_property):
    model, inputs = make(name).train(), CLIENTS[name]()
    twin = copy.deepcopy(model).to("npu")
    want, got = model(**inputs), twin(**there(inputs))
    torch.testing.assert_close(got.logits.cpu(), want.logits, rtol=1e-4, atol=1e-5)
    assert got.loss.item() == pytest.approx(want.loss.item(), rel=1e-5)
    want.loss.backward()
    got.loss.backward()
    for (parameter, p), q in zip(model.named_parameters(), twin.parameters()):
        assert (p.grad is None) == (q.grad is None), parameter
        if p.grad is not None:
            torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-5, msg=lambda m: f"{parameter}: {m}")
    native_share(name, record_property)


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("beams", [1, 3])
def test_generation(name, beams, record_property):
    model, inputs = make(name).eval(), CLIENTS[name]()
    del inputs["labels"]
    twin = copy.deepcopy(model).to("npu")
    options = dict(max_new_tokens=8, do_sample=False, num_beams=beams)
    assert twin.generate(**there(inputs), **options).tolist() == model.generate(**inputs, **options).tolist()
    native_share(name, record_property)

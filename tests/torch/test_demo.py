"""What the demo writes is what transformers and PEFT read."""

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from models import Model, halyard, run_greedy


def test_demo_folders(tmp_path):
    halyard("demo", "--out", tmp_path, "--steps", 6, "--lora-steps", 4, "--size", "small", "--tokens", 16, "--json")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "static hy_status f(void) { return HY_OK; }\n\n// é 中\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text and len(ids) < 0.7 * len(text)
    with Model(tmp_path / "model") as ours:
        assert ours.encode(text.encode()) == ids
    ids = ids[:12]
    for adapter in (False, True):
        if adapter:
            model = PeftModel.from_pretrained(model, tmp_path / "adapter").eval()
        with torch.no_grad():
            wanted = model.generate(input_ids=torch.tensor([ids]), max_new_tokens=24, do_sample=False)[0, 12:].tolist()
        more = ["--adapter", tmp_path / "adapter"] if adapter else []
        assert run_greedy(tmp_path / "model", ids, 24, *more)["ids"] == wanted
    assert (tmp_path / "loss.svg").read_text().startswith("<svg")

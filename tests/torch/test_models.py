"""Models of every family against transformers, with random weights."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from models import Model, halyard, make_ids, make_model, relative_error, run_greedy

FAMILIES = ["qwen2", "qwen3", "llama"]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    made = {}
    for number, family in enumerate(FAMILIES):
        model = make_model(family, seed=number)
        folder = tmp_path_factory.mktemp(family)
        model.save_pretrained(folder)
        made[family] = (model, folder)
    return made


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1].float()


def greedy_of(model, ids, count):
    with torch.no_grad():
        return model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)[0, len(ids):].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_logits(checkpoints, family):
    model, folder = checkpoints[family]
    with Model(folder) as ours:
        for length in (1, 2, 17, 100, 200):
            ids = make_ids(length, seed=length)
            assert relative_error(ours.logits(ids), logits_of(model, ids)) < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy(checkpoints, family):
    model, folder = checkpoints[family]
    ids = make_ids(20, seed=7)
    result = run_greedy(folder, ids, 128)
    assert result["prompt_ids"] == ids
    assert result["ids"] == greedy_of(model, ids, 128)
    assert result["stop"] == "length"


def test_batches_of_unequal_lengths(checkpoints):
    model, folder = checkpoints["qwen2"]
    prompts = [make_ids(n, seed=n) for n in (1, 5, 33, 16, 70)]
    with Model(folder) as ours:
        together = ours.generate_batch(prompts, 40)
        alone = [ours.generate_batch([prompt], 40)[0] for prompt in prompts]
    assert together == alone == [greedy_of(model, prompt, 40) for prompt in prompts]


def test_shards(checkpoints, tmp_path):
    model, _ = checkpoints["qwen3"]
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    ids = make_ids(30)
    with Model(tmp_path) as ours:
        assert relative_error(ours.logits(ids), logits_of(model, ids)) < 1e-4


def test_truncated_shard(checkpoints, tmp_path):
    model, _ = checkpoints["qwen3"]
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-100])
    result = halyard("run", "--model", tmp_path, "--ids", "1,2", check=False)
    assert result.returncode == 4 and shard.name in result.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16(checkpoints, family, tmp_path):
    """Within rounding of the float32 result, and no worse than PyTorch's own bfloat16."""
    make_model(family, seed=5).to(torch.bfloat16).save_pretrained(tmp_path)
    ids = make_ids(50)
    exact = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32), ids)
    theirs = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16), ids)
    with Model(tmp_path) as ours:
        assert relative_error(ours.logits(ids), exact) < max(2 * relative_error(theirs, exact), 0.01)
    with Model(tmp_path, format="f32") as ours:
        assert relative_error(ours.logits(ids), exact) < 1e-4


def quantised(weight, levels, group):
    """The weight as symmetric integers with one scale for each group of a row would have it."""
    grouped = weight.reshape(weight.shape[0], -1, group or weight.shape[1])
    scale = grouped.abs().amax(-1, keepdim=True) / levels
    return (torch.round(grouped / scale) * scale).reshape(weight.shape)


@pytest.mark.parametrize("format, levels, group", [("q8", 127, 0), ("q4", 7, 32)])
def test_quantised(checkpoints, format, levels, group):
    """What transformers gives with weights rounded in the same way, and not what it gives without."""
    _, folder = checkpoints["qwen3"]
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = make_ids(50)
    exact = logits_of(model, ids)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.copy_(quantised(module.weight, levels, group))
    with Model(folder, format=format) as ours:
        logits = ours.logits(ids)
    assert relative_error(logits, logits_of(model, ids)) < 0.01 < relative_error(logits, exact) < 1


def test_end_of_text(checkpoints, tmp_path):
    """The token that config.json or generation_config.json calls the end ends the answer and is not in it."""
    model, _ = checkpoints["qwen2"]
    ids = make_ids(20, seed=7)
    answer = greedy_of(model, ids, 20)
    end = answer[10]
    model.save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 319]}))
    result = run_greedy(tmp_path, ids, 20)
    assert result["stop"] == "end" and result["ids"] == answer[:answer.index(end)]
    assert run_greedy(tmp_path, ids, 20, "--ignore-end")["ids"] == answer


@pytest.mark.parametrize("change, word", [
    ({"model_type": "gemma"}, "gemma"),
    ({"hidden_act": "gelu"}, "gelu"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}}, "yarn"),
    ({"use_sliding_window": True}, "use_sliding_window"),
    ({"hidden_size": -1}, "hidden_size"),
])
def test_unsupported(checkpoints, tmp_path, change, word):
    model, _ = checkpoints["qwen2"]
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    result = halyard("run", "--model", tmp_path, "--ids", "1,2", check=False)
    assert result.returncode == 4 and word in result.stderr

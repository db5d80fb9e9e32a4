"""Models of every family against transformers, with random weights."""

import json
import os

import pytest
import torch
from transformers import AutoModelForCausalLM

from models import BUILD, LLAMA3, Model, halyard, make_ids, make_model, relative_error, run_greedy

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


def test_float16(checkpoints, tmp_path):
    make_model("llama", seed=5).to(torch.float16).save_pretrained(tmp_path)
    ids = make_ids(50)
    exact = logits_of(AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32), ids)
    with Model(tmp_path) as ours:
        assert relative_error(ours.logits(ids), exact) < 0.01
    with Model(tmp_path, format="f32") as ours:
        assert relative_error(ours.logits(ids), exact) < 1e-4


@pytest.mark.parametrize("scaling", [None, {**LLAMA3, "rope_theta": 5000.0},
                                     {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}])
def test_both_styles_of_config(tmp_path, scaling):
    """config.json as transformers 5 writes it, and with the names that 4 had."""
    parameters = scaling or {"rope_type": "default", "rope_theta": 5000.0}
    model = make_model("llama", seed=6, rope_parameters=parameters)
    model.save_pretrained(tmp_path)
    ids = make_ids(150)
    path = tmp_path / "config.json"
    new = json.loads(path.read_text())
    assert "rope_theta" not in new and new["rope_parameters"]["rope_theta"] == 5000 and "dtype" in new
    old = {key: value for key, value in new.items() if key not in ("rope_parameters", "dtype")}
    old.update(rope_theta=5000.0, torch_dtype=new["dtype"], rope_scaling=None)
    if scaling:
        old["rope_scaling"] = {key: value for key, value in scaling.items() if key not in ("rope_theta", "rope_type")}
        old["rope_scaling"]["type"] = scaling["rope_type"]
    for config in (new, old):
        path.write_text(json.dumps(config))
        with Model(tmp_path) as ours:
            assert relative_error(ours.logits(ids), logits_of(model, ids)) < 1e-4


def quantised(values, levels, group):
    """The values as symmetric integers with one scale for each group of a row would have them."""
    grouped = values.reshape(*values.shape[:-1], -1, group)
    scale = grouped.abs().amax(-1, keepdim=True) / levels
    return (torch.round(grouped / scale.where(scale > 0, 1)) * scale).reshape(values.shape)


def int8_group(size):
    return next((group for group in (128, 64, 32) if size % group == 0), size)


def quantise_model(model, format, activations=True):
    """Rounds what Halyard rounds: weights, the vocabulary's matrix, and activations where they meet them."""
    with torch.no_grad():
        for name, module in model.named_modules():
            size = module.in_features if isinstance(module, torch.nn.Linear) and "lora_" not in name else None
            if isinstance(module, torch.nn.Embedding) and model.config.tie_word_embeddings:
                module.weight.copy_(quantised(module.weight, 127, int8_group(module.weight.shape[1])))
            elif size and name.endswith("lm_head"):
                if not model.config.tie_word_embeddings:
                    module.weight.copy_(quantised(module.weight, 127, int8_group(size)))
            elif size and format == "q8":
                module.weight.copy_(quantised(module.weight, 127, int8_group(size)))
            elif size:
                module.weight.copy_(quantised(module.weight, 7, 32))
            if size and activations:
                module.register_forward_pre_hook(lambda m, x: (quantised(x[0], 127, 32),))


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize("format", ["q8", "q4"])
def test_quantised(checkpoints, family, format):
    """What transformers gives with the same numbers rounded, and not what it gives without."""
    _, folder = checkpoints[family]
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = make_ids(50)
    exact = logits_of(model, ids)
    quantise_model(model, format)
    with Model(folder, format=format) as ours:
        logits = ours.logits(ids)
    # A value on the border of two steps may fall to either side, which the layers behind it see.
    close, far = relative_error(logits, logits_of(model, ids)), relative_error(logits, exact)
    assert close < far / 2 and far < (0.1 if format == "q8" else 1)


@pytest.mark.parametrize("format", ["q8", "q4"])
def test_quantised_elsewhere(checkpoints, format):
    """A device without products of bytes falls back, says so, and gives the same tokens."""
    _, folder = checkpoints["qwen2"]
    options = ["run", "--model", folder, "--ids", "5,6,7", "--max-tokens", "8", "--dtype", format, "--json"]
    here, there = halyard(*options), halyard(*options, "--backend", "echo")
    ids = [json.loads(result.stdout.splitlines()[-1])["ids"] for result in (here, there)]
    assert ids[0] == ids[1] and "fell back" in there.stderr and "fell back" not in here.stderr


@pytest.mark.parametrize("format", ["file", "bf16", "q8", "q4"])
def test_protected_memory(checkpoints, format):
    """The asynchronous device whose memory no host code may touch gives the cpu's tokens. Its fused ops round less
    often than the cpu's calls, which in bf16 shows in some token of random weights sooner or later."""
    _, folder = checkpoints["qwen2"]
    options = ["--dtype", format] if format != "file" else []
    there = run_greedy(folder, make_ids(9, seed=2), 24, *options, "--backend", "guarded",
                       env={**os.environ, "HALYARD_PLUGIN_PATH": str(BUILD / "tests/plugins")})
    here, same = run_greedy(folder, make_ids(9, seed=2), 24, *options)["ids"], 8 if format == "bf16" else 24
    assert there["ids"][:same] == here[:same]


@pytest.mark.parametrize("format", ["q8", "q4"])
def test_packed_cache(checkpoints, tmp_path, format):
    """The packed weights are kept when asked, used while they fit, and made anew when they do not."""
    model, _ = checkpoints["qwen2"]
    model.save_pretrained(tmp_path)
    ids, cache = ["--ids", "5,6,7", "--max-tokens", "12", "--dtype", format], tmp_path / f"halyard-{format}.safetensors"

    def run(*options):
        result = halyard("run", "--model", tmp_path, *ids, "--json", *options)
        return json.loads(result.stdout.splitlines()[-1])["ids"], result.stderr

    plain, _ = run()
    assert not cache.exists()
    assert run("--cache-packed") == (plain, "") and cache.exists()
    written = cache.stat().st_mtime_ns
    assert run("--cache-packed") == (plain, "") and cache.stat().st_mtime_ns == written
    # Taken from there: what the file says is what runs.
    data = bytearray(cache.read_bytes())
    middle = len(data) // 2
    data[middle:middle + 8192] = bytes(8192)
    cache.write_bytes(data)
    assert run("--cache-packed")[0] != plain
    # Of other weights, or cut off: said and written anew.
    make_model("qwen2", seed=9).save_pretrained(tmp_path)
    other, _ = run()
    again, said = run("--cache-packed")
    assert again == other != plain and cache.name in said and "other weights" in said
    cache.write_bytes(cache.read_bytes()[:-100])
    again, said = run("--cache-packed")
    assert again == other and cache.name in said
    assert run("--cache-packed") == (other, "")
    assert not list(tmp_path.glob("*.part"))


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
    ({"architectures": ["Qwen2ForSequenceClassification"]}, "Qwen2ForSequenceClassification"),
    ({"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    ({"rope_parameters": "yarn"}, "rope_parameters"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
])
def test_unsupported(checkpoints, tmp_path, change, word):
    model, _ = checkpoints["qwen2"]
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    result = halyard("run", "--model", tmp_path, "--ids", "1,2", check=False)
    assert result.returncode == 4 and word in result.stderr

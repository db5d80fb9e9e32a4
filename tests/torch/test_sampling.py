"""Sampling against transformers: its processors decide which tokens are left, an own draw which is taken."""

import pytest
import torch
from transformers import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper,
                          TopKLogitsWarper, TopPLogitsWarper)

from models import halyard, make_ids, make_model, run_greedy

MASK = (1 << 64) - 1
TOKENS = 32


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sampled")
    model = make_model("qwen2", seed=3)
    model.save_pretrained(folder)
    return model, folder


def draws(seed):
    """splitmix64, as numbers in 0 .. 1 that float32 has exactly."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        yield ((z ^ z >> 31) >> 40) * 2.0**-24


def sampled(model, ids, seed, temperature, top_k, top_p, min_p, penalty):
    """The tokens, as transformers orders its processors, and how many were left to choose from at most."""
    steps = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(penalty), TemperatureLogitsWarper(temperature)])
    if top_k:
        steps.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        steps.append(TopPLogitsWarper(top_p))
    if min_p:
        steps.append(MinPLogitsWarper(min_p))
    ids, left, numbers = list(ids), 0, draws(seed)
    prompt = len(ids)
    for _ in range(TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[:, -1].double()
        order = torch.softmax(steps(torch.tensor([ids]), logits)[0], -1).sort(descending=True, stable=True)
        left = max(left, int((order.values > 0).sum()))
        at = int((order.values.cumsum(0) <= next(numbers)).sum())
        ids.append(int(order.indices[at]))
    return ids[prompt:], left


@pytest.mark.parametrize("name, options", [
    ("temperature", dict(temperature=0.7)),
    ("top-k", dict(top_k=5)),
    ("top-p", dict(top_p=0.6)),
    ("min-p", dict(min_p=0.2)),
    ("repetition-penalty", dict(penalty=1.4)),
    ("all", dict(temperature=1.3, top_k=40, top_p=0.9, min_p=0.05, penalty=1.2)),
])
def test_sampling(checkpoint, name, options):
    model, folder = checkpoint
    values = {**dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, penalty=1.0), **options}
    ids = make_ids(12, seed=4)
    for seed in (1, 2):
        wanted, left = sampled(model, ids, seed, **values)
        assert left > 1
        ours = run_greedy(folder, ids, TOKENS, "--seed", seed, "--temperature", values["temperature"], "--top-k",
                          values["top_k"], "--top-p", values["top_p"], "--min-p", values["min_p"],
                          "--repetition-penalty", values["penalty"])
        assert ours["ids"] == wanted


def test_penalty_of_greedy(checkpoint):
    model, folder = checkpoint
    ids = make_ids(12, seed=4)
    with torch.no_grad():
        wanted = model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, repetition_penalty=1.5)
    ours = run_greedy(folder, ids, TOKENS, "--repetition-penalty", 1.5)["ids"]
    assert ours == wanted[0, len(ids):].tolist() != run_greedy(folder, ids, TOKENS)["ids"]


@pytest.mark.parametrize("options, word", [
    (["--temperature", "-1"], "temperature"), (["--top-p", "0"], "top-p"), (["--min-p", "2"], "min-p"),
    (["--repetition-penalty", "0"], "penalty"), (["--top-k", "-3"], "top-k"), (["--stop", ""], "empty"),
    (["--max-tokens", "0"], "max-tokens"), (["--threads", "-1"], "threads"), (["--ids", "1,x"], "ids"),
])
def test_impossible_values(checkpoint, options, word):
    result = halyard("run", "--model", checkpoint[1], "--ids", "1,2", *options, check=False)
    assert result.returncode == 2 and word in result.stderr.lower()


@pytest.mark.parametrize("command", ["run", "chat", "finetune", "merge", "demo", "bench"])
def test_unknown_options(command):
    result = halyard(command, "--no-such-option", "1", check=False)
    assert result.returncode == 2 and "no-such-option" in result.stderr

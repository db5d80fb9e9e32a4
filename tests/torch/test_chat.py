"""halyard chat: the conversation as the model sees it, commands, and Ctrl-C."""

import json
import signal
import subprocess
import time

import pytest

from models import PROGRAM, Model, halyard, make_model
from test_tokenizers import qwen


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("chat")
    make_model("qwen2", vocab_size=1200, max_position_embeddings=4096).save_pretrained(path)
    qwen().save(str(path / "tokenizer.json"))
    return path


def message(role, words):
    return f"<|im_start|>{role}\n{words}<|im_end|>\n"


def continued(folder, text, count):
    result = halyard("run", "--model", folder, "--prompt", text, "--max-tokens", count, "--json").stdout
    return json.loads(result)


def test_conversation(folder):
    """Each answer continues all that was said before, in Qwen's format."""
    said = "Hello, 世界!\nWhat now?\n/reset\nAnd again?\n/quit\nnever read\n"
    output = halyard("chat", "--model", folder, "--max-tokens", 12, "--system", "Be brief.", "--json", input=said).stdout
    answers = [json.loads(line) for line in output.splitlines()]
    assert len(answers) == 3
    text = message("system", "Be brief.") + message("user", "Hello, 世界!") + "<|im_start|>assistant\n"
    first = continued(folder, text, 12)
    assert answers[0]["text"] == first["text"] and answers[0]["prompt_tokens"] == len(first["prompt_ids"])
    # The answer's tokens stay as they are, whatever the tokenizer would make of its text.
    with Model(folder) as model:
        ids = first["prompt_ids"] + first["ids"] + model.encode(
            ("<|im_end|>\n" + message("user", "What now?") + "<|im_start|>assistant\n").encode())
    second = json.loads(halyard("run", "--model", folder, "--ids", ",".join(map(str, ids)), "--max-tokens", 12, "--json").stdout)
    assert answers[1]["text"] == second["text"]
    text = message("system", "Be brief.") + message("user", "And again?") + "<|im_start|>assistant\n"
    assert answers[2]["text"] == continued(folder, text, 12)["text"]


def test_interrupt_stops_the_answer_only(folder):
    process = subprocess.Popen([PROGRAM, "chat", "--model", folder, "--max-tokens", "3000", "--ignore-end"],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdin.write(b"Tell me all.\n")
    process.stdin.flush()
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    output, error = process.communicate(b"/quit\n", timeout=120)
    assert process.returncode == 0, error
    assert output.rstrip().endswith(b"...")


def test_a_model_without_chat_tokens(tmp_path):
    make_model("qwen2").save_pretrained(tmp_path)
    result = halyard("chat", "--model", tmp_path, input="hi\n", check=False)
    assert result.returncode == 4 and "<|im_start|>" in result.stderr

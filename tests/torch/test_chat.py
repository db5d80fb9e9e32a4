"""halyard chat: the conversation as the model sees it, commands, and Ctrl-C."""

import json
import os
import pty
import re
import select
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


def continued(folder, text, count, *options):
    result = halyard("run", "--model", folder, "--prompt", text, "--max-tokens", count, *options, "--json").stdout
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
    # The second turn read only what was new: what it kept is all but the last token of the first answer, whose keys
    # nothing had needed yet.
    assert answers[0]["kept_tokens"] == 0 and answers[1]["prompt_tokens"] == len(ids)
    assert answers[1]["kept_tokens"] == len(first["prompt_ids"] + first["ids"]) - (len(first["ids"]) == 12)
    text = message("system", "Be brief.") + message("user", "And again?") + "<|im_start|>assistant\n"
    assert answers[2]["text"] == continued(folder, text, 12)["text"]
    # After /reset the system's message is still there.
    assert answers[2]["kept_tokens"] >= len(first["prompt_ids"]) // 3


def test_a_long_conversation(folder):
    """Many turns, in which the kept part outgrows its room again and again: each as a fresh run gives it."""
    said = [f"Turn {i}: " + "word " * i for i in range(12)]
    output = halyard("chat", "--model", folder, "--max-tokens", 24, "--ignore-end", "--json", input="\n".join(said) + "\n").stdout
    answers = [json.loads(line) for line in output.splitlines()]
    ids = []
    with Model(folder) as model:
        for words, answer in zip(said, answers, strict=True):
            ids += model.encode((message("user", words) + "<|im_start|>assistant\n").encode())
            assert answer["prompt_tokens"] == len(ids)
            fresh = json.loads(halyard("run", "--model", folder, "--ids", ",".join(map(str, ids)), "--max-tokens", 24,
                                       "--ignore-end", "--json").stdout)
            assert answer["text"] == fresh["text"]
            ids += fresh["ids"] + model.encode(b"<|im_end|>\n")
    assert all(a["kept_tokens"] > b["prompt_tokens"] for a, b in zip(answers[1:], answers))


class Terminal:
    """halyard chat on a terminal of its own."""

    def __init__(self, *arguments):
        self.process, self.fd = pty.fork()
        if self.process == 0:
            os.execv(PROGRAM, [str(PROGRAM), *map(str, arguments)])

    def read_until(self, pattern, seconds=60):
        seen, end = b"", time.time() + seconds
        while not re.search(pattern, seen):
            assert time.time() < end, seen
            if select.select([self.fd], [], [], 0.2)[0]:
                seen += os.read(self.fd, 4096)
        return seen

    def type(self, keys):
        os.write(self.fd, keys)

    def leave(self):
        self.type(b"\x04")
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        os.close(self.fd)
        return code


PROMPT = rb"(?:\x1b\[\?2004h)?\r> [^\r]*\x1b\[K\r\x1b\[\d+C$"  # pastes are marked while a line is read


def test_editing_on_a_terminal(folder):
    terminal = Terminal("chat", "--model", folder, "--max-tokens", 8)
    terminal.read_until(PROMPT)
    # "Hxllo 世界" turned into "Hello 世界": left over two wide characters, a word deleted, typed again.
    terminal.type("Hxllo 世界".encode() + b"\x1b[D\x1b[D\x1b[D\x17Hello\x05\r")
    seen = terminal.read_until(rb"\r\n(?s:.)*" + PROMPT)
    text = message("user", "Hello 世界") + "<|im_start|>assistant\n"
    with Model(folder) as model:
        wanted = model.decode(continued(folder, text, 8)["ids"])
    assert len(wanted) > 8 and wanted.replace(b"\n", b"\r\n") in seen
    # History, and Ctrl-C at the prompt, which leaves nothing but the line.
    terminal.type(b"/reset\r")
    terminal.read_until(rb"\n" + PROMPT)
    terminal.type(b"\x1b[A\x1b[A")
    assert "Hello 世界" in terminal.read_until("Hello 世界".encode()).decode()
    terminal.type(b"\x03")
    terminal.read_until(rb"/quit leaves(?s:.)*" + PROMPT)
    assert terminal.leave() == 0


def test_interrupt_on_a_terminal(folder):
    terminal = Terminal("chat", "--model", folder, "--max-tokens", 3000, "--ignore-end")
    terminal.read_until(PROMPT)
    terminal.type(b"Tell me all.\r")
    terminal.read_until(rb"\r\n(?s:.){20}")
    terminal.type(b"\x03")
    terminal.read_until(rb" \.\.\.\r\n" + PROMPT)
    assert terminal.leave() == 0


def test_stops(folder):
    """Of several stops the one that comes first ends the answer, wherever tokens begin and end."""
    for prompt in (f"Number {i}" for i in range(100)):  # what a random model says may be no text
        whole = continued(folder, prompt, 40)["text"]
        late, early = whole[len(whole) // 2:][:6], whole[len(whole) // 4:][:5]
        if len(early) == 5 and "\ufffd" not in whole[:len(whole) // 2 + 6]:
            break
    else:
        pytest.fail("no prompt gets an answer of whole characters")
    output = halyard("run", "--model", folder, "--prompt", prompt, "--max-tokens", 40, "--stop", late, "--stop", early).stdout
    wanted = whole[:min(whole.index(early), whole.index(late))]
    assert output.rstrip("\n") == wanted.rstrip("\n")
    assert continued(folder, prompt, 40, "--stop", late, "--stop", early)["text"] == wanted


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

#!/usr/bin/env python3
"""The command line from end to end: every command on a small model, terminals, mistakes and exit codes.

    cli.py HALYARD [PART ...]     parts: basics model terminal bench failures; all of them if none is named

Benchmarks are run for their rows to be there; what they measure is no test's business.
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios

DONE, FAILED, USAGE, NO_DEVICE, BAD_FILE, INTERRUPTED = 0, 1, 2, 3, 4, 130


class Halyard:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *arguments, code=DONE, says="", text="", **more):
        """What it printed; both streams are searched for `says`."""
        done = subprocess.run([self.program, *arguments], cwd=self.folder, input=text, capture_output=True, text=True,
                              errors="replace", timeout=500, check=False, **more)
        said = done.stdout + done.stderr
        if done.returncode != code or says not in said:
            sys.exit(f"halyard {' '.join(arguments)}: ends with {done.returncode}, not {code} and {says!r}:\n{said}")
        return done.stdout

    def rows(self, *arguments):
        """Its lines of JSON."""
        return [json.loads(line) for line in self.run(*arguments, "--json").splitlines()]

    def typed(self, arguments, keys, code=DONE, columns=80):
        """Runs it on a terminal and types; each (prompt, text) waits until the prompt has come."""
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.chdir(self.folder)
            os.environ["TERM"] = "xterm"
            os.execv(self.program, [self.program, *arguments])
        seen, shown = b"", b""
        for prompt, text in [*keys, (None, b"")]:
            while prompt is None or prompt not in seen:
                if not select.select([terminal], [], [], 200)[0]:
                    sys.exit(f"halyard {' '.join(arguments)}: waits for ever after {shown!r}")
                try:
                    piece = os.read(terminal, 4096)
                except OSError:  # the other side is closed
                    piece = b""
                if not piece:
                    break
                seen, shown = seen + piece, shown + piece
            if prompt is not None and prompt not in seen:
                sys.exit(f"halyard {' '.join(arguments)}: ends before {prompt!r}: {shown!r}")
            if prompt is not None:
                seen = seen.split(prompt, 1)[1]
                os.write(terminal, text)
        os.close(terminal)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status != code:
            sys.exit(f"halyard {' '.join(arguments)}: ends with {status}, not {code}: {shown!r}")
        return shown.decode(errors="replace")


def check(condition, what):
    if not condition:
        sys.exit(f"cli: {what}")


def basics(halyard):
    halyard.run("--help", says="verify")
    halyard.run("--version", says="halyard")
    halyard.run(code=USAGE)
    halyard.run("verfy", code=USAGE, says="verify")
    halyard.run("nonsense", code=USAGE, says="nonsense")
    for command in ("info", "ops", "bench", "verify", "run", "finetune", "merge", "demo", "chat", "graph"):
        halyard.run(command, "--help", says="For every command:")

    halyard.run("info", says="cpu")
    check(any("cpu" in json.dumps(row) for row in halyard.rows("info")), "info --json does not know the cpu")
    table = halyard.run("ops")
    check("softmax" in table and "linear_int8" in table, "ops lists too little")
    listed = json.loads(halyard.run("ops", "--json"))
    check(len(json.dumps(listed)) > 10000, "ops --json says too little")
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs/ops.md"
    check(halyard.run("ops", "--markdown") == docs.read_text(), "docs/ops.md is old: make docs")

    halyard.run("verify", "--op", "softmux", code=USAGE, says="did you mean 'softmax'?")
    halyard.run("verify", "--op", "zzzzzzzzzzzz", code=USAGE, says="halyard ops")
    halyard.run("verify", "--case", "3", code=USAGE, says="--case needs --op")
    halyard.run("verify", "--determinism", "--gradients", code=USAGE, says="two runs")
    halyard.run("verify", "--seed", "three", code=USAGE, says="whole number")
    halyard.run("verify", "--sed", "3", code=USAGE, says="did you mean --seed?")
    halyard.run("verify", "--seed", code=USAGE, says="--seed")
    halyard.run("verify", "--op", "neg", "--junit", "junit.xml", "--all")
    check("<testsuite" in (pathlib.Path(halyard.folder) / "junit.xml").read_text(), "no JUnit report")
    halyard.run("verify", "--op", "neg", "--trace", "trace.json", "--threads", "1", "--strict")
    json.loads((pathlib.Path(halyard.folder) / "trace.json").read_text())
    halyard.run("verify", "--backend", "nonsense:0", code=NO_DEVICE, says="nonsense")
    halyard.run("verify", "--backend", "ascend", "--fallback", "cpu", "--op", "neg", says="cpu:0: passed")
    halyard.run("verify", "--threads", "100000", code=USAGE, says="--threads")
    halyard.run("bench", code=USAGE, says="which one?")
    halyard.run("bench", "nonsense", code=USAGE, says="no benchmark")


def make_model(halyard):
    halyard.run("demo", "--out", "demo", "--steps", "2", "--lora-steps", "2", "--size", "small", "--tokens", "8")
    texts = [{"text": f"line {i} of a text that is long enough to learn from"} for i in range(12)]
    texts.append({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]})
    (pathlib.Path(halyard.folder) / "data.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))


TRAIN = ["--model", "demo/model", "--data", "data.jsonl", "--batch", "1", "--seq", "32", "--rank", "2"]


def model(halyard):
    make_model(halyard)
    steps = halyard.rows("finetune", *TRAIN, "--out", "adapter", "--steps", "4", "--save-every", "2", "--eval-share",
                         "0.3", "--eval-every", "2", "--warmup", "1", "--checkpoint", "block")
    check([row["step"] for row in steps if "step" in row][-1] == 4, "finetune does not make its steps")
    halyard.run("finetune", *TRAIN, "--out", "adapter", "--steps", "6", "--resume", code=USAGE, says="steps was 4 and is 6")
    halyard.run("finetune", *TRAIN[:4], "--batch", "1", "--seq", "32", "--out", "whole", "--steps", "1", "--full")
    halyard.run("finetune", *TRAIN, code=USAGE, says="--out")
    halyard.run("finetune", *TRAIN, "--out", "x", "--checkpoint", "all", code=USAGE, says="mlp or block")
    halyard.run("finetune", "--model", "demo/model", "--data", "missing.jsonl", "--out", "x", code=BAD_FILE,
                says="missing.jsonl")

    halyard.run("merge", "--model", "demo/model", "--adapter", "adapter", "--out", "merged", says="merged")
    halyard.run("merge", "--model", "demo/model", code=USAGE)
    answers = {}
    for folder, extra in (("merged", []), ("demo/model", ["--adapter", "adapter"]), ("demo/model", [])):
        row = halyard.rows("run", "--model", folder, "--ids", "1,2,3", "--max-tokens", "4", "--ignore-end", *extra)[0]
        answers[folder + "".join(extra)] = row["ids"]
        check(len(row["ids"]) == 4 and row["stop"] == "length", f"run gives {row}")
    check(answers["merged"] == answers["demo/model--adapteradapter"], "a merged adapter answers otherwise")
    for extra in (["--dtype", "q8"], ["--dtype", "q4", "--cache-packed"], ["--dtype", "q4", "--cache-packed"],
                  ["--temperature", "0.8", "--top-k", "5", "--top-p", "0.9", "--min-p", "0.01",
                   "--repetition-penalty", "1.1", "--seed", "3"], ["--stop", "e", "--stop", "a"]):
        halyard.run("run", "--model", "demo/model", "--prompt", "int main", "--max-tokens", "6", *extra)
    halyard.run("graph", "--model", "demo/model", "--svg", "step.svg", "--save", "step.json", says="after the passes")
    check("<svg" in pathlib.Path(halyard.folder, "step.svg").read_text(), "the picture is no SVG")
    halyard.run("graph", "--model", "demo/model", "--step", "prefill", "--tokens", "40", says="chain[silu mul]")
    halyard.run("graph", "--model", "demo/model", "--step", "train", code=USAGE, says="decode or prefill")
    halyard.run("run", "--model", "demo/model", code=USAGE, says="--prompt")
    halyard.run("run", "--model", "demo/model", "--ids", "1,x", code=USAGE, says="--ids")
    halyard.run("run", "--model", "missing", "--prompt", "x", code=BAD_FILE, says="missing")

    halyard.run("chat", "--model", "demo/model", "--max-tokens", "4", text="hello\n/help\n/reset\n/quit\nno more\n",
                says="/reset          forget")
    said = halyard.run("chat", "--model", "demo/model", "--max-tokens", "4", "--json", "--system", "be brief",
                       text="hello\nand again\n/temperature 1\n/system other\nhello\n")
    check(len(said.splitlines()) == 3, "chat --json does not answer each line")
    halyard.run("chat", "--model", "demo/model", text="/temperature x\n", code=USAGE, says="'x' is no temperature")
    if "npu" in halyard.run("--help"):
        halyard.run("npu", "report", "--model", "demo", "--sweep", "--svg", "npu.svg", "--record", "packets")
        halyard.run("npu", "report", "--model", "demo", "--step", "prefill", "--tokens", "4", "--clock", "800MHz")
        check("<svg" in (pathlib.Path(halyard.folder) / "npu.svg").read_text(), "no drawing of the NPU")
        halyard.run("npu", "report", "--clock", "fast", code=USAGE)


UP, DOWN, LEFT, RIGHT, HOME, END, DELETE = b"\x1b[A", b"\x1b[B", b"\x1b[D", b"\x1b[C", b"\x1b[H", b"\x1b[F", b"\x1b[3~"
CTRL_A, CTRL_C, CTRL_D, CTRL_E, CTRL_K, CTRL_U, CTRL_W, BACKSPACE = (
    b"\x01", b"\x03", b"\x04", b"\x05", b"\x0b", b"\x15", b"\x17", b"\x7f")


def terminal(halyard):
    make_model(halyard)
    chat = ["chat", "--model", "demo/model", "--max-tokens", "3"]
    prompt = b"> "
    # Lines that are edited in every way come out as /help and /quit all the same; it also begins with its help.
    shown = halyard.typed(chat, [
        (prompt, b"hello\r"),
        (prompt, b"helpX" + BACKSPACE + HOME + b"/" + END + b"\r"),
        (prompt, b"word other" + CTRL_W + CTRL_U + b"elp" + CTRL_A + b"/h" + CTRL_E + b"zz" + LEFT + LEFT + CTRL_K + b"\r"),
        (prompt, UP + UP + DOWN + DOWN + "/quätt".encode() + BACKSPACE * 3 + RIGHT + b"iit" + LEFT + BACKSPACE + b"\r"),
    ])
    check(shown.count("/reset          forget") == 3, f"editing does not make /help twice: {shown!r}")
    halyard.typed(chat, [(prompt, b"x" + DELETE + LEFT + DELETE + CTRL_D)])
    halyard.typed(chat, [(prompt, b"left" + CTRL_C), (prompt, CTRL_D)])
    # F11 deletes nothing, Esc waits for nothing, and a tab is a blank of the line.
    shown = halyard.typed(chat, [(prompt, b"/quit" + HOME + b"\x1b[23~" + b"\x1b[[A" + b"\x1bOP" + END + b"\r")])
    shown = halyard.typed(chat, [(prompt, b"/qu\x1bit\r")])
    shown = halyard.typed(chat, [(prompt, b"one\ttwo"), (b"one two", CTRL_U + b"\x1b"), (prompt, b"/quit\r")])
    # A paste of several lines is one message.
    shown = halyard.typed(chat, [(prompt, b"\x1b[200~first\r\nsecond\rthird\x1b[201~"),
                                 ("first\u21b5second\u21b5third".encode(), b"\r"), (b"\x1b[?2004h", b"/quit\r")])
    check(shown.count("\x1b[?2004h") == shown.count("\x1b[?2004l") == 2, f"a paste is not one message: {shown!r}")
    # The cursor knows how wide characters are: 2 of the prompt, 2 of each of these.
    shown = halyard.typed(chat, [(prompt, "\u6f22\U0001f680".encode()), (b"\x1b[6C", LEFT), (b"\x1b[4C", BACKSPACE),
                                 (b"\x1b[2C", END + CTRL_U + b"/quit\r")])
    # However narrow the terminal, a line stays in its row.
    for columns in (20, 12, 3, 1):
        shown = halyard.typed(chat, [(b"\x1b[?2004h", b"abcdefghijklmnopqrstuvwxyz" + HOME + END + CTRL_U + b"/quit\r")],
                              columns=columns)
        drawn = re.findall(r"\r([^\r\x1b]*)\x1b\[K", shown)
        check(drawn and all(len(row) < max(columns, 2) for row in drawn), f"{columns} columns are exceeded: {drawn}")
    # Whatever ends it while a line is edited, the terminal is as it was.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        ours, theirs = pty.openpty()
        before = termios.tcgetattr(theirs)
        child = subprocess.Popen([halyard.program, *chat], cwd=halyard.folder, stdin=theirs, stdout=theirs,
                                 stderr=theirs)
        seen = b""
        while b"\x1b[?2004h" not in seen:
            seen += os.read(ours, 4096)
        while prompt not in seen.rsplit(b"\x1b[?2004h", 1)[1]:
            seen += os.read(ours, 4096)
        check(termios.tcgetattr(theirs) != before, "chat does not read keys")
        child.send_signal(number)
        check(child.wait(200) == -number, f"chat survives signal {number}")
        check(termios.tcgetattr(theirs) == before, f"signal {number} leaves the terminal raw")
        os.close(ours)
        os.close(theirs)
    # The line that shows how a training goes, drawn in place.
    shown = halyard.typed(["finetune", *TRAIN, "--out", "adapter", "--steps", "3"], [])
    check("\r" in shown and re.search(r"3/3|step 3", shown), f"no progress is shown: {shown!r}")
    shown = halyard.typed(["demo", "--out", "shown", "--steps", "3", "--lora-steps", "3", "--size", "small", "--tokens",
                           "8"], [])
    check("loss" in shown, "the demo shows nothing")


def bench(halyard):
    make_model(halyard)
    for name, only in (("dispatch", "hy_add"), ("alloc", "64 B"), ("copy", "64 KiB"), ("attention", "sdpa 14/2x1x"),
                       ("softmax", "softmax"), ("image", "avg_pool2d"), ("int8", "i8"), ("gemv", "1x896x896"), ("graph", "6 ops")):
        rows = halyard.rows("bench", name, "--only", only)
        check(all(row["value"] > 0 and row["machine"] for row in rows), f"bench {name} gives {rows}")
    halyard.run("bench", "softmax", "--only", "softmax")
    for name in ("decode", "prefill", "train", "load"):
        rows = halyard.rows("bench", name, "--model", "demo/model", "--dtype", "f32")
        check(rows and all(row["value"] > 0 for row in rows), f"bench {name} gives {rows}")


def lost_output(halyard):
    # Whatever the model has learned, some of these tokens are text.
    words = ["--prompt", "int", "--max-tokens", "8", "--ignore-end", "--temperature", "2", "--seed", "1"]
    for arguments in (["--help"], ["--version"], ["info"], ["info", "--json"], ["ops"], ["verify", "--op", "neg"],
                      ["run", "--model", "demo/model", *words],
                      ["run", "--model", "demo/model", *words, "--json"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([halyard.program, *arguments], cwd=halyard.folder, stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=500, check=False)
        check(done.returncode == BAD_FILE and "output could not be written" in done.stderr,
              f"halyard {' '.join(arguments)} > /dev/full: {done.returncode}, {done.stderr}")


def meaningless_options(halyard):
    train = [*TRAIN, "--out", "never"]
    for arguments, says in (
            (["demo", "--size", "giant", "--steps", "2", "--lora-steps", "2"], "small, medium, large or huge"),
            (["demo", "--size", "small"], "go together"), (["demo", "--steps", "0", "--lora-steps", "0"], "1 .. "),
            (["demo", "--steps", "2"], "go together"), (["demo", "--temperature", "-1"], "--temperature"),
            (["demo", "--seconds", "0"], "--seconds"), (["demo", "--tokens", "2"], "--tokens"),
            (["finetune", *train, "--alpha", "-3"], "--alpha"), (["finetune", *train, "--rank", "0"], "--rank"),
            (["finetune", *train, "--lr", "0"], "--lr"), (["finetune", *train, "--lr", "-1"], "--lr"),
            (["finetune", *train, "--dropout", "1"], "--dropout"), (["finetune", *train, "--clip", "-1"], "--clip"),
            (["finetune", *train, "--weight-decay", "-1"], "--weight-decay"),
            (["finetune", *train, "--eval-share", "1"], "--eval-share"),
            (["finetune", *train, "--eval-every", "2"], "--eval-share"),
            (["bench", "dispatch", "--dtype", "f4"], "f32, bf16, q8 or q4"),
            (["run", "--model", "demo/model", "--prompt", "x", "--top-p", "0"], "top-p")):
        halyard.run(*arguments, code=USAGE, says=says)
    halyard.run("bench", "dispatch", "--peer", "nope", code=NO_DEVICE, says="--peer")
    halyard.run("bench", "dispatch", "--peer", "cpu", code=USAGE, says="no provider")
    if "npu" in halyard.run("--help"):
        halyard.run("npu", "report", "--context", "-1", code=USAGE, says="--context")
        halyard.run("npu", "report", "--tokens", "0", code=USAGE, says="--tokens")
    for name, value, says in (("HALYARD_THREADS", "abc", "1 to"), ("HALYARD_CPU_ISA", "mmx", "avx512")):
        set_to = {**os.environ, name: value}
        halyard.run("verify", "--op", "neg", code=USAGE, says=says, env=set_to)
        halyard.run("info", says=f'{name} is "{value}"', env=set_to)
    check(not (pathlib.Path(halyard.folder) / "never").exists(), "a mistake in the options leaves a folder")


def folders(halyard):
    """Where a command is to write is looked at before it works."""
    folder = pathlib.Path(halyard.folder)
    (folder / "file").write_text("x")
    train = ["finetune", *TRAIN, "--steps", "100000"]
    halyard.run(*train, "--out", "file", code=BAD_FILE, says="is a file")
    halyard.run(*train, "--out", "no/such/place", code=BAD_FILE, says="cannot be made")
    halyard.run("demo", "--steps", "100000", "--lora-steps", "1", "--size", "huge", "--out", "file", code=BAD_FILE,
                says="is a file")
    halyard.run("merge", "--model", "demo/model", "--adapter", "demo/adapter", "--out", "no/such/place", code=BAD_FILE,
                says="cannot be made")
    halyard.run("verify", "--op", "neg", "--trace", ".", code=BAD_FILE, says="is a folder")
    (folder / "busy").mkdir()
    lock = os.open(folder / "busy", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    halyard.run(*train, "--out", "busy", code=BAD_FILE, says="at work")
    os.close(lock)
    # A file that may not grow: no part of one stays.
    halyard.run("finetune", *TRAIN, "--out", "limited", "--steps", "1", code=BAD_FILE, says="cannot be written",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    halyard.run("verify", "--no-fork", "--op", "neg", "--trace", "limited.json", code=BAD_FILE, says="could not be written",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    halyard.run("merge", "--model", "demo/model", "--adapter", "demo/adapter", "--out", "merged", code=BAD_FILE,
                says="cannot be written", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    halyard.run("verify", "--quick", "--no-fork", "--junit", "limited.xml", code=BAD_FILE, says="cannot be written",
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    check(not list(folder.rglob("*.part")), "a part of a file is left")


def signals(halyard):
    """SIGTERM and SIGHUP save a training as Ctrl-C does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        out = pathlib.Path(halyard.folder) / f"signal{number}"
        arguments = ["finetune", *TRAIN, "--steps", "1000000", "--out", str(out), "--json"]
        with subprocess.Popen([halyard.program, *arguments], cwd=halyard.folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as child:
            child.stdout.readline()
            child.send_signal(number)
            said = child.communicate(timeout=200)[1]
        check(child.returncode == 128 + number, f"signal {number} ends finetune with {child.returncode}: {said}")
        check((out / "training.safetensors").exists() and "--resume" in said, f"signal {number} loses the training")


def signals_in_merge(halyard):
    """A signal in the middle of a merge, wherever that is, leaves nothing behind; what SIGKILL leaves is in nobody's way."""
    folder = pathlib.Path(halyard.folder)
    plugins = pathlib.Path(halyard.program).parents[1] / "tests/plugins"
    if not plugins.exists():
        return
    left = lambda: sorted(path.name for path in folder.iterdir() if path.name.startswith("merged"))
    merge = ["merge", "--backend", "guarded", "--model", "demo/model", "--adapter", "demo/adapter", "--out", "merged"]

    def merge_with(number, copies):
        env = {**os.environ, "HALYARD_PLUGIN_PATH": str(plugins), "HALYARD_LOG": "0",
               "HALYARD_GUARDED_WRONG": f"signal:{number}:{copies}"}
        done = subprocess.run([halyard.program, *merge], cwd=folder, env=env, capture_output=True, text=True, timeout=500,
                              check=False)
        return done.returncode, done.stderr

    def cut_short(number, copies):
        code, said = merge_with(number, copies)
        check(code == 128 + number and "nothing was written" in said, f"signal {number} ends merge with {code}: {said}")
        check(not left(), f"signal {number} with copy {copies} leaves {left()}")

    for number in (signal.SIGINT, signal.SIGHUP):
        cut_short(number, 1)
    copies = 1
    while merge_with(signal.SIGKILL, copies)[0] == -signal.SIGKILL:
        check("merged" not in left(), f"SIGKILL with copy {copies} leaves a folder that looks whole")
        cut_short(signal.SIGTERM, copies)  # and takes what SIGKILL left along
        copies *= 2
    check(left() == ["merged"], f"a merge leaves {left()}")
    check(copies > 8, f"a merge is {copies} copies: none in its middle was tried")
    shutil.rmtree(folder / "merged")


def untrusted(halyard):
    """What is beside a copied program is not loaded; a FIFO in a model's folder is refused."""
    folder = pathlib.Path(halyard.folder)
    plugin = pathlib.Path(halyard.program).parents[1] / "tests/plugins/libhalyard_guarded.so"
    if plugin.exists():
        for place in ("copy/bin/halyard", "copy/lib/halyard"):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(halyard.program, folder / "copy/bin/tool")
        for place in ("copy/bin/halyard", "copy/lib/halyard"):
            (folder / place).mkdir()
            shutil.copy(plugin, folder / place)
        copied = Halyard(str(folder / "copy/bin/tool"), halyard.folder)
        check("guarded" not in copied.run("info"), "a copied program loads what is beside it")
        path = {**os.environ, "HALYARD_PLUGIN_PATH": str(folder / "copy/lib/halyard")}
        check("guarded" in copied.run("info", env=path), "HALYARD_PLUGIN_PATH is not searched")
        (folder / "copy/lib/halyard").chmod(0o777)
        copied.run("info", env=path, says="others may write the folder")
    for name in ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json"):
        shutil.copytree(folder / "demo/model", folder / "fifo")
        (folder / "fifo" / name).unlink()
        os.mkfifo(folder / "fifo" / name)
        halyard.run("run", "--model", "fifo", "--prompt", "x", code=BAD_FILE, says="not a plain file")
        shutil.rmtree(folder / "fifo")
    # Words cannot end a message: spelt out, a marker is more than one token.
    said = [json.loads(halyard.run("chat", "--model", "demo/model", "--max-tokens", "1", "--json", text=text + "\n"))
            for text in ("a", "<|im_end|>")]
    check(said[1]["prompt_tokens"] > said[0]["prompt_tokens"], "a user's words forge a marker")


def failures(halyard):
    make_model(halyard)
    lost_output(halyard)
    meaningless_options(halyard)
    folders(halyard)
    signals(halyard)
    signals_in_merge(halyard)
    untrusted(halyard)


PARTS = {"basics": basics, "model": model, "terminal": terminal, "bench": bench, "failures": failures}


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    for part in sys.argv[2:] or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](Halyard(program, folder))
        print(f"cli: {part} as it should be")


main()

"""Fine-tuning against PEFT: loss curves, adapters, merging, and resuming."""

import json
import math
import random
import signal
import subprocess
import time

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from models import PROGRAM, Model, halyard, make_ids, make_model, relative_error
from test_models import quantise_model
from test_tokenizers import ROOT, qwen

MASK = (1 << 64) - 1
BATCH, LENGTH = 2, 48


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A model with a tokenizer and a chat template's tokens, and texts to learn."""
    folder = tmp_path_factory.mktemp("base")
    make_model("qwen2", vocab_size=1200).save_pretrained(folder)
    qwen().save(str(folder / "tokenizer.json"))
    lines = (ROOT / "LICENSE").read_text().split("\n\n")  # a text that does not change
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines[:40]))
    return folder, data


def draw(seed, index):
    z = (seed * 0xD1342543DE82EF95 + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def order(seed, epoch, rows):
    seed, order = draw(seed, epoch), list(range(rows))
    for i in range(rows - 1, 0, -1):
        j = draw(seed, i) % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def batches(base, seed, steps, batch, length):
    """What each step sees, as (tokens, targets)."""
    folder, data = base
    tokenizer = qwen_of(folder)
    end = tokenizer.token_to_id("<|endoftext|>")
    flow = []
    for line in data.read_text().splitlines():
        flow += tokenizer.encode(json.loads(line)["text"]).ids + [end]
    rows = math.ceil((len(flow) - 1) / length)
    tokens = flow + [end] * (rows * length - len(flow))
    targets = flow[1:] + [-100] * (rows * length - len(flow) + 1)
    for step in range(steps):
        picked = []
        for i in range(batch):
            at = step * batch + i
            picked.append(order(seed, at // rows, rows)[at % rows] * length)
        yield (torch.tensor([tokens[r:r + length] for r in picked]), torch.tensor([targets[r:r + length] for r in picked]))


def qwen_of(folder):
    from tokenizers import Tokenizer
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def finetune(base, out, *more, **options):
    folder, data = base
    output = halyard("finetune", "--model", folder, "--data", data, "--out", out, "--batch", BATCH, "--seq", LENGTH,
                     "--json", "--threads", 2, *more, **options).stdout
    return [json.loads(line) for line in output.splitlines()]


def schedule(step, warmup, total, peak):
    step += 1
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total + 1 - warmup)))


def losses_in_torch(model, data, steps, lr, warmup=0, weight_decay=0.0):
    """The losses of training the parameters that want a gradient, as `halyard finetune` does it."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=weight_decay)
    losses = []
    for step, (tokens, wanted) in enumerate(data):
        loss = torch.nn.functional.cross_entropy(model(tokens).logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = schedule(step, warmup, steps, lr)
        optimizer.step()
        losses.append(loss.item())
    return losses


def adapted(folder, seed=0, **options):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(folder)
    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **options))


@pytest.mark.parametrize("targets, extra", [
    (["q_proj", "k_proj", "v_proj", "o_proj"], []),
    (["q_proj", "gate_proj", "down_proj"], ["--checkpoint", "block"]),
    (["v_proj", "up_proj", "down_proj"], ["--checkpoint", "mlp"]),
])
def test_loss_curve(base, tmp_path, targets, extra):
    """50 steps of LoRA from the same A, on the same data, with the same AdamW and schedule."""
    folder, _ = base
    steps, lr, warmup = 50, 5e-3, 5
    model = adapted(folder, r=8, lora_alpha=16, target_modules=targets)
    model.save_pretrained(tmp_path / "start")
    theirs = losses_in_torch(model, batches(base, 7, steps, BATCH, LENGTH), steps, lr, warmup=warmup, weight_decay=0.01)
    ours = finetune(base, tmp_path / "out", "--adapter", tmp_path / "start", "--steps", steps, "--lr", lr,
                    "--warmup", warmup, "--weight-decay", 0.01, "--seed", 7, *extra)
    assert [row["step"] for row in ours] == list(range(1, steps + 1))
    assert ours[9]["lr"] == pytest.approx(schedule(9, warmup, steps, lr))
    assert theirs[-1] < theirs[0] - 0.3
    assert max(abs(a["loss"] - b) for a, b in zip(ours, theirs)) < 1e-3

    # What comes out loads in PEFT and gives the same logits there, here, and merged.
    ids = make_ids(40, vocab=1200)
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), tmp_path / "out").eval()
    with torch.no_grad():
        wanted = loaded(torch.tensor([ids])).logits[0, -1]
    with Model(folder, adapter=tmp_path / "out") as model_:
        assert relative_error(model_.logits(ids), wanted) < 1e-4
    halyard("merge", "--model", folder, "--adapter", tmp_path / "out", "--out", tmp_path / "merged")
    with Model(tmp_path / "merged") as model_:
        assert relative_error(model_.logits(ids), wanted) < 1e-4
    with torch.no_grad():
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")(torch.tensor([ids])).logits[0, -1]
    assert relative_error(merged, wanted) < 1e-4


def test_all_parameters(base, tmp_path):
    """All parameters, with accumulation, against PyTorch; and the model that comes out."""
    folder, _ = base
    steps, lr = 12, 1e-3
    model = AutoModelForCausalLM.from_pretrained(folder)
    theirs = losses_in_torch(model, batches(base, 0, steps, 2 * BATCH, LENGTH), steps, lr)
    ours = finetune(base, tmp_path / "out", "--full", "--steps", steps, "--lr", lr, "--accumulate", 2)
    assert max(abs(a["loss"] - b) for a, b in zip(ours, theirs)) < 1e-3
    ids = make_ids(40, vocab=1200)
    with torch.no_grad():
        wanted = AutoModelForCausalLM.from_pretrained(tmp_path / "out")(torch.tensor([ids])).logits[0, -1]
    with Model(tmp_path / "out") as model_:
        assert relative_error(model_.logits(ids), wanted) < 1e-4


def test_bfloat16_base(base, tmp_path):
    folder, _ = base
    wide = finetune(base, tmp_path / "wide", "--steps", 8, "--lr", 5e-3)
    half = finetune(base, tmp_path / "half", "--steps", 8, "--lr", 5e-3, "--dtype", "bf16")
    # Steps see other texts, so that no two of them compare: what counts is that it learns as f32 does.
    assert max(abs(a["loss"] - b["loss"]) for a, b in zip(wide, half)) < 0.05
    assert half[0]["loss"] - half[-1]["loss"] > wide[0]["loss"] - wide[-1]["loss"] - 0.05
    assert all(t.dtype == torch.float32 for t in load_file(tmp_path / "half/adapter_model.safetensors").values())


@pytest.mark.parametrize("format", ["q8", "q4"])
def test_quantised_base(base, tmp_path, format):
    """LoRA on packed weights: PEFT's curve on the same weights, rounded as they are."""
    folder, _ = base
    steps, lr = 20, 5e-3
    model = adapted(folder, r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"])
    model.save_pretrained(tmp_path / "start")
    quantise_model(model, format, activations=False)
    theirs = losses_in_torch(model, batches(base, 7, steps, BATCH, LENGTH), steps, lr)
    ours = finetune(base, tmp_path / "out", "--adapter", tmp_path / "start", "--steps", steps, "--lr", lr, "--seed", 7,
                    "--dtype", format)
    assert sum(theirs[-5:]) < sum(theirs[:5]) - 0.1
    assert max(abs(a["loss"] - b) for a, b in zip(ours, theirs)) < 1e-3
    halyard("run", "--model", folder, "--adapter", tmp_path / "out", "--dtype", format, "--ids", "1,2,3", "--max-tokens", 4, "--json")


@pytest.mark.parametrize("what, memory", [("block", 0.8), ("mlp", 0.95)])
def test_recomputed_activations(base, tmp_path, what, memory):
    """--checkpoint changes memory and time, and no bit of the result, dropout included."""
    common = ["--steps", 3, "--lr", 5e-3, "--dropout", 0.2, "--batch", 64, "--targets", "q_proj,up_proj,down_proj"]
    kept = finetune(base, tmp_path / "kept", *common)
    again = finetune(base, tmp_path / "again", "--checkpoint", what, *common)
    assert [row["loss"] for row in kept] == [row["loss"] for row in again]
    assert again[-1]["memory_peak"] < memory * kept[-1]["memory_peak"]
    same = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("kept", "again")]
    assert same[0] == same[1]


def test_logits_are_never_whole(base, tmp_path):
    """Rows of 30000 logits and their gradients for 4096 tokens would take 980 MB."""
    folder, data = base
    make_model("qwen2", vocab_size=30000, num_hidden_layers=1).save_pretrained(tmp_path / "wide")
    (tmp_path / "wide/tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    rows = finetune((tmp_path / "wide", data), tmp_path / "out", "--steps", 1, "--batch", 8, "--seq", 512)
    assert rows[0]["memory_peak"] < 300e6


def test_killed_and_resumed(base, tmp_path):
    """SIGKILL at any moment, then --resume: the same adapter, bit for bit."""
    folder, data = base
    common = ["--steps", 24, "--lr", 5e-3, "--dropout", 0.1, "--save-every", 2, "--seed", 3]
    finetune(base, tmp_path / "whole", *common)
    command = [PROGRAM, "finetune", "--model", folder, "--data", data, "--out", tmp_path / "broken", "--batch", BATCH,
               "--seq", LENGTH, "--json", "--threads", 2, "--resume", *common]
    random.seed(time.time())
    for _ in range(3):
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(random.randint(1, 8)):
            process.stdout.readline()
        time.sleep(random.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    rest = finetune(base, tmp_path / "broken", "--resume", *common)
    assert rest == [] or rest[-1]["step"] == 24
    same = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("whole", "broken")]
    assert same[0] == same[1]


def test_interrupted(base, tmp_path):
    folder, data = base
    command = [PROGRAM, "finetune", "--model", folder, "--data", data, "--out", tmp_path / "out", "--batch", BATCH,
               "--seq", LENGTH, "--json", "--steps", 100000]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "--resume" in error
    assert load_file(tmp_path / "out/training.safetensors")["steps"].item() >= 1
    again = halyard(*map(str, command[1:]), check=False)
    assert again.returncode == 2 and "--resume" in again.stderr
    other = halyard(*map(str, command[1:]), "--resume", "--lr", "1", check=False)
    assert other.returncode == 2 and "learning rate" in other.stderr


def test_chat_data(base, tmp_path):
    """The tokens of a chat are those of transformers' template of the same format."""
    folder, _ = base
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "\nHello, 世界!"},
                {"role": "assistant", "content": "\n\nHi  there."}]
    data = tmp_path / "chat.jsonl"
    data.write_text(json.dumps({"messages": messages}) + "\n")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
                               "{% endfor %}")
    ids = tokenizer.apply_chat_template(messages, return_dict=False)
    end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    start = tokenizer.apply_chat_template(messages[:2], return_dict=False)
    header = qwen_of(folder).encode("<|im_start|>assistant").ids
    tokens = ids + [end]
    targets = [-100] * len(tokens)
    # The words begin after the header's line break, which here is one token with the words' own breaks.
    for i in range(len(start) + len(header), len(ids) - 2):
        targets[i] = tokens[i + 1]
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor(targets)).item()
    row = finetune((folder, data), tmp_path / "out", "--steps", 1, "--batch", 1, "--seq", 128)[0]
    assert row["loss"] == pytest.approx(wanted, abs=1e-3)


def test_bad_data(base, tmp_path):
    folder, _ = base
    data = tmp_path / "bad.jsonl"
    data.write_text('{"text": "fine"}\n{"text": }\n')
    result = halyard("finetune", "--model", folder, "--data", data, "--out", tmp_path / "out", check=False)
    assert result.returncode == 4 and "line 2" in result.stderr
    assert not (tmp_path / "out").exists()


def test_failure_leaves_no_folder(base, tmp_path):
    """What the command made goes again; a folder that was there stays."""
    folder, data = base
    (tmp_path / "there").mkdir()
    for out in ("new", "there"):
        for mistake, code in ((["--seq", 100000], 2), (["--lr", 1e300, "--clip", 0, "--steps", 50], 1)):
            result = halyard("finetune", "--model", folder, "--data", data, "--out", tmp_path / out, *mistake, check=False)
            assert result.returncode == code, result.stderr
            assert (tmp_path / out).exists() == (out == "there")


def test_byte_order_mark(base, tmp_path):
    folder, data = base
    marked = tmp_path / "marked.jsonl"
    marked.write_bytes(b"\xef\xbb\xbf" + data.read_bytes())
    rows = [finetune((folder, d), tmp_path / ("out-" + d.stem), "--steps", 1)[0]["loss"] for d in (data, marked)]
    assert rows[0] == rows[1]


def test_loss_that_is_no_number(base, tmp_path):
    """The training ends with an error, and what was saved before is whole and stays."""
    folder, data = base
    result = halyard("finetune", "--model", folder, "--data", data, "--out", tmp_path / "out", "--steps", 50, "--lr", 1e30,
                     "--clip", 0, "--save-every", 1, "--batch", BATCH, "--seq", LENGTH, "--json", check=False)
    done = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 1 and f"step {len(done) + 1}" in result.stderr and "learning rate" in result.stderr
    assert len(done) >= 1 and all(math.isfinite(row["loss"]) for row in done)
    saved = load_file(tmp_path / "out/training.safetensors")
    assert saved["steps"].item() == len(done)
    assert all(t.isfinite().all() for name, t in saved.items() if "lora" in name)


def test_disk_fills_up_later(base, tmp_path):
    """A save that fails leaves the one before it, byte for byte, and nothing beside it."""
    folder, data = base
    common = [PROGRAM, "finetune", "--model", folder, "--data", data, "--out", tmp_path / "out", "--batch", BATCH, "--seq",
              LENGTH, "--json", "--steps", 100000, "--save-every", 1]
    process = subprocess.Popen([str(word) for word in common], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert "training.safetensors" in before
    script = "ulimit -f 20; trap '' XFSZ; exec " + " ".join(map(str, common)) + " --resume"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert result.returncode == 4 and "cannot be written" in result.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_truncated_base(base, tmp_path):
    """A model whose file is cut short is refused before anything is made."""
    folder, data = base
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    result = halyard("finetune", "--model", tmp_path, "--data", data, "--out", tmp_path / "out", check=False)
    assert result.returncode == 4 and weights.name in result.stderr
    assert not (tmp_path / "out").exists()


def test_full_disk(base, tmp_path):
    """An error where the disk is full, no half-written file, and no empty folder for it."""
    folder, data = base
    script = f"ulimit -f 20; trap '' XFSZ; exec {PROGRAM} finetune --model {folder} --data {data} --out {tmp_path / 'out'} --steps 1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120)
    assert result.returncode == 4 and "cannot be written" in result.stderr
    assert not (tmp_path / "out").exists()

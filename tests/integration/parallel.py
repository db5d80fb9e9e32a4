#!/usr/bin/env python3
"""Models on several processes and devices, by the mpirun of Open MPI and of MPICH.

    parallel.py HALYARD PART ...     parts: tensor data kills commands pipeline plan
    parallel.py HALYARD kills 20     so many kills in place of a few

Ends with 77, skipped, where a part needs mpirun and there is none. Each rank has one thread.
"""
import glob
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs" / "parallel.md"
LAUNCHERS = [name for name in ("mpirun.openmpi", "mpirun.mpich") if shutil.which(name)]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_rmaps_base_oversubscribe="1", HALYARD_LOG="0")
IDS = "5,300,12,77,8,901"


def launch(launcher, ranks, *words):
    """The line of a launcher."""
    more = ["--oversubscribe", "--bind-to", "none"] if launcher.endswith("openmpi") else []
    return [launcher, *more, "-n", str(ranks), *words]


class Halyard:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder

    def run(self, *words, launcher=None, ranks=1, code=0, says="", cwd=None):
        """What it printed; both streams are searched for `says`. code None: any but 0."""
        line = [self.program, *words, "--threads", "1"]
        if launcher:
            line = launch(launcher, ranks, *line)
        done = subprocess.run(line, cwd=cwd or self.folder, env=ENVIRONMENT, capture_output=True, text=True,
                              errors="replace", timeout=300, check=False)
        right = done.returncode == code if code is not None else done.returncode != 0
        if not right or says not in done.stdout + done.stderr:
            sys.exit(f"{' '.join(line)}: ends with {done.returncode}, not {code} and {says!r}:\n"
                     f"{done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *words, **more):
        lines = self.run(*words, "--json", **more).splitlines()
        if len(lines) != 1:
            sys.exit(f"{' '.join(words)}: {len(lines)} lines, where one rank should print one:\n" + "\n".join(lines))
        return json.loads(lines[0])

    def make_model(self):
        """The demo's smallest model in float32, trained for a moment, with its tokenizer."""
        self.run("demo", "--out", "demo", "--steps", "2", "--lora-steps", "1", "--size", "small", "--tokens", "4",
                 "--json")
        for name in ("model", "adapter"):
            shutil.copytree(self.folder / "demo" / name, self.folder / name, dirs_exist_ok=True)
        lines = [{"text": "int f(int x) { return x + %d; }" % i} for i in range(40)]
        (self.folder / "texts.jsonl").write_text("\n".join(json.dumps(line) for line in lines))


def whole(path):
    """Whether a safetensors file has all that its header says."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return len(data) == 8 + size + max(ends)


# ---- tensor ----

def test_tensor(halyard):
    greedy = ["run", "--model", "model", "--ids", IDS, "--max-tokens", "24", "--dtype", "f32", "--ignore-end"]
    drawn = [*greedy, "--temperature", "0.9", "--top-p", "0.9", "--seed", "7", "--repetition-penalty", "1.1"]
    adapted = [*greedy, "--adapter", "adapter"]
    for words in (greedy, drawn, adapted):
        alone = halyard.json(*words)
        for launcher in LAUNCHERS:
            for ranks in (2, 4):
                many = halyard.json(*words, "--parallel", "tensor", launcher=launcher, ranks=ranks)
                if many["ids"] != alone["ids"]:
                    sys.exit(f"{launcher}, {ranks} ranks: {many['ids']}, alone: {alone['ids']}")
                if not many["loaded_bytes"] < alone["loaded_bytes"] * 1.2 / ranks:
                    sys.exit(f"{ranks} ranks: one loads {many['loaded_bytes']} of {alone['loaded_bytes']} bytes")
                if words is not greedy:
                    break
    for launcher in LAUNCHERS:
        for dtype in ("bf16", "q8"):
            halyard.json(*greedy[:-3], "--dtype", dtype, "--parallel", "tensor", launcher=launcher, ranks=2)
        halyard.run(*greedy, "--parallel", "tensor", launcher=launcher, ranks=3, code=None,
                    says="3 ranks cannot share 2 key-value heads")
        halyard.run(*greedy, "--parallel", "tensor", "--cache-packed", "--dtype", "q8", launcher=launcher, ranks=2,
                    code=None, says="packed weights are cached of whole models")
    test_tensor_stages(halyard, greedy)
    halyard.run(*greedy, "--parallel", "tensor", code=2, says="needs a launcher")
    halyard.run(*greedy, "--parallel", "data", code=2, says="--parallel is 'tensor', not 'data'")


def test_tensor_stages(halyard, words):
    """Ranks that share the layers of each of several devices."""
    alone = halyard.json(*words)
    other = next((name for name in ("echo", "guarded") if is_here(halyard, name)), "cpu")
    for launcher in LAUNCHERS:
        for ranks, more in ((2, []), (4, ["--split", "1,2"])):
            many = halyard.json(*words, "--parallel", "tensor", "--devices", f"cpu:0,{other}:0", *more, launcher=launcher,
                                ranks=ranks)
            if many["ids"] != alone["ids"]:
                sys.exit(f"{launcher}, {ranks} ranks, cpu and {other}: {many['ids']}, alone: {alone['ids']}")
            if not many["loaded_bytes"] < many["file_bytes"] * 1.2 / ranks:
                sys.exit(f"{ranks} ranks: one loads {many['loaded_bytes']} of {many['file_bytes']} bytes")


# ---- data ----

def finetune(halyard, out, *more, **launched):
    halyard.run("finetune", "--model", "model", "--data", "texts.jsonl", "--out", out, "--rank", "4", "--batch", "2",
                "--seq", "24", "--steps", "4", "--dropout", "0.1", "--lr", "1e-2", *more, **launched)
    return (halyard.folder / out / "adapter_model.safetensors").read_bytes()


def test_data(halyard):
    wanted = {n: finetune(halyard, f"alone{n}", "--accumulate", str(n)) for n in (2, 4)}
    for launcher in LAUNCHERS:
        for ranks, passes in ((2, 2), (2, 4), (4, 4)):
            out = f"{launcher}-{ranks}-{passes}"
            more = ["--accumulate", str(passes)] if passes != ranks else []
            got = finetune(halyard, out, "--parallel", "data", *more, launcher=launcher, ranks=ranks)
            if got != wanted[passes]:
                sys.exit(f"{out}: the adapter is not that of {passes} accumulated passes")
    # Begun by two ranks, ended by one, and the other way round: the same adapter.
    launcher = LAUNCHERS[0]
    halves = ["--accumulate", "2", "--save-every", "2"]
    data = ["--parallel", "data"]
    for first, second in ((data, []), ([], data)):
        out = f"halves{len(first)}"
        cut_short(halyard, out, [*halves, *first], launcher)
        got = finetune(halyard, out, *halves, *second, "--resume", launcher=launcher if second else None, ranks=2)
        if got != wanted[2]:
            sys.exit(f"{out}: resumed, the adapter is another")
    halyard.run("finetune", "--model", "model", "--data", "texts.jsonl", "--out", "x", "--accumulate", "3",
                "--parallel", "data", launcher=launcher, ranks=2, code=None, says="2 ranks cannot share 3 passes")
    if (halyard.folder / "x").exists():
        sys.exit("a training that was refused left its folder")


def cut_short(halyard, out, more, launcher):
    """Trains the first steps: the state of step 2 is kept from a whole training."""
    words = [halyard.program, "finetune", "--model", "model", "--data", "texts.jsonl", "--out", out, "--rank", "4",
             "--batch", "2", "--seq", "24", "--steps", "4", "--dropout", "0.1", "--lr", "1e-2", *more, "--json",
             "--threads", "1"]
    line = launch(launcher, 2, *words) if "--parallel" in more else words
    with subprocess.Popen(line, cwd=halyard.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        for row in process.stdout:
            if json.loads(row)["step"] == 2:
                shutil.copytree(halyard.folder / out, halyard.folder / "kept", dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.part"))
        if process.wait() != 0:
            sys.exit(f"{' '.join(line)}: ends with {process.returncode}")
    shutil.rmtree(halyard.folder / out)
    (halyard.folder / "kept").rename(halyard.folder / out)


# ---- kills ----

def ranks_of(marker):
    """Processes of the job that has `marker` on its line, by rank."""
    found = {}
    for path in glob.glob("/proc/[0-9]*"):
        try:
            line = pathlib.Path(path, "cmdline").read_bytes()
            environment = pathlib.Path(path, "environ").read_bytes()
        except OSError:
            continue
        rank = re.search(rb"(?:OMPI_COMM_WORLD_RANK|PMI_RANK)=(\d+)", environment)
        if marker.encode() in line and b"finetune" in line.split(b"\0")[1] and rank:
            # A rank that looks at a plugin does so in a child, which is the younger one.
            found[int(rank.group(1))] = min(int(path[6:]), found.get(int(rank.group(1)), sys.maxsize))
    return found


def kill_one(halyard, launcher, ranks, draws, number):
    out = f"killed{number}"
    line = launch(launcher, ranks, halyard.program, "finetune", "--model", "model", "--data", "texts.jsonl", "--out",
                  str(halyard.folder / out), "--rank", "4", "--batch", "2", "--seq", "24", "--steps", "100000",
                  "--save-every", "1", "--parallel", "data", "--threads", "1")
    with subprocess.Popen(line, cwd=halyard.folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace") as process:
        while len(ranks_of(out)) < ranks and process.poll() is None:
            time.sleep(0.01)
        time.sleep(draws.uniform(0, 2))
        victim, processes = draws.randrange(ranks), ranks_of(out)
        if process.poll() is not None or len(processes) < ranks:
            process.kill()
            sys.exit(f"{launcher}: {ranks} ranks ended before one was killed:\n{process.communicate()[0]}")
        os.kill(processes[victim], signal.SIGKILL)
        killed = time.monotonic()
        said, _ = process.communicate(timeout=60)
        while time.monotonic() - killed < 10 and ranks_of(out):
            time.sleep(0.05)
        seconds = time.monotonic() - killed
    left = ranks_of(out)
    if process.returncode == 0 or left or seconds >= 10:
        sys.exit(f"{launcher}: rank {victim} of {ranks} was killed; after {seconds:.1f} s it ends with "
                 f"{process.returncode}, and {len(left)} are left:\n{said}")
    # mpirun says which process a signal ended, or a rank which other one is gone. MPICH's mpirun fails itself where a rank
    # dies inside MPI_Init; and UCX below it ends a rank that reads the memory of one that dies just then.
    if not re.search(r"signal 9|KILLED|Killed|rank \d+|process manager error|process_vm_readv.*No such process", said):
        sys.exit(f"{launcher}: a rank was killed, and nothing says so:\n{said}")
    for name in glob.glob(str(halyard.folder / out / "*.safetensors")):
        if not whole(pathlib.Path(name)):
            sys.exit(f"{name}: half-written")
    return seconds


def test_kills(halyard, n):
    draws = random.Random(19)
    seconds = [kill_one(halyard, LAUNCHERS[i % len(LAUNCHERS)], 2 + i // 2 % 2, draws, i) for i in range(n)]
    print(f"kills: {n}, the slowest end after {max(seconds):.2f} s")


# ---- others ----

def is_here(halyard, backend):
    return re.search(rf"^  {backend} +(?!missing)", halyard.run("info"), re.MULTILINE)


def test_commands(halyard):
    """Every command of docs/parallel.md, with each mpirun."""
    lines = re.findall(r"^    ((?:mpirun|halyard) .*)$", DOCS.read_text(), re.MULTILINE)
    if len(lines) < 5:
        sys.exit(f"{DOCS}: {len(lines)} commands")
    for launcher in LAUNCHERS:
        shutil.rmtree(halyard.folder / "adapter-2", ignore_errors=True)
        for line in lines:
            if "echo" in line and not is_here(halyard, "echo"):
                continue
            words = line.replace("halyard", halyard.program, 1)
            more = "--oversubscribe --bind-to none" if launcher.endswith("openmpi") else ""
            words = re.sub("^mpirun", f"{launcher} {more}", words)
            done = subprocess.run(words, shell=True, cwd=halyard.folder, env=ENVIRONMENT, capture_output=True, text=True,
                                  errors="replace", timeout=300, check=False)
            if done.returncode != 0:
                sys.exit(f"docs/parallel.md: {line}: ends with {done.returncode}:\n{done.stdout}{done.stderr}")


def test_pipeline(halyard):
    words = ["run", "--model", "model", "--ids", IDS, "--max-tokens", "16", "--dtype", "f32", "--ignore-end"]
    alone = halyard.json(*words)
    others = [name for name in ("guarded", "echo") if is_here(halyard, name)]
    for other in others or ["cpu"]:
        for more in ([], ["--split", "1,2"], ["--split", "2,1"]):
            split = halyard.json(*words, "--devices", f"cpu:0,{other}:0", *more)
            if split["ids"] != alone["ids"]:
                sys.exit(f"cpu and {other} {more}: {split['ids']}, alone: {alone['ids']}")
    halyard.run(*words, "--devices", "cpu:0,cpu:0", says="layers from")
    for more, says in ((["--split", "4,1"], "do not add up to the model's 3"),
                       (["--split", "3"], "--split names the layers of 1 devices"),
                       (["--split", "a,b"], "--split takes numbers of layers"),
                       (["--backend", "cpu"], "--devices takes the place of --backend")):
        halyard.run(*words, "--devices", "cpu:0,cpu:0", *more, code=2, says=says)
    halyard.run(*words, "--split", "1,2", code=2, says="--split goes with --devices")


def test_plan(halyard):
    words = ["plan", "--model", "model", "--link", "10"]
    rows = {n: {row["split"]: row for row in halyard.json(*words, "--devices", str(n))["splits"]} for n in (1, 2, 3)}
    bytes_of = {n: rows[n]["tensor"].get("weight_bytes") for n in rows}
    tensors = (halyard.folder / "model" / "model.safetensors").read_bytes()
    header = 8 + struct.unpack("<Q", tensors[:8])[0]
    if bytes_of[1] != len(tensors) - header:
        sys.exit(f"plan: {bytes_of[1]} bytes of weights, the file has {len(tensors) - header}")
    loaded = halyard.json("run", "--model", "model", "--ids", "1", "--max-tokens", "1")["loaded_bytes"]
    if loaded != bytes_of[1] or not bytes_of[1] / 2 < bytes_of[2] < bytes_of[1] * 0.6:
        sys.exit(f"plan: {bytes_of} bytes, {loaded} are loaded")
    if "refused" not in rows[3]["tensor"] or rows[2]["data"]["wire_bytes_step"] <= 0:
        sys.exit(f"plan: {rows}")
    if not rows[1]["tensor"]["tok_s"] < rows[2]["data"]["tok_s"]:
        sys.exit(f"plan: {rows}")
    halyard.run(*words, "--devices", "2", says="tokens/s")
    halyard.run("plan", "--model", "model", "--devices", "2", code=2, says="--model, --devices and --link are needed")
    halyard.run(*words, "--devices", "2", "--context", "100000", code=2, says="positions")


def main():
    program, *parts = sys.argv[1:]
    needs_mpi = {"tensor", "data", "kills", "commands"}
    kills = next((int(part) for part in parts if part.isdigit()), 4)
    if needs_mpi & set(parts) and not LAUNCHERS:
        print("skipped: there is no mpirun of Open MPI or MPICH")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        halyard = Halyard(os.path.abspath(program), pathlib.Path(folder))
        halyard.make_model()
        for part in parts:
            if part == "kills":
                test_kills(halyard, kills)
            elif not part.isdigit():
                {"tensor": test_tensor, "data": test_data, "commands": test_commands, "pipeline": test_pipeline,
                 "plan": test_plan}[part](halyard)
            if not part.isdigit():
                print(f"{part}: passed")


main()

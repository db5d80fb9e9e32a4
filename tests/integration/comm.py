"""Communicators by MPI, over every MPI library that is here: comm.py COMM_RANK HALYARD FOLDER PART [--require] [--quick]

    agree     conformance, order of sums, crossing messages, parts of the world; 2 to 4 ranks, on the cpu and staged
    differ    every way in which ranks disagree, abort, leave or come too late: an error on each, and no hang
    kills     ranks killed at random moments: the others end within 10 seconds and say why
    persistent PersistentKernel of several ranks: tokens of one process, ranks that disagree, fail or are killed
    libraries libraries that are missing, no MPI, too old, or not the launcher's; the id by a file
    bench     halyard bench comm

FOLDER holds libraries of tests/comm. --quick, for sanitizers: fewer numbers of ranks. 77: no MPI is here, and none is required.
"""
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

rank_program, halyard, folder, part = sys.argv[1:5]
required, quick = "--require" in sys.argv, "--quick" in sys.argv
LIMIT = 300  # seconds for what must end by itself; sanitizers are slow
# Open MPI refuses to run as root and more ranks than cores unless told; waiting ranks leave the core to others.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
               "OMPI_MCA_btl_base_warn_component_unused": "0", "HALYARD_THREADS": "1"}
# UCX, MPICH's transport, watches memory by hooks that ThreadSanitizer does not survive.
ENVIRONMENT["UCX_MEM_EVENTS"] = "no"


def launchers():
    """Name, mpirun and what its processes need."""
    found = []
    for name in ("openmpi", "mpich"):
        program = shutil.which(f"mpirun.{name}")
        if program:
            found.append((name, [program], {}))
    # PyPI's MPICH has the standard ABI of MPI-5.
    root = pathlib.Path(__file__).resolve().parents[2] / ".venv"
    library = root / "lib/libmpi_abi.so.1"
    if library.exists() and (root / "bin/mpiexec").exists():
        found.append(("mpi-5", [str(root / "bin/mpiexec")], {"HALYARD_MPI": str(library)}))
    return found


def expect(condition, what):
    if not condition:
        sys.exit(f"comm {part}: {what}")


def start(launcher, ranks, *command, **environment):
    _, program, needs = launcher
    return subprocess.Popen([*program, "-n", str(ranks), *command], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, start_new_session=True,
                            env={**ENVIRONMENT, **needs, **environment})


def finish(process, limit, what):
    try:
        return process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # a group that was started here
        sys.exit(f"comm {part}: {what} does not end:\n{process.communicate()[0]}")


def run(launcher, ranks, *command, **environment):
    process = start(launcher, ranks, *command, **environment)
    said = finish(process, LIMIT, f"{launcher[0]} {command}")
    return process.returncode, said


def cases_hold(launcher, ranks, cases, *device, program=rank_program, **environment):
    code, said = run(launcher, ranks, program, cases, *device, **environment)
    expect(code == 0, f"{launcher[0]}, {ranks} ranks, {cases}: ends with {code}:\n{said}")
    for name in cases.split(","):
        for rank in range(ranks):
            expect(f"rank {rank} of {ranks}: {name} ok" in said, f"{launcher[0]}, {ranks} ranks, {name}:\n{said}")


def agree():
    for launcher in launchers():
        for ranks in (3,) if quick else (2, 3, 4):
            cases_hold(launcher, ranks, "conformance,order,crossing,parts")
        if quick:
            continue
        cases_hold(launcher, 2, "conformance,order,crossing,parts", "echo")
        # The guarded device has communicators of its own: MPI only carries the id, or everything where asked.
        cases_hold(launcher, 2, "order", "guarded")
        cases_hold(launcher, 2, "order", "guarded", HALYARD_COMM="mpi")


def differ():
    for launcher in launchers():
        for ranks in (3,) if quick else (2, 4):
            cases_hold(launcher, ranks, "counts_differ,long_counts_differ,long_broadcast_differs,types_differ,reductions_differ,"
                       "calls_differ,roots_differ,bad_arguments,same_rank_twice,id_used_twice,one_has_no_memory,one_aborts,a_thread_aborts,one_leaves")
        cases_hold(launcher, 3, "two_are_late", HALYARD_COMM_TIMEOUT="0.5")


def stat(pid):
    """State and parent of a process; None of one that is no more."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(") ", 1)[1].split()
        return fields[0], int(fields[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def lives(pid):
    now = stat(pid)
    return now is not None and now[0] not in "ZX"


def kill_one(launcher, ranks, draw, alone, *command):
    """Kills a rank; `alone`: mpirun is stopped meanwhile, so that the others have to find out by themselves."""
    process = start(launcher, ranks, *command)
    pids = {}
    said = ""
    while len(pids) < ranks:
        line = process.stdout.readline()
        expect(line, f"{launcher[0]} ends before it is killed:\n{said}")
        said += line
        for rank, pid in re.findall(r"rank (\d+) is process (\d+)", line):
            pids[int(rank)] = int(pid)
    time.sleep(draw.random() / 20)
    victim = draw.randrange(ranks)
    parents = {process.pid} | {stat(pid)[1] for pid in pids.values()}
    for parent in parents if alone else ():
        os.kill(parent, signal.SIGSTOP)
    begin = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    while any(lives(pid) for pid in pids.values()):
        if time.monotonic() - begin > 60:
            os.killpg(process.pid, signal.SIGKILL)
            sys.exit(f"comm kills: {launcher[0]}: a rank outlives rank {victim}:\n{said}{process.communicate()[0]}")
        time.sleep(0.01)
    taken = time.monotonic() - begin
    for parent in parents if alone else ():
        os.kill(parent, signal.SIGCONT)
    said += finish(process, LIMIT, f"{launcher[0]} with rank {victim} of {ranks} killed")
    expect(process.returncode != 0, f"{launcher[0]}, rank {victim} of {ranks} killed: mpirun ends with 0:\n{said}")
    return victim, pids, said, taken


def others_say_why(victim, pids, said):
    # A rank that reads a dead one's memory at that moment is ended by UCX, MPICH's transport, which names the process.
    ended = {victim}
    for reader, _ in re.findall(r"^\[\S+?:(\d+) *:.*process_vm_readv\(pid=(\d+)", said, re.M):
        ended |= {rank for rank, pid in pids.items() if pid == int(reader)}
    for rank in set(pids) - ended:
        # MPI's own error names the rank too, where it comes before the system says that the process is no more.
        why = r"rank \d+ has (died|failed or aborted)|with rank \d+, "
        expect(re.search(rf"rank {rank} of {len(pids)}: forever FAILED: .*({why})", said),
               f"rank {rank} does not say why it ends:\n{said}")
    expect(re.search(rf"rank {victim} has died|with rank {victim}, |process_vm_readv\(pid={pids[victim]} ", said),
           f"nobody says that rank {victim} has died:\n{said}")


def kills():
    draw = random.Random(19)
    slowest = 0
    for launcher in launchers():
        for turn in range(10):
            alone = turn % 5 > 1
            victim, pids, said, taken = kill_one(launcher, 2 if turn % 2 == 0 else 4, draw, alone, rank_program, "forever")
            slowest = max(slowest, taken)
            if alone:
                others_say_why(victim, pids, said)
    print(f"the slowest took {slowest:.2f} s to end")
    expect(slowest < 10, f"{slowest:.1f} s to end after a kill")


def persistent():
    program = str(pathlib.Path(rank_program).with_name("persistent_rank"))
    with tempfile.TemporaryDirectory() as scratch:
        models = [f"{scratch}/{layers}" for layers in (2, 3)]
        for layers, model in zip((2, 3), models, strict=True):
            os.mkdir(model)
            subprocess.run([program, "make", model, str(layers)], env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
        for launcher in launchers()[:1] if quick else launchers():
            cases_hold(launcher, 2, "tokens,prefill,given,fallback,models_differ,a_model_is_missing,sizes_differ,a_step_fails",
                       *models, program=program)
            if quick:
                continue
            cases_hold(launcher, 4, "tokens,models_differ", *models, program=program)
            victim, pids, said, taken = kill_one(launcher, 2, random.Random(14), True, program, "forever", *models)
            others_say_why(victim, pids, said)
            expect(taken < 10, f"{taken:.1f} s to end after a kill")


def run_tolerant(launcher, **environment):
    """Two ranks that are to fail, and end as if they had not: mpirun would end the other."""
    return run(launcher, 2, rank_program, "order", COMM_RANK_TOLERANT="1", **environment)[1]


def libraries():
    first = launchers()[0]
    for library, says in (("libno_such_mpi.so", "install Open MPI or MPICH"),
                          (f"{folder}/libmpi_hollow.so", "it is no MPI library"),
                          (f"{folder}/libmpi_old.so", "speaks MPI 2.2; 3.0 is the least")):
        said = run_tolerant(first, HALYARD_MPI=library)
        for rank in range(2):
            expect(re.search(rf"rank {rank} of 2: order FAILED: .*{re.escape(says)}", said), f"{library}:\n{said}")
    here = launchers()
    if len(here) > 1:  # the other's library under this mpirun: each process is a world of its own
        other = here[1][2].get("HALYARD_MPI", "libmpich.so.12")
        said = run_tolerant(first, HALYARD_MPI=other)
        for rank in range(2):
            expect(re.search(rf"rank {rank} of 2: order FAILED: .*the launcher says rank {rank} of 2, ", said), f"{other}:\n{said}")
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "id"
        for launcher in here:
            cases_hold(launcher, 3, "order", HALYARD_COMM_FILE=str(path))
            cases_hold(launcher, 2, "order", "guarded", HALYARD_COMM_FILE=str(path))
            expect(not path.exists(), "the file of the id is left behind")
        path.write_text("of another run")
        said = run_tolerant(first, HALYARD_COMM_FILE=str(path), HALYARD_COMM_TIMEOUT="1")
        expect("rank 0 of 2: order FAILED" in said and "is there already" in said, f"an old file of an id:\n{said}")
        expect("rank 1 of 2: order FAILED" in said, f"an old file of an id:\n{said}")


def bench():
    for launcher in launchers():
        code, said = run(launcher, 2, halyard, "bench", "comm", "--only", "3.5 KiB", "--backend", "cpu")
        expect(code == 0 and re.search(r"^all_reduce +3.5 KiB +f32 .*MPI_Allreduce", said, re.M), f"{launcher[0]}:\n{said}")
    alone = subprocess.run([halyard, "bench", "comm"], capture_output=True, text=True, check=False)
    expect(alone.returncode != 0 and "mpirun -n 2" in alone.stderr, f"without mpirun: {alone.stderr}")


if not launchers():
    print("no mpirun.openmpi or mpirun.mpich is here")
    sys.exit(1 if required else 77)
if required:
    expect({"openmpi", "mpich"} <= {name for name, _, _ in launchers()}, "Open MPI and MPICH are both required")
{"agree": agree, "differ": differ, "kills": kills, "persistent": persistent, "libraries": libraries, "bench": bench}[part]()

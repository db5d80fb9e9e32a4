"""Tensor parallel: ranks of Open MPI and of MPICH choose the tokens of one process, at f32, at half the width of Qwen2.5-0.5B.

The nightly tests do the same at its true shape (tests/nightly).
"""

import json
import os
import shutil
import subprocess

import pytest
from models import PROGRAM, make_ids, make_model, run_greedy

LAUNCHERS = {"mpirun.openmpi": ["--oversubscribe", "--bind-to", "none"], "mpirun.mpich": []}
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
HALF_WIDTH = dict(vocab_size=32000, hidden_size=448, intermediate_size=2432, num_hidden_layers=6, num_attention_heads=14, num_key_value_heads=2)


def run_ranks(launcher, ranks, folder, ids, count, timeout=300):
    if not shutil.which(launcher):
        pytest.skip(f"no {launcher}")
    line = [launcher, *LAUNCHERS[launcher], "-n", str(ranks), str(PROGRAM), "run", "--parallel", "tensor", "--model", str(folder), "--ids",
            ",".join(map(str, ids)), "--max-tokens", str(count), "--dtype", "f32", "--ignore-end", "--json", "--threads", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tokens_are_those_of_one_process(folder, launcher, ranks, count, vocab, **limits):
    ids = make_ids(20, seed=7, vocab=vocab)
    alone = run_greedy(folder, ids, count, "--dtype", "f32", "--ignore-end", **limits)
    many = run_ranks(launcher, ranks, folder, ids, count, **limits)
    assert many["ids"] == alone["ids"] and len(alone["ids"]) == count
    assert len(set(alone["ids"])) > count // 4  # no answer in circles, which would hide a difference
    assert many["loaded_bytes"] < 1.2 * alone["loaded_bytes"] / min(ranks, 2)
    return alone, many


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("half_width")
    make_model("qwen2", seed=3, **HALF_WIDTH).save_pretrained(path)
    return path


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_half_width(folder, launcher, ranks):
    tokens_are_those_of_one_process(folder, launcher, ranks, 24, HALF_WIDTH["vocab_size"])

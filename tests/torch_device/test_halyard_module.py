"""The Python door to the C API: structs as the compiler lays them out, devices, ops, fallbacks, conformance; and echo_npu."""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

import echo_npu
import halyard
import pytest
import torch
from halyard import _library, persistent

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRUCTS = {"hy_probe": _library.Probe, "hy_device_info": _library.DeviceInfo, "hy_backend_report": _library.BackendReport,
           "hy_provider_report": _library.ProviderReport, "hy_found_device": _library.FoundDevice, "hy_memory_stats": _library.MemoryStats,
           "hy_op_info": _library.OpInfo, "hy_placement": _library.Placement, "hy_fallback_entry": _library.FallbackEntry,
           "hy_generate_options": persistent.GenerateOptions, "hy_persistent_options": persistent.Options, "hy_persistent_stats": persistent.Stats}


def test_structs_are_laid_out_as_in_c(tmp_path):
    lines = [f'printf("%zu", sizeof({name})); ' + "".join(f'printf(" %zu", offsetof({name}, {field})); ' for field, *_ in struct._fields_) +
             'printf("\\n");' for name, struct in STRUCTS.items()]
    source = tmp_path / "layout.c"
    source.write_text('#include <stddef.h>\n#include <stdio.h>\n#include "halyard/halyard.h"\n#include "halyard/persistent.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0; }\n")
    program = tmp_path / "layout"
    subprocess.run(["gcc", f"-I{ROOT / 'include'}", source, "-o", program], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    for line, (name, struct) in zip(printed, STRUCTS.items(), strict=True):
        assert [int(word) for word in line.split()] == [ctypes.sizeof(struct), *(getattr(struct, field).offset for field, *_ in struct._fields_)], name


def test_names_and_numbers_are_those_of_the_headers():
    from halyard import devices

    assert [_library.lib.hy_dtype_name(n).decode() for n in range(1, len(devices.DTYPES) + 1)] == list(devices.DTYPES)
    _library.lib.hy_status_name.restype = ctypes.c_char_p
    for number, name in _library.STATUS.items():
        assert _library.lib.hy_status_name(number).decode() == name


def test_backends_and_why_one_is_missing():
    backends = {backend.name: backend for backend in halyard.list_backends()}
    assert backends["cpu"].available and backends["cpu"].stage == "ready"
    assert {"cuda", "hip", "ascend", "echo"} <= set(backends)
    for backend in backends.values():
        assert backend.available == halyard.is_available(backend.name)
        assert backend.available or (backend.reason and backend.remedy), backend
    assert [b.name for b in halyard.list_backends(available=True)] == [n for n, b in backends.items() if b.available]
    assert halyard.get_backend("openblas").name == "cpu"
    assert "reference" not in {p.name for p in backends["cpu"].providers()} and backends["cpu"].providers()
    priorities = [backend.priority for backend in backends.values()]
    assert priorities == sorted(priorities, reverse=True)


def test_devices():
    device = halyard.get_device("cpu")
    assert (device.backend, device.index, device.selector, device.is_host) == ("cpu", 0, "cpu:0", True)
    assert device == halyard.get_device("cpu:0") and device != halyard.get_device("echo")
    info = device.info
    assert info.memory_total > 0 and "f32" in info.dtypes and "fp32" in info.capabilities
    assert {"cpu:0", "echo:0"} <= {found.selector for found in halyard.discover_devices()}
    assert halyard.get_device(None, fallback=["cuda:7", "cpu"]) == device
    with pytest.raises(halyard.Error, match="did you mean cuda") as error:
        halyard.get_device("cudaa")
    assert error.value.status == "NOT_FOUND"
    threads = device.threads
    device.threads = 1
    assert device.threads == 1
    device.threads = threads


def test_default_and_current_device():
    try:
        halyard.set_default("echo")
        assert halyard.get_device().selector == halyard.current_device().selector == "echo:0"
        halyard.set_current_device(halyard.get_device("cpu"))
        assert halyard.current_device().selector == "cpu:0"
    finally:
        halyard.set_current_device(None)
        halyard.set_default(None)


def test_ops_per_device():
    ops = {op.name: op for op in halyard.list_ops()}
    assert ops["softmax"].differentiable and not ops["argmax"].differentiable
    echo, cpu = halyard.get_device("echo").ops(), halyard.get_device("cpu").ops()
    assert set(echo) == set(cpu) == set(ops)
    assert echo["softmax"]["f32"] == "echo" and echo["softmax"]["f64"] is None
    assert all(cpu["softmax"].values())


def test_one_library_and_its_fallbacks():
    """torch_halyard and halyard see the same counts."""
    halyard.clear_fallbacks()
    assert halyard.fallback_report() == [] and halyard.fallback_count() == 0
    allocated = halyard.get_device("cpu").memory_stats()["allocated"]
    kept = torch.empty(1 << 20, device="npu")
    if torch.npu.get_device_properties(0).selector == "cpu:0":
        assert halyard.get_device("cpu").memory_stats()["allocated"] >= allocated + kept.nbytes
    code = ("import torch, halyard; x = torch.randn(4, dtype=torch.float64, device='npu'); y = x.exp(); entry, = [e for e in "
            "halyard.fallback_report() if e['op'] == 'exp']; print(entry['dtype'], entry['device'], entry['count'])")
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "HALYARD_BACKEND": "echo", "HALYARD_TORCH_WARN": "0"},
                         capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["f64", "echo:0", "1"]


def test_verify():
    report = halyard.verify("cpu", op="softmax", quick=True, seed=3)
    assert report["device"] == "cpu:0" and report["seed"] == 3 and report["cases"] > 0 and report["failed"] == 0
    with pytest.raises(halyard.Error, match="no backend or provider"):
        halyard.verify("nothing")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    from models import qwen2

    folder = tmp_path_factory.mktemp("qwen2")
    model = qwen2().eval()
    model.save_pretrained(folder)
    return model, str(folder)


def test_persistent_kernel_decodes_as_transformers(model_folder):
    model, folder = model_folder
    prompt = [5, 9, 31, 77, 12]
    want = model.generate(torch.tensor([prompt]), max_new_tokens=12, min_new_tokens=12, do_sample=False, eos_token_id=[])[0, len(prompt):].tolist()
    with halyard.PersistentKernel(folder, backend="cpu", positions=64) as kernel:
        kernel.begin(prompt)
        assert kernel.decode(4) + kernel.decode(8) == want
        kernel.begin(prompt)
        assert kernel.decode(12) == want
        stats = kernel.stats()
        assert kernel.device == "cpu:0" and kernel.reasons == []
        assert stats["steps"] >= 24 and stats["waits"] == 3 and stats["nodes"] > 0
    with pytest.raises(ValueError, match="closed"):
        kernel.decode(1)
    with halyard.PersistentKernel(folder, mode="prefill", backend="cpu", tokens=len(prompt)) as kernel:
        assert kernel.prefill(prompt) == want[0]
        with pytest.raises(ValueError, match="5 tokens"):
            kernel.prefill(prompt[1:])


def test_persistent_kernel_backends_and_errors(model_folder):
    _, folder = model_folder
    with halyard.PersistentKernel(folder, backend="hip:7", fallback_backends=["cpu"], positions=64, temperature=0.8, top_k=5, seed=3) as kernel:
        assert kernel.device == "cpu:0" and len(kernel.reasons) == 1 and "hip" in kernel.reasons[0]
        kernel.begin([5, 9, 31])
        assert all(0 <= token < 128 for token in kernel.decode(6))
        with pytest.raises(halyard.Error):
            kernel.decode(1000)  # beyond its positions
    with pytest.raises(halyard.Error) as error:
        halyard.PersistentKernel(folder, backend="cpu", world_size=2)
    assert error.value.status == "INVALID_ARGUMENT" and "launcher" in str(error.value)
    with pytest.raises(halyard.Error):
        halyard.PersistentKernel(folder + "/nothing", backend="cpu")
    with pytest.raises(ValueError, match="decode, prefill"):
        halyard.PersistentKernel(folder, mode="train")
    with pytest.raises(TypeError, match="no option"):
        halyard.PersistentKernel(folder, heat=1)


@pytest.mark.parametrize("launcher", ["mpirun.openmpi", "mpirun.mpich"])
def test_persistent_kernel_of_two_ranks(model_folder, launcher):
    if not shutil.which(launcher):
        pytest.skip(f"{launcher} is not here")
    model, folder = model_folder
    prompt = [5, 9, 31, 77, 12]
    want = model.generate(torch.tensor([prompt]), max_new_tokens=8, min_new_tokens=8, do_sample=False, eos_token_id=[])[0, len(prompt):].tolist()
    code = f"""import halyard, os, sys
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")))
with halyard.PersistentKernel({str(folder)!r}, backend="cpu", positions=64, weights="f32", world_size=2, rank=rank) as kernel:
    kernel.begin({prompt})
    sys.stdout.write(str(rank) + " " + str(kernel.decode(8)) + chr(10))
"""
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1", "HALYARD_THREADS": "1"}
    run = subprocess.run([launcher, "-n", "2", sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0 and sorted(run.stdout.splitlines()) == [f"{rank} {want}" for rank in range(2)], run.stdout + run.stderr


def test_echo_npu():
    assert echo_npu.is_available() and echo_npu.get_backend_name() == "cmodel"
    info = echo_npu.get_backend_info()
    assert set(info) == {"name", "version", "features"} and "bf16" in info["features"] and info["version"]
    with pytest.raises(ValueError, match="0, 1, 2 and 3"):
        echo_npu.set_debug_level(4)
    code = "import echo_npu; echo_npu.set_debug_level(1); import torch; x = torch.ones(4, 4, device='npu'); x @ x; torch.npu.synchronize()"
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "HALYARD_BACKEND": "echo"}, capture_output=True, text=True, check=True)
    assert "[NPU]" in run.stderr

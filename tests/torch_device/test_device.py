"""What a device owes PyTorch: tensors, copies, streams, memory, random numbers, serialization."""

import copy
import io
import os
import subprocess
import sys
import weakref

import pytest
import torch

NPU = torch.device("npu")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.uint16, torch.float8_e4m3fn]


def sample(dtype, *shape):
    values = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape) % 7
    return values.to(dtype)


def same(a, b):
    a, b = a.cpu(), b.cpu()
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype == torch.float8_e4m3fn:
        a, b = a.view(torch.uint8), b.view(torch.uint8)
    assert torch.equal(a, b)


def test_module():
    assert torch.npu.is_available() and torch.npu.device_count() >= 1
    assert torch.accelerator.current_accelerator() == NPU
    assert torch.npu.current_device() == 0 and torch.npu.get_device_name()
    with torch.npu.device(0):
        assert torch.empty(1, device="npu").device == torch.device("npu:0")
    with pytest.raises(RuntimeError):
        torch.empty(1, device="npu:15")


def test_one_cxx_runtime():
    """A second one, linked into the shim, breaks its streams beside torch's."""
    from torch_halyard import _library

    needed = subprocess.run(["readelf", "-d", _library.shim()._name], capture_output=True, text=True, check=True).stdout
    assert "[libstdc++.so.6]" in needed or "[libc++.so.1]" in needed, needed


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies(dtype):
    host = sample(dtype, 3, 4, 5)
    there = host.to(NPU)
    same(there, host)
    same(there.transpose(0, 2), host.transpose(0, 2))
    same(there[:, ::2].contiguous(), host[:, ::2].contiguous())
    target = torch.empty(5, 4, 3, dtype=dtype, device=NPU)
    target.transpose(0, 2).copy_(host)
    same(target, host.transpose(0, 2))
    back = torch.empty(4, 5, dtype=dtype)
    back.t().copy_(there[0].t())
    same(back, host[0])
    same(there[1, 2, 3], host[1, 2, 3])


@pytest.mark.parametrize("source", DTYPES[:10])
@pytest.mark.parametrize("target", DTYPES[:10])
def test_conversions(source, target):
    host = sample(source, 4, 6)
    for a, b in [(host.to(NPU).to(target), host.to(target)), (host.to(NPU, target), host.to(target)),
                 (host.to(NPU).t().to(target), host.t().to(target)), (host.to(NPU).to("cpu", target), host.to(target))]:
        same(a, b)


def test_conjugates():
    z = torch.randn(3, 4, dtype=torch.complex64)
    same(z.to(NPU).conj(), z.conj())
    same(z.to(NPU).conj().imag, z.conj().imag)
    same(torch.empty(3, 4, dtype=torch.complex64, device=NPU).copy_(z.conj()), z.conj().resolve_conj())


def test_views_share_memory():
    x = torch.zeros(4, 6, device=NPU)
    x.view(2, 12)[0, :3] = 1
    x.t()[5] = 2
    x.unfold(0, 2, 2)[1, 0, 0] = 3
    want = torch.zeros(4, 6)
    want.view(2, 12)[0, :3] = 1
    want.t()[5] = 2
    want.unfold(0, 2, 2)[1, 0, 0] = 3
    same(x, want)


def test_resize_and_set():
    x = torch.arange(6, device=NPU)
    x.resize_(2, 5)
    assert x.shape == (2, 5) and x.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]
    y = torch.empty(0, dtype=torch.int64, device=NPU).set_(x.untyped_storage(), 1, (2, 2), (2, 1))
    assert y.tolist() == [[1, 2], [3, 4]]
    x.untyped_storage().resize_(8 * 20)
    assert x.untyped_storage().nbytes() == 160 and x.flatten()[5].item() == 5
    assert torch.empty(0, device=NPU).set_().numel() == 0


def test_numbers_and_printing():
    assert torch.tensor(2.5, device=NPU).item() == 2.5 and torch.tensor(7, device=NPU).item() == 7
    assert bool(torch.tensor(True, device=NPU)) and [10, 20][torch.tensor(1, device=NPU)] == 20
    assert repr(torch.tensor([1.0, 2.0], device=NPU)) == "tensor([1., 2.], device='npu:0')"
    with pytest.raises(RuntimeError):
        torch.ones(2, device=NPU).item()


def test_save_load_deepcopy():
    module = torch.nn.Linear(3, 4).to(NPU)
    again = copy.deepcopy(module)
    same(again.weight, module.weight)
    assert again.weight.data_ptr() != module.weight.data_ptr()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    there = torch.load(file)
    assert there["weight"].device.type == "npu"
    same(there["weight"], module.weight.detach())
    file.seek(0)
    assert torch.load(file, map_location="cpu")["bias"].device.type == "cpu"


def test_mixing_devices_is_an_error():
    for function in (torch.add, torch.mm, torch.logaddexp):
        with pytest.raises(RuntimeError, match="same device"):
            function(torch.ones(2, 2, device=NPU), torch.ones(2, 2))
    same(torch.ones(2, device=NPU) + torch.tensor(2.0), torch.full((2,), 3.0))


def test_streams_and_events():
    stream, start, stop = torch.Stream(device="npu"), torch.Event("npu", enable_timing=True), torch.Event("npu", enable_timing=True)
    x = torch.randn(64, 64).to(NPU)
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        start.record()
        y = x @ x
        stop.record()
    assert torch.npu.current_stream() != stream
    torch.npu.current_stream().wait_event(stop)
    z = y + 1
    y.record_stream(torch.npu.current_stream())
    stop.synchronize()
    assert stop.query() and start.elapsed_time(stop) >= 0
    stream.synchronize()
    assert stream.query()
    torch.npu.synchronize()
    torch.testing.assert_close(z.cpu(), x.cpu() @ x.cpu() + 1)


def test_threads():
    """Eight threads at once: half of them share the default stream, the others have their own."""
    from concurrent.futures import ThreadPoolExecutor

    x = torch.randn(48, 48)
    want = (x @ x).relu() + x

    def work(i):
        with torch.npu.stream(torch.Stream(device="npu") if i % 2 else None):
            for _ in range(40):
                there = x.to(NPU)
                got = ((there @ there).relu() + there).cpu()
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_memory_statistics():
    torch.npu.empty_cache()
    before = torch.npu.memory_allocated()
    x = torch.empty(1 << 20, dtype=torch.uint8, device=NPU)
    assert torch.npu.memory_allocated() - before >= 1 << 20
    assert torch.npu.max_memory_allocated() >= torch.npu.memory_allocated()
    assert torch.npu.memory_reserved() >= torch.npu.memory_allocated()
    del x
    assert torch.npu.memory_allocated() == before
    torch.npu.reset_peak_memory_stats()
    assert torch.npu.max_memory_allocated() == before
    free, total = torch.npu.mem_get_info()
    assert 0 < free <= total


def test_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 60, dtype=torch.uint8, device=NPU)
    assert torch.ones(3, device=NPU).sum().item() == 3


def test_steps_do_not_grow_memory():
    w = torch.randn(16, 16, device=NPU, requires_grad=True)
    for step in range(300):
        (w @ w).relu().sum().backward()
        w.grad = None
        if step == 50:
            settled = torch.npu.memory_reserved()
    assert torch.npu.memory_reserved() == settled


def test_pinned_memory():
    x = torch.arange(1000.0).pin_memory()
    assert x.is_pinned() and not torch.arange(3).is_pinned()
    there = x.to(NPU, non_blocking=True)
    back = torch.empty(1000, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.npu.synchronize()
    same(back, x)


def test_random_numbers():
    torch.manual_seed(7)
    a, state = torch.randn(1000, device=NPU), torch.npu.get_rng_state()
    b = torch.rand(1000, device=NPU)
    torch.manual_seed(7)
    same(torch.randn(1000, device=NPU), a)
    same(torch.rand(1000, device=NPU), b)
    torch.npu.set_rng_state(state)
    same(torch.rand(1000, device=NPU), b)
    assert state.dtype == torch.uint8 and state.numel() == 16
    assert abs(a.mean().item()) < 0.2 and 0.4 < b.mean().item() < 0.6
    generator = torch.Generator("npu").manual_seed(3)
    c = torch.randint(0, 10, (100,), device=NPU, generator=generator)
    same(torch.randint(0, 10, (100,), device=NPU, generator=torch.Generator("npu").manual_seed(3)), c)
    assert set(c.tolist()) == set(range(10))
    p = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], device=NPU)
    assert torch.multinomial(p, 1).flatten().tolist() == [1, 0]
    x = torch.nn.functional.dropout(torch.ones(4000, device=NPU), 0.25)
    kept = (x != 0).float().mean().item()
    assert 0.7 < kept < 0.8 and x.max().item() == pytest.approx(1 / 0.75)


def test_dlpack():
    x = torch.arange(6.0, device=NPU)
    capsule = torch.utils.dlpack.to_dlpack(x)
    y = torch.utils.dlpack.from_dlpack(capsule)
    assert y.device == x.device and y.data_ptr() == x.data_ptr()
    same(torch.from_dlpack(x), x)


def test_deterministic_mode_fills_memory():
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(4, device=NPU).isnan().all().item()
    finally:
        torch.use_deterministic_algorithms(False)


def python(code, **environment):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment})


def test_device_name():
    run = python("import torch; print(torch.ones(2, device='halyard:0').device, torch.halyard.device_count() > 0)",
                 HALYARD_TORCH_DEVICE="halyard")
    assert run.stdout.split() == ["halyard:0", "True"], run.stderr


def test_import_torch_survives_a_broken_device():
    run = python("import torch; print(torch.ones(2).sum().item(), hasattr(torch, 'npu'))", HALYARD_TORCH_LIBRARY="/nonexistent")
    assert run.returncode == 0 and run.stdout.split() == ["2.0", "False"]
    assert "the device npu is absent" in run.stderr and "/nonexistent" in run.stderr
    run = python("import torch; print(torch.npu.is_available()); torch.npu.init()", HALYARD_BACKEND="no_such_backend")
    assert run.stdout.split() == ["False"] and "no_such_backend" in run.stderr


def test_device_list():
    run = python("import torch; print(torch.npu.device_count(), torch.npu.get_device_properties(1).selector);"
                 "x = torch.arange(5., device='npu:0'); y = x.to('npu:1'); print(y.device, (y + 1).sum().item())",
                 HALYARD_DEVICES="cpu:0,echo:0")
    assert run.stdout.split() == ["2", "echo:0", "npu:1", "15.0"], run.stderr


def test_dataloader_and_fork():
    data = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(16, 2), torch.arange(16))
    seen = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True):
        assert x.is_pinned()
        seen += (x.to(NPU, non_blocking=True).sum(1) + y.to(NPU)).cpu().tolist()
    assert seen == [4 * i + 1 + i for i in range(16)]


def test_a_module_keeps_its_parameters_when_it_moves():
    model = torch.nn.Linear(3, 2)
    weight, optimizer = model.weight, torch.optim.SGD(model.parameters(), lr=0.1)
    for device in ("npu", "cpu", torch.device("npu:0")):
        assert model.to(device).weight is weight and weight.device.type == torch.device(device).type
        before = weight.detach().clone()
        optimizer.zero_grad()
        model(torch.ones(1, 3, device=device)).sum().backward()
        optimizer.step()
        assert not torch.equal(weight, before)
    assert model.cpu().weight is weight is model.npu().weight
    assert weight.device.type == "npu" and model.to(torch.float64).weight is weight


def test_a_module_whose_parameters_are_held_moves_with_a_warning():
    model = torch.nn.Linear(3, 2)
    held = weakref.ref(model.weight)
    with pytest.warns(UserWarning, match="make its optimizer after the move"):
        model.to("npu")
    assert model.weight.device.type == model.bias.device.type == "npu" and held() is None

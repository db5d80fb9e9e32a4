"""Eight threads at once, each with streams of its own, allocating, copying, freeing what another made, and computing the right thing."""

import queue
import threading

import torch

THREADS, ROUNDS = 8, 40


def work(number, inbox, outbox, errors):
    try:
        generator = torch.Generator().manual_seed(number)
        streams = [torch.Stream(device="npu:0") for _ in range(2)]
        for round_ in range(ROUNDS):
            host = torch.randn(17 + 13 * number + round_, 8, generator=generator)
            with torch.npu.stream(streams[round_ % 2]):
                there = host.to("npu", non_blocking=False)
                product = (there @ there.t()).relu().sum(1)
                event = torch.Event(device="npu")
                event.record()
            other = streams[(round_ + 1) % 2]
            other.wait_event(event)
            with torch.npu.stream(other):
                shifted = product + round_
                product.record_stream(other)
                got = shifted.cpu()
            torch.testing.assert_close(got, (host @ host.t()).relu().sum(1) + round_, rtol=1e-4, atol=1e-3)
            other.synchronize()
            outbox.put((there, shifted, got))
            theirs, sums, want = inbox.get(timeout=60)
            assert torch.equal(sums.cpu(), want)
            del theirs, sums  # in a thread that did not make them
            if round_ % 16 == 0:
                torch.npu.empty_cache()
    except BaseException as error:  # noqa: BLE001: told by the main thread
        errors.append(error)


def test_threads_with_streams_and_allocator():
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    boxes, errors = [queue.Queue() for _ in range(THREADS)], []
    threads = [threading.Thread(target=work, args=(n, boxes[n], boxes[(n + 1) % THREADS], errors)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert torch.npu.memory_allocated() == before


def test_threads_train_at_once():
    def train(seed):
        generator = torch.Generator().manual_seed(seed)
        weight = torch.randn(8, 4, generator=generator).to("npu").requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.01)
        for _ in range(20):
            optimizer.zero_grad()
            (torch.randn(16, 8, generator=generator).to("npu") @ weight).square().mean().backward()
            optimizer.step()
        results[seed] = weight.detach().cpu()

    results = {}
    for seed in range(THREADS):
        train(seed)
    alone, results = results, {}
    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(THREADS):
        assert torch.equal(results[seed], alone[seed])

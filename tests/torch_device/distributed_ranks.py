"""One rank of a group that torchrun started: each check named on the command line, equal to what one process computes.

    torchrun --nproc_per_node 2 tests/torch_device/distributed_ranks.py collectives ddp fsdp2 tensor_parallel
"""

import copy
import datetime
import sys
import time

import torch
import torch.distributed as dist
from models import qwen2, tokens
from torch.distributed.device_mesh import init_device_mesh

NPU = torch.device("npu", 0)
STEPS = 3


def ranks_values(*shape, dtype=torch.float32):
    """What each rank holds: every rank can compute what the others have."""
    values = [torch.randn(*shape, generator=torch.Generator().manual_seed(rank)) * 8 for rank in range(dist.get_world_size())]
    return [v.to(dtype) for v in values], values[dist.get_rank()].to(dtype).to(NPU)


def same(got, want):
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=0)


def collectives():
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        all_values, mine = ranks_values(5, 3, dtype=dtype)
        total = sum(all_values[1:], all_values[0])
        for op, want in ((dist.ReduceOp.SUM, total), (dist.ReduceOp.MAX, torch.stack(all_values).amax(0))):
            reduced = mine.clone()
            dist.all_reduce(reduced, op)
            same(reduced, want)
        if dtype.is_floating_point:
            reduced = mine.clone()
            dist.all_reduce(reduced, dist.ReduceOp.AVG)
            same(reduced, total / size)
        sent = mine.clone()
        dist.broadcast(sent, src=size - 1)
        same(sent, all_values[size - 1])
        gathered = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(gathered, mine)
        for got, want in zip(gathered, all_values):
            same(got, want)
        whole = mine.new_empty(size * 5, 3)
        dist.all_gather_into_tensor(whole, mine)
        same(whole, torch.cat(all_values))

    all_values, mine = ranks_values(size * 4)
    total = sum(all_values[1:], all_values[0])
    part = mine.new_empty(4)
    work = dist.reduce_scatter_tensor(part, mine, async_op=True)
    work.wait()
    same(part, total.chunk(size)[rank])
    dist.reduce_scatter(part, list(mine.chunk(size)))
    same(part, total.chunk(size)[rank])
    swapped = torch.empty_like(mine)
    dist.all_to_all_single(swapped, mine)
    same(swapped, torch.cat([v.chunk(size)[rank] for v in all_values]))
    parts = [torch.empty(4, device=NPU) for _ in range(size)]
    dist.all_to_all(parts, list(mine.chunk(size)))
    same(torch.cat(parts), torch.cat([v.chunk(size)[rank] for v in all_values]))
    received = torch.empty_like(mine)
    work = [dist.isend(mine, (rank + 1) % size), dist.irecv(received, (rank - 1) % size)]
    for w in work:
        w.wait()
    same(received, all_values[(rank - 1) % size])
    lists = [torch.empty_like(mine) for _ in range(size)] if rank == 0 else None
    dist.gather(mine, lists, dst=0)
    if rank == 0:
        same(torch.stack(lists), torch.stack(all_values))
    one = torch.empty_like(mine)
    dist.scatter(one, [v.to(NPU) for v in all_values] if rank == 0 else None, src=0)
    same(one, all_values[rank])
    columns = mine.clone().view(size, 4).t()  # not contiguous
    dist.broadcast(columns, src=0)
    same(columns, all_values[0].view(size, 4).t())
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    future = dist.all_reduce(mine.clone(), async_op=True).get_future()
    same(future.wait()[0], total)
    dist.barrier()
    try:
        dist.all_reduce(torch.ones(3, dtype=torch.int32, device=NPU), dist.ReduceOp.AVG)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        assert "average" in str(error), error
    else:
        raise AssertionError("an average of integers must be refused")


def batches():
    """[step][rank]: the same texts each step, of one length, so that the mean over all is the mean of the ranks' means."""
    return tokens(dist.get_world_size(), 2, 9).expand(STEPS, -1, -1, -1)


def train(model, data):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for ids in data:
        loss = model(ids.to(NPU), labels=ids.to(NPU), use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().cpu())
    return torch.stack(losses)


def one_process():
    """The same training on the whole batches."""
    model = qwen2().to(NPU)
    return model, train(model, batches().flatten(1, 2))


def agrees(losses, parameters, tolerance=2e-4):
    """Sums of gradients are rounded in another order than in one process: nothing more."""
    reference, want = one_process()
    mean = losses.to(NPU)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    torch.testing.assert_close(mean.cpu(), want, rtol=1e-5, atol=1e-6)
    for (name, p), q in zip(reference.named_parameters(), parameters, strict=True):
        torch.testing.assert_close(q.cpu(), p.detach().cpu(), rtol=0, atol=tolerance, msg=lambda m: f"{name}: {m}")
    assert want[-1] < want[0]


def ddp():
    model = torch.nn.parallel.DistributedDataParallel(qwen2().to(NPU))
    losses = train(model, batches()[:, dist.get_rank()])
    agrees(losses, [p.detach() for p in model.parameters()])
    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat, other) for other in others)  # the replicas have the same bits


def fsdp2():
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("npu", (dist.get_world_size(),))
    model = qwen2().to(NPU)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    share = sum(p.to_local().numel() for p in model.parameters())
    assert share < 0.6 * sum(p.numel() for p in model.parameters())
    losses = train(model, batches()[:, dist.get_rank()])
    agrees(losses, [p.detach().full_tensor() for p in model.parameters()])


def tensor_parallel():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    heads = max(2, dist.get_world_size())  # of keys and values: each rank has whole ones
    reference, ids = qwen2(num_key_value_heads=heads).to(NPU), tokens(2, 9).to(NPU)
    model = copy.deepcopy(reference)
    mesh = init_device_mesh("npu", (dist.get_world_size(),))
    for layer in model.model.layers:
        parallelize_module(layer, mesh, {
            "self_attn.q_proj": ColwiseParallel(), "self_attn.k_proj": ColwiseParallel(), "self_attn.v_proj": ColwiseParallel(),
            "self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
            "mlp.down_proj": RowwiseParallel()})
    want, got = (m(ids, labels=ids, use_cache=False) for m in (reference, model))
    torch.testing.assert_close(got.logits.cpu(), want.logits.cpu(), rtol=1e-4, atol=1e-5)
    want.loss.backward()
    got.loss.backward()
    for p, q in zip(reference.parameters(), model.parameters()):
        gradient = q.grad.full_tensor() if hasattr(q.grad, "full_tensor") else q.grad
        torch.testing.assert_close(gradient.cpu(), p.grad.cpu(), rtol=1e-3, atol=1e-5)


def shutdown():
    """No thread is left that would ask for Python's lock later, when the interpreter may be ending."""
    ended = []
    work = dist.all_reduce(torch.ones(5, device=NPU), async_op=True)
    work.get_future().then(lambda _: (time.sleep(0.5), ended.append(True)))
    dist.group.WORLD.shutdown()
    assert ended


dist.init_process_group(timeout=datetime.timedelta(seconds=60))
assert dist.group.WORLD._get_backend(NPU).name() == "halyard"
for check in sys.argv[1:]:
    globals()[check]()
    if dist.get_rank() == 0:
        print(f"{check} agrees", flush=True)
dist.destroy_process_group()

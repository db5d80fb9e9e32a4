"""The benchmarks of `halyard bench gemm gemv attention elementwise softmax norm image` in PyTorch, for comparison.

Run with an interpreter that has torch:

    python bench/torch_peer.py --halyard build/release/bin/halyard --threads 2 gemm gemv attention

It runs Halyard's benchmark, then the same in PyTorch, and prints Halyard's JSON rows with torch as
the peer. Rows that PyTorch has no kernel for are left out. Times are the best of several on both
sides; the machine should have nothing else to do.
"""

import argparse
import json
import subprocess
import time

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def best_time(run, seconds=1.0, least=7):
    """The shortest of at least `least` runs, which go on for `seconds`."""
    best, begin, rounds = float("inf"), time.perf_counter(), 0
    while rounds < least or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run(rounds)
        best = min(best, time.perf_counter() - start)
        rounds += 1
    return best


def sizes(shape):
    return [int(part) for part in shape.split("x")]


def time_mm(row):
    m, n, k = sizes(row["shape"])
    a = torch.randn(m, k).to(DTYPES[row["dtype"]])
    b = torch.randn(k, n).to(DTYPES[row["dtype"]])
    return best_time(lambda _: a @ b)


def time_int_mm(row):
    m, n, k = sizes(row["shape"])
    a = torch.randint(-127, 127, (m, k), dtype=torch.int8)
    b = torch.randint(-127, 127, (k, n), dtype=torch.int8)
    return best_time(lambda _: torch._int_mm(a, b))


def time_linear(row):
    m, n, k = sizes(row["shape"])
    dtype = DTYPES[row["dtype"]]
    x = torch.randn(m, k).to(dtype)
    copies = 1 + int(192e6 / (n * k * x.element_size()))
    weights = [torch.randn(n, k).to(dtype) for _ in range(copies)]
    return best_time(lambda i: torch.nn.functional.linear(x, weights[i % copies]))


def attention_inputs(row, grad):
    heads, _, rest = row["shape"].partition("/")
    causal = rest.endswith(" causal")
    kv_heads, queries, keys, size = sizes(rest.removesuffix(" causal"))
    dtype = DTYPES[row["dtype"]]
    shapes = [(int(heads), queries), (kv_heads, keys), (kv_heads, keys)]
    tensors = [torch.randn(1, h, t, size).to(dtype).requires_grad_(grad) for h, t in shapes]
    options = {"is_causal": causal, "enable_gqa": int(heads) != kv_heads}
    return tensors, options


def time_sdpa(row):
    tensors, options = attention_inputs(row, False)
    attend = torch.nn.functional.scaled_dot_product_attention
    return best_time(lambda _: attend(*tensors, **options))


def time_sdpa_backward(row):
    tensors, options = attention_inputs(row, True)
    out = torch.nn.functional.scaled_dot_product_attention(*tensors, **options)
    grad = torch.randn_like(out)
    return best_time(lambda _: torch.autograd.grad(out, tensors, grad, retain_graph=True))


def row_inputs(row):
    """The tensors of a benchmark of rows: a matrix, a second one, and a line as long as its rows."""
    shape = sizes(row["shape"].split()[0])
    dtype = DTYPES[row["dtype"]]
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), torch.ones(shape[-1]).to(dtype)


ROW_OPS = {
    "add": lambda x, y, w: torch.add(x, y),
    "mul": lambda x, y, w: torch.mul(x, y),
    "exp": lambda x, y, w: torch.exp(x),
    "silu": lambda x, y, w: torch.nn.functional.silu(x),
    "gelu": lambda x, y, w: torch.nn.functional.gelu(x),
    "cast": lambda x, y, w: x.to(torch.bfloat16 if x.dtype == torch.float32 else torch.float32),
    "softmax": lambda x, y, w: torch.softmax(x, -1),
    "log_softmax": lambda x, y, w: torch.log_softmax(x, -1),
    "rms_norm": lambda x, y, w: torch.nn.functional.rms_norm(x, w.shape, w),
    "layer_norm": lambda x, y, w: torch.nn.functional.layer_norm(x, w.shape, w, w),
    "mean": lambda x, y, w: torch.mean(x, 1),
    "max": lambda x, y, w: torch.amax(x, 1),
}


def time_row_op(row):
    x, y, w = row_inputs(row)
    return best_time(lambda _: ROW_OPS[row["name"]](x, y, w))


def time_sum(row):
    x, _, _ = row_inputs(row)
    dims = {"rows": (1,), "columns": (0,), "all": (0, 1)}[row["shape"].split()[1]]
    return best_time(lambda _: torch.sum(x, dims))


def time_cross_entropy(row):
    x, _, _ = row_inputs(row)
    target = torch.full((x.shape[0],), 7)
    return best_time(lambda _: torch.nn.functional.cross_entropy(x, target))


def time_rope(row):
    positions, heads, size = sizes(row["shape"])
    dtype = DTYPES[row["dtype"]]
    x = torch.randn(positions, heads, size).to(dtype)
    cos, sin = (torch.randn(positions, 1, size // 2).to(dtype).repeat(1, 1, 2) for _ in range(2))

    def rotate(_):
        half = size // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    return best_time(rotate)


def time_adamw(row):
    x, grad, _ = row_inputs(row)
    x.grad = grad
    optimizer = torch.optim.AdamW([x.requires_grad_()], fused=True)
    return best_time(lambda _: optimizer.step())


def images(row):
    shape = sizes(row["shape"].split()[0])
    return torch.randn(shape).to(DTYPES[row["dtype"]])


def time_conv2d(row):
    x = images(row)
    channels = x.shape[1]
    weight = torch.randn(channels, channels, 3, 3).to(x.dtype)
    return best_time(lambda _: torch.nn.functional.conv2d(x, weight, padding=1))


def time_batch_norm(row):
    x, w = images(row), torch.ones(sizes(row["shape"])[1]).to(DTYPES[row["dtype"]])
    return best_time(lambda _: torch.nn.functional.batch_norm(x, None, None, w, w, training=True))


def time_batch_norm_backward(row):
    x, w = images(row).requires_grad_(), torch.ones(sizes(row["shape"])[1]).to(DTYPES[row["dtype"]])
    w.requires_grad_()
    out = torch.nn.functional.batch_norm(x, None, None, w, w, training=True)
    grad = torch.randn_like(out)
    return best_time(lambda _: torch.autograd.grad(out, (x, w), grad, retain_graph=True))


def time_max_pool2d(row):
    x = images(row)
    return best_time(lambda _: torch.nn.functional.max_pool2d(x, 2, return_indices=True))


def time_avg_pool2d(row):
    x = images(row)
    return best_time(lambda _: torch.nn.functional.avg_pool2d(x, 2))


TIMERS = {
    **{name: time_row_op for name in ROW_OPS},
    "sum": time_sum,
    "cross_entropy": time_cross_entropy,
    "rope": time_rope,
    "adamw": time_adamw,
    "conv2d": time_conv2d,
    "batch_norm": time_batch_norm,
    "batch_norm_backward": time_batch_norm_backward,
    "max_pool2d": time_max_pool2d,
    "avg_pool2d": time_avg_pool2d,
    "mm": time_mm,
    "int_mm": time_int_mm,
    "linear": time_linear,
    "sdpa": time_sdpa,
    "sdpa_backward": time_sdpa_backward,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--halyard", default="build/release/bin/halyard")
    parser.add_argument("--only", help="only rows whose name, shape and type contain this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    command = [arguments.halyard, "bench", *arguments.benchmarks, "--json", "--threads",
               str(arguments.threads)]
    if arguments.only:
        command += ["--only", arguments.only]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as halyard:
        rows = [json.loads(line) for line in halyard.stdout]
    for row in rows:
        if row["name"] not in TIMERS or (row["name"] != "int_mm" and row["dtype"] not in DTYPES):
            continue
        with torch.set_grad_enabled(row["name"].endswith("_backward")):
            seconds = TIMERS[row["name"]](row)
        higher_is_better = row["unit"] != "ms"
        row["peer"] = "torch " + torch.__version__
        row["ratio"] = seconds / row["seconds"]
        row["peer_value"] = row["value"] / row["ratio"] if higher_is_better else seconds * 1e3
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()

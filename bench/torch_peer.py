"""The benchmarks of `halyard bench dispatch gemm gemv attention elementwise softmax norm image` in PyTorch, for comparison.

Run with an interpreter that has torch:

    python bench/torch_peer.py --halyard build/release/bin/halyard --threads 2 gemm gemv attention

The rows are those of Halyard's benchmark, which runs as a child and says when it is PyTorch's turn:
both sides are timed in turns of some calls, the best of each counting. Prints Halyard's JSON rows
with torch as the peer. Rows that PyTorch has no kernel for are left out, and so are products that it
would take longer than SECONDS_A_CALL for, as float16 without hardware for it: a slice of the rows tells.
"""

import argparse
import json
import subprocess
import sys
import time

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


SECONDS_A_TURN = 0.01  # as in src/bench/call.c
SECONDS_A_CALL = 2.0  # what takes longer has no kernel to compare with
SECONDS_BETWEEN = 0.005  # so that no side's idle threads look out for work in the other's turn


class Turns:
    """Calls of run(i), i counting up, timed in turns; short ones that `at_once` are timed together."""

    queued = 1  # calls that a device apart gets at once, as in src/bench/call.c

    @staticmethod
    def wait():
        """Until a device apart is done."""

    def __init__(self, run, at_once=1):
        self.run, self.at_once, self.calls = run, max(at_once, self.queued), 0

    def take(self):
        """The shortest of at least two calls, which go on for some time."""
        time.sleep(SECONDS_BETWEEN)
        best, begin, rounds = float("inf"), time.perf_counter(), 0
        while rounds < 2 or time.perf_counter() - begin < SECONDS_A_TURN:
            start = time.perf_counter()
            for _ in range(self.at_once):
                self.run(self.calls)
                self.calls += 1
            self.wait()
            best = min(best, (time.perf_counter() - start) / self.at_once)
            rounds += 1
        time.sleep(SECONDS_BETWEEN)
        return best


def processor_seconds():
    """Time that passes only while this process runs, so that others on the machine do not count."""
    return time.process_time() / torch.get_num_threads()


def affordable(row, product, m, clock=processor_seconds):
    """Whether a product of m rows takes SECONDS_A_CALL at most, by the time that a few rows take."""
    if m <= 64 or Turns.queued > 1:
        return True
    rows = max(16, m // 64)  # fewer rows may take another way
    seconds = float("inf")
    for _ in range(3):
        begin = clock()
        product(rows)
        seconds = min(seconds, (clock() - begin) * m / rows)
    if seconds <= SECONDS_A_CALL:
        return True
    print(f"torch_peer: {row['name']} {row['shape']} {row['dtype']} is left out: PyTorch would take about "
          f"{seconds:.0f} s a call", file=sys.stderr)
    return False


def sizes(shape):
    return [int(part) for part in shape.split("x")]


def turns_of_add(row):
    a, b, out = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    return Turns(lambda _: torch.add(a, b, out=out), 1000)


def turns_of_mm(row):
    m, n, k = sizes(row["shape"])
    a = torch.randn(m, k).to(DTYPES[row["dtype"]])
    b = torch.randn(k, n).to(DTYPES[row["dtype"]])
    return Turns(lambda _: a @ b) if affordable(row, lambda rows: a[:rows] @ b, m) else None


def turns_of_int_mm(row):
    m, n, k = sizes(row["shape"])
    a = torch.randint(-127, 127, (m, k), dtype=torch.int8)
    b = torch.randint(-127, 127, (k, n), dtype=torch.int8)
    return Turns(lambda _: torch._int_mm(a, b))


def turns_of_linear(row):
    m, n, k = sizes(row["shape"])
    dtype = DTYPES[row["dtype"]]
    x = torch.randn(m, k).to(dtype)
    copies = 1 + int(192e6 / (n * k * x.element_size()))
    weights = [torch.randn(n, k).to(dtype) for _ in range(copies)]
    linear = torch.nn.functional.linear
    if not affordable(row, lambda rows: linear(x[:rows], weights[0]), m):
        return None
    return Turns(lambda i: linear(x, weights[i % copies]))


def attention_inputs(row, grad):
    heads, _, rest = row["shape"].partition("/")
    causal = rest.endswith(" causal")
    kv_heads, queries, keys, size = sizes(rest.removesuffix(" causal"))
    dtype = DTYPES[row["dtype"]]
    shapes = [(int(heads), queries), (kv_heads, keys), (kv_heads, keys)]
    tensors = [torch.randn(1, h, t, size).to(dtype).requires_grad_(grad) for h, t in shapes]
    options = {"is_causal": causal, "enable_gqa": int(heads) != kv_heads}
    return tensors, options


def turns_of_sdpa(row):
    tensors, options = attention_inputs(row, False)
    attend = torch.nn.functional.scaled_dot_product_attention
    return Turns(lambda _: attend(*tensors, **options))


def turns_of_sdpa_backward(row):
    tensors, options = attention_inputs(row, True)
    out = torch.nn.functional.scaled_dot_product_attention(*tensors, **options)
    grad = torch.randn_like(out)
    return Turns(lambda _: torch.autograd.grad(out, tensors, grad, retain_graph=True))


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


def turns_of_row_op(row):
    x, y, w = row_inputs(row)
    return Turns(lambda _: ROW_OPS[row["name"]](x, y, w))


def turns_of_sum(row):
    x, _, _ = row_inputs(row)
    dims = {"rows": (1,), "columns": (0,), "all": (0, 1)}[row["shape"].split()[1]]
    return Turns(lambda _: torch.sum(x, dims))


def turns_of_cross_entropy(row):
    x, _, _ = row_inputs(row)
    target = torch.full((x.shape[0],), 7)
    return Turns(lambda _: torch.nn.functional.cross_entropy(x, target))


def turns_of_rope(row):
    positions, heads, size = sizes(row["shape"])
    dtype = DTYPES[row["dtype"]]
    x = torch.randn(positions, heads, size).to(dtype)
    cos, sin = (torch.randn(positions, 1, size // 2).to(dtype).repeat(1, 1, 2) for _ in range(2))

    def rotate(_):
        half = size // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    return Turns(rotate)


def turns_of_adamw(row):
    x, grad, _ = row_inputs(row)
    x.grad = grad
    optimizer = torch.optim.AdamW([x.requires_grad_()], fused=True)
    return Turns(lambda _: optimizer.step())


def images(row):
    shape = sizes(row["shape"].split()[0])
    return torch.randn(shape).to(DTYPES[row["dtype"]])


def turns_of_conv2d(row):
    x = images(row)
    channels = x.shape[1]
    weight = torch.randn(channels, channels, 3, 3).to(x.dtype)
    return Turns(lambda _: torch.nn.functional.conv2d(x, weight, padding=1))


def turns_of_conv2d_backward(row):
    x = images(row).requires_grad_()
    weight = torch.randn(x.shape[1], x.shape[1], 3, 3).to(x.dtype).requires_grad_()
    out = torch.nn.functional.conv2d(x, weight, padding=1)
    grad = torch.randn_like(out)
    return Turns(lambda _: torch.autograd.grad(out, (x, weight), grad, retain_graph=True))


def turns_of_batch_norm(row):
    x, w = images(row), torch.ones(sizes(row["shape"])[1]).to(DTYPES[row["dtype"]])
    return Turns(lambda _: torch.nn.functional.batch_norm(x, None, None, w, w, training=True))


def turns_of_batch_norm_backward(row):
    x, w = images(row).requires_grad_(), torch.ones(sizes(row["shape"])[1]).to(DTYPES[row["dtype"]])
    w.requires_grad_()
    out = torch.nn.functional.batch_norm(x, None, None, w, w, training=True)
    grad = torch.randn_like(out)
    return Turns(lambda _: torch.autograd.grad(out, (x, w), grad, retain_graph=True))


def turns_of_max_pool2d(row):
    x = images(row)
    return Turns(lambda _: torch.nn.functional.max_pool2d(x, 2, return_indices=True))


def turns_of_avg_pool2d(row):
    x = images(row)
    return Turns(lambda _: torch.nn.functional.avg_pool2d(x, 2))


MAKERS = {
    **{name: turns_of_row_op for name in ROW_OPS},
    "hy_run add": turns_of_add,
    "sum": turns_of_sum,
    "cross_entropy": turns_of_cross_entropy,
    "rope": turns_of_rope,
    "adamw": turns_of_adamw,
    "conv2d": turns_of_conv2d,
    "conv2d_backward": turns_of_conv2d_backward,
    "batch_norm": turns_of_batch_norm,
    "batch_norm_backward": turns_of_batch_norm_backward,
    "max_pool2d": turns_of_max_pool2d,
    "avg_pool2d": turns_of_avg_pool2d,
    "mm": turns_of_mm,
    "int_mm": turns_of_int_mm,
    "linear": turns_of_linear,
    "sdpa": turns_of_sdpa,
    "sdpa_backward": turns_of_sdpa_backward,
}


def make_turns(row):
    """None where PyTorch has no kernel for it, or one that takes for ever."""
    if row["name"] not in MAKERS or (row["name"] != "int_mm" and row["dtype"] not in DTYPES):
        return None
    return MAKERS[row["name"]](row)


def answer(halyard, show=lambda row: print(json.dumps(row), flush=True)):
    """Takes the turns that it is asked for, and shows the rows that come of them."""
    asked, turns = None, None
    for line in halyard.stdout:
        row = json.loads(line)
        if "turn" in row:
            with torch.set_grad_enabled(row["turn"]["name"].endswith("_backward")):
                if row["turn"] != asked:
                    asked, turns = row["turn"], None  # frees the last one's tensors first
                    turns = make_turns(asked)
                print(turns.take() if turns else "none", file=halyard.stdin, flush=True)
        elif row["peer"]:
            row["peer"] = "torch " + torch.__version__
            show(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="+")
    parser.add_argument("--halyard", default="build/release/bin/halyard")
    parser.add_argument("--only", help="only rows whose name, shape and type contain this")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    command = [arguments.halyard, "bench", *arguments.benchmarks, "--json", "--peer", "-",
               "--threads", str(arguments.threads)]
    if arguments.only:
        command += ["--only", arguments.only]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as halyard:
        answer(halyard)


if __name__ == "__main__":
    main()

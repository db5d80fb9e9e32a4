"""op_db: PyTorch's own samples of its operators, run on npu and compared with the cpu, values and gradients.

    python tests/torch_device/opinfo.py [--slice N] [--dtypes float32,int64] [--json FILE] [names ...]

Counts by case (one sample of one op and type): passed, gap (in gaps.py, with its reason), failed, and skipped: PyTorch's
CPU itself refuses the sample. And of the calls made below them, how many ran natively. Malformed inputs (op_db's own) that
the CPU refuses must be refused with the same type of error; how many read the same is counted. An unlisted failure, or a
listed op that passes, is an error.
"""

import argparse
import json
import random
import sys
import warnings

import torch
import torch_halyard
from gaps import ERROR_GAPS, GAPS
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import set_default_dtype  # noqa: F401: initialises the module
from torch.utils._pytree import tree_map_only

DTYPES = [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.float64, torch.complex64]
# The values of these are not defined: uninitialised memory, or random numbers, which every device draws in its own way.
UNDEFINED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "normal", "uniform",
             "bernoulli", "multinomial", "rand_like", "randn", "randn_like", "randint", "randint_like", "exponential", "cauchy",
             "geometric", "log_normal", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
             "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
             "nn.functional.fractional_max_pool3d", "nn.functional.rrelu", "pca_lowrank", "svd_lowrank", "randperm",
             "nn.functional.multi_head_attention_forward"}


def moved_storage(value, device):
    """A view of a larger storage stays one."""
    if value.layout != torch.strided or value.untyped_storage().nbytes() == value.nbytes:
        return value.to(device)
    whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage())
    return whole.to(device).as_strided(value.size(), value.stride(), value.storage_offset())


def moved(value, device, grad=False):
    if isinstance(value, torch.Tensor):
        there = moved_storage(value.detach(), device)
        return there.requires_grad_(value.requires_grad) if grad and value.requires_grad else there
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        items = [moved(item, device, grad) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: moved(item, device, grad) for key, item in value.items()}
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device(device)
    return value


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors(item)]
    return []


def compare(got, want, dtype, device="npu"):
    assert len(got) == len(want), f"{len(got)} results, not {len(want)}"
    loose = dtype in (torch.bfloat16, torch.float16)
    for a, b in zip(got, want):
        assert a.device.type == device, f"a result on {a.device}"
        assert a.dtype == b.dtype and a.shape == b.shape, f"{a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        a = a.detach().cpu()
        a, b = (a.to_dense(), b.to_dense()) if b.layout != torch.strided else (a, b)
        if not a.dtype.is_floating_point and not a.dtype.is_complex:
            assert torch.equal(a, b), "integers differ"
        else:
            torch.testing.assert_close(a, b.detach(), rtol=3e-2 if loose else 1e-4, atol=3e-2 if loose else 5e-5, equal_nan=True)


def evaluate(op, sample, device, gradients):
    x, args, kwargs = (moved(part, device, gradients) for part in (sample.input, sample.args, sample.kwargs))
    out = op(x, *args, **kwargs)
    if not gradients:
        return tensors(out), []
    leaves = [t for t in tensors([x, args, kwargs]) if t.requires_grad]
    scalars = [o for o in tensors(out) if o.requires_grad]
    if not leaves or not scalars:
        return tensors(out), []
    total = sum((o.abs().sum() if o.is_complex() else o.sum()) for o in scalars)
    return tensors(out), [g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None]


def moved_together(value, device):
    """Tensors that share memory still do."""
    storages = {}

    def there(t):
        if t.layout != torch.strided or t.device.type != "cpu" or not t.untyped_storage().nbytes():
            return t if t.device.type == "meta" else t.to(device)
        key = t.untyped_storage().data_ptr()
        if key not in storages:
            storages[key] = torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage()).to(device).untyped_storage()
        return torch.empty(0, dtype=t.dtype, device=device).set_(storages[key], t.storage_offset(), t.size(), t.stride())

    return tree_map_only(torch.Tensor, there, tree_map_only(torch.device, lambda _: torch.device(device), value))


def refusal(op, x, args, kwargs):
    """The error that the op raises, or None."""
    torch.manual_seed(0)
    try:
        op(x, *args, **kwargs)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def words(error):
    """The message, whatever the device is called."""
    lines = str(error).replace("npu:0", "cpu").strip().splitlines()
    return lines[0] if lines else ""


class Sweep:
    def __init__(self):
        self.counts = dict(ran=0, passed=0, failed=0, gap=0, skipped=0, malformed=0, refused=0, refused_in_the_same_words=0)
        self.failures, self.surprises, self.native_calls, self.fallback_calls = [], set(), 0, 0
        self.fallback_ops = {}

    def case(self, op, name, dtype, sample, gradients):
        torch.manual_seed(0)
        try:
            want = evaluate(op, sample, "cpu", gradients)
        except Exception:  # noqa: BLE001: the cpu refuses it: nothing to compare with
            self.counts["skipped"] += 1
            return True
        self.counts["ran"] += 1
        torch.manual_seed(0)
        torch_halyard.clear_report()
        try:
            got = evaluate(op, sample, "npu", gradients)
            if op.name not in UNDEFINED and not sample.kwargs.get("dropout_p"):
                # A sample that names neither tensors nor a device makes its result on the host.
                nowhere = not tensors([sample.input, sample.args, sample.kwargs]) and "device" not in sample.kwargs
                compare(got[0], want[0], dtype, "cpu" if nowhere else "npu")
                compare(got[1], want[1], dtype)
        except Exception as error:  # noqa: BLE001
            message = str(error).strip().splitlines()
            self.counts["gap" if name in GAPS else "failed"] += 1
            if name not in GAPS:
                self.failures.append(f"{name} {dtype}: {type(error).__name__}: {message[0] if message else ''}")
            return False
        finally:
            fallbacks = torch_halyard.fallback_report()
            self.native_calls += sum(torch_halyard.native_report().values())
            self.fallback_calls += sum(e["count"] for e in fallbacks if e["by"] == "torch")
            for entry in fallbacks:
                self.fallback_ops[entry["op"]] = self.fallback_ops.get(entry["op"], 0) + entry["count"]
        self.counts["passed"] += 1
        return True

    def malformed(self, op, name):
        """Whether npu refuses what the cpu refuses, with the same type of error."""
        clean = True
        torch.manual_seed(0)
        for sample in (error.sample_input for error in op.error_inputs("cpu")):
            want = refusal(op, sample.input, sample.args, sample.kwargs)
            if want is None:
                continue
            self.counts["malformed"] += 1
            got = refusal(op, *moved_together([sample.input, sample.args, sample.kwargs], "npu"))
            if isinstance(got, type(want)):
                self.counts["refused"] += 1
                self.counts["refused_in_the_same_words"] += words(got) == words(want)
                continue
            clean = False
            if name not in ERROR_GAPS:
                self.failures.append(f"{name}: a malformed input gives {type(got).__name__ if got else 'a result'} ({words(got)}), not "
                                     f"{type(want).__name__}: {words(want)}")
        if name in ERROR_GAPS and clean:
            self.surprises.add(f"{name} (malformed inputs)")

    def op(self, op, dtypes, limit):
        name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        clean = True
        if op.error_inputs_func is not None:
            self.malformed(op, name)
        for dtype in dtypes:
            if dtype not in op.supported_dtypes("cpu"):
                continue
            gradients = op.supports_autograd and dtype in (torch.float32, torch.float64, torch.complex64) and dtype in op.supported_backward_dtypes("cpu")
            torch.manual_seed(0)
            random.seed(0)
            try:
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=gradients))
            except Exception:  # noqa: BLE001: this op's samples need something that is not installed
                continue
            for sample in samples[:limit]:
                clean = self.case(op, name, dtype, sample, gradients) and clean
        if name in GAPS and clean and limit is None:  # else the sample that fails may be one that was left out
            self.surprises.add(name)


def sweep(names=None, every=1, dtypes=DTYPES, limit=None, progress=None):
    torch_halyard.warn_fallback(False)
    result = Sweep()
    chosen = [op for i, op in enumerate(op_db) if (not names and i % every == 0) or (names and op.name in names)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in chosen:
            if progress:
                print(op.name, op.variant_test_name, file=progress, flush=True)
            result.op(op, dtypes, limit)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--slice", type=int, default=1, help="every Nth op")
    parser.add_argument("--limit", type=int, help="samples of an op and type")
    parser.add_argument("--dtypes", help="names, between commas")
    parser.add_argument("--json", help="write the figures there")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args()
    dtypes = [getattr(torch, name) for name in options.dtypes.split(",")] if options.dtypes else DTYPES
    result = sweep(set(options.names), options.slice, dtypes, options.limit, sys.stderr if options.progress else None)
    for failure in result.failures:
        print("FAILED", failure)
    for name in sorted(result.surprises):
        print("passes, though listed as a gap:", name)
    calls = result.native_calls + result.fallback_calls
    print(result.counts, f"native {result.native_calls} of {calls} calls ({100 * result.native_calls / max(calls, 1):.1f} %)")
    print("most frequent fallbacks:", sorted(result.fallback_ops.items(), key=lambda item: -item[1])[:30])
    if options.json:
        with open(options.json, "w") as file:
            json.dump(dict(result.counts, native_calls=result.native_calls, fallback_calls=result.fallback_calls,
                           failures=result.failures), file, indent=1)
    sys.exit(bool(result.failures or result.surprises))


if __name__ == "__main__":
    main()

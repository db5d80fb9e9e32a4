"""Every op of the table against PyTorch on the CPU, over generated cases."""

import math
import os

import pytest
import torch

import cases
from expressions import EXCUSED, EXPRESSIONS, Unanswered

torch.set_num_threads(1)  # the tensors are small
SEED = int(os.environ.get("HALYARD_SEED", "1"))

# Relative tolerance by type. PyTorch adds in other orders and its half types round between steps
# where the reference rounds once, so that two units of the type are allowed, and more for f32 and
# f64, whose functions differ by a few units between libraries. The absolute part, by which sums
# may differ however small they are, grows with the number and size of the terms (see absolute).
RELATIVE = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2,
            torch.float8_e4m3fn: 0.125, torch.float8_e5m2: 0.25}
# What one rounding inside PyTorch costs: its f32 arithmetic, or the half type itself, in which
# many of its kernels keep what they have so far.
INSIDE = {torch.float64: 2.0**-50, torch.float32: 2.0**-22, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8,
          torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

NO_KERNEL = ("not implemented for", "not supported", "Only Tensors of floating point", "does not support",
             "must be the same dtype", "Backward0 returned an invalid gradient", "expected scalar type", "expected m1 and m2 to have the same dtype")


def absolute(case, dtype):
    # A mean that is large beside the spread costs PyTorch's norms more.
    norms = 16 if case.op in ("layer_norm", "batch_norm", "batch_norm_update") else 1
    return INSIDE[dtype] * max(case.scale, 1) * math.sqrt(max(case.terms, 1)) * 2 * norms


def differs(case, name, ours, theirs, computed):
    """None, or what is different, in words."""
    if theirs is None or ours is None:
        return None
    if ours.dtype != theirs.dtype and not case.mixed:
        return f"{name}: Halyard gives {ours.dtype}, PyTorch {theirs.dtype}"
    if ours.shape != theirs.shape:
        return f"{name}: Halyard gives {list(ours.shape)}, PyTorch {list(theirs.shape)}"
    try:
        if ours.dtype.is_floating_point:
            narrow = max((ours.dtype, computed), key=lambda t: RELATIVE.get(t, 0))
            torch.testing.assert_close(ours.double(), theirs.double(), rtol=RELATIVE[narrow],
                                       atol=absolute(case, narrow), equal_nan=True)
        else:
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    except AssertionError as error:
        return f"{name}: " + " ".join(str(error).split())[:300]
    return None


def at_the_ends(case):
    """Whether magnitudes are those near which PyTorch's own kernels overflow or vanish on the way, or its sums of half
    types stop growing; verify has them."""
    long = case.op == "embedding_backward" and case.flavour.startswith("one size")
    return case.flavour.startswith("magnitudes") or long


def compare(case):
    """None, or why the case fails; "skip" where PyTorch has no kernel for it."""
    try:
        theirs = EXPRESSIONS[case.op](case)
    except Unanswered:
        return "skip"
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        if any(text in str(error) for text in NO_KERNEL):
            return "skip"
        return f"PyTorch refuses it: {error}"
    status, ours = case.run()
    if status != cases.OK:
        return f"Halyard refuses it: {cases.LIB.hyv_last_error().decode()}"
    if not isinstance(theirs, tuple):
        theirs = (theirs,)
    for tensor, mine, other in zip(case.outputs, ours, theirs):
        name = tensor["name"] if tensor else ""
        computed = other.dtype if other is not None else None
        if other is not None and mine is not None and mine.dtype != other.dtype and case.mixed:
            other = other.to(mine.dtype)  # an output of another type than the op's own
        problem = differs(case, name, mine, other, computed)
        if problem:
            return problem
    return None


def report(op, problems, seed):
    lines = [f"{len(problems)} cases of {op} differ from PyTorch (seed {seed})"]
    for number, flavour, call, problem in problems[:6]:
        lines.append(f"case {number} ({flavour})\n    {call}\n    {problem}")
    return "\n".join(lines)


def test_every_op_is_mapped_or_excused():
    unknown = set(cases.OPS) - set(EXPRESSIONS) - set(EXCUSED)
    assert not unknown, f"neither mapped to PyTorch nor excused: {sorted(unknown)}"
    stale = (set(EXPRESSIONS) | set(EXCUSED)) - set(cases.OPS)
    assert not stale, f"no longer in the table: {sorted(stale)}"
    assert all(EXCUSED.values()), "an excuse needs a reason"


@pytest.mark.parametrize("op", [op for op in cases.OPS if op in EXPRESSIONS])
def test_values(op):
    if cases.LIB.hyv_case_count(cases.OPS.index(op)) == 0:
        pytest.skip(f"{op} has no reference kernel in this build")
    seed, compared, problems = SEED, 0, []
    for case in cases.generate(op, seed):
        if case.expected != cases.OK or at_the_ends(case):
            continue
        outcome = compare(case)
        if outcome == "skip":
            continue
        compared += 1
        if outcome:
            problems.append((case.number, case.flavour, case.call, outcome))
    assert not problems, report(op, problems, seed)
    assert compared > 0, f"PyTorch took none of the cases of {op}"


# ---- errors ----

# What Halyard refuses and PyTorch answers, with the reason.
FORMULA = "the expression is a formula of several PyTorch ops, which has no such limit"
LENIENT = {
    ("masked_fill", "a mask larger than the tensor"): "only PyTorch's masked_fill_ keeps the shape; expand first",
    ("arange", "a matrix where a vector is needed"): "the expression has no output to be wrong",
    ("prod", "a dimension that is not there"): FORMULA,
    ("prod", "a negative dimension that is not there"): FORMULA,
    ("prod", "a dimension named twice"): FORMULA,
    ("rms_norm", "more dimensions to normalise than there are"): "the expression's slice takes all there are",
    ("int_mm", "two types where one is needed"): FORMULA,
    ("gather", "an index of floats"): "the expression casts the index, for PyTorch takes i64 alone",
    ("cross_entropy", "targets that are no indices"): "PyTorch may take them for probabilities",
    ("dequantize", "a result that is no float"): FORMULA,
    ("linear_quantized", "a weight that is not quantised"): FORMULA,
    ("linear_int8", "a result that is no float"): FORMULA,
    ("fused_linear", "a result of a type of its own"): FORMULA,
    ("sparsify_2_4", "rows that are no multiple of 8"): FORMULA,
    ("linear_sparse_2_4", "codes in plain layout"): FORMULA,
    ("linear_fractal_nz", "a weight in plain layout"): FORMULA,
    ("sample", "a draw too many"): FORMULA,
}
# Of these, what depends on the shapes and values drawn.
BY_CASE = {("rms_norm", "more dimensions to normalise than there are"), ("gather", "an index of floats"),
           ("cross_entropy", "targets that are no indices")}
# PyTorch's native functions behind these trust their callers, and end the process on a wrong size.
TRUSTING = {op for op in cases.OPS if op.endswith("_backward") or op.startswith("batch_norm")}


@pytest.mark.parametrize("op", [op for op in cases.OPS if op in EXPRESSIONS and op not in TRUSTING])
def test_refusals(op):
    """A call that the table refuses is one that PyTorch refuses too."""
    problems, answered = [], set()
    for case in cases.generate(op, quick=True):
        if case.expected == cases.OK or not case.own_mistake:
            continue
        status, _ = case.run()
        assert status == case.expected, f"{case.call}: {case.what}: {cases.LIB.hyv_status_name(status)}"
        try:
            EXPRESSIONS[op](case)
        except Exception:
            continue
        answered.add((op, case.what))
        if (op, case.what) not in LENIENT:
            problems.append((case.number, case.what, case.call, "PyTorch answers it"))
    assert not problems, report(op, problems, 1)
    stale = {key for key in LENIENT if key[0] == op} - answered - BY_CASE
    assert not stale, f"PyTorch refuses these after all: {stale}"


# ---- gradients ----

def seed_like(out):
    """What the C side starts from: ((37 k + 11) mod 17 - 8) / 8 for element k."""
    k = torch.arange(out.numel(), dtype=torch.int64)
    return ((((37 * k + 11) % 17) - 8).double() / 8).reshape(out.shape).to(out.dtype)


def count(case):
    """How many elements are reduced to one."""
    shape = case.x[0].shape
    return math.prod(shape[d] for d in (case.a.dims or range(len(shape)))) if shape else 1


def theirs_gradients(case):
    leaves = [t.clone().requires_grad_() if t is not None and cases.LIB.hyv_input_has_gradient(case.handle, i) else t
              for i, t in enumerate(case.x)]
    case.x = leaves
    if case.op == "addcmul" and any(not t.is_floating_point() for t in case.x):
        raise Unanswered("PyTorch multiplies an integer factor by `value` in its own type, where it wraps")
    if case.op == "var" and (count(case) - case.a.correction) <= 0:
        raise Unanswered("where no degree of freedom is left, PyTorch answers by the number of dimensions")
    out = EXPRESSIONS[case.op](case)
    out = out[0] if isinstance(out, tuple) else out
    wanted = [i for i, t in enumerate(leaves) if t is not None and t.requires_grad]
    if not out.requires_grad:
        return {}
    grads = torch.autograd.grad(out, [leaves[i] for i in wanted], seed_like(out), allow_unused=True)
    return dict(zip(wanted, grads))


def compare_gradients(case):
    status, ours = case.gradients()
    if status == cases.UNSUPPORTED and not cases.LIB.hyv_has_gradients(case.handle):
        return "skip"
    if status != cases.OK:
        return f"Halyard refuses it: {cases.LIB.hyv_last_error().decode()}"
    try:
        theirs = theirs_gradients(case)
    except Unanswered:
        return "skip"
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        return "skip" if any(text in str(error) for text in NO_KERNEL) else f"PyTorch refuses it: {error}"
    for i, mine in enumerate(ours):
        other = theirs.get(i)
        if mine is None or other is None:
            present = mine if other is None else other
            if present is not None and bool((present != 0).any()):
                return f"input {i}: only {'PyTorch' if mine is None else 'Halyard'} has a gradient"
            continue
        # Intermediate results round to the type, and sums over what was broadcast add that up.
        narrow = max((mine.dtype, *(t.dtype for t in case.x if t is not None and t.dtype in FLOATS)),
                     key=lambda t: RELATIVE[t])
        try:
            torch.testing.assert_close(mine.double(), other.double(), rtol=8 * RELATIVE[narrow],
                                       atol=8 * absolute(case, narrow), equal_nan=True)
        except AssertionError as error:
            return f"input {i}: " + " ".join(str(error).split())[:300]
    return None


@pytest.mark.parametrize("op", [op for op in cases.OPS if op in EXPRESSIONS
                                and cases.LIB.hyv_is_differentiable(cases.OPS.index(op))])
def test_gradients(op):
    seed, compared, problems = SEED, 0, []
    for case in cases.generate(op, seed, quick=True):
        if case.expected != cases.OK or at_the_ends(case):
            continue
        outcome = compare_gradients(case)
        if outcome == "skip":
            continue
        compared += 1
        if outcome:
            problems.append((case.number, case.flavour, case.call, outcome))
    assert not problems, report(op, problems, seed)
    assert compared > 0, f"no gradient of {op} was compared"

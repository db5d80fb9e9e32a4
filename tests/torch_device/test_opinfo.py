"""A fixed slice of PyTorch's op_db; `make test-opinfo` runs all of it."""

import torch

from opinfo import sweep


def test_slice_of_op_db(capsys):
    result = sweep(every=9, dtypes=[torch.float32, torch.int64], limit=4)
    with capsys.disabled():
        print("\nop_db slice:", result.counts, "native calls", result.native_calls, "fallback calls", result.fallback_calls)
    assert result.failures == []
    assert result.counts["ran"] > 300 and result.counts["malformed"] > 50

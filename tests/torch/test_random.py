"""Random ops: their bits are defined by Philox, and recomputed here from that definition."""

import numpy as np
import pytest
import torch

import cases


def philox(seed, first_block, count):
    """`count` words of the sequence of `seed`, from block `first_block` on."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64) + np.uint64(first_block)
    low = np.uint64(0xFFFFFFFF)
    word = [blocks & low, blocks >> np.uint64(32), np.zeros_like(blocks), np.zeros_like(blocks)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = word[0] * np.uint64(0xD2511F53), word[2] * np.uint64(0xCD9E8D57)
        word = [(b >> np.uint64(32)) ^ word[1] ^ np.uint64(key[0]), b & low,
                (a >> np.uint64(32)) ^ word[3] ^ np.uint64(key[1]), a & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(word, -1).reshape(-1)[:count]


def test_philox_agrees_with_its_published_answer():
    assert [hex(w) for w in philox(0, 0, 4)] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]


PRECISION = {torch.float64: 32, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def uniform(case, words, dtype):
    p, a, b = PRECISION[dtype], case.a.a, case.a.b
    value = torch.from_numpy(a + (words >> np.uint64(32 - p)) / 2.0**p * (b - a)).to(dtype).double()
    return torch.where(value >= b, torch.tensor(a, dtype=torch.float64), value).to(dtype)


def normal(case, words, dtype):
    words = np.append(words, philox_tail(case, len(words)))
    u, v = ((words[0::2] >> np.uint64(8)) + np.uint64(1)) / 2.0**24, (words[1::2] >> np.uint64(8)) / 2.0**24
    radius = np.sqrt(-2 * np.log(u))
    pairs = np.stack([radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)], -1).reshape(-1)
    return torch.from_numpy(case.a.a + case.a.b * pairs).to(dtype)


def philox_tail(case, count):
    """The second word of a pair that the output ends in the middle of."""
    return philox(case.a.seed, case.a.offset, count + count % 2)[count:]


def randint(case, words, dtype):
    span = np.uint64(case.a.b - case.a.a)
    return torch.from_numpy(int(case.a.a) + ((words * span) >> np.uint64(32)).astype(np.int64)).to(dtype)


def bernoulli(case, words, dtype):
    return torch.from_numpy(words < case.a.a * 2.0**32).to(dtype)


FORMULAS = {"uniform": uniform, "normal": normal, "randint": randint, "bernoulli": bernoulli}


@pytest.mark.parametrize("op", FORMULAS)
def test_creation(op):
    for case in cases.generate(op):
        if case.expected != cases.OK:
            continue
        status, (ours,) = case.run()
        assert status == cases.OK
        words = philox(case.a.seed, case.a.offset, ours.numel())
        want = FORMULAS[op](case, words, ours.dtype)[:ours.numel()].reshape(ours.shape)
        if op == "normal":
            tolerance = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
            torch.testing.assert_close(ours, want, rtol=tolerance[ours.dtype], atol=tolerance[ours.dtype])
        else:
            assert torch.equal(ours, want), case.call


def test_dropout():
    for case in cases.generate("dropout"):
        if case.expected != cases.OK:
            continue
        x, keep = case.x[0], 1 - case.a.p
        status, (out, mask) = case.run()
        assert status == cases.OK
        words = philox(case.a.seed, case.a.offset, x.numel())
        kept = torch.from_numpy(words < keep * 2.0**32).reshape(x.shape)
        assert torch.equal(mask, kept), case.call
        want = x.double() * kept.double() * (1 / keep if keep else 0)
        torch.testing.assert_close(out, want.to(x.dtype), equal_nan=True)


def test_moments():
    """A sample is what its name says."""
    for op, mean, deviation in [("uniform", 0.5, 12**-0.5), ("normal", 0.0, 1.0)]:
        for case in cases.generate(op):
            if case.expected != cases.OK or (case.a.a, case.a.b) != (0.0, 1.0):
                continue
            _, (ours,) = case.run()
            if ours.numel() >= 2000:
                assert abs(ours.double().mean() - mean) < 6 * deviation / ours.numel() ** 0.5
                assert abs(ours.double().std() - deviation) < 0.1 * deviation

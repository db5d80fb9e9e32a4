"""bench/torch_peer.py leaves out what PyTorch would take minutes for."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import torch_peer


class Clock:
    """Time that passes only when a product runs: `seconds` for each of its rows."""

    def __init__(self, seconds):
        self.seconds, self.now, self.most = seconds, 0.0, 0

    def product(self, rows):
        self.now += self.seconds * rows
        self.most = max(self.most, rows)

    def __call__(self):
        return self.now


ROW = {"name": "mm", "shape": "4096x4096x4096", "dtype": "f16"}


def test_slow_products_are_left_out_by_a_slice_of_them(capsys):
    slow = Clock(0.01)  # 41 s for 4096 rows
    assert not torch_peer.affordable(ROW, slow.product, 4096, slow)
    assert slow.most == 64
    assert "mm 4096x4096x4096 f16 is left out: PyTorch would take about 41 s" in capsys.readouterr().err


def test_quick_products_and_few_rows_are_taken():
    quick = Clock(1e-5)
    assert torch_peer.affordable(ROW, quick.product, 4096, quick)
    few = Clock(10)
    assert torch_peer.affordable(ROW, few.product, 64, few)
    assert few.most == 0


def test_makers_ask_before_they_begin(monkeypatch):
    monkeypatch.setattr(torch_peer, "affordable", lambda *_: False)
    for name, shape in (("mm", "128x8x8"), ("linear", "128x8x8")):
        assert torch_peer.make_turns({"name": name, "shape": shape, "dtype": "f32"}) is None
    monkeypatch.setattr(torch_peer, "affordable", lambda *_: True)
    assert torch_peer.make_turns({"name": "mm", "shape": "128x8x8", "dtype": "f32"}).take() > 0

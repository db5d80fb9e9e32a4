"""Frameworks choose npu by themselves, once the module torch_npu can be imported, and train as on the cpu."""

import pytest
import torch
from models import qwen2, tokens


class Texts(torch.utils.data.Dataset):
    def __init__(self, n=8):
        self.ids = tokens(n, 12)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def trained(folder, **options):
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(output_dir=str(folder), per_device_train_batch_size=4, max_steps=3, learning_rate=1e-2, logging_steps=1,
                                  save_strategy="no", report_to=[], seed=1, disable_tqdm=True, **options)
    trainer = Trainer(model=qwen2(), args=arguments, train_dataset=Texts())
    trainer.train()
    return trainer, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_trainer_runs_on_npu_without_being_told(tmp_path):
    trainer, got = trained(tmp_path)
    assert trainer.args.device.type == "npu" and {p.device.type for p in trainer.model.parameters()} == {"npu"}
    reference, want = trained(tmp_path, use_cpu=True)
    assert reference.args.device.type == "cpu"
    assert got == pytest.approx(want, rel=1e-3) and got[-1] < got[0]


def test_accelerate_chooses_npu():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = Accelerator()
    assert accelerator.device.type == "npu"
    model = qwen2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(Texts(), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for batch in [*loader, *loader]:
        assert batch["input_ids"].device.type == "npu"
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[2] < losses[0] and losses[3] < losses[1]
    AcceleratorState._reset_state(True)


def test_torch_npu_is_the_device_module():
    import torch_npu

    assert torch_npu.npu is torch.npu and torch_npu.__version__


@pytest.mark.parametrize("layout", ["BSND", "TND"])
@pytest.mark.parametrize("sparse_mode", [0, 2, 3])
def test_fusion_attention(layout, sparse_mode):
    import torch_npu

    torch.manual_seed(0)
    query, key, value = torch.randn(2, 3, 4, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)
    scores = torch.einsum("bqnd,bknd->bnqk", query, key.repeat_interleave(2, 2)) * 0.3
    hidden = torch.ones(3, 5, dtype=torch.bool).triu({0: 5, 2: 1, 3: 3}[sparse_mode])
    want = torch.einsum("bnqk,bknd->bqnd", scores.masked_fill(hidden, float("-inf")).softmax(-1), value.repeat_interleave(2, 2))
    there = [t.to("npu") for t in (query, key, value)]
    lengths = {}
    if layout == "TND":
        there, want = [t.flatten(0, 1) for t in there], want.flatten(0, 1)
        lengths = dict(actual_seq_qlen=(3, 6), actual_seq_kvlen=(5, 10))
    got = torch_npu.npu_fusion_attention(*there, 4, layout, scale=0.3, sparse_mode=sparse_mode, **lengths)[0]
    torch.testing.assert_close(got.cpu(), want)
    with pytest.raises(NotImplementedError, match="layouts"):
        torch_npu.npu_fusion_attention(*there, 4, "SBH")


def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    import torch.nn.functional as F
    from models import LeNet
    from torch_halyard.lightning import NPUAccelerator

    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model, self.losses = LeNet(), []

        def training_step(self, batch, index):
            loss = F.cross_entropy(self.model(batch[0]), batch[1])
            self.losses.append((loss.device.type, loss.item()))
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.05)

    def losses(**device):
        torch.manual_seed(0)
        module = Classifier()
        data = torch.utils.data.TensorDataset(torch.randn(16, 1, 28, 28), torch.randint(0, 10, (16,)))
        trainer = lightning.Trainer(**device, devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path)
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=8))
        return module.losses

    want, got = losses(accelerator="cpu"), losses(accelerator="npu", strategy="npu")
    assert {kind for kind, _ in got} == {"npu"} and len(got) == 4
    assert [loss for _, loss in got] == pytest.approx([loss for _, loss in want], rel=1e-4)
    assert NPUAccelerator.parse_devices("auto") == list(range(torch.npu.device_count()))
    with pytest.raises(ValueError, match="devices of type npu"):
        NPUAccelerator.parse_devices([99])

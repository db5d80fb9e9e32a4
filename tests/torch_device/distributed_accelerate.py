"""One process of an accelerate launch: the mean loss of the ranks is that of one process on the whole batches."""

import torch
from accelerate import Accelerator
from models import qwen2, tokens

SIZE = 2


def train(model, optimizer, loader, backward):
    losses = []
    for batch in loader:
        loss = model(**batch).loss
        backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def parts(batch_size):
    model = qwen2()
    texts = [{"input_ids": text, "labels": text} for text in tokens(8, 9)]
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), torch.utils.data.DataLoader(texts, batch_size=batch_size)


accelerator = Accelerator()
print(f"{accelerator.device} of {accelerator.num_processes}, {accelerator.distributed_type.name}", flush=True)
losses = train(*accelerator.prepare(*parts(batch_size=2)), accelerator.backward)
model, optimizer, loader = parts(batch_size=2 * SIZE)
want = train(model, optimizer, loader, torch.Tensor.backward)  # on the cpu
torch.testing.assert_close(accelerator.gather(losses).view(SIZE, -1).mean(0).cpu(), want, rtol=1e-4, atol=1e-5)
print("agrees", flush=True)
accelerator.end_training()

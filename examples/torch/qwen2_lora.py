"""LoRA fine-tuning of Qwen2 on npu with transformers and peft as they are, here with a tiny model of random weights.

    python examples/torch/qwen2_lora.py
"""

import torch
import torch_halyard
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                     num_key_value_heads=2, pad_token_id=0, eos_token_id=0))
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])).to("npu")
text = torch.tensor([list(b"the quick brown fox jumps over the lazy dog. ")] * 4, device="npu")
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=2e-2)
for step in range(20):
    loss = model(text, labels=text).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0 or step == 19:
        print(f"step {step:2d}  loss {loss.item():.4f}")
answer = model.generate(input_ids=text[:1, :20], max_new_tokens=10, do_sample=False)
print(bytes(answer[0].tolist()))
fallen = torch_halyard.fallback_report()
print(f"{sum(torch_halyard.native_report().values())} ops ran natively;", f"fell back: {fallen}" if fallen else "nothing fell back")

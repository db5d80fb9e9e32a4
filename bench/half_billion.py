"""Qwen2.5-0.5B's shape in transformers, with random weights."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCAB = 151936
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def make_model(dtype):
    config = Qwen2Config(vocab_size=VOCAB, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
                         num_attention_heads=14, num_key_value_heads=2, tie_word_embeddings=True)
    with torch.device("meta"):
        model = Qwen2ForCausalLM(config).to(DTYPES[dtype])
    model = model.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(1) if "norm" in name else parameter.uniform_(-0.03, 0.03)
        model.model.rotary_emb.__init__(config)
    model.tie_weights()
    return model

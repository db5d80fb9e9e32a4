"""Small models of real clients, with random weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5),
                                      nn.ReLU(), nn.MaxPool2d(2))
        self.classes = nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x):
        return self.classes(self.features(x).flatten(1))


class ConvNet(nn.Module):
    """Batch norm, dropout-free residual, average pooling: torchvision's building blocks."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.SiLU())
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        x = F.avg_pool2d(x + self.body(x), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def qwen2(**changes):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**{
        **dict(vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
               num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0, eos_token_id=1, bos_token_id=2), **changes}))


def tokens(*shape):
    return torch.randint(3, 128, shape, generator=torch.Generator().manual_seed(1))


TEXT = dict(vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, pad_token_id=0, bos_token_id=2,
            eos_token_id=1, max_position_embeddings=64)


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**TEXT, num_key_value_heads=2))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=64, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                      bos_token_id=2, eos_token_id=1, pad_token_id=0))


def bert():
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig(**{**TEXT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}))


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(image_size=16, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                               num_labels=5))


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    return WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=128, num_mel_bins=8, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20, max_target_positions=40, pad_token_id=0, bos_token_id=2, eos_token_id=1,
        decoder_start_token_id=2, suppress_tokens=[], begin_suppress_tokens=[]))


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(T5Config(vocab_size=128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, pad_token_id=0,
                                               eos_token_id=1, decoder_start_token_id=0))


def images(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))

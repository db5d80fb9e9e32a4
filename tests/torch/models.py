"""Tiny checkpoints of every family, and Halyard's models through its C interface and its program."""

import ctypes
import json
import os
import pathlib
import subprocess

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("HALYARD_BUILD", ROOT / "build/release"))
PROGRAM = BUILD / "bin/halyard"
FORMATS = {"file": 0, "f32": 1, "bf16": 2, "q8": 3, "q4": 4}

SIZES = dict(vocab_size=320, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, bos_token_id=None, eos_token_id=None, pad_token_id=None)
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def make_model(family, seed=0, **changes):
    """A model of the family with random weights that spread the logits, so that greedy choices are clear."""
    torch.manual_seed(seed)
    if family == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**{**SIZES, "tie_word_embeddings": True, **changes}))
    elif family == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**{**SIZES, "head_dim": 32, "tie_word_embeddings": False, **changes}))
    else:
        model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "tie_word_embeddings": False, "rope_parameters": LLAMA3, **changes}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.2)
            else:
                parameter.normal_(0, 1.0 / parameter.shape[-1] ** 0.5)
    return model.float().eval()


def make_ids(length, seed=0, vocab=320):
    return torch.randint(0, vocab, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def load_library():
    lib = ctypes.CDLL(str(BUILD / "lib/libhalyard.so"))
    p, i64 = ctypes.c_void_p, ctypes.c_int64
    for name, result, *arguments in [
        ("hy_last_error", ctypes.c_char_p),
        ("hy_device_get", ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(p)),
        ("hy_model_load", ctypes.c_int, p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(p)),
        ("hy_model_free", None, p),
        ("hy_model_vocab_size", i64, p),
        ("hy_model_logits", ctypes.c_int, p, p, i64, p),
        ("hy_model_encode", ctypes.c_int, p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint, p, i64,
         ctypes.POINTER(i64)),
        ("hy_model_decode", ctypes.c_int, p, p, i64, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)),
        ("hy_model_generate_batch", ctypes.c_int, p, p, p, ctypes.c_int, p, p, p, p),
        ("hy_generate_defaults", None, p),
    ]:
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


LIB = load_library()


def check(status):
    assert status == 0, LIB.hy_last_error().decode()


class GenerateOptions(ctypes.Structure):
    _fields_ = [("max_tokens", ctypes.c_int64), ("temperature", ctypes.c_double), ("top_k", ctypes.c_int64),
                ("top_p", ctypes.c_double), ("min_p", ctypes.c_double), ("repetition_penalty", ctypes.c_double),
                ("seed", ctypes.c_uint64), ("stops", ctypes.c_void_p), ("n_stops", ctypes.c_int), ("ignore_end", ctypes.c_bool),
                ("on_progress", ctypes.c_void_p), ("progress_context", ctypes.c_void_p)]


class Model:
    def __init__(self, folder, adapter=None, format="file"):
        device = ctypes.c_void_p()
        self.handle = ctypes.c_void_p()
        check(LIB.hy_device_get(b"cpu", ctypes.byref(device)))
        check(LIB.hy_model_load(device, str(folder).encode(), str(adapter).encode() if adapter else None,
                                FORMATS[format], ctypes.byref(self.handle)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        LIB.hy_model_free(self.handle)

    def logits(self, ids):
        ids = np.asarray(ids, np.int32)
        out = np.empty(LIB.hy_model_vocab_size(self.handle), np.float32)
        check(LIB.hy_model_logits(self.handle, ids.ctypes.data, len(ids), out.ctypes.data))
        return torch.from_numpy(out)

    def encode(self, data):
        """Ids of bytes, with the tokens that the model puts around a text."""
        ids = np.empty(len(data) * 3 + 16, np.int32)
        count = ctypes.c_int64()
        check(LIB.hy_model_encode(self.handle, data, len(data), 0, ids.ctypes.data, len(ids), ctypes.byref(count)))
        return ids[:count.value].tolist()

    def decode(self, ids):
        ids = np.asarray(ids, np.int32)
        text = ctypes.create_string_buffer(64 * len(ids) + 64)
        length = ctypes.c_size_t()
        check(LIB.hy_model_decode(self.handle, ids.ctypes.data, len(ids), text, len(text), ctypes.byref(length)))
        return text.raw[:length.value]

    def generate_batch(self, prompts, max_tokens):
        options = GenerateOptions()
        LIB.hy_generate_defaults(ctypes.byref(options))
        options.max_tokens = max_tokens
        arrays = [np.asarray(prompt, np.int32) for prompt in prompts]
        outputs = [np.empty(max_tokens, np.int32) for _ in prompts]
        addresses = lambda list_: (ctypes.c_void_p * len(list_))(*[a.ctypes.data for a in list_])
        lengths = np.array([len(a) for a in arrays], np.int64)
        counts = np.zeros(len(arrays), np.int64)
        check(LIB.hy_model_generate_batch(self.handle, addresses(arrays), lengths.ctypes.data, len(arrays),
                                          ctypes.byref(options), addresses(outputs), counts.ctypes.data, None))
        return [o[:n].tolist() for o, n in zip(outputs, counts)]


def halyard(*arguments, check=True, timeout=300, **options):
    result = subprocess.run([str(PROGRAM), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, **options)
    assert not check or result.returncode == 0, result.stderr
    return result


def run_greedy(folder, ids, count, *more, **options):
    output = halyard("run", "--model", folder, "--ids", ",".join(map(str, ids)), "--max-tokens", count, "--json",
                     "--threads", 2, *more, **options).stdout
    return json.loads(output.splitlines()[-1])


def relative_error(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm()).item()

"""Token ids against the tokenizers package, with tokenizers trained here."""

import random
import shutil

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from models import ROOT, Model, make_model

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

PROSE = [
    "The quick brown fox jumps over the lazy dog; it's what they'd've done, WE'LL see.",
    "人工智能正在改变世界。今天天气很好，我们去公园散步吧！", "日本語のテキスト、カタカナとひらがな。", "한국어 문장도 있습니다.",
    "مرحبا بالعالم، كيف حالك اليوم؟ هذا نص عربي.", "שלום עולם", "Привет, мир! Ёлка и йод.", "नमस्ते दुनिया",
    "emoji: 😀😃👩‍👩‍👧‍👦🇩🇪🏳️‍🌈❤️", "cafe\u0301 naïve Å ﬁ ½ \u1e9b\u0323 e\u0323\u0301 \u0041\u030a",
    "1234567890 3.14159 0x7fff 1,000,000 ١٢٣ ४५६ Ⅷ ²", "tabs\t\tand\r\nlines\r\n\r\n\n  trailing   ",
    "a\u00a0b\u2003c\u3000d\u200be\u2028f", "'s 'T 'RE 'Ve don't DON'T ſ’s", "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
]


def corpus():
    code = [p.read_text(errors="replace") for p in sorted((ROOT / "src/core").glob("*.c"))[:12]]
    return code + PROSE * 3


def samples():
    texts = [line.encode() for text in corpus()[:6] for line in text.split("\n")[:60]]
    texts += [text.encode() for text in PROSE]
    texts += [b"", b" ", b"\n", b"a" * 5000, b" " * 3000 + b"x", b"=" * 2000, "é".encode() * 1000, b"ab" * 3000, "的".encode() * 1500]
    texts += [b"\xff\xfe", b"abc\x80def", b"\xe4\xb8", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80 x", b"\xf5\x80\x80\x80", b"ok\xe4\xb8\xadok"]
    random.seed(5)
    pieces = PROSE + [" ", "  ", "\n", "\t", "0", "x", "'s", "<|im_end|>", "\u0301", "\u1100\u1161\u11a8"]
    for _ in range(400):
        text = ""
        for _ in range(random.randint(1, 6)):
            piece = random.choice(pieces)
            start = random.randrange(len(piece))
            text += piece[start:start + random.randint(1, 9)]
        texts.append(text.encode())
    for _ in range(100):
        texts.append(bytes(random.choice([random.randrange(256), random.randrange(32, 127)]) for _ in range(random.randint(1, 40))))
    return texts


def train(tokenizer, size):
    specials = [AddedToken(t, special=True, normalized=False) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=specials, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def qwen():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return train(tokenizer, 1200)


def gpt2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = train(tokenizer, 900)
    tokenizer.add_tokens([AddedToken("tokens of its own", lstrip=True), AddedToken("own", single_word=True)])
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer = train(tokenizer, 1000)
    start = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B:1", special_tokens=[("<|endoftext|>", start)])
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    make_model("qwen2", vocab_size=1300).save_pretrained(path)
    return path


@pytest.mark.parametrize("style", [qwen, gpt2, llama3], ids=lambda f: f.__name__)
def test_ids(folder, style, tmp_path):
    tokenizer = style()
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with Model(tmp_path) as model:
        for data in samples():
            text = data.decode(errors="replace")
            wanted = tokenizer.encode(text).ids
            assert model.encode(data) == wanted, data
            plain = tokenizer.encode(text, add_special_tokens=False).ids
            assert model.decode(plain) == b"".join(bytes_of(tokenizer, i) for i in plain)


def bytes_of(tokenizer, id):
    """What a token stands for: its own text, or the bytes behind the printable letters of byte-level BPE."""
    added = tokenizer.get_added_tokens_decoder()
    if id in added:
        return added[id].content.encode()
    return bytes(BYTE_OF[letter] for letter in tokenizer.id_to_token(id))


def byte_letters():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for byte in range(256):
        letters[chr(byte) if byte in plain else chr(256 + extra)] = byte
        extra += byte not in plain
    return letters


BYTE_OF = byte_letters()

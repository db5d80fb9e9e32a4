"""The made-up architecture of docs/how-to/model.md in plain Python: a folder with random weights, and its greedy answer."""
import json
import math
import random
import struct

V, D, F, H, G, E, LAYERS, THETA = 13, 8, 12, 2, 1, 4, 2, 10000.0


def make(folder, seed):
    """Writes config.json and model.safetensors; returns the weights by name, as lists of rows."""
    numbers = random.Random(seed)
    shapes = {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,), "lm_head.weight": (V, D)}
    for i in range(LAYERS):
        for name, shape in (("ln.weight", (D,)), ("attn.query.weight", (H * E, D)), ("attn.query.bias", (H * E,)),
                            ("attn.key.weight", (G * E, D)), ("attn.key.bias", (G * E,)), ("attn.value.weight", (G * E, D)),
                            ("attn.value.bias", (G * E,)), ("attn.out.weight", (D, H * E)), ("ffn.gate.weight", (F, D)),
                            ("ffn.up.weight", (F, D)), ("ffn.down.weight", (D, F))):
            shapes[f"model.layers.{i}.{name}"] = shape
    header, data, weights = {}, b"", {}
    for name, shape in shapes.items():
        count = math.prod(shape)
        values = [struct.unpack("<f", struct.pack("<f", numbers.gauss(0, 0.6)))[0] for _ in range(count)]
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * count]}
        data += struct.pack(f"<{count}f", *values)
        weights[name] = values if len(shape) == 1 else [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "config.json").write_text(json.dumps({
        "model_type": "heron", "architectures": ["HeronForCausalLM"], "vocab_size": V, "hidden_size": D,
        "intermediate_size": F, "num_hidden_layers": LAYERS, "num_attention_heads": H, "num_key_value_heads": G,
        "head_dim": E, "max_position_embeddings": 64, "rope_theta": THETA, "use_bias": True, "torch_dtype": "float32"}))
    return weights


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def linear(matrix, x, bias=None):
    return [dot(row, x) + (bias[i] if bias else 0) for i, row in enumerate(matrix)]


def norm(x, weight):
    scale = 1 / math.sqrt(dot(x, x) / len(x) + 1e-6)
    return [a * scale * w for a, w in zip(x, weight)]


def rotated(x, position):
    half, out = E // 2, list(x)
    for j in range(half):
        angle = position * THETA ** (-2 * j / E)
        out[j] = x[j] * math.cos(angle) - x[j + half] * math.sin(angle)
        out[j + half] = x[j + half] * math.cos(angle) + x[j] * math.sin(angle)
    return out


def heads(flat):
    return [flat[i:i + E] for i in range(0, len(flat), E)]


def attention(w, rows):
    q = [[rotated(h, t) for h in heads(linear(w["attn.query.weight"], x, w["attn.query.bias"]))] for t, x in enumerate(rows)]
    k = [[rotated(h, t) for h in heads(linear(w["attn.key.weight"], x, w["attn.key.bias"]))] for t, x in enumerate(rows)]
    v = [heads(linear(w["attn.value.weight"], x, w["attn.value.bias"])) for x in rows]
    out = []
    for t in range(len(rows)):
        mixed = []
        for h in range(H):
            scores = [math.exp(dot(q[t][h], k[s][h * G // H]) / math.sqrt(E)) for s in range(t + 1)]
            mixed += [sum(p * v[s][h * G // H][e] for s, p in enumerate(scores)) / sum(scores) for e in range(E)]
        out.append(linear(w["attn.out.weight"], mixed))
    return out


def mlp(w, x):
    gate = [g / (1 + math.exp(-g)) for g in linear(w["ffn.gate.weight"], x)]
    return linear(w["ffn.down.weight"], [g * u for g, u in zip(gate, linear(w["ffn.up.weight"], x))])


def answer(weights, ids, count):
    """The greedy tokens, each read from the start, and the smallest lead that a token had."""
    ids, lead = list(ids), math.inf
    for _ in range(count):
        rows = [weights["model.embed_tokens.weight"][i] for i in ids]
        for i in range(LAYERS):
            prefix = f"model.layers.{i}."
            w = {name[len(prefix):]: value for name, value in weights.items() if name.startswith(prefix)}
            h = [norm(x, w["ln.weight"]) for x in rows]
            rows = [[a + b + c for a, b, c in zip(x, y, mlp(w, z))] for x, y, z in zip(rows, attention(w, h), h)]
        logits = linear(weights["lm_head.weight"], norm(rows[-1], weights["model.norm.weight"]))
        order = sorted(range(V), key=lambda i: -logits[i])
        lead = min(lead, logits[order[0]] - logits[order[1]])
        ids.append(order[0])
    return ids[-count:], lead

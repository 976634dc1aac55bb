"""Gemma 3's text model in plain PyTorch, fp32: one text at a time, no cache, attention by its definition."""

import math

import numpy
import torch
from torch.nn.functional import gelu, linear

from model_file import read_model


def load(path):
    """A model's configuration, the weights as forward() takes them, its tokenizer's pieces and the dtype's name."""
    config, arrays, pieces, dtype = read_model(path)
    weights = {name: torch.from_numpy(numpy.array(values)) for name, values in arrays.items()}
    stored = torch.float32 if dtype == "fp32" else torch.bfloat16
    weights["embedding_scale"] = torch.tensor(config["hidden_size"] ** 0.5).to(stored).float()
    return config, weights, pieces, dtype


def forward(config, weights, tokens, seen=None):
    """The logits after every token, (tokens, vocabulary). `seen` gets q, k and v of each layer, (tokens, heads, d)."""
    heads, kv_heads, d = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]

    def norm(name, x):
        scaled = x / torch.sqrt(x.square().mean(-1, keepdim=True) + config["rms_norm_eps"])
        return scaled * (1 + weights[name + ".weight"])

    def rotate(x, theta):
        angles = torch.arange(len(tokens)).double()[:, None] * theta ** (-torch.arange(0, d, 2).double() / d)
        cos, sin = angles.cos().float()[:, None], angles.sin().float()[:, None]
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attend(name, x, is_local):
        theta = config["rope_local_base_freq"] if is_local else config["rope_theta"]
        q, k, v = (
            linear(x, weights[f"{name}{part}_proj.weight"]).unflatten(-1, (count, d))
            for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        q, k = rotate(norm(name + "q_norm", q), theta), rotate(norm(name + "k_norm", k), theta)
        if seen is not None:
            seen.append((q, k, v))
        k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(config["query_pre_attn_scalar"])
        distance = torch.arange(len(tokens))[:, None] - torch.arange(len(tokens))
        hidden = (distance < 0) | (is_local & (distance >= config["sliding_window"]))
        out = torch.einsum("hij,jhd->ihd", scores.masked_fill(hidden, -math.inf).softmax(-1), v)
        return linear(out.flatten(1), weights[name + "o_proj.weight"])

    def feed_forward(name, x):
        gate, up = (linear(x, weights[f"{name}{part}_proj.weight"]) for part in ("gate", "up"))
        return linear(gelu(gate, approximate="tanh") * up, weights[name + "down_proj.weight"])

    words = weights["model.embed_tokens.weight"]
    x = words[torch.tensor(tokens)] * weights["embedding_scale"]
    for number, layer_type in enumerate(config["layer_types"]):
        layer = f"model.layers.{number}."
        y = attend(layer + "self_attn.", norm(layer + "input_layernorm", x), layer_type == "sliding_attention")
        x = x + norm(layer + "post_attention_layernorm", y)
        y = feed_forward(layer + "mlp.", norm(layer + "pre_feedforward_layernorm", x))
        x = x + norm(layer + "post_feedforward_layernorm", y)
    return linear(norm("model.norm", x), words)

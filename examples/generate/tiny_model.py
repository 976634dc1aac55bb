"""A model of Gemma 3's structure with random weights and a small vocabulary, for tests: small enough to compute in a
moment, with everything that the real one has (grouped heads, local and global layers, every type of token)."""

import numpy

from model_file import write_model

WORDS = "the quick brown fox jumps over lazy dog and runs away into forest where nobody can see it again".split()
CONTROL, USER_DEFINED, BYTE, NORMAL = 3, 4, 6, 1


def pieces():
    """Letters, and every beginning of every word with and without a space before it, so that merges lead to all."""
    pieces = [(text, 0.0, CONTROL) for text in ("<pad>", "<eos>", "<bos>", "<unk>")]
    pieces += [(text, 0.0, USER_DEFINED) for text in ("\n", "\n\n", "\u2581\u2581", "\u2581\u2581\u2581", "<b>")]
    pieces += [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    starts = {prefix + word[:length] for word in WORDS for prefix in ("", "\u2581") for length in range(len(word) + 1)}
    letters = {letter for word in WORDS for letter in word} | set("\u2581.,")
    ends = {"ow", "um", "er", "og", "es", "re"}  # in the way of the beginnings above
    normal = sorted(letters) + sorted((starts | ends) - letters - {""}, key=lambda text: (len(text), text))
    pieces += [(text, -float(n), NORMAL) for n, text in enumerate(normal)]
    pieces += [(f"<unused{n}>", 0.0, CONTROL) for n in range(-len(pieces) % 32)]
    return pieces


def config(vocabulary, **changes):
    return {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention"],
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "vocab_size": vocabulary,
        "bos_token_id": 2,
        "eos_token_id": 1,
        **changes,
    }


def weights(config):
    random = numpy.random.default_rng(0)
    hidden, wide, d = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    shapes = {"model.embed_tokens": (config["vocab_size"], hidden), "model.norm": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            shapes[f"{name}{norm}_layernorm"] = (hidden,)
        shapes |= {
            f"{name}self_attn.q_norm": (d,),
            f"{name}self_attn.k_norm": (d,),
            f"{name}self_attn.q_proj": (heads * d, hidden),
            f"{name}self_attn.k_proj": (kv_heads * d, hidden),
            f"{name}self_attn.v_proj": (kv_heads * d, hidden),
            f"{name}self_attn.o_proj": (hidden, heads * d),
            f"{name}mlp.gate_proj": (wide, hidden),
            f"{name}mlp.up_proj": (wide, hidden),
            f"{name}mlp.down_proj": (hidden, wide),
        }
    # Norms scale by 1 + w. Matrices keep the size of what they multiply. Scores differ much from key to key, and the
    # layers outweigh the token's own embedding, so that a wrong position or window changes what comes next.
    typical = {"q_norm": 0.5, "k_norm": 0.5, "post_attention_layernorm": 2.0, "post_feedforward_layernorm": 2.0}
    return {
        f"{name}.weight": random.standard_normal(shape) * shape[-1] ** -0.5
        if len(shape) == 2
        else typical.get(name.split(".")[-1], 0.0) + 0.5 * random.standard_normal(shape)
        for name, shape in shapes.items()
    }


def write_tiny_model(path, dtype, **config_changes):
    tokens = pieces()
    shape = config(len(tokens), **config_changes)
    write_model(path, shape, weights(shape), tokens, dtype)

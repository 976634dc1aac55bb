"""From arguments to a run, its files and its table."""

import argparse
import os
import sys
from pathlib import Path

import torch

from flashtile_torch import Library
from gpu_bench import costs, slowdowns, speeds, summary
from gpu_bench.decode import decode
from gpu_bench.errors import errors
from gpu_bench.fp8 import fp8
from gpu_bench.functions import functions
from gpu_bench.timing import REGIMES
from gpu_bench.machine import Gpu, Host
from gpu_bench.methods import METHODS
from gpu_bench.points import POINTS, POINTS_OF, points_of
from gpu_bench.problem import DTYPES
from gpu_bench.run import Run

# In the order in which they run: short works that every run should have come first. The passes belong to the grid.
WORK = {"host": costs.host, "memory": costs.memory, "errors": errors, "window": slowdowns.window,
        "varlen": slowdowns.varlen, "options": slowdowns.options, "gqa": speeds.gqa, "few_queries": speeds.few_queries,
        "fp16": speeds.fp16, "head_dims": speeds.head_dims, **dict.fromkeys(speeds.PASSES),
        "deterministic": slowdowns.deterministic, "dropout": slowdowns.dropout, "decode": decode,
        "functions": functions, "fp8": fp8}
ASKED_FOR = ("both", "decode", "functions", "fp8")  # the others run where --work does not say which


def whole_numbers(text):
    return [int(part) for part in text.split(",")]


def names_of(allowed):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"is {name!r}, allowed are {', '.join(allowed)}")
        return names
    return parse


def parse_arguments(description):
    library = Path(__file__).resolve().parents[2] / "build/libflashtile.so"
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=str(library))
    parser.add_argument("--host-time", help="the program flashtile_host_time")
    parser.add_argument("--work", type=names_of(WORK), default=[w for w in WORK if w not in ASKED_FOR])
    parser.add_argument("--methods", type=names_of(METHODS), help="default: all, fa3 only with --fa3")
    parser.add_argument("--fa3", help="folder of fa3.py, which loads FlashAttention-3")
    parser.add_argument("--head-dim", type=whole_numbers, default=[128, 64, 256])
    parser.add_argument("--head-dim-v", type=int, help="head dimension of V; default: that of q and k. Of the works deterministic, "
                                                       "varlen and options, and of the grid")
    parser.add_argument("--seqlen", type=whole_numbers, default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--causal", choices=("0", "1", "both"), default="both")
    parser.add_argument("--points", type=points_of, help="of the works decode and fp8: names or parts of names; default: all")
    parser.add_argument("--passes", type=names_of(speeds.ONE_WAY), default=list(speeds.ONE_WAY),
                        help="of the works gqa, head_dims, fp16, varlen and functions")
    parser.add_argument("--patterns", type=lambda text: text.split(","), help="of the work functions; default: all")
    parser.add_argument("--flex", choices=("autotuned", "default", "none"), default="autotuned",
                        help="how the work functions compiles FlexAttention")
    parser.add_argument("--flex-passes", type=names_of(speeds.ONE_WAY), default=list(speeds.ONE_WAY),
                        help="of FlexAttention in the work functions: its backward kernels take minutes to compile")
    parser.add_argument("--flex-autotuned", type=lambda text: text.split(","),
                        help="with --flex=autotuned: the patterns of which it is; the others have the default kernels")
    parser.add_argument("--tiles", action="store_true", help="the work fp8 times each tile that may be chosen, too")
    parser.add_argument("--kernels", action="store_true", help="the work functions prints the time of each kernel, too")
    parser.add_argument("--regimes", type=names_of(REGIMES), default=list(REGIMES))
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--batch", type=int, help="default: tokens / seqlen")
    parser.add_argument("--heads", type=int, help="default: 2048 / head dimension")
    parser.add_argument("--rounds", type=int, default=3, help="samples of each speed, of which the median counts")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--plot", help="draw speeds as the paper's Figure 4 into this PNG file")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu: a dry run of this program")
    arguments = parser.parse_args()
    if arguments.methods is None:
        arguments.methods = [m for m in METHODS if m != "fa3" or arguments.fa3]
    elif "fa3" in arguments.methods and not arguments.fa3:
        parser.error("--methods=fa3 needs --fa3=FOLDER")
    if arguments.points is None:
        arguments.points = list(POINTS)
    elif not POINTS_OF.keys() & set(arguments.work):
        parser.error("--points needs --work=decode or --work=fp8")
    arguments.causal = {"0": [False], "1": [True], "both": [False, True]}[arguments.causal]
    return arguments


def main(description):
    arguments = parse_arguments(description)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("gpu_bench.py: PyTorch sees no CUDA GPU", file=sys.stderr)
        return 2
    gpu = Gpu() if arguments.device == "cuda" else Host()
    run = Run(arguments, gpu, Library(os.path.abspath(arguments.library)))
    passes = [work for work in speeds.PASSES if work in arguments.work]
    for name, work in WORK.items():
        if passes and name == passes[0]:
            speeds.grid(run, passes)
        elif name in arguments.work and work:
            work(run)
    run.finished = True
    run.save()
    if arguments.plot and run.rows:
        import plot_bench
        plot_bench.draw(run.result(), arguments.plot)
    print("\n".join(summary.table(run)))
    return 2 if run.failed else 1 if run.wrong else 0

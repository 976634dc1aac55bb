"""Works that time nothing on the GPU: what a call allocates beside its results, and its host time."""

import json
import os
import subprocess
import tempfile

import torch

from gpu_bench.methods import Flashtile
from gpu_bench.problem import Problem


def memory(run):
    """What a call allocates beside its results: the workspace that it asks for, and by how much the driver's free
    memory shrinks while it runs."""
    gpu = run.gpu
    rows = run.extra.setdefault("memory", [])

    def point(run, head_dim, seqlen):
        problem = Problem(gpu, run.arguments.dtype, head_dim, True, seqlen, 1, 8)
        method = Flashtile(run.library, problem)
        for work, call in (("forward", method.forward), ("backward", method.backward)):
            gpu.synchronize()
            row = {**problem.row(), "pass": work, "workspace_bytes": call.workspace(),
                   "dq_fp32_bytes": 4 * problem.q.numel(), "lse_bytes": 4 * method.lse.numel()}
            if gpu.device.type == "cuda":
                before = torch.cuda.mem_get_info()[0]
                call()
                row["taken_bytes"] = before - torch.cuda.mem_get_info()[0]
                gpu.synchronize()
            rows.append(row)

    for seqlen in (1024, 4096, 16384, 65536) if gpu.device.type == "cuda" else (128,):
        for head_dim in run.arguments.head_dim:
            run.point(f"memory d={head_dim} n={seqlen}", point, head_dim, seqlen)


def host(run):
    program = run.arguments.host_time
    if not program:
        run.left_out.append({"work": "host", "reason": "--host-time names no program"})
        return

    def seconds_of(*command, **environment):
        result = subprocess.run([program, *command], env=os.environ | environment, capture_output=True, text=True)
        if result.returncode != 0:
            raise RuntimeError(result.stderr.strip())
        return json.loads(result.stdout)

    def point(run):
        run.extra["host"] = seconds_of()
        with tempfile.TemporaryDirectory() as cache:
            # The driver caches what NVRTC compiled; that cache must be empty, too.
            empty = {"FLASHTILE_CACHE": cache, "CUDA_CACHE_PATH": os.path.join(cache, "driver")}
            run.extra["first_call"] = {"empty_cache": seconds_of("first", **empty),
                                       "warm_cache": seconds_of("first", **empty)}

    run.point("host", point)

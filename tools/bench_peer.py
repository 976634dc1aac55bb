"""What bench_torch.py and bench_openvino.py share: how `flashtile bench --against=..` drives them.

`flashtile bench` starts such a program and tells it what to do, so that its timings alternate with flashtile's on the same
data. Protocol: one JSON object a line on stdin, one JSON object a line in answer on stdout:

    (started)                                                 {"ready": true, "version": "2.13.0", "capability": "AVX512"}
    {"op": "prepare", "method": .., "pass": .., "dtype": .., "batch": .., "heads": .., "kv_heads": ..,
     "seqlen_q": .., "seqlen": .., "head_dim": .., "causal": .., "threads": .., "folder": ..}                {"ok": true}
    {"op": "run", "method": .., "count": 3}                                                 {"ok": true, "seconds": 0.12}
    {"op": "save", "method": .., "folder": ..}                                                               {"ok": true}
    {"op": "release"}                                                                                        {"ok": true}

A failure is answered with {"ok": false, "error": ".."}. `folder` holds q, k, v, dout as raw numbers of the dtype,
(batch, seqlen, heads, head_dim); `save` writes out, dq, dk, dv there as raw fp32 of the same layout.
"""

import json
import sys
import time


def answer(make, methods, request):
    op = request["op"]
    if op == "prepare":
        methods[request["method"]] = make(request)
        return {}
    if op == "run":
        step = methods[request["method"]].step
        start = time.perf_counter()
        for _ in range(request["count"]):
            step()
        return {"seconds": time.perf_counter() - start}
    if op == "save":
        methods[request["method"]].save(request["folder"])
        return {}
    if op == "release":
        methods.clear()
        return {}
    raise ValueError(f"op is {op!r}, allowed are prepare, run, save, release")


def serve(make, version, capability):
    """`make(request)` is a method at a point of the grid: step() computes once, save(folder) writes what it computed."""
    def say(message):
        print(json.dumps(message), flush=True)

    say({"ready": True, "version": version, "capability": capability})
    methods = {}
    for line in sys.stdin:
        try:
            say({"ok": True} | answer(make, methods, json.loads(line)))
        except Exception as error:  # told to the other side, which decides what to do without this method
            say({"ok": False, "error": f"{type(error).__name__}: {error}"})

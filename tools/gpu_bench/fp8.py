"""Forward on e4m3 beside bf16 and FlashAttention-3's e4m3, decoding on an e4m3 cache beside one in bf16, and quantising
beside a copy. Whole heads are compared with fp64 attention of what the e4m3 numbers stand for before anything is timed,
and quantised numbers with the CPU's."""

from functools import partial

import torch

from gpu_bench.check import off_by
from gpu_bench.methods import FlashAttention3
from gpu_bench.problem import Problem

E4M3, LARGEST = torch.float8_e4m3fn, 448.0
# Relative rms of a head. Of P's three bits of mantissa 0.02 to 0.03 comes; a wrong mask, scale or head costs far more.
TOLERANCE = 0.06
# head dimension, sequence length, causal; over our bf16's speed, or in TFLOP/s, burst and sustained
PREFILL = [(128, 16384, False), (128, 16384, True), (256, 16384, False), (256, 16384, True), (64, 16384, False),
           (192, 16384, False), (128, 4096, False), (128, 4096, True), (128, 1024, False), (128, 1024, True)]
TILES_OF = {(128, 16384, False), (128, 16384, True), (256, 16384, False), (64, 16384, False), (128, 1024, False)}
DECODE = {"32/8-16x8k": (16, 8192, 32, 8, 128), "16/1-16x8k": (16, 8192, 16, 1, 128),
          "16/8-d256-8x8k": (8, 8192, 16, 8, 256)}


def quantized(x, block):
    """e4m3 numbers and scales of (batch, seqlen, heads, d): one scale a head, or one a block of its rows."""
    rows = x.float().transpose(1, 2)  # (batch, heads, seqlen, d)
    if block:
        parts = rows.unflatten(2, (-1, block))
        scale = parts.abs().amax((3, 4)) / LARGEST
        numbers = (parts / scale[..., None, None]).flatten(2, 3)
    else:
        scale = rows.abs().amax((2, 3)) / LARGEST
        numbers = rows / scale[..., None, None]
    return numbers.clamp(-LARGEST, LARGEST).transpose(1, 2).contiguous().to(E4M3), scale


def meant(numbers, scale, b, h, block):
    """What one head's numbers stand for, in fp64."""
    rows = numbers[b, :, h].double()
    own = scale[b, h].double()
    return rows * (own.repeat_interleave(block)[:, None] if block else own)


class OnE4m3:
    """flashtile on e4m3: q, k and v, or k and v beside q as it is."""

    def __init__(self, library, problem, name, block=0, keep_q=False):
        p, self.problem, self.name, self.block = problem, problem, name, block
        self.k, self.k_scale = quantized(p.k, block)
        self.v, self.v_scale = quantized(p.v, block)
        self.q, self.q_scale = (p.q, None) if keep_q else quantized(p.q, block)
        self.out = torch.full_like(p.dout, float("nan"))
        self.lse = torch.full(p.lse_shape(), float("nan"), device=p.q.device)
        self.forward = library.forward_e4m3(self.q, self.k, self.v, self.out, self.lse,
                                            (self.q_scale, self.k_scale, self.v_scale), block, p.causal)
        self.forward()

    def error(self):
        """The relative rms error of whole heads, and by how much they are too small or large on the whole."""
        p, worst, sizes = self.problem, 0.0, []
        for b, h in ((0, 0), (p.batch - 1, p.heads - 1)):
            kv = h * p.kv_heads // p.heads
            q = p.q[b, :, h].double() if self.q_scale is None else meant(self.q, self.q_scale, b, h, self.block)
            k, v = (meant(x, scale, b, kv, self.block) for x, scale in ((self.k, self.k_scale), (self.v, self.v_scale)))
            s = (q @ k.T).mul_(p.scale())
            if p.causal:
                s.masked_fill_(torch.ones(s.shape, dtype=torch.bool, device=s.device).triu_(s.shape[1] - s.shape[0] + 1),
                               float("-inf"))
            truth, ours = torch.softmax(s, -1) @ v, self.out[b, :, h].double()
            worst = max(worst, off_by(ours, truth))
            sizes.append(((ours * truth).sum() / truth.square().sum()).item())
        return worst, min(sizes, key=lambda size: -abs(size - 1.0))


def fa3_call(run, of):
    """FlashAttention-3's e4m3 on the same numbers, if its build has it."""
    FlashAttention3.load(run.arguments.fa3)
    p = of.problem
    scales = {"q_descale": of.q_scale, "k_descale": of.k_scale, "v_descale": of.v_scale}

    def call():
        return torch.ops.flash_attn_x.fwd(of.q, of.k, of.v, softmax_scale=p.scale(), is_causal=p.causal, num_splits=1,
                                          **scales)[0]

    error = off_by(call().float(), of.out.float())
    if not error <= 2 * TOLERANCE:
        raise RuntimeError(f"its result differs from flashtile's by {error:.3g} (relative rms)")
    return call


def checked(run, method):
    """Whether the results are right; what is seen of them is kept."""
    error, size = method.error()
    run.extra.setdefault("fp8_errors", []).append(
        {"method": method.name, **method.problem.row(), "relative_rms": error, "size": size})
    print(f"fp8 {method.name}: relative rms error {error:.4f}, size {size:.4f}", flush=True)
    if not error <= TOLERANCE:
        run.wrong.append({"method": method.name, **method.problem.row(), "what": f"off by {error:.3g} (relative rms)"})
        print(f"WRONG {method.name}: off by {error:.3g} (relative rms)", flush=True)
        return False
    return True


def report(run, what, problem, measured):
    run.add_rows(run.extra.setdefault("fp8", []), "forward", problem, measured)
    for regime, methods in measured.items():
        speeds = [f"{name} {problem.flops('forward') / seconds / 1e12:.0f}" for name, (seconds, _) in methods.items()]
        print(f"{what}: {', '.join(speeds)} TFLOP/s {regime}", flush=True)


def prefill(run, head_dim, seqlen, causal):
    seqlen = run.gpu.size(seqlen)
    heads = run.arguments.heads or 2048 // head_dim if head_dim != 192 else 16
    problem = Problem(run.gpu, "bf16", head_dim, causal, seqlen, max(1, run.arguments.tokens // seqlen), heads)
    calls = {}
    for name, block in (("flashtile", 0), ("flashtile_blocks128", 128), ("flashtile_blocks64", 64)):
        method = OnE4m3(run.library, problem, name, block)
        if checked(run, method):
            calls[name] = method.forward
        if name == "flashtile":
            plain = method
    out, lse = torch.empty_like(problem.dout), torch.empty_like(plain.lse)
    calls["flashtile_bf16"] = run.library.forward(problem.q, problem.k, problem.v, out, lse, causal=causal)
    if run.arguments.fa3:
        try:
            calls["fa3"] = fa3_call(run, plain)
        except Exception as error:  # its build may be without e4m3
            run.left_out.append({"method": "fa3", **problem.row(), "reason": str(error).split("\n")[0][:200]})
            print(f"fa3 on e4m3: {str(error)[:200]}", flush=True)
    report(run, f"fp8 d={head_dim} n={seqlen}{' causal' if causal else ''}", problem, run.measure(calls))
    return problem, plain


def tiles(run, problem, plain):
    """Each tile that may be chosen, in a process that forgets it again."""
    calls = {}
    try:
        for tile, choice in plain.forward.alternatives().items():
            run.library.use_choice(choice)
            method = OnE4m3(run.library, problem, tile)
            if not checked(run, method):
                continue

            def call(forward=method.forward, choice=choice):
                run.library.use_choice(choice)
                forward()
            calls[method.name] = call
        report(run, f"fp8 tiles d={problem.head_dim} n={problem.seqlen}{' causal' if problem.causal else ''}", problem,
               run.measure(calls))
    finally:
        run.library.use_choice(None)


def decode(run, what):
    batch, keys, heads, kv_heads, head_dim = DECODE[what]
    problem = Problem(run.gpu, "bf16", head_dim, False, run.gpu.size(keys), batch, heads, kv_heads=kv_heads, queries=1)
    calls = {}
    for name, block in (("flashtile", 0), ("flashtile_blocks64", 64)):
        method = OnE4m3(run.library, problem, name, block, keep_q=True)
        if checked(run, method):
            calls[name] = method.forward
    out, lse = torch.empty_like(problem.dout), torch.empty(problem.lse_shape(), device=problem.q.device)
    calls["flashtile_bf16"] = run.library.forward(problem.q, problem.k, problem.v, out, lse)
    measured = run.measure(calls)
    run.add_rows(run.extra.setdefault("fp8", []), "forward", problem, measured)
    for regime, methods in measured.items():
        print(f"fp8 decode {what}: " + ", ".join(f"{name} {seconds * 1e6:.1f}" for name, (seconds, _) in methods.items()),
              f"us {regime}", flush=True)


def quantizing(run):
    """flashtile.quantize with a scale for each block, beside a copy of as many bytes."""
    import flashtile  # of the tree, on run.library's file (flashtile_torch.py)
    tokens, heads, d = run.gpu.size(16384), 64, 128
    device = run.gpu.device
    x = torch.randn(1, tokens, heads, d, device=device).bfloat16()
    angles = torch.rand(tokens, d // 2, device=device) * 6.28
    rotary = {"rotary_cos": angles.cos(), "rotary_sin": angles.sin()}
    source = torch.empty(3 * x.numel() // 2, dtype=torch.uint8, device=device)  # the mean of bytes read and written
    target = torch.empty_like(source)
    calls = {"copy": lambda: target.copy_(source)}
    kinds = {"blocks of 128": {"block": 128}, "M": {"block": 128, "hadamard": 7},
             "rotary, M": {"block": 128, "hadamard": 7, **rotary},
             "rotary, M, blocks of 64": {"block": 64, "hadamard": 7, **rotary}}
    some = x[:, :256].cpu()
    for kind, options in kinds.items():
        # the CPU's bits are the GPU's
        of_cpu = flashtile.quantize(some, **{k: v.cpu() if torch.is_tensor(v) else v for k, v in options.items()})
        of_gpu = flashtile.quantize(x, **options)
        same = torch.equal(of_cpu[0].view(torch.uint8), of_gpu[0][:, :256].cpu().view(torch.uint8)) and torch.equal(
            of_cpu[1], of_gpu[1][:, :, :of_cpu[1].shape[2]].cpu())
        if not same:
            run.wrong.append({"method": f"quantize, {kind}", "what": "other bits than the CPU's"})
            print(f"WRONG quantize, {kind}: other bits than the CPU's", flush=True)
            continue
        calls[kind] = lambda options=options: flashtile.quantize(x, **options)
    measured = run.measure(calls)
    rows = run.extra.setdefault("quantize", [])
    for regime, methods in measured.items():
        copy = methods["copy"][0]
        rows += [{"kind": kind, "regime": regime, "ms": s * 1e3, "of_copy": s / copy} for kind, (s, _) in methods.items()]
        print("quantize: " + ", ".join(f"{kind} {s * 1e6:.0f} us ({s / copy:.2f})" for kind, (s, _) in methods.items()),
              regime, flush=True)


def prefill_and_tiles(run, of):
    problem, plain = prefill(run, *of)
    if run.arguments.tiles and of in TILES_OF:
        tiles(run, problem, plain)


# In the order in which they run, with names for --points.
PREFILL_POINTS = {"e4m3-d{}-{}{}".format(d, n, "-causal" * causal): (d, n, causal) for d, n, causal in PREFILL}
OTHER_POINTS = {**{f"e4m3-cache-{what}": partial(decode, what=what) for what in DECODE}, "quantize": quantizing}
POINTS = [*PREFILL_POINTS, *OTHER_POINTS]


def fp8(run):
    for what, of in PREFILL_POINTS.items():
        if what in run.arguments.points and (of[0] in run.arguments.head_dim or of[0] == 192):
            run.point(f"fp8 {what}", prefill_and_tiles, of)
    for what, do in OTHER_POINTS.items():
        if what in run.arguments.points:
            run.point(f"fp8 {what}", do)

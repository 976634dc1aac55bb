"""Decoding: one query a sequence on a KV cache, beside FlashAttention-3 on the same cache. Calls stand in a CUDA graph,
so that the host's time does not count, and take turns at several caches, which together exceed the L2 cache."""

import math

import torch

from gpu_bench.check import TOLERANCE, off_by
from gpu_bench.methods import FlashAttention3
from gpu_bench.problem import DTYPES
from gpu_bench.timing import REGIMES

# Name, heads, key heads, d, dv, sequences, keys of each, and the microseconds that are the floor; MLA's floor is a
# share of the rate of a matrix product, not a time.
POINTS = [("32/8, 16 x 8k", 32, 8, 128, 128, 16, 8192, 121.0), ("16/1, 16 x 8k", 16, 1, 128, 128, 16, 8192, 21.0),
          ("16/16, 16 x 8k", 16, 16, 128, 128, 16, 8192, 238.0), ("32/8, 1 x 128k", 32, 8, 128, 128, 1, 131072, 124.0),
          ("16/1, 1 x 128k", 16, 1, 128, 128, 1, 131072, 23.0), ("d64 32/8, 16 x 8k", 32, 8, 64, 64, 16, 8192, 68.0),
          ("32/8, 1 x 1k", 32, 8, 128, 128, 1, 1024, 7.0), ("MLA 128/1, 32 x 4k", 128, 1, 576, 512, 32, 4096, None)]
PAGES = (16, 64, 256)  # of the first point
MLA_FLOOR = 0.75
UNEQUAL = 256, 16384   # sequences, of lengths up to that
CALLS = 20             # in a graph, or more where it takes more caches
BEYOND_L2 = 1 << 28    # bytes
FA3_WIDEST = 256       # head dimension


class Cache:
    """q, and K and V of all sequences: rows one after the other, or with `page` pages in a random order."""

    def __init__(self, gpu, dtype, heads, kv_heads, d, dv, lengths, page=0, seed=0):
        generator = torch.Generator(gpu.device).manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, device=gpu.device, dtype=DTYPES[dtype])

        batch, longest = len(lengths), max(lengths)
        self.page, self.lengths, self.table = page, lengths, None
        self.heads, self.group, self.dv = heads, heads // kv_heads, dv
        self.q = normal(batch, 1, heads, d)
        self.used = torch.tensor(lengths, dtype=torch.int32, device=gpu.device)
        pages = [math.ceil(n / page) for n in lengths] if page else []
        rows = (sum(pages), page) if page else (batch, longest)
        self.k = normal(*rows, kv_heads, d)
        self.v = self.k[..., :dv] if d != dv else normal(*rows, kv_heads, dv)  # MLA: a view
        if page:
            order = torch.randperm(sum(pages), generator=generator, device=gpu.device).int()
            self.table = torch.zeros(batch, max(pages), dtype=torch.int32, device=gpu.device)
            for b, own in enumerate(order.split(pages)):
                self.table[b, :len(own)] = own

    def bytes(self):
        columns = self.k.shape[-1] if self.v.data_ptr() == self.k.data_ptr() else self.k.shape[-1] + self.dv
        return sum(self.lengths) * self.k.shape[-2] * columns * self.k.element_size()

    def rows(self, x, b, h):
        """Keys or values of a sequence, as query head h sees them, in fp64."""
        own = x[b] if self.table is None else x[self.table[b].long()].flatten(0, 1)
        return own[:self.lengths[b], h // self.group].double()

    def exact(self, b, h):
        q = self.q[b, 0, h].double()
        p = torch.softmax(self.rows(self.k, b, h) @ q * len(q) ** -0.5, 0)
        return p @ self.rows(self.v, b, h)


def flashtile_call(cache):
    from flashtile import attention  # once the run has said which library it is to load
    return lambda: attention(cache.q, cache.k, cache.v, causal=True, seqused_k=cache.used, block_table=cache.table)


def fa3_call(cache):
    import fa3
    return lambda: fa3.with_cache(cache.q, cache.k, cache.v, cache.used, cache.table)


def error_of(call, cache):
    """Relative rms error of some heads."""
    out = call()
    last = len(cache.lengths) - 1, cache.heads - 1
    return max(off_by(out[b, 0, h].double(), cache.exact(b, h)) for b, h in ((0, 0), last))


def methods_of(run, cache):
    a = run.arguments
    makers = {"flashtile": flashtile_call}
    if a.fa3 and "fa3" in a.methods and cache.q.shape[-1] <= FA3_WIDEST:
        FlashAttention3.load(a.fa3)
        makers["fa3"] = fa3_call
    return makers


def timed(run, what, rows, floor=None, **shape):
    """Adds a row for each regime: microseconds and errors of each method. Returns flashtile's microseconds."""
    first = Cache(run.gpu, run.arguments.dtype, **shape)
    copies = max(1, math.ceil(BEYOND_L2 / max(1, first.bytes()))) if run.gpu.device.type == "cuda" else 1
    caches = [first] + [Cache(run.gpu, run.arguments.dtype, **shape, seed=n) for n in range(1, copies)]
    calls = max(CALLS, copies)
    errors, graphs = {}, {}
    for name, make in methods_of(run, first).items():
        try:
            errors[name] = error_of(make(first), first)
        except Exception as error:  # the peer may not have this; flashtile must
            if name == "flashtile":
                raise
            run.left_out.append({"work": f"decode {what}", "method": name, "reason": str(error).split("\n")[0][:200]})
            continue
        if not errors[name] <= TOLERANCE[run.arguments.dtype]:
            run.wrong.append({"method": name, "work": f"decode {what}", "what": f"off by {errors[name]:.3g}"})
            print(f"WRONG {name}: decode {what}: off by {errors[name]:.3g} (relative rms)", flush=True)
            continue
        ready = [make(cache) for cache in caches]
        graphs[name] = run.gpu.graph([ready[n % copies] for n in range(calls)])
    found = {regime: {name: 1e6 * seconds / calls for name, (seconds, _) in of.items()}
             for regime, of in run.measure(graphs).items()} if graphs else {}
    for regime, us in found.items():
        rows.append({"point": what, "regime": regime, "us": us, "rms_error": errors, "floor_us": floor,
                     "gbytes_per_s": {name: first.bytes() / t / 1e3 for name, t in us.items()}})
    if found:
        line = ", ".join(f"{name} {us:.1f} us (error {errors[name]:.5f})" for name, us in found[REGIMES[-1]].items())
        print(f"decode {what}: {line}", flush=True)
    return {regime: us.get("flashtile") for regime, us in found.items()}


def decode(run):
    rows = run.extra.setdefault("decode", [])
    size = run.gpu.size

    def point(run, what, heads, kv_heads, d, dv, batch, keys, floor):
        of = {"heads": heads, "kv_heads": kv_heads, "d": d, "dv": dv, "lengths": [size(keys)] * batch}
        if d != dv:  # bound by products
            flops = 2.0 * batch * heads * size(keys) * (d + dv)
            floor = flops / (MLA_FLOOR * run.ceilings["gemm_bf16_tflops"]["sustained"] * 1e6)
        timed(run, what, rows, floor, **of)

    def paged(run, page):
        _, heads, kv_heads, d, dv, batch, keys, floor = POINTS[0]
        timed(run, f"{POINTS[0][0]}, pages of {page}", rows, floor * (1.04 if page == 16 else 1.02), heads=heads,
              kv_heads=kv_heads, d=d, dv=dv, lengths=[size(keys)] * batch, page=page)

    def unequal(run):
        batch, longest = (n if run.gpu.device.type == "cuda" else size(n) for n in UNEQUAL)
        generator = torch.Generator().manual_seed(1)
        lengths = torch.randint(1, longest + 1, (batch,), generator=generator).tolist()
        of = {"heads": 32, "kv_heads": 8, "d": 128, "dv": 128}
        equal = timed(run, "equal lengths, as many keys in all", rows, lengths=[sum(lengths) // batch] * batch, **of)
        floor = 1.08 * equal["sustained"] if equal else None
        timed(run, f"{batch} sequences of 1 to {longest}", rows, floor, lengths=lengths, **of)

    for what, *rest in POINTS:
        run.point(f"decode {what}", point, what, *rest)
    for page in PAGES:
        run.point(f"decode pages of {page}", paged, page)
    run.point("decode unequal lengths", unequal)

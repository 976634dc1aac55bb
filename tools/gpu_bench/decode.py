"""Attention on a KV cache beside FlashAttention-3 and cuDNN: decoding, appending, chunked prefill, a shared prefix and
the host's time. Every point is a contest, and the first of its sides is what its floor is set for."""

from functools import partial

import torch

from gpu_bench import cache_calls as calls
from gpu_bench.cache import Cache, GrowingCache, rotary_tables
from gpu_bench.contest import Contest, Side, of_other
from gpu_bench.methods import FlashAttention3


def shape(heads, kv_heads, batch, keys, d=128, dv=None):
    return {"heads": heads, "kv_heads": kv_heads, "d": d, "dv": dv or d, "lengths": [keys] * batch}


# One query a sequence: the floor, and what the best peer took where the floor was set, in microseconds. MLA, which is
# bound by products, has a share of the rate of a matrix product as its floor.
TABLE = {"16/1-16x8k": (shape(16, 1, 16, 8192), 21.0, 23.8), "32/8-16x8k": (shape(32, 8, 16, 8192), 121.0, 121.0),
         "16/16-16x8k": (shape(16, 16, 16, 8192), 238.0, 238.0),
         "32/8-1x128k": (shape(32, 8, 1, 131072), 124.0, 125.0), "16/1-1x128k": (shape(16, 1, 1, 131072), 23.0, 28.7),
         "d64-32/8-16x8k": (shape(32, 8, 16, 8192, 64), 68.0, 71.8), "32/8-1x1k": (shape(32, 8, 1, 1024), 7.0, 7.7),
         "MLA-128/1-32x4k": (shape(128, 1, 32, 4096, 576, 512), None, None)}
MLA_FLOOR = 0.75
FA3_WIDEST = 256          # head dimension
PAGED = "32/8-16x8k"
PAGES = {16: 1.04, 64: 1.02, 256: 1.02}  # how much longer than on a dense cache
UNEQUAL = 256, 16384      # sequences, of lengths up to that
OVER_EQUAL = 1.08
APPENDING = "32/8-1x1k", "32/8-16x8k"
APPEND_US = 1.5           # beyond decode alone
PREFILL = 8, 512, 8192    # sequences, new queries and keys of each, keys before them
OVER_PREFILL = 1 / 0.92   # of dense forward's time
CASCADE = 64, 256, 16384  # sequences, own keys of each, shared keys
OVER_CASCADE = 1 / 8      # of the time without the prefix stated
PAGE = 64
HOST_US, HOST_POINT = 20.0, "32/8-1x1k"


def sized(run, shape, **more):
    return {**shape, "lengths": [run.gpu.size(n) for n in shape["lengths"]], **more}


def maker(run, kind=Cache, *arguments, **shape):
    """From a seed to a cache."""
    return lambda seed: kind(run.gpu, run.arguments.dtype, *arguments, **shape, seed=seed)


def peers(run, make_cache, **make_call):
    """Those that the run has. FlashAttention-3 is loaded here."""
    if run.arguments.fa3:
        FlashAttention3.load(run.arguments.fa3)
    return {name: Side(make_cache, make) for name, make in make_call.items() if name in run.arguments.methods}


def of_table(run, what):
    of, floor, issue_peer = TABLE[what]
    of = sized(run, of)
    make = maker(run, **of)
    others = {"torch_cudnn": calls.cudnn_decode}
    if of["d"] <= FA3_WIDEST:
        others["fa3"] = calls.fa3_decode
    if of["d"] != of["dv"]:
        rate = run.ceilings["gemm_bf16_tflops"]["sustained"] * 1e6
        floor = make(0).flops() / (MLA_FLOOR * rate)
    contest = Contest(run, what, {"flashtile": Side(make, calls.decode), **peers(run, make, **others)})
    contest.time(lambda us: floor, issue_peer_us=issue_peer)


def paged(run, what, page):
    of = sized(run, TABLE[PAGED][0])
    make = maker(run, **of, page=page)
    Contest(run, what, {"flashtile": Side(make, calls.decode), "flashtile_dense": Side(maker(run, **of), calls.decode),
                        **peers(run, make, fa3=calls.fa3_decode)}).time(of_other("flashtile_dense", PAGES[page]))


def unequal(run, what):
    batch, longest = (n if run.gpu.device.type == "cuda" else run.gpu.size(n) for n in UNEQUAL)
    lengths = torch.randint(1, longest + 1, (batch,), generator=torch.Generator().manual_seed(1)).tolist()
    of = shape(32, 8, batch, sum(lengths) // batch)
    equal, make = maker(run, **of), maker(run, **of | {"lengths": lengths})
    Contest(run, what, {"flashtile": Side(make, calls.decode), "flashtile_equal": Side(equal, calls.decode),
                        **peers(run, make, fa3=calls.fa3_decode)}).time(of_other("flashtile_equal", OVER_EQUAL))


def growing(run, of):
    of = sized(run, of)
    return maker(run, GrowingCache, rotary_tables(run.gpu, run.arguments.dtype, max(of["lengths"]), of["d"]), **of)


def append(run, what, point):
    """Rotation of one new key and of q, and appending, within the call. Each side has caches of its own, since what the
    one has written must not pass for the other's work."""
    of = TABLE[point][0]
    Contest(run, what, {
        "flashtile": Side(growing(run, of), calls.append_and_decode),
        "flashtile_alone": Side(maker(run, **sized(run, of)), calls.decode),
        **peers(run, growing(run, of), fa3=calls.fa3_append_and_decode)}).time(
            of_other("flashtile_alone", plus=APPEND_US))


def chunked_prefill(run, what):
    batch, new, before = PREFILL[0], *map(run.gpu.size, PREFILL[1:])
    of = shape(32, 8, batch, before + new)
    make = maker(run, **of, page=PAGE, queries=new)
    Contest(run, what, {
        "flashtile": Side(make, calls.packed), "flashtile_dense": Side(maker(run, **of, queries=new), calls.dense),
        **peers(run, make, fa3=calls.fa3_decode)}).time(of_other("flashtile_dense", OVER_PREFILL))


def cascade(run, what):
    batch, own, shared = CASCADE[0], *map(run.gpu.size, CASCADE[1:])
    make = maker(run, **shape(32, 8, batch, shared + own), page=PAGE, prefix=shared)
    Contest(run, what, {
        "flashtile": Side(make, calls.prefix_stated), "flashtile_unstated": Side(make, calls.decode),
        **peers(run, make, fa3=calls.fa3_decode)}).time(of_other("flashtile_unstated", OVER_CASCADE))


def host(run, what, page=0):
    """Through flash_attn_with_kvcache from Python, on the smallest problem."""
    make = maker(run, **sized(run, TABLE[HOST_POINT][0]), page=page)
    sides = {"flashtile": Side(make, calls.with_kvcache), **peers(run, make, fa3=calls.fa3_decode)}
    Contest(run, what, sides).time_host(lambda us: HOST_US)


def host_append(run, what):
    of = TABLE[HOST_POINT][0]
    Contest(run, what, {
        "flashtile": Side(growing(run, of), calls.with_kvcache_appending),
        **peers(run, growing(run, of), fa3=calls.fa3_append_and_decode)}).time_host(lambda us: None)


# In the order in which they run. Names have no comma and no space, so that --points can list them.
POINTS = {**dict.fromkeys(TABLE, of_table),
          **{f"{PAGED}-pages{page}": partial(paged, page=page) for page in PAGES},
          "unequal": unequal,
          **{f"append-{point}": partial(append, point=point) for point in APPENDING},
          "chunked-prefill": chunked_prefill, "cascade": cascade,
          "host-dense": host, f"host-pages{PAGE}": partial(host, page=PAGE), "host-append": host_append}


def decode(run):
    run.extra.setdefault("decode", [])
    for what, do in POINTS.items():
        if what in run.arguments.points:
            run.point(f"decode {what}", do, what)

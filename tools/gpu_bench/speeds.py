"""Works that compare flashtile's speed with its peers': the FlashAttention-2 paper's grid, shared heads (GQA), other
head dimensions, fp16."""

from gpu_bench.methods import make_methods
from gpu_bench.problem import Problem
from gpu_bench.run import say

PASSES = ("forward", "backward", "both")
ONE_WAY = PASSES[:2]
PEERS = ("torch_cudnn", "fa3")
# heads, heads of k and v, causal, keys
GQA = [(64, 8, False, 4096), (64, 8, False, 16384), (64, 8, True, 4096), (64, 8, True, 16384), (64, 8, True, 32768),
       (16, 1, False, 4096), (16, 1, True, 16384)]
# queries, heads, heads of k and v, head dimension, keys
FEW_QUERIES = [(1, 32, 8, 128, 4096), (1, 64, 8, 128, 4096), (4, 64, 8, 128, 4096), (16, 32, 8, 128, 4096),
               (1, 28, 4, 128, 4096), (1, 32, 8, 64, 4096), (1, 16, 2, 256, 4096)]
HEAD_DIMS = [(96, 96), (192, 192), (192, 128)]


def compare(run, what, rows, problem, names, works):
    """Times every pass of a problem with every method whose results are right."""
    a = run.arguments
    names = [n for n in names if n in a.methods]
    backward = any(work != "forward" for work in works)
    methods = run.right(problem, make_methods(run.library, problem, names, run.left_out, a.fa3, backward))
    for work in works:
        measured = run.measure({m.name: getattr(m, work) for m in methods})
        run.add_rows(rows, work, problem, measured)
        say(what, measured, problem, work)


def name_of(work, head_dim, causal, seqlen):
    return f"{work} d={head_dim} {'causal ' if causal else ''}n={seqlen}"


def paper_problem(run, head_dim, causal, seqlen, dtype=None, head_dim_v=None, dropout=0.0):
    """As in the FlashAttention-2 paper: hidden dimension 2048, 16384 tokens."""
    a = run.arguments
    return Problem(run.gpu, dtype or a.dtype, head_dim, causal, seqlen, a.batch or max(1, a.tokens // seqlen),
                   a.heads or max(1, 2048 // head_dim), head_dim_v=head_dim_v or a.head_dim_v, dropout=dropout)


def grid(run, works):
    """The passes of a point share its inputs and its check. Long sequences come first, since they matter most."""
    a = run.arguments

    def point(run, head_dim, causal, seqlen):
        what = name_of("grid", head_dim, causal, seqlen)
        compare(run, what, run.rows, paper_problem(run, head_dim, causal, seqlen), a.methods, works)

    for seqlen in sorted(a.seqlen, reverse=True):
        for head_dim in a.head_dim:
            for causal in a.causal:
                run.point(name_of("+".join(works), head_dim, causal, seqlen), point, head_dim, causal, seqlen)


def gqa(run):
    """d = 128: one sequence with 64 query heads on 8, and 16k tokens with 16 heads on one."""
    rows = run.extra.setdefault("gqa", [])

    def point(run, what, heads, kv_heads, causal, seqlen):
        batch = 1 if heads > 16 else max(1, run.arguments.tokens // seqlen)
        problem = Problem(run.gpu, run.arguments.dtype, 128, causal, seqlen, batch, heads, kv_heads=kv_heads)
        compare(run, what, rows, problem, ("flashtile", *PEERS), run.arguments.passes)

    for heads, kv_heads, causal, length in GQA:
        if causal in run.arguments.causal:
            seqlen = run.gpu.size(length)
            what = name_of(f"gqa {heads}/{kv_heads}", 128, causal, seqlen)
            run.point(what, point, what, heads, kv_heads, causal, seqlen)


def few_queries(run):
    """Decoding: few queries on many keys. K and V have to be read once for each group of heads; the speed is compared
    with memcpy bandwidth."""
    rows = run.extra.setdefault("few_queries", [])

    def point(run, queries, heads, kv_heads, head_dim, seqlen):
        a = run.arguments
        what = f"few_queries {queries} of {heads}/{kv_heads} heads, d={head_dim} n={seqlen}"
        problem = Problem(run.gpu, a.dtype, head_dim, False, seqlen, a.batch or 64, heads, kv_heads=kv_heads,
                          queries=queries)
        names = [n for n in ("flashtile", "torch_flash", *PEERS) if n in a.methods]
        methods = run.right(problem, make_methods(run.library, problem, names, run.left_out, a.fa3, False))
        measured = run.measure({m.name: m.forward for m in methods})
        gigabytes = (problem.k.nbytes + problem.v.nbytes) / 1e9
        for regime, times in measured.items():
            for name, (seconds, _) in times.items():
                speed = gigabytes / seconds
                rows.append({"method": name, **problem.row(), "regime": regime, "ms": seconds * 1e3,
                             "gbytes_per_s": speed,
                             "copy_share": speed / run.ceilings["copy_gbytes_per_s"][regime]})
        line = ", ".join(f"{name} {gigabytes / s:.0f}" for name, (s, _) in measured["sustained"].items())
        print(f"{what}: {line} GB/s of K and V sustained", flush=True)

    for shape in FEW_QUERIES:
        run.point(f"few_queries {shape}", point, *shape)


def paper_points(run, work, head_dims, dtype, peers):
    """4k and 16k tokens."""
    rows = run.extra.setdefault(work, [])

    def point(run, head_dim, head_dim_v, causal, seqlen):
        problem = paper_problem(run, head_dim, causal, seqlen, dtype, head_dim_v)
        compare(run, name_of(work, f"{head_dim}/{head_dim_v}", causal, seqlen), rows, problem, ("flashtile", *peers),
                run.arguments.passes)

    for head_dim, head_dim_v in head_dims:
        for length in (4096, 16384):
            for causal in run.arguments.causal:
                seqlen = run.gpu.size(length)
                run.point(name_of(work, f"{head_dim}/{head_dim_v}", causal, seqlen), point, head_dim, head_dim_v,
                          causal, seqlen)


def head_dims(run):
    """Compared with cuDNN only: some builds of FlashAttention-3 lack these head dimensions and end the process."""
    paper_points(run, "head_dims", HEAD_DIMS, run.arguments.dtype, ("torch_cudnn",))


def fp16(run):
    paper_points(run, "fp16", [(128, 128)], "fp16", PEERS)

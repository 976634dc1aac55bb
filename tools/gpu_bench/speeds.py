"""Works that set flashtile's speed beside its peers': the FlashAttention-2 paper's grid, shared heads (GQA), other head
dimensions, fp16."""

from gpu_bench.methods import make_methods
from gpu_bench.problem import Problem
from gpu_bench.run import say

PASSES = ("forward", "backward", "both")
PEERS = ("torch_cudnn", "fa3")
GQA = [(False, 4096), (False, 16384), (True, 4096), (True, 16384), (True, 32768)]
HEAD_DIMS = [(96, 96), (192, 192), (192, 128)]


def compare(run, what, rows, problem, names, works):
    """Times every pass of a problem by every method whose results are right."""
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
                   a.heads or max(1, 2048 // head_dim), head_dim_v=head_dim_v, dropout=dropout)


def grid(run, works):
    """Every pass of a point shares its inputs and its check. Long sequences first: they are what is asked for."""
    a = run.arguments

    def point(run, head_dim, causal, seqlen):
        what = name_of("grid", head_dim, causal, seqlen)
        compare(run, what, run.rows, paper_problem(run, head_dim, causal, seqlen), a.methods, works)

    for seqlen in sorted(a.seqlen, reverse=True):
        for head_dim in a.head_dim:
            for causal in a.causal:
                run.point(name_of("+".join(works), head_dim, causal, seqlen), point, head_dim, causal, seqlen)


def gqa(run):
    """One sequence, 64 query heads on 8, d = 128."""
    rows = run.extra.setdefault("gqa", [])

    def point(run, causal, seqlen):
        problem = Problem(run.gpu, run.arguments.dtype, 128, causal, seqlen, 1, 64, kv_heads=8)
        compare(run, name_of("gqa", 128, causal, seqlen), rows, problem, ("flashtile", *PEERS), ("forward",))

    for causal, length in GQA:
        if causal in run.arguments.causal:
            seqlen = run.gpu.size(length)
            run.point(name_of("gqa", 128, causal, seqlen), point, causal, seqlen)


def paper_points(run, work, head_dims, dtype):
    """Forward at 4k and 16k tokens."""
    rows = run.extra.setdefault(work, [])

    def point(run, head_dim, head_dim_v, causal, seqlen):
        problem = paper_problem(run, head_dim, causal, seqlen, dtype, head_dim_v)
        compare(run, name_of(work, f"{head_dim}/{head_dim_v}", causal, seqlen), rows, problem, ("flashtile", *PEERS),
                ("forward",))

    for head_dim, head_dim_v in head_dims:
        for length in (4096, 16384):
            for causal in run.arguments.causal:
                seqlen = run.gpu.size(length)
                run.point(name_of(work, f"{head_dim}/{head_dim_v}", causal, seqlen), point, head_dim, head_dim_v,
                          causal, seqlen)


def head_dims(run):
    paper_points(run, "head_dims", HEAD_DIMS, run.arguments.dtype)


def fp16(run):
    paper_points(run, "fp16", [(128, 128)], "fp16")

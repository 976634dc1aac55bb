"""One problem of self-attention: its random inputs, its options, and its FLOPs as the FlashAttention-2 paper counts
them."""

import math

import torch

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
SOFTCAP = 30.0
EVERY_KEY = -1  # of a window's side


class Problem:
    """q, k, v, dout are (batch, seqlen, heads, head_dim), or, with the `lengths` of a packed batch, (tokens, heads,
    head_dim). With `queries` q and dout have that many rows, and every query sees every key. q is multiplied by
    `q_times`, which makes the rows of P more peaked."""

    def __init__(self, gpu, dtype, head_dim, causal, seqlen, batch, heads, *, kv_heads=None, head_dim_v=None,
                 lengths=None, window=(EVERY_KEY, EVERY_KEY), dropout=0.0, softcap=0.0, alibi=False, bias=False,
                 mask=False, seqused=False, queries=None, q_times=1):
        self.gpu, self.dtype, self.causal, self.dropout = gpu, dtype, causal, dropout
        self.head_dim, self.head_dim_v = head_dim, head_dim_v or head_dim
        self.seqlen, self.batch, self.heads, self.kv_heads = seqlen, batch, heads, kv_heads or heads
        self.lengths, self.window, self.softcap = lengths, window, softcap
        self.queries, self.q_times = queries or seqlen, q_times
        device = gpu.device
        generator = torch.Generator(device).manual_seed(seqlen + head_dim)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, device=device).to(DTYPES[dtype])

        rows = (batch, seqlen) if lengths is None else (sum(lengths),)
        rows_q = (batch, self.queries) if lengths is None else rows
        self.q = normal(*rows_q, self.heads, self.head_dim) * q_times
        self.k = normal(*rows, self.kv_heads, self.head_dim)
        self.v = normal(*rows, self.kv_heads, self.head_dim_v)
        self.dout = normal(*rows_q, self.heads, self.head_dim_v)
        self.slopes = torch.logspace(-1, -8, heads, 2.0, device=device) if alibi else None
        self.bias = normal(1, heads, seqlen, seqlen) if bias else None
        self.mask = torch.rand(1, 1, seqlen, seqlen, generator=generator, device=device) < 0.9 if mask else None
        # every sequence uses all its keys, so that the work is the same with the option and without
        self.seqused = torch.full((batch,), seqlen, dtype=torch.int32, device=device) if seqused else None
        self.starts = None
        if lengths is not None:
            self.starts = torch.tensor([0, *lengths]).cumsum(0).to(device, torch.int32)

    def lse_shape(self):
        return (self.batch, self.heads, self.queries) if self.lengths is None else (self.heads, sum(self.lengths))

    def head(self, x, b, h):
        """The rows of one sequence in one head of a tensor."""
        h = h * x.shape[-2] // self.heads
        if self.lengths is None:
            return x[b, :, h]
        first = sum(self.lengths[:b])
        return x[first:first + self.lengths[b], h]

    def pairs(self):
        """How many pairs of a query and a key that it sees there are in the batch. A causal problem has half of all
        pairs, as the paper counts."""
        if self.window != (EVERY_KEY, EVERY_KEY):
            left, right = (self.seqlen if side == EVERY_KEY else side for side in self.window)
            return self.batch * sum(min(self.seqlen, i + right + 1) - max(0, i - left) for i in range(self.seqlen))
        squares = sum(n * n for n in self.lengths) if self.lengths is not None else (
            self.batch * self.queries * self.seqlen)
        return squares / 2 if self.causal else squares

    def visited_pairs(self, tile):
        """How many pairs lie in the blocks that a kernel with this tile, (queries, keys), visits for one head of one
        sequence."""
        rows, columns = tile
        left, right = (self.seqlen if side == EVERY_KEY else side for side in self.window)
        blocks = 0
        for i0 in range(0, self.seqlen, rows):
            first, last = max(0, i0 - left), min(self.seqlen, i0 + rows) - 1
            last = min(self.seqlen - 1, last + (0 if self.causal else right))
            blocks += last // columns - first // columns + 1
        return blocks * rows * columns

    def flops(self, work):
        forward = 2.0 * (self.head_dim + self.head_dim_v) * self.heads * self.pairs()
        return forward * {"forward": 1.0, "backward": 2.5, "both": 3.5}[work]

    def scale(self):
        return 1.0 / math.sqrt(self.head_dim)

    def row(self):
        row = {"dtype": self.dtype, "head_dim": self.head_dim, "causal": self.causal, "seqlen": self.seqlen,
               "batch": self.batch, "heads": self.heads, "kv_heads": self.kv_heads}
        if self.queries != self.seqlen:
            row["queries"] = self.queries
        if self.q_times != 1:
            row["q_times"] = self.q_times
        if self.head_dim_v != self.head_dim:
            row["head_dim_v"] = self.head_dim_v
        if self.lengths is not None:
            row["lengths"] = self.lengths
        if self.window != (EVERY_KEY, EVERY_KEY):
            row["window"] = self.window
        return row

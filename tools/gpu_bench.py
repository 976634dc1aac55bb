"""Times flashtile on a GPU beside PyTorch's attention, in one process, alternating on one stream.

    tools/gpu_bench.py --library=build/libflashtile.so --json=RESULT.json [--plot=RESULT.png]
    tools/gpu_bench.py --work=forward,backward --head-dim=128 --seqlen=512,16384 --seconds=120

Work: forward, backward (the FlashAttention-2 paper's grid: hidden dimension 2048, 16384 tokens), both in one timing
(`both`), gqa (64 query heads on 8), few_queries (decoding with groups of heads: the speed at which K and V are read),
head_dims (96, 192, 192/128), fp16, window (the time for each block that is visited, beside full attention's), varlen (a
packed batch beside a dense one of as many FLOPs), options (the slow-down of each), deterministic (backward against the
default one), dropout (slow-down of forward, and of PyTorch's), memory (beyond the results), errors (rms and largest
errors against fp64 as shares of standard attention's, ours and the peers', with q 1, 3, 10 and 30 times as large), host
(what a call costs the host, and the first call: needs --host-time, the program flashtile_host_time).
Methods: flashtile, torch_flash and torch_cudnn (scaled_dot_product_attention on those backends), torch_standard
(matmul, softmax, matmul), fa3 (FlashAttention-3, where --fa3 names a folder whose fa3.py loads it).

A GPU under load runs slower than a rested one, so each speed is taken twice: `burst`, five calls after idling, and
`sustained`, after 150 ms of the same load. A sample's calls are submitted while the GPU is still held up by a delay, so
that the host's own time does not count. A method gets no speed before its results have been compared with attention in
fp64, on whole heads. What does not fit into --seconds is left out, and said so; the JSON is written anew after every
point. Exit codes: 0 ok, 1 a result was wrong, 2 something is missing or failed.
"""

import sys
import traceback

try:
    import torch  # noqa: F401
except ImportError as missing:
    print(f"gpu_bench.py: {missing}; it needs PyTorch built for CUDA", file=sys.stderr)
    sys.exit(2)

from gpu_bench.main import main  # the package beside this file

if __name__ == "__main__":
    try:
        sys.exit(main(__doc__))
    except Exception:  # not to be taken for a wrong result
        traceback.print_exc()
        sys.exit(2)

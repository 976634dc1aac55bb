"""Times flashtile on a GPU beside PyTorch's attention, in one process, alternating on one stream.

    tools/gpu_bench.py --library=build/libflashtile.so --json=RESULT.json [--plot=RESULT.png]
    tools/gpu_bench.py --work=forward,backward --head-dim=128 --seqlen=512,16384 --seconds=120

Work:
    forward, backward  the FlashAttention-2 paper's grid: hidden dimension 2048, 16384 tokens
    both               forward and backward in one timing, on the same grid
    gqa                64 query heads on 8 heads of K and V, 16 on one
    few_queries        decoding with groups of heads: the memory bandwidth at which K and V are read
    head_dims, fp16    head dimensions 96, 192 and 192/128; fp16
    window             the time for each block that is visited, with a window and without
    varlen             a packed batch beside a dense batch with as many FLOPs, both of the first --head-dim
    options            how much slower each option is, of the first --head-dim
    deterministic      how much slower deterministic backward is than the default
    dropout            how much slower dropout makes forward, of flashtile and of PyTorch
    memory             what a call allocates beside its results
    errors             rms and largest errors against fp64 as shares of standard attention's, with q 1, 3, 10 and 30
                       times as large
    decode             attention on a KV cache; only where --work names it, and with --points=32/8-1x1k,pages only those
                       of its points that have such a name or a name with such a part: one query on caches dense, in
                       pages and of unequal lengths; append and rotation in the same call; chunked prefill; a stated
                       prefix (cascade); the host's time of flash_attn_with_kvcache from Python
    fp8                forward on e4m3, with a scale a head and with scales of blocks, beside bf16, each tile that may be
                       chosen, and FlashAttention-3's e4m3; decoding on an e4m3 cache beside bf16's; quantize beside a
                       copy; only where --work names it, and with --points=cache,quantize only some of it
    host               host time of a call, and of the first call (needs --host-time, the program flashtile_host_time)
Methods: flashtile, torch_flash and torch_cudnn (scaled_dot_product_attention on those backends), torch_standard
(matmul, softmax, matmul), fa3 (FlashAttention-3, where --fa3 names a folder whose fa3.py loads it).

A GPU under load runs slower than one that was idle, so each speed is measured twice: `burst`, five calls after a pause,
and `sustained`, after 150 ms of the same load. A sample's calls are submitted while a delay keeps the GPU busy, so that
the host's time does not count. A method is timed only after its results have been compared, on whole heads, with
attention in fp64. Work that does not fit into --seconds is left out and listed; the JSON file is rewritten after every
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

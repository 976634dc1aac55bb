"""The structs of include/flashtile/flashtile.h as Python packs them. tests/test_abi.py holds the layouts to those of a
C compiler. Needs no PyTorch."""

from __future__ import annotations

from struct import Struct, calcsize

MAX_RANK = 6
CPU, CUDA = 1, 2  # flashtile_device
DTYPE_CODES = {"float32": 1, "float16": 2, "bfloat16": 3, "bool": 5, "int32": 6, "int64": 7}  # flashtile_dtype

OPTIONS = Struct("N3i2fqqd2Q2P5i3PNi4x")
OPTION_FIELDS = ("size", "causal", "alignment", "has_scale", "scale", "softcap", "window_left", "window_right",
                 "dropout", "seed", "offset", "seed_ptr", "offset_ptr", "deterministic", "batch_invariant",
                 "check_values", "threads", "isa", "executor", "stream", "workspace", "workspace_size", "exact_max")
# Where the options lie that each call sets, in words of 8 bytes: seed_ptr and offset_ptr, stream, workspace and its
# size; threads in words of 4.
WORD = 8
SEEDS, STREAM = calcsize("N3i2fqqd2Q") // WORD, calcsize("N3i2fqqd2Q2P5iP") // WORD
WORKSPACE, THREADS = STREAM + 1, calcsize("N3i2fqqd2Q2P3i") // 4
INPUTS = Struct("N9P2q")
INPUT_NAMES = ("q", "k", "v", "alibi_slopes", "bias", "mask", "cu_seqlens_q", "cu_seqlens_k", "seqused_k")
RESULT_NAMES = {"forward": ("out", "lse"),
                "backward": ("out", "lse", "dout", "dlse", "dq", "dk", "dv", "dbias")}
# A flashtile_tensor by its rank: what lies past the rank is never read.
TENSORS = [Struct(f"P4i{rank}q{8 * (MAX_RANK - rank)}x{rank}q{8 * (MAX_RANK - rank)}x") for rank in range(MAX_RANK + 1)]
TENSOR_SIZE = TENSORS[0].size

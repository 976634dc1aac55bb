"""What the page of `flashtile bench paper` says beside each figure: what the paper says, and what differs here and why, on a CPU
and on a GPU. The papers' numbers are those of their text: bars of their figures are not read off. FlashAttention-2's were checked
against its conference version, whose Figures 4, 6, 7 and 8 are arXiv's 4, 5, 6 and 7; FlashAttention's own were not, and UNCHECKED says
so."""

FA1 = '<a href="https://arxiv.org/abs/2205.14135">FlashAttention</a>'
FA2 = '<a href="https://arxiv.org/abs/2307.08691">FlashAttention-2</a>'
UNCHECKED = " <i>(From memory: this project has no copy of that part of the paper.)</i>"

SIZES = {"cpu": "The paper: 512 to 16k, hidden dimension 2048, 16k tokens in all. ",
         "gpu": "That is the paper's grid, but for what the time did not reach. "}

# number: (title, the paper, what differs on a CPU, on a GPU)
SPEED = {
    4: ("forward + backward",
        "On an A100, fp16: FlashAttention-2 is 1.7 to 3.0 times as fast as FlashAttention and 3 to 10 times as fast as standard "
        "attention (section 4). Standard attention is PyTorch's there.",
        "The time is the sum of Figure 5's and Figure 6's medians, which were measured apart; the paper does not say how it timed "
        "both.",
        "The time is the sum of Figure 5's and Figure 6's medians, which were measured apart. FlashAttention is our own, with the work "
        "partition that the paper describes, at the faster of its tiles."),
    5: ("forward",
        "Up to 230 TFLOP/s, 73% of the A100's peak of 312. The first FlashAttention reaches 30 to 50% of it.",
        "OpenVINO has this pass alone, so it stands in this figure and in no other.",
        "Standard attention in three steps runs on plain kernels of this project (mma.sync), PyTorch's on cuBLAS."),
    6: ("backward",
        "Up to 63% of the A100's peak (introduction). The first FlashAttention reaches 25 to 35% of it.",
        "Every method counts 2.5 times forward's FLOPs, as in the paper. Standard attention keeps P and does less; Rabe and Staats "
        "compute all of forward again and do more.",
        "Every method counts 2.5 times forward's FLOPs, as in the paper. Standard attention keeps P and does less."),
    7: ("forward + backward on newer instructions",
        "The same code on an H100, without its new instructions: up to 335 TFLOP/s; with them another 1.5 to 2 times is expected.",
        "A CPU's newer instructions are those that multiply bf16. flashtile uses them; standard attention and the papers' other "
        "algorithms compute fp32 here, and their inputs are converted before the clock starts.",
        "Our general kernels have no instruction that an A100 lacks; flashtile's plan takes Hopper's (wgmma, TMA) where there is one."),
}
CAUSAL = (
    "Blocks whose keys all come later are skipped: around 1.7 to 1.8 times as fast as without the mask.",
    "Half of the scores is the limit of 2. Short sequences have few blocks that can be skipped whole. Methods that skip nothing stay at 1 "
    "or below, since they compute the mask.")
BLOCKS = (
    "Larger blocks move less, and forward becomes faster with them up to 256; beyond that arithmetic bounds it, and larger blocks do not "
    "fit into an A100's shared memory." + UNCHECKED + " FlashAttention-2 (section 3.3): typically blocks of {64, 128} x {64, 128}, by "
    "the head dimension and the shared memory; past a size registers spill, or the kernel cannot run.",
    {"cpu": "The paper varies one number; both are varied here. Blocks are those of the papers' algorithms in src/baselines, whose products "
            "OpenBLAS computes: small ones cost it calls, not only traffic. Traffic is counted by `flashtile io`'s walk, in fp32. Nothing "
            "stops blocks that outgrow a cache here: they spill into the next.",
     "gpu": "The paper varies one number; both are varied here, on our general kernels, with 16 or 32 queries a warp, whichever is faster. "
            "Sizes that do not run are named under what was left out."})
SPARSITY = (
    "Where only some blocks of scores are computed, the traffic falls by the share of them (Proposition 4), and so does the time of "
    "forward and backward of a sequence of 4096." + UNCHECKED,
    {"cpu": "Blocks of 128 x 128, as many of each row of blocks, drawn at random. FlashAttention is Algorithm 5 of the paper in "
            "src/baselines, whose products OpenBLAS computes; flashtile has the blocks as lists, and with all of them none. Both read the "
            "same blocks, and their results were compared.",
     "gpu": "Blocks of 128 x 128, as many of each row of blocks, drawn at random; all of them are no lists. A boolean mask of the same blocks "
            "skips nothing: flashtile's results were compared with it."})
GPT2 = (
    "On an A100, sequences of 1024, heads of 64, 16 heads, 64 sequences: standard attention 66.6 GFLOP, 40.3 GB moved, 41.7 ms; "
    "FlashAttention 75.2 GFLOP, 4.4 GB, 7.3 ms: more arithmetic, a ninth of the traffic, 5.7 times as fast." + UNCHECKED,
    {"cpu": "Without dropout. Traffic is counted for fp32 and a fast memory of 256 KiB; flashtile's own code is not counted. A CPU's caches "
            "keep what the count calls moved, so that the ratio of times is smaller than the ratio of bytes.",
     "gpu": "Without dropout. Traffic is not counted here: `tools/measure_io.py` reads it from the GPU's counters."})
LENGTHS = (
    "As FlashAttention-2's introduction sums it up: 2 to 4 times as fast as optimized baselines, and 10 to 20 times less memory, which "
    "grows with the length, theirs with its square.",
    {"cpu": "Memory is the process's peak beyond what it had before the call; tiny calls have paid for threads before. One head is the case "
            "that is best for standard attention: its scores grow with the heads, flashtile's workspace with the threads. Approximate "
            "methods of the paper's figure are none of this library's subjects.",
     "gpu": "Memory is what each method allocates beside inputs and outputs. The paper's figure has dropout and padding, this one has "
            "neither. Approximate methods of the paper's figure are none of this library's subjects."})

/* flashtile.h: the C interface of flashtile, exact attention in linear memory (FlashAttention-2, arXiv 2307.08691).
 *
 * Every call takes plain structs and returns a status; flashtile_last_error() holds this thread's message. Structs that
 * may grow start with their `size`: initialise them with the FLASHTILE_*_INIT macros, which also make "unset" distinct
 * from zero. Nothing is written to any output before every argument has been checked. All functions may be called from
 * many threads at once.
 */
#ifndef FLASHTILE_FLASHTILE_H
#define FLASHTILE_FLASHTILE_H

#include <flashtile/version.h>
#include <stddef.h>
#include <stdint.h>

#if defined(FLASHTILE_STATIC)
#define FLASHTILE_API
#else
#define FLASHTILE_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What a call came to. Codes are append-only. */
typedef enum flashtile_status {
    FLASHTILE_OK = 0,
    FLASHTILE_INVALID_ARGUMENT = 1, /* an argument is wrong: the message names it, its value and what is allowed */
    FLASHTILE_UNSUPPORTED = 2,      /* legal, but nothing here can do it: the message says what could */
    FLASHTILE_OUT_OF_MEMORY = 3,
    FLASHTILE_DEVICE_ERROR = 4, /* a driver, compiler or device failed */
    FLASHTILE_INTERNAL = 5      /* a fault of flashtile's own: please report it */
} flashtile_status;

/* The type of a tensor's elements. */
typedef enum flashtile_dtype {
    FLASHTILE_DTYPE_UNSET = 0,
    FLASHTILE_FP32 = 1,
    FLASHTILE_FP16 = 2,
    FLASHTILE_BF16 = 3,
    FLASHTILE_FP8_E4M3 = 4, /* one byte: 4 bits of exponent, 3 of mantissa, no infinity, to 448 ("e4m3fn") */
    FLASHTILE_BOOL = 5,     /* one byte, zero is false */
    FLASHTILE_INT32 = 6,
    FLASHTILE_INT64 = 7
} flashtile_dtype;

/* Device types carry DLPack's numbers. */
typedef enum flashtile_device { FLASHTILE_CPU = 1, FLASHTILE_CUDA = 2 } flashtile_device;

/* Which later keys are hidden from a query (docs/semantics.md). */
typedef enum flashtile_causal {
    FLASHTILE_CAUSAL_NONE = 0,
    FLASHTILE_CAUSAL_BOTTOM_RIGHT = 1, /* the last query sees the last key, as in flash-attn */
    FLASHTILE_CAUSAL_TOP_LEFT = 2      /* query i sees keys 0..i, as in PyTorch */
} flashtile_causal;

/* Where a window and ALiBi are counted from when causal is off (a causal mode implies its own alignment). */
typedef enum flashtile_alignment { FLASHTILE_ALIGN_BOTTOM_RIGHT = 0, FLASHTILE_ALIGN_TOP_LEFT = 1 } flashtile_alignment;

/* Instruction sets of CPUs. AUTO: the best that this CPU has, or the one that FLASHTILE_ISA names. */
typedef enum flashtile_isa {
    FLASHTILE_ISA_AUTO = 0,
    FLASHTILE_ISA_PORTABLE = 1,
    FLASHTILE_ISA_AVX2 = 2, /* with FMA and F16C */
    FLASHTILE_ISA_AVX512 = 3,
    FLASHTILE_ISA_AVX512_BF16 = 4,
    FLASHTILE_ISA_AMX = 5,
    FLASHTILE_ISA_NEON_BF16 = 6 /* AArch64 */
} flashtile_isa;

/* Limits. */
#define FLASHTILE_MAX_RANK 6
#define FLASHTILE_MAX_HEAD_DIM 576 /* of q and k, which is the width of latent heads (MLA) */
#define FLASHTILE_MAX_HEAD_DIM_V 512
#define FLASHTILE_MAX_TREE 64 /* queries of a sequence with tree_mask */
#define FLASHTILE_MAX_SPLITS 256
#define FLASHTILE_MAX_FUNCTION_TENSORS 8 /* that a call's functions can name */
#define FLASHTILE_MAX_THREADS 4096
#define FLASHTILE_MAX_DIAGONAL 1073741824 /* 2^30, and its negative */
#define FLASHTILE_MAX_ORIGIN 4294967296   /* 2^32, of a sequence, head, query or key */
#define FLASHTILE_MIN_SOFTCAP 1e-30f /* far below any score that matters; s / softcap stays finite on every device */

/* A view of memory that the caller owns. Strides are in elements; the innermost dimension must be contiguous, and the
 * stride of a dimension of size 1 is never read. */
typedef struct flashtile_tensor {
    void* data;
    int32_t dtype;       /* flashtile_dtype */
    int32_t device_type; /* flashtile_device */
    int32_t device_id;
    int32_t rank;
    int64_t shape[FLASHTILE_MAX_RANK];
    int64_t stride[FLASHTILE_MAX_RANK];
} flashtile_tensor;

/* A parallel-for that the host program supplies: it must call task(arg, i) once for every i in [0, count), from any
 * threads, and return when all have returned. `concurrency` says how many it runs at once. While it waits, its threads
 * may run other work, calls of flashtile among it. */
typedef struct flashtile_executor {
    void (*parallel_for)(void* context, int64_t count, void (*task)(void* arg, int64_t index), void* arg);
    void* context;
    int32_t concurrency;
} flashtile_executor;

/* How a score becomes a probability, and how the work is run. The order is: s = scale * q.k; softcap; ALiBi; bias;
 * then the masks, which must all keep (docs/semantics.md). */
typedef struct flashtile_options {
    size_t size;
    int32_t causal;    /* flashtile_causal */
    int32_t alignment; /* flashtile_alignment */
    int32_t has_scale; /* 0: `scale` is not read, and the scale is 1/sqrt(head_dim) */
    float scale;
    float softcap;              /* c from FLASHTILE_MIN_SOFTCAP: a score s becomes c * tanh(s / c); 0 is off */
    int64_t window_left;        /* query i sees no key before i + off - window_left; -1 is open */
    int64_t window_right;       /* nor any key after i + off + window_right; -1 is open. off: docs/semantics.md */
    double dropout;             /* probability in [0, 1), rounded to a multiple of 1/65536 */
    uint64_t seed;              /* of the dropout mask (Philox4x32-7) */
    uint64_t offset;            /* likewise: the same seed with another offset gives another mask */
    const uint64_t* seed_ptr;   /* where not NULL, read instead of `seed` (on CUDA: device memory) */
    const uint64_t* offset_ptr; /* likewise */
    int32_t deterministic;      /* gradients bit for bit the same at any thread count */
    int32_t batch_invariant;    /* a row's bits depend on nothing but its own problem */
    int32_t check_values;       /* CUDA: synchronise to check values that lie in device memory */
    int32_t threads;            /* CPU, to FLASHTILE_MAX_THREADS; 0: the process's setting */
    int32_t isa;                /* flashtile_isa; CPU only */
    const flashtile_executor* executor; /* NULL: the process's */
    void* stream;                       /* CUDA: a CUstream */
    void* workspace;                    /* NULL: allocated by the call */
    size_t workspace_size;              /* bytes of it; 0 where it is NULL */
    int32_t exact_max;  /* CUDA: no shortcut costs accuracy (docs/semantics.md); batch_invariant implies it. The CPU
                           takes no such shortcut, so it changes nothing there */
    int32_t num_splits; /* forward with few queries: how many parts each sequence's keys are split in, which are
                           merged afterwards, to FLASHTILE_MAX_SPLITS; 0: the library's rule (docs/semantics.md).
                           With batch_invariant it must be 0 */
    int64_t attention_chunk; /* c from 1: positions are cut in chunks of c, and a query sees no key of another chunk
                                than its own (Llama 4); 0 is off */
    int32_t sm_limit;        /* CUDA: at most so many multiprocessors, which leaves the others to other work; 0: all.
                                The CPU's threads are what `threads` says */
    /* A shard of a problem is the same problem shifted. */
    int64_t diagonal; /* added to off, by which causal, windows, chunks and ALiBi count: -FLASHTILE_MAX_DIAGONAL to
                         FLASHTILE_MAX_DIAGONAL; 0 beside positions */
    int64_t origin_b; /* where sequence 0, head 0, query 0 and key 0 lie in the whole problem, from 0: dropout draws
                         by the whole's coordinates. To FLASHTILE_MAX_ORIGIN each; with attention_chunk origin_j is a
                         multiple of it. diagonals, origins_i and origins_j (flashtile_inputs) are one a sequence */
    int64_t origin_h;
    int64_t origin_i;
    int64_t origin_j;
} flashtile_options;

#define FLASHTILE_OPTIONS_INIT                                                                                    \
    {                                                                                                             \
        sizeof(flashtile_options), 0, 0, 0, 0.0f, 0.0f, -1, -1, 0.0, 0, 0, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL, \
            NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                                    \
    }

struct flashtile_append_tensors;

/* A tensor under the name that score_function and mask_function have for it. */
typedef struct flashtile_named_tensor {
    const char* name;        /* letters, digits and _, no digit first, and no word of the language */
    flashtile_tensor tensor; /* of 1 to 4 dimensions, any strides; FP32, FP16, BF16, INT32, INT64 or BOOL */
} flashtile_named_tensor;

/* Which blocks of the scores are seen: queries in blocks of block_q, keys in blocks of block_k, from each sequence's
 * start. Of each block of queries the first counts[b, h, n] of indices[b, h, n, ..] name the blocks of keys that it
 * sees, in any order; later entries are not read. In blocks of the full lists mask_function does not count; what is in
 * neither list is hidden. Naming a block twice, or one that is none, is an error on the CPU and with check_values; on
 * CUDA a block in both lists is else a full one, and a block that is none is nothing. */
typedef struct flashtile_block_lists {
    size_t size;                          /* sizeof(flashtile_block_lists) */
    int64_t block_q;                      /* a multiple of 64 */
    int64_t block_k;                      /* likewise */
    const flashtile_tensor* counts;       /* (batch or 1, heads or 1, blocks of the longest seqlen_q); INT32 */
    const flashtile_tensor* indices;      /* (batch or 1, heads or 1, the same blocks, any size); INT32 */
    const flashtile_tensor* full_counts;  /* likewise; may be NULL with full_indices: no block is full */
    const flashtile_tensor* full_indices; /* likewise */
} flashtile_block_lists;

#define FLASHTILE_BLOCK_LISTS_INIT \
    { sizeof(flashtile_block_lists), 128, 128, NULL, NULL, NULL, NULL }

/* The inputs that forward and backward share. The call reads them and, but for what `append` says, never writes them.
 * All tensors lie on q's device. heads is a multiple of kv_heads.
 *
 * A batch is packed where cu_seqlens_q and cu_seqlens_k are given: its sequences lie one after the other, and sequence
 * b has the queries from cu_seqlens_q[b] to before cu_seqlens_q[b + 1], and its keys likewise.
 *
 * Forward also takes keys and values from a cache, of which sequence b uses the first seqused_k[b]. A cache is dense,
 * k (rows, seqlen_k, kv_heads, d), where sequence b has row b or cache_batch_idx[b]; or it is made of pages, k
 * (num_pages, page_size, kv_heads, d), where key j of sequence b is row j % page_size of page
 * block_table[b, j / page_size]. Several sequences may name the same page or row. Queries beside a cache are dense, or
 * packed by cu_seqlens_q alone. What lies behind a sequence's keys, in the table or in the cache, is never read.
 *
 * Sequences that share their first keys can be said to do so: of the sequences of group g, from prefix_groups[g] to
 * before prefix_groups[g + 1], the keys before prefix_lengths[g] are those that the table of the group's first sequence
 * names. Lengths and positions count them. The others' tables are not read there. */
typedef struct flashtile_inputs {
    size_t size;               /* sizeof(flashtile_inputs) */
    const flashtile_tensor* q; /* (batch, seqlen_q, heads, d), packed (total_q, heads, d); FP32, FP16, BF16 or
                                  FP8_E4M3, which only forward takes */
    const flashtile_tensor* k; /* (batch, seqlen_k, kv_heads, d), packed (total_k, kv_heads, d); q's dtype, or FP8_E4M3
                                  beside 16 bits */
    const flashtile_tensor* v; /* (batch, seqlen_k, kv_heads, dv), packed (total_k, kv_heads, dv); k's dtype */
    const flashtile_tensor* alibi_slopes; /* (heads) or (batch, heads); FP32; may be NULL: no ALiBi */
    const flashtile_tensor* bias; /* broadcasts to (batch, heads, seqlen_q, seqlen_k); q's dtype or FP32; may be NULL */
    const flashtile_tensor* mask; /* broadcasts likewise; BOOL, true keeps; may be NULL: every key is kept */
    const flashtile_tensor* cu_seqlens_q; /* (batch + 1), from 0, ascending; INT32 or INT64; NULL unless packed */
    const flashtile_tensor* cu_seqlens_k; /* likewise, of the keys */
    const flashtile_tensor* seqused_k; /* (batch), how many keys of each sequence are used; INT32; may be NULL: all */
    int64_t max_seqlen_q;              /* packed: the most queries of a sequence; else -1 */
    int64_t max_seqlen_k;              /* packed: the most keys of a sequence; a cache: likewise, or -1: all that it has
                                          for a sequence; else -1 */
    const flashtile_tensor* block_table;     /* (batch, max_pages), from 0 to num_pages - 1; INT32; may be NULL */
    const flashtile_tensor* cache_batch_idx; /* (batch), from 0 to rows - 1; INT32 or INT64; may be NULL: row b */
    const flashtile_tensor* first_k;         /* (batch): keys before it are hidden, and no position moves; INT32; may be
                                                NULL: 0. Forward only */
    const flashtile_tensor* seqused_q;       /* (batch), how many queries of each sequence are used; the rest of out and
                                                lse is not written; INT32; may be NULL: all. Forward only */
    const flashtile_tensor* tree_mask;       /* (batch or 1, heads or 1, seqlen_q, seqlen_q), to FLASHTILE_MAX_TREE
                                                queries: which of a sequence's last seqlen_q keys a query sees; BOOL;
                                                may be NULL: all. Forward only */
    const flashtile_tensor* sinks; /* (heads): a score more in each softmax's denominator, which has no value and which
                                      lse counts; -infinity is none; FP32 or q's dtype; may be NULL */
    const flashtile_tensor* positions; /* (batch, seqlen_q), packed (total_q), with tree_mask: where causal, windows,
                                          chunks and ALiBi take a query to be, and its key among a sequence's last
                                          seqlen_q keys; from 0; INT32; may be NULL: i + off. Forward only */
    const flashtile_tensor* prefix_groups;  /* (groups + 1), from 0, ascending, ending at most at batch; INT32; with
                                               block_table; may be NULL. Forward only */
    const flashtile_tensor* prefix_lengths; /* (groups); INT32; NULL without prefix_groups */
    const struct flashtile_append_tensors*
        append; /* new keys and values that are appended to the cache first, and rotated with q: k and v are the cache,
                   and seqused_k counts the keys before the call; see there. May be NULL. Forward only */
    const flashtile_tensor* diagonals; /* (batch): stands for the options' diagonal, one a sequence; INT64; may be NULL.
                                          The option is 0 beside it */
    const flashtile_tensor* origins_i; /* likewise, for origin_i */
    const flashtile_tensor* origins_j; /* likewise, for origin_j */
    const char* score_function; /* an expression of s, b, h, i, j, seqlen_q, seqlen_k and named tensors that takes the
                                   place of a score s before the masks (docs/functions.md); may be NULL */
    const char* mask_function;  /* likewise, without s: whether query i of head h sees key j; may be NULL */
    const flashtile_named_tensor* function_tensors; /* what these two may name; may be NULL */
    int64_t function_tensor_count;                  /* to FLASHTILE_MAX_FUNCTION_TENSORS */
    const flashtile_block_lists* block_lists;       /* may be NULL: every block is seen */
    const flashtile_tensor* q_scale; /* what FP8_E4M3 elements of q are multiplied by, FP32: see scale_block; NULL: 1.
                                        Forward only */
    const flashtile_tensor* k_scale; /* likewise, of k; with append also what new keys are divided by */
    const flashtile_tensor* v_scale; /* likewise, of v */
    int32_t scale_block; /* 0: a scale is of rank 0, for the whole tensor, or (batch, kv_heads), for q too. 64 or 128:
                            of rank 0, or one for so many rows of a head from each sequence's start: (batch, heads of
                            the tensor, ceil(seqlen / scale_block)); packed (heads, at least the sum over the sequences
                            of ceil(length / scale_block)); of a cache (num_pages, kv_heads, ceil(page_size /
                            scale_block)), with its rows for num_pages where it has no pages */
} flashtile_inputs;

#define FLASHTILE_INPUTS_INIT                                                                                          \
    {                                                                                                                  \
        sizeof(flashtile_inputs), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, -1, -1, NULL, NULL, NULL,      \
            NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, 0 \
    }

/* What forward writes. No output may lie in memory that another tensor of the call uses. */
typedef struct flashtile_forward_outputs {
    size_t size;                 /* sizeof(flashtile_forward_outputs) */
    const flashtile_tensor* out; /* (batch, seqlen_q, heads, dv), packed (total_q, heads, dv); q's dtype; or
                                    FP32; beside an FP8_E4M3 q FP32, FP16 or BF16 */
    const flashtile_tensor* lse; /* (batch, heads, seqlen_q), packed (heads, total_q): the natural logarithm of the sum
                                    of the exponentials of a query's scores; FP32; may be NULL: not written */
} flashtile_forward_outputs;

#define FLASHTILE_FORWARD_OUTPUTS_INIT \
    { sizeof(flashtile_forward_outputs), NULL, NULL }

/* What backward reads beside the inputs (out, lse, dout, dlse) and what it writes (the other ones). It overwrites
 * gradients and never adds to what is there. */
typedef struct flashtile_gradients {
    size_t size;                    /* sizeof(flashtile_gradients) */
    const flashtile_tensor* out;    /* read: what forward wrote */
    const flashtile_tensor* lse;    /* read: what forward wrote */
    const flashtile_tensor* dout;   /* read: the gradient of out, with out's shape and dtype */
    const flashtile_tensor* dlse;   /* read: the gradient of lse, with lse's shape and dtype; may be NULL: zero */
    const flashtile_tensor* dq;     /* written: q's shape and dtype */
    const flashtile_tensor* dk;     /* written: k's shape and dtype */
    const flashtile_tensor* dv;     /* written: v's shape and dtype */
    const flashtile_tensor* dbias;  /* written: bias's shape and dtype; NULL without a bias, and may be NULL with one */
    const flashtile_tensor* dsinks; /* written: (heads), FP32 or q's dtype; NULL without sinks, and may be NULL with
                                       them */
    const flashtile_named_tensor* dtensors; /* written: gradients of function_tensors that have these names and are
                                               FP32, FP16 or BF16, with their shapes; FP32. May be NULL. On CUDA
                                               not with `deterministic` */
    int64_t dtensor_count;                  /* to function_tensor_count */
} flashtile_gradients;

#define FLASHTILE_GRADIENTS_INIT \
    { sizeof(flashtile_gradients), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0 }

/* out = softmax(mask(scale * q k^T + ...)) v (FlashAttention-2, Algorithm 1). `options` may be NULL: the defaults. */
FLASHTILE_API flashtile_status flashtile_forward(const flashtile_options* options, const flashtile_inputs* inputs,
                                                 const flashtile_forward_outputs* outputs);

/* dq, dk, dv (dbias, dsinks, dtensors) from dout (FlashAttention-2, Algorithm 2). Options and inputs must be those of
 * the forward. */
FLASHTILE_API flashtile_status flashtile_backward(const flashtile_options* options, const flashtile_inputs* inputs,
                                                  const flashtile_gradients* gradients);

/* Bytes of workspace that the call would use; pass that much in `workspace` (64-byte aligned) and it allocates
 * nothing more, a few bytes for each packed sequence aside. */
FLASHTILE_API flashtile_status flashtile_forward_workspace(const flashtile_options* options,
                                                           const flashtile_inputs* inputs,
                                                           const flashtile_forward_outputs* outputs, size_t* bytes);
/* The same for backward. */
FLASHTILE_API flashtile_status flashtile_backward_workspace(const flashtile_options* options,
                                                            const flashtile_inputs* inputs,
                                                            const flashtile_gradients* gradients, size_t* bytes);

/* Writes the dropout mask of (options->dropout, seed, offset) to keep, BOOL (batch, heads, seqlen_q, seqlen_k): true
 * where a probability is kept. */
FLASHTILE_API flashtile_status flashtile_dropout_mask(const flashtile_options* options, const flashtile_tensor* keep);

/* The same where sequences have origins of their own, as flashtile_inputs has them; either may be NULL. */
FLASHTILE_API flashtile_status flashtile_dropout_mask_of_shards(const flashtile_options* options,
                                                                const flashtile_tensor* origins_i,
                                                                const flashtile_tensor* origins_j,
                                                                const flashtile_tensor* keep);

/* What flashtile_merge reads and writes: n partial results, of which each attended to some of the keys, and the result
 * of attending to all of them. A packed batch has `total` in place of batch and seqlen. */
typedef struct flashtile_merge_tensors {
    size_t size; /* sizeof(flashtile_merge_tensors) */
    const flashtile_tensor*
        outs; /* read: (n, batch, seqlen, heads, dv), packed (n, total, heads, dv); FP32, FP16, BF16 */
    const flashtile_tensor* lses; /* read: (n, batch, heads, seqlen), packed (n, heads, total); FP32 */
    const flashtile_tensor* out;  /* written: outs' shape without n; FP32, FP16 or BF16, which need not be outs' */
    const flashtile_tensor* lse;  /* written: lses' shape without n; FP32; may be NULL: not written */
} flashtile_merge_tensors;

#define FLASHTILE_MERGE_TENSORS_INIT \
    { sizeof(flashtile_merge_tensors), NULL, NULL, NULL, NULL }

/* lse = log sum_i exp(lse_i), out = sum_i exp(lse_i - lse) out_i. A part whose lse is -infinity counts for nothing,
 * whatever is in its out; where all are so, out is 0 and lse is -infinity. out may be one of the parts, and lse that
 * part's lse or another's: the same memory, strides and dtype. Of the options only those count that say how to run. */
FLASHTILE_API flashtile_status flashtile_merge(const flashtile_options* options,
                                               const flashtile_merge_tensors* tensors);

/* What flashtile_append_kv reads and writes. Sequence b has L = cache_seqlens[b] keys before the call, and its new rows
 * go behind them; the caller counts them. The caches are dense, (rows, seqlen, kv_heads, d), where sequence b has row b
 * or cache_batch_idx[b]; or pages, (num_pages, page_size, kv_heads, d), where row j of sequence b lies in page
 * block_table[b, j / page_size]. slots says it row by row instead.
 *
 * In flashtile_inputs.append the same struct says what a forward call appends before it attends, bit for bit as the two
 * calls do. The caches, their table or rows, the lengths L, q and cu_seqlens_q are those of the inputs: k_cache,
 * v_cache, block_table, cache_batch_idx, cache_seqlens, q and cu_seqlens_q are NULL here. The inputs' seqused_k is L,
 * and a sequence then attends to L keys and the new ones. With rotary_cos and rotary_sin q is rotated; it is unchanged
 * in memory, and the rotated one is written only where q_out is given. */
typedef struct flashtile_append_tensors {
    size_t size;               /* sizeof(flashtile_append_tensors) */
    const flashtile_tensor* k; /* read: (batch, seqlen_new, kv_heads, d), packed (total_new, kv_heads, d); FP32, FP16,
                                  BF16 */
    const flashtile_tensor* v; /* read: likewise, of width dv; NULL with v_cache where v is a view of k's memory */
    const flashtile_tensor* k_cache;          /* written; k's dtype, or FP8_E4M3; any strides */
    const flashtile_tensor* v_cache;          /* written; k_cache's dtype; of width dv */
    const flashtile_tensor* block_table;      /* (batch, max_pages); INT32; may be NULL */
    const flashtile_tensor* slots;            /* one a new row: page * page_size + row, -1 skips; INT64; may be NULL */
    const flashtile_tensor* cache_batch_idx;  /* (batch); INT32 or INT64; may be NULL */
    const flashtile_tensor* cache_seqlens;    /* (batch): L; INT32 or INT64; may be NULL with slots */
    const flashtile_tensor* cu_seqlens_k_new; /* (batch + 1), from 0, ascending; INT32 or INT64; NULL unless packed */
    const flashtile_tensor* rotary_cos;       /* (positions, angles); FP32, FP16 or BF16; NULL: nothing is rotated */
    const flashtile_tensor* rotary_sin;       /* likewise */
    const flashtile_tensor* rotary_offsets;   /* (batch): stands for L in positions; INT32 or INT64; may be NULL */
    const flashtile_tensor* positions;        /* one a new row; INT32 or INT64; may be NULL: L + n */
    const flashtile_tensor* q;                /* read: (batch, seqlen_q, heads, d), packed (total_q, heads, d), to be
                                                 rotated too; k's dtype; may be NULL */
    const flashtile_tensor* q_out;            /* written: q's shape; may be q itself */
    const flashtile_tensor* cu_seqlens_q;     /* (batch + 1); NULL unless q is packed */
    const flashtile_tensor* positions_q; /* one a query; may be NULL: those of the new rows where positions are given
                                            and q has the same rows; else L + i, or L without causal and window */
    int64_t rotary_begin;                /* the first column that is rotated */
    int32_t rotary_interleaved;          /* columns 2 n and 2 n + 1 are a pair; 0: n and n + angles */
    const flashtile_tensor* k_scale; /* of a cache of FP8_E4M3: new keys are divided by it and kept within 448; as in
                                        flashtile_inputs, in whose append it is NULL */
    const flashtile_tensor* v_scale; /* likewise */
    int32_t scale_block;             /* likewise */
} flashtile_append_tensors;

#define FLASHTILE_APPEND_TENSORS_INIT                                                                             \
    {                                                                                                             \
        sizeof(flashtile_append_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, \
            NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, 0                                                     \
    }

/* Writes new keys and values to a cache, the keys rotated by their positions (RoPE) where cos and sin are given, and q
 * likewise to q_out. Rows that have no place in the cache (past its end, a page or slot that is none) are an error on
 * the CPU and with check_values, and are skipped on CUDA otherwise; positions past the table are clamped there. Of the
 * options only those count that say how to run, and whether there is causal or a window. */
FLASHTILE_API flashtile_status flashtile_append_kv(const flashtile_options* options,
                                                   const flashtile_append_tensors* tensors);

/* What flashtile_quantize and flashtile_dequantize read and write: x and the e4m3 numbers that stand for it. */
typedef struct flashtile_quantize_tensors {
    size_t size;                       /* sizeof(flashtile_quantize_tensors) */
    const flashtile_tensor* x;         /* (batch, seqlen, heads, d), packed (total, heads, d); FP32, FP16 or BF16; d to
                                          FLASHTILE_MAX_HEAD_DIM */
    const flashtile_tensor* quantized; /* x's shape; FP8_E4M3 */
    const flashtile_tensor* scale; /* FP32, as flashtile_inputs has it of q, k and v: of rank 0, (batch, a divisor of
                                      heads), or by scale_block */
    const flashtile_tensor* cu_seqlens; /* (batch + 1), from 0, ascending; INT32 or INT64; NULL unless packed. Rows of
                                           no sequence are left alone */
    int32_t scale_block;                /* 0, 64 or 128 */
    int32_t scale_given;                /* quantize: 0: it writes `scale`; else it reads it. Not read by dequantize */
    const flashtile_tensor* rotary_cos; /* (positions, angles); FP32, FP16 or BF16; NULL: nothing is rotated */
    const flashtile_tensor* rotary_sin; /* likewise */
    const flashtile_tensor*
        rotary_offsets;                /* (batch): the position of a sequence's first row; INT32 or INT64; NULL: 0 */
    const flashtile_tensor* positions; /* one a row; INT32 or INT64; may be NULL: offset + n */
    int64_t rotary_begin;              /* the first column that is rotated */
    int32_t rotary_interleaved;        /* columns 2 n and 2 n + 1 are a pair; 0: n and n + angles */
    int32_t has_hadamard;              /* rows are multiplied by M after the rotation (docs/semantics.md) */
    uint64_t hadamard_seed;            /* of M's signs */
} flashtile_quantize_tensors;

#define FLASHTILE_QUANTIZE_TENSORS_INIT \
    { sizeof(flashtile_quantize_tensors), NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0 }

/* Writes `quantized` = x / scale, rounded to nearest even and at most 448 either way, and `scale`, which is the largest
 * magnitude of what it is for, over 448, and 1 where that is 0. Infinities and NaN become NaN and count for no scale.
 * x is rotated and multiplied by M first where these are given. Of the options only those count that say how to run. */
FLASHTILE_API flashtile_status flashtile_quantize(const flashtile_options* options,
                                                  const flashtile_quantize_tensors* tensors);
/* Writes x = quantized * scale, and M undone where it is given. Rotation is not: rotary_cos and what belongs to it are
 * NULL. */
FLASHTILE_API flashtile_status flashtile_dequantize(const flashtile_options* options,
                                                    const flashtile_quantize_tensors* tensors);

/* Fills `tensor` from a `const DLTensor*` (dlpack.h). No copy; the DLTensor's memory must outlive the view. */
FLASHTILE_API flashtile_status flashtile_from_dlpack(const void* dl_tensor, flashtile_tensor* tensor);

/* This thread's last error, or "" if it has had none. Valid until this thread's next call. */
FLASHTILE_API const char* flashtile_last_error(void);

/* What this thread's last successful forward, backward, merge, append, quantize or dequantize ran on, e.g. "cpu
 * avx512_bf16 forward, 2 threads". */
FLASHTILE_API const char* flashtile_last_run(void);

FLASHTILE_API const char* flashtile_version(void); /* "0.1.0" */
/* "invalid argument", ..., in static memory; "unknown status" for a number that is none. */
FLASHTILE_API const char* flashtile_status_name(int32_t status);

/* 1 where this CPU and this build can run the instruction set. */
FLASHTILE_API int flashtile_isa_available(flashtile_isa isa);
/* Why not, or "" where it can, e.g. "the CPU has no amx_tile and amx_bf16". */
FLASHTILE_API const char* flashtile_isa_why_not(flashtile_isa isa);
FLASHTILE_API const char* flashtile_isa_name(flashtile_isa isa); /* "avx512_bf16", as FLASHTILE_ISA takes it */
/* What ISA_AUTO (or FLASHTILE_ISA in the environment) comes to for a dtype. */
FLASHTILE_API flashtile_isa flashtile_isa_chosen(flashtile_dtype dtype);

/* Threads that a call uses unless it says otherwise: FLASHTILE_THREADS, or the CPUs this process may run on.
 * 0 restores that. */
FLASHTILE_API flashtile_status flashtile_set_threads(int32_t threads);
/* What flashtile_set_threads has set, or the default. */
FLASHTILE_API int32_t flashtile_get_threads(void);

/* The executor of calls that bring none; NULL restores flashtile's own pool. The struct is copied, and each distinct
 * one kept to the end of the process, since a call may still be running on it. */
FLASHTILE_API flashtile_status flashtile_set_executor(const flashtile_executor* executor);

/* What this process has of CUDA, as JSON: driver, devices, NVRTC, cache, choices, bundles, and of what is missing why,
 * and where it was looked for. Valid until this thread's next call of it. */
FLASHTILE_API const char* flashtile_cuda_info(void);

/* How a problem runs forward and backward on q's device, and why so, as JSON. The tensors' memory is not read, so any
 * address will do, and its alignment counts. *json is valid until this thread's next call of it.
 *
 * Of each pass: "candidate" runs it, "passed_over" has the reason against each of the others, and "kernels" are what is
 * launched, in order, with tiles and reasons; or "why_not" says why nothing can run it.
 *
 * CUDA: candidates are kernels; "alternatives" are the tiles that may be chosen (flashtile_use_choice), the library's
 * own first. device_name: "H200", "A100-80", "RTX 4090", ... for a GPU that need not be here, NULL for that of q.
 * registers: where not 0 and NVRTC is there, what the compiler says of registers and spills, which takes seconds a
 * kernel.
 *
 * CPU: candidates are instruction sets; each kernel has its tasks and the threads that share them; "alternatives" are
 * rows of a task that may be chosen. device_name is NULL, and registers is not read. */
FLASHTILE_API flashtile_status flashtile_plan_report(const flashtile_options* options, const flashtile_inputs* inputs,
                                                     const char* device_name, int32_t registers, const char** json);

/* Tiles that were measured on this machine's GPUs, and rows of a task on its CPU, in place of the library's own
 * (`flashtile tune`). They are read from the cache's folder at the first call on a GPU, or on the CPU; the variable
 * FLASHTILE_NO_CHOICES leaves them unread. `choice` is one of the alternatives in flashtile_plan_report's JSON, with
 * the medians that were measured in its last two fields. keep: where not 0, later processes use it too. The workspace
 * that a pass needs may change. */
FLASHTILE_API flashtile_status flashtile_use_choice(const char* choice, int32_t keep);
/* From now on this process uses the library's own tiles. kept: where not 0, later processes do so too. */
FLASHTILE_API flashtile_status flashtile_forget_choices(int32_t kept);

/* Kernels compiled ahead of time, by flashtile_compile_bundle: they are looked up there first. The environment variable
 * FLASHTILE_BUNDLE loads one too. */
FLASHTILE_API flashtile_status flashtile_load_bundle(const char* path);

/* Options that a bundled kernel serves: a kernel serves the calls that use just these. Append-only. */
typedef enum flashtile_bundle_option {
    FLASHTILE_WITH_CAUSAL = 1 << 0, /* or a window whose left side is open */
    FLASHTILE_WITH_PACKED = 1 << 1,
    FLASHTILE_WITH_SEQUSED = 1 << 2,
    FLASHTILE_WITH_SOFTCAP = 1 << 3,
    FLASHTILE_WITH_ALIBI = 1 << 4,
    FLASHTILE_WITH_BIAS = 1 << 5, /* in q's dtype */
    FLASHTILE_WITH_BIAS_FP32 = 1 << 6,
    FLASHTILE_WITH_BIAS_GRADIENT = 1 << 7,
    FLASHTILE_WITH_MASK = 1 << 8,
    FLASHTILE_WITH_DROPOUT = 1 << 9,
    FLASHTILE_WITH_DETERMINISTIC = 1 << 10,
    FLASHTILE_WITH_BATCH_INVARIANT = 1 << 11,
    FLASHTILE_WITH_EXACT_MAX = 1 << 12,
    FLASHTILE_WITH_WINDOW = 1 << 13, /* with a left side */
    FLASHTILE_WITH_CACHE = 1 << 14,  /* keys in rows of a cache; queries may be packed */
    FLASHTILE_WITH_PAGES = 1 << 15,  /* keys in its pages */
    FLASHTILE_WITH_SEQUSED_Q = 1 << 16,
    FLASHTILE_WITH_FIRST_K = 1 << 17,
    FLASHTILE_WITH_ATTENTION_CHUNK = 1 << 18,
    FLASHTILE_WITH_TREE_MASK = 1 << 19,
    FLASHTILE_WITH_SINKS = 1 << 20,
    FLASHTILE_WITH_DIAGONALS = 1 << 21, /* beside a mask by position, or ALiBi */
    /* Fewer kernels than serve all calls with the options: */
    FLASHTILE_ONLY_WITHOUT_LSE = 1 << 22,  /* of calls that ask for no lse, as in inference; forward only */
    FLASHTILE_ONLY_FEW_QUERIES = 1 << 23,  /* of forward calls with up to 64 queries a sequence, as in decoding */
    FLASHTILE_ONLY_MANY_QUERIES = 1 << 24, /* of forward calls with more, as in training and prefill */
} flashtile_bundle_option;

/* The calls that some kernels of a bundle shall serve, at any batch and lengths. Start with
 * FLASHTILE_BUNDLE_ITEM_INIT. */
typedef struct flashtile_bundle_item {
    size_t size;
    int32_t architecture; /* 10 * major + minor of the compute capability: 80, 86, 89, 90, 100, 120 */
    int32_t dtype;        /* FP32, FP16, BF16 */
    int32_t head_dim;
    int32_t head_dim_v; /* 0: head_dim */
    int32_t backward;   /* 0: forward only */
    uint32_t options;   /* flashtile_bundle_option, or'ed */
    int32_t group;      /* query heads that share a key head; 0: 1 */
} flashtile_bundle_item;

#define FLASHTILE_BUNDLE_ITEM_INIT \
    { sizeof(flashtile_bundle_item), 0, 0, 0, 0, 1, 0, 0 }

/* Compiles the kernels of `count` items, which need no GPU here but NVRTC, and writes them to `path`. `progress` may be
 * NULL; it is called from any thread, one at a time. */
FLASHTILE_API flashtile_status flashtile_compile_bundle(const char* path, const flashtile_bundle_item* items,
                                                        size_t count,
                                                        void (*progress)(void* context, size_t done, size_t total),
                                                        void* context);

/* Whether forward (backward != 0: backward) can run this problem here, and on what, on any device: a call that runs
 * nothing, reads no tensor's memory and looks at no workspace. The addresses count for their alignment only; for the
 * outputs contiguous ones are assumed, lse among them, and dbias where there is a bias.
 *
 * OK: it can, and *on (`on` may be NULL) says on what, as flashtile_last_run() would, e.g. "cpu avx512 forward, 2
 * threads"; valid until this thread's next call of it. Otherwise the status is that of the run itself, and so is the
 * message of flashtile_last_error(): an argument is wrong (INVALID_ARGUMENT), or the GPU, its driver, a kernel for the
 * problem or the compiler for that kernel is missing (UNSUPPORTED). No kernel is compiled. */
FLASHTILE_API flashtile_status flashtile_can_run(const flashtile_options* options, const flashtile_inputs* inputs,
                                                 int32_t backward, const char** on);

/* A problem whose first call shall not wait: options (may be NULL: the defaults) and inputs as forward and backward get
 * them. As for flashtile_can_run, no tensor's memory is read, and addresses count for their alignment only. */
typedef struct flashtile_prepare_item {
    size_t size;
    const flashtile_options* options;
    const flashtile_inputs* inputs;
    int32_t forward;  /* 0: not that pass */
    int32_t backward; /* 0: not that pass; 1: with dbias and dsinks where bias and sinks are given; 2: dq, dk and dv
                         alone */
    int32_t lse;      /* whether forward writes it, which makes another kernel */
} flashtile_prepare_item;

#define FLASHTILE_PREPARE_ITEM_INIT \
    { sizeof(flashtile_prepare_item), NULL, NULL, 1, 1, 1 }

/* Compiles and loads what the items' first calls would wait for, in parallel; on the CPU that is nothing. `progress`
 * may be NULL; it is called from any thread, one at a time, and not at all where nothing is to be done. An error is
 * that of the run itself: INVALID_ARGUMENT, UNSUPPORTED or DEVICE_ERROR; items are all checked before anything is
 * compiled. */
FLASHTILE_API flashtile_status flashtile_prepare(const flashtile_prepare_item* items, size_t count,
                                                 void (*progress)(void* context, size_t done, size_t total),
                                                 void* context);

#ifdef __cplusplus
}
#endif

#endif

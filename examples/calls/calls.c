/* An example of every call in flashtile.h, each a function by the call's name. The reference shows them (tools/
 * write_reference, which fails where a call has none), and the tests run them: a step that does not come out as the
 * example says ends the program. */
#include <flashtile/flashtile.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what all examples use --- */

static void require(int as_said, const char* what) {
    if (as_said) return;
    fprintf(stderr, "not so: %s. The last error: %s\n", what, flashtile_last_error());
    exit(1);
}
#define REQUIRE(what) require(what, #what)

/* A view of contiguous memory on the CPU. */
static flashtile_tensor view(void* data, flashtile_dtype dtype, int32_t rank, const int64_t* shape) {
    flashtile_tensor t = {data, dtype, FLASHTILE_CPU, 0, rank, {0}, {0}};
    int64_t stride = 1;
    for (int32_t n = rank - 1; n >= 0; --n) {
        t.shape[n] = shape[n];
        t.stride[n] = stride;
        stride *= shape[n];
    }
    return t;
}

/* Two sequences of four tokens, one head. q is 0: a query then attends to all keys that it sees alike. */
enum { batch = 2, seqlen = 4, heads = 1, head_dim = 8, size = batch * seqlen * heads * head_dim };
static float q[size], k[size], v[size], out[size], lse[batch * heads * seqlen];
static flashtile_tensor tq, tk, tv, tout, tlse;
static flashtile_inputs inputs = FLASHTILE_INPUTS_INIT;
static flashtile_forward_outputs outputs = FLASHTILE_FORWARD_OUTPUTS_INIT;

static void fill(void) {
    const int64_t shape[] = {batch, seqlen, heads, head_dim}, lse_shape[] = {batch, heads, seqlen};
    for (int n = 0; n < size; ++n) {
        k[n] = 0.1f * (float)n;
        v[n] = (float)(n % 7);
    }
    tq = view(q, FLASHTILE_FP32, 4, shape);
    tk = view(k, FLASHTILE_FP32, 4, shape);
    tv = view(v, FLASHTILE_FP32, 4, shape);
    tout = view(out, FLASHTILE_FP32, 4, shape);
    tlse = view(lse, FLASHTILE_FP32, 3, lse_shape);
    inputs.q = &tq;
    inputs.k = &tk;
    inputs.v = &tv;
    outputs.out = &tout;
    outputs.lse = &tlse;
}

/* A parallel-for of the program's own, here one thread. `context` counts its calls. */
static void one_after_the_other(void* context, int64_t count, void (*task)(void* arg, int64_t index), void* arg) {
    ++*(int*)context;
    for (int64_t n = 0; n < count; ++n) task(arg, n);
}

/* --- the examples --- */

static void flashtile_forward_(void) {
    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    options.causal = FLASHTILE_CAUSAL_BOTTOM_RIGHT;
    REQUIRE(flashtile_forward(&options, &inputs, &outputs) == FLASHTILE_OK);
    REQUIRE(memcmp(out, v, head_dim * sizeof(float)) == 0); /* the first query sees the first key alone */
    REQUIRE(fabs(lse[3] - log(4)) < 1e-6);                  /* the last one sees four scores of 0 */
}

static void flashtile_backward_(void) {
    float dout[size], dq[size], dk[size], dv[size];
    for (int n = 0; n < size; ++n) dout[n] = 1;
    flashtile_tensor tdout = tout, tdq = tq, tdk = tk, tdv = tv;
    tdout.data = dout, tdq.data = dq, tdk.data = dk, tdv.data = dv;
    flashtile_gradients gradients = FLASHTILE_GRADIENTS_INIT;
    gradients.out = &tout;
    gradients.lse = &tlse;
    gradients.dout = &tdout;
    gradients.dq = &tdq;
    gradients.dk = &tdk;
    gradients.dv = &tdv;

    REQUIRE(flashtile_forward(NULL, &inputs, &outputs) == FLASHTILE_OK); /* NULL: the default options */
    REQUIRE(flashtile_backward(NULL, &inputs, &gradients) == FLASHTILE_OK);
    REQUIRE(fabs(dv[0] - 1) < 1e-6); /* a fourth of each of four queries */
}

static void flashtile_forward_workspace_(void) {
    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    REQUIRE(flashtile_forward_workspace(&options, &inputs, &outputs, &options.workspace_size) == FLASHTILE_OK);
    options.workspace = aligned_alloc(64, (options.workspace_size + 63) / 64 * 64);
    REQUIRE(flashtile_forward(&options, &inputs, &outputs) == FLASHTILE_OK); /* allocates nothing */
    free(options.workspace);
}

static void flashtile_backward_workspace_(void) {
    float dq[size], dk[size], dv[size];
    flashtile_tensor tdq = tq, tdk = tk, tdv = tv;
    tdq.data = dq, tdk.data = dk, tdv.data = dv;
    flashtile_gradients gradients = FLASHTILE_GRADIENTS_INIT;
    gradients.out = gradients.dout = &tout;
    gradients.lse = &tlse;
    gradients.dq = &tdq;
    gradients.dk = &tdk;
    gradients.dv = &tdv;

    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    REQUIRE(flashtile_backward_workspace(&options, &inputs, &gradients, &options.workspace_size) == FLASHTILE_OK);
    options.workspace = aligned_alloc(64, (options.workspace_size + 63) / 64 * 64);
    REQUIRE(flashtile_backward(&options, &inputs, &gradients) == FLASHTILE_OK);
    free(options.workspace);
}

static void flashtile_dropout_mask_(void) {
    unsigned char keep[64 * 64];
    const int64_t shape[] = {1, 1, 64, 64};
    flashtile_tensor tkeep = view(keep, FLASHTILE_BOOL, 4, shape);
    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    options.dropout = 0.25;
    options.seed = 7;
    REQUIRE(flashtile_dropout_mask(&options, &tkeep) == FLASHTILE_OK);
    int kept = 0;
    for (int n = 0; n < 64 * 64; ++n) kept += keep[n];
    REQUIRE(abs(kept - 3 * 1024) < 200); /* three of four */
}

static void flashtile_dropout_mask_of_shards_(void) {
    unsigned char whole[64 * 64], shards[2][16 * 64]; /* of the same sequence: its queries from 16 and from 40 on */
    int64_t first[] = {16, 40};
    const int64_t whole_shape[] = {1, 1, 64, 64}, shape[] = {2, 1, 16, 64}, sequences[] = {2};
    flashtile_tensor twhole = view(whole, FLASHTILE_BOOL, 4, whole_shape);
    flashtile_tensor tshards = view(shards, FLASHTILE_BOOL, 4, shape);
    flashtile_tensor origins_i = view(first, FLASHTILE_INT64, 1, sequences);
    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    options.dropout = 0.5;
    REQUIRE(flashtile_dropout_mask(&options, &twhole) == FLASHTILE_OK);
    REQUIRE(flashtile_dropout_mask_of_shards(&options, &origins_i, NULL, &tshards) == FLASHTILE_OK);
    REQUIRE(memcmp(shards[0], whole + 16 * 64, 16 * 64) == 0);
}

static void flashtile_merge_(void) {
    /* Keys 0 and 1 in one call, 2 and 3 in another, of each sequence: halves[n] and lses[n] hold what they give. */
    float halves[2][size], lses[2][batch * seqlen], whole[size];
    REQUIRE(flashtile_forward(NULL, &inputs, &outputs) == FLASHTILE_OK);
    memcpy(whole, out, sizeof whole);
    for (int n = 0; n < 2; ++n) {
        flashtile_tensor keys = tk, values = tv, partial = tout, partial_lse = tlse;
        keys.shape[1] = values.shape[1] = 2; /* the strides stay: a view of half of them */
        keys.data = k + 2 * n * head_dim, values.data = v + 2 * n * head_dim;
        partial.data = halves[n], partial_lse.data = lses[n];
        flashtile_inputs half = inputs;
        half.k = &keys;
        half.v = &values;
        flashtile_forward_outputs to = FLASHTILE_FORWARD_OUTPUTS_INIT;
        to.out = &partial;
        to.lse = &partial_lse;
        REQUIRE(flashtile_forward(NULL, &half, &to) == FLASHTILE_OK);
    }

    const int64_t outs_shape[] = {2, batch, seqlen, heads, head_dim}, lses_shape[] = {2, batch, heads, seqlen};
    flashtile_tensor touts = view(halves, FLASHTILE_FP32, 5, outs_shape);
    flashtile_tensor tlses = view(lses, FLASHTILE_FP32, 4, lses_shape);
    flashtile_merge_tensors tensors = FLASHTILE_MERGE_TENSORS_INIT;
    tensors.outs = &touts;
    tensors.lses = &tlses;
    tensors.out = &tout;
    tensors.lse = &tlse;
    REQUIRE(flashtile_merge(NULL, &tensors) == FLASHTILE_OK);
    for (int n = 0; n < size; ++n) REQUIRE(fabsf(out[n] - whole[n]) < 1e-5f);
}

static void flashtile_append_kv_(void) {
    /* A cache with room for 16 tokens a sequence, which have 0 and 3 of them; k and v are each one's next four. */
    static float k_cache[batch][16][head_dim], v_cache[batch][16][head_dim];
    int32_t lengths[] = {0, 3};
    const int64_t cache_shape[] = {batch, 16, heads, head_dim}, sequences[] = {batch};
    flashtile_tensor tk_cache = view(k_cache, FLASHTILE_FP32, 4, cache_shape);
    flashtile_tensor tv_cache = view(v_cache, FLASHTILE_FP32, 4, cache_shape);
    flashtile_tensor tlengths = view(lengths, FLASHTILE_INT32, 1, sequences);
    flashtile_append_tensors tensors = FLASHTILE_APPEND_TENSORS_INIT;
    tensors.k = &tk;
    tensors.v = &tv;
    tensors.k_cache = &tk_cache;
    tensors.v_cache = &tv_cache;
    tensors.cache_seqlens = &tlengths;
    REQUIRE(flashtile_append_kv(NULL, &tensors) == FLASHTILE_OK);
    REQUIRE(memcmp(v_cache[1][3], v + seqlen * head_dim, sizeof v_cache[1][3]) == 0);
    lengths[0] += seqlen, lengths[1] += seqlen; /* the caller counts */
}

static void flashtile_from_dlpack_(void) {
    typedef struct { /* DLTensor, as dlpack.h has it */
        void* data;
        struct {
            int32_t device_type, device_id;
        } device;
        int32_t ndim;
        struct {
            uint8_t code, bits;
            uint16_t lanes;
        } dtype;
        int64_t *shape, *strides;
        uint64_t byte_offset;
    } DLTensor;
    int64_t shape[] = {batch, seqlen, heads, head_dim};
    const DLTensor theirs = {q, {1, 0}, 4, {2, 32, 1}, shape, NULL, 0}; /* on the CPU, float of 32 bits, contiguous */
    flashtile_tensor ours;
    REQUIRE(flashtile_from_dlpack(&theirs, &ours) == FLASHTILE_OK);
    REQUIRE(ours.data == q && ours.dtype == FLASHTILE_FP32 && ours.stride[1] == head_dim);
}

static void flashtile_last_error_(void) {
    flashtile_inputs without_q = inputs;
    without_q.q = NULL;
    REQUIRE(flashtile_forward(NULL, &without_q, &outputs) == FLASHTILE_INVALID_ARGUMENT);
    printf("%s\n", flashtile_last_error());
    REQUIRE(strstr(flashtile_last_error(), "q") != NULL); /* it names the argument */
}

static void flashtile_last_run_(void) {
    REQUIRE(flashtile_forward(NULL, &inputs, &outputs) == FLASHTILE_OK);
    printf("%s\n", flashtile_last_run());
    REQUIRE(strncmp(flashtile_last_run(), "cpu ", 4) == 0);
}

static void flashtile_version_(void) {
    REQUIRE(strcmp(flashtile_version(), FLASHTILE_VERSION_STRING) == 0); /* the library's and the header's */
}

static void flashtile_status_name_(void) {
    REQUIRE(strcmp(flashtile_status_name(FLASHTILE_INVALID_ARGUMENT), "invalid argument") == 0);
}

static void flashtile_isa_available_(void) {
    REQUIRE(flashtile_isa_available(FLASHTILE_ISA_PORTABLE) == 1); /* on every CPU */
}

static void flashtile_isa_why_not_(void) {
    if (!flashtile_isa_available(FLASHTILE_ISA_AMX)) printf("no AMX: %s\n", flashtile_isa_why_not(FLASHTILE_ISA_AMX));
    REQUIRE(flashtile_isa_why_not(FLASHTILE_ISA_PORTABLE)[0] == '\0');
}

static void flashtile_isa_name_(void) {
    REQUIRE(strcmp(flashtile_isa_name(FLASHTILE_ISA_AVX2), "avx2") == 0);
}

static void flashtile_isa_chosen_(void) {
    const flashtile_isa chosen = flashtile_isa_chosen(FLASHTILE_BF16);
    printf("bf16 runs on %s\n", flashtile_isa_name(chosen));
    REQUIRE(flashtile_isa_available(chosen));
}

static void flashtile_set_threads_(void) {
    REQUIRE(flashtile_set_threads(1) == FLASHTILE_OK);
    REQUIRE(flashtile_forward(NULL, &inputs, &outputs) == FLASHTILE_OK); /* on one thread */
    REQUIRE(flashtile_set_threads(0) == FLASHTILE_OK);                   /* as it was */
}

static void flashtile_get_threads_(void) {
    REQUIRE(flashtile_set_threads(3) == FLASHTILE_OK && flashtile_get_threads() == 3);
    REQUIRE(flashtile_set_threads(0) == FLASHTILE_OK && flashtile_get_threads() >= 1);
}

static void flashtile_set_executor_(void) {
    static int calls = 0;
    const flashtile_executor executor = {one_after_the_other, &calls, 2}; /* work for two threads */
    REQUIRE(flashtile_set_executor(&executor) == FLASHTILE_OK);
    REQUIRE(flashtile_forward(NULL, &inputs, &outputs) == FLASHTILE_OK && calls > 0);
    REQUIRE(flashtile_set_executor(NULL) == FLASHTILE_OK); /* flashtile's own pool again */
}

static void flashtile_cuda_info_(void) {
    printf("%s\n", flashtile_cuda_info());
    REQUIRE(strstr(flashtile_cuda_info(), "\"driver\": {\"found\": ") != NULL);
}

static void flashtile_plan_report_(void) {
    const char* json = NULL;
    REQUIRE(flashtile_plan_report(NULL, &inputs, NULL, 0, &json) == FLASHTILE_OK);
    REQUIRE(strstr(json, "\"forward\": {\"candidate\": ") != NULL);
}

static void flashtile_use_choice_(void) {
    const char* json = NULL; /* of the plan's alternatives the first: "choice": "..." */
    REQUIRE(flashtile_plan_report(NULL, &inputs, NULL, 0, &json) == FLASHTILE_OK);
    const char* start = strstr(json, "\"choice\": \"") + strlen("\"choice\": \"");
    char choice[1024] = {0};
    memcpy(choice, start, (size_t)(strchr(start, '"') - start));
    REQUIRE(flashtile_use_choice(choice, 0) == FLASHTILE_OK); /* 0: in this process alone */
}

static void flashtile_forget_choices_(void) {
    REQUIRE(flashtile_forget_choices(0) == FLASHTILE_OK); /* 0: those of later processes stay */
}

static void flashtile_compile_bundle_(void) {
    flashtile_bundle_item item = FLASHTILE_BUNDLE_ITEM_INIT; /* needs NVRTC, and no GPU */
    item.architecture = 90;
    item.dtype = FLASHTILE_BF16;
    item.head_dim = 128;
    item.backward = 0;
    item.options = FLASHTILE_WITH_CAUSAL | FLASHTILE_ONLY_MANY_QUERIES;
    REQUIRE(flashtile_compile_bundle("kernels.ftb", &item, 1, NULL, NULL) == FLASHTILE_OK);
}

static void flashtile_load_bundle_(void) {
    REQUIRE(flashtile_load_bundle("kernels.ftb") == FLASHTILE_OK); /* as flashtile_compile_bundle wrote it */
    REQUIRE(strstr(flashtile_cuda_info(), "kernels.ftb") != NULL);
}

static void flashtile_can_run_(void) {
    const char* on = NULL;
    if (flashtile_can_run(NULL, &inputs, 0, &on) == FLASHTILE_OK) printf("forward would run on %s\n", on);
    REQUIRE(on != NULL);
    flashtile_tensor there = tq; /* on a GPU that this machine cannot have */
    there.device_type = FLASHTILE_CUDA;
    there.device_id = 1000;
    flashtile_inputs elsewhere = inputs;
    elsewhere.q = elsewhere.k = elsewhere.v = &there;
    REQUIRE(flashtile_can_run(NULL, &elsewhere, 0, NULL) != FLASHTILE_OK);
    printf("not there: %s\n", flashtile_last_error());
}

static void flashtile_prepare_(void) {
    flashtile_prepare_item item = FLASHTILE_PREPARE_ITEM_INIT; /* forward, with lse, and backward */
    item.inputs = &inputs;
    REQUIRE(flashtile_prepare(&item, 1, NULL, NULL) == FLASHTILE_OK); /* on the CPU there is nothing to wait for */
}

int main(void) {
    fill();
    flashtile_forward_();
    flashtile_backward_();
    flashtile_forward_workspace_();
    flashtile_backward_workspace_();
    flashtile_dropout_mask_();
    flashtile_dropout_mask_of_shards_();
    flashtile_merge_();
    flashtile_append_kv_();
    flashtile_from_dlpack_();
    flashtile_last_error_();
    flashtile_last_run_();
    flashtile_version_();
    flashtile_status_name_();
    flashtile_isa_available_();
    flashtile_isa_why_not_();
    flashtile_isa_name_();
    flashtile_isa_chosen_();
    flashtile_set_threads_();
    flashtile_get_threads_();
    flashtile_set_executor_();
    flashtile_cuda_info_();
    flashtile_plan_report_();
    flashtile_use_choice_();
    flashtile_forget_choices_();
    flashtile_compile_bundle_();
    flashtile_load_bundle_();
    flashtile_can_run_();
    flashtile_prepare_();
    printf("every example came out as it says\n");
    return 0;
}

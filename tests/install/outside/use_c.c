/* The C interface from outside: with q = 0 every score is 0, so a causal row i is the mean of v's rows 0..i and its lse
 * is ln(i + 1). Returns 0 if that is what came out. */
#include <flashtile/flashtile.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { seqlen = 5, head_dim = 3 };

static flashtile_tensor dense(void* data, int32_t rank, const int64_t* shape) {
    flashtile_tensor t;
    memset(&t, 0, sizeof t);
    t.data = data;
    t.dtype = FLASHTILE_FP32;
    t.device_type = FLASHTILE_CPU;
    t.rank = rank;
    int64_t stride = 1;
    for (int32_t n = rank - 1; n >= 0; --n) {
        t.shape[n] = shape[n];
        t.stride[n] = stride;
        stride *= shape[n];
    }
    return t;
}

int main(void) {
    if (strcmp(flashtile_version(), FLASHTILE_VERSION_STRING) != 0) {
        fprintf(stderr, "header %s, library %s\n", FLASHTILE_VERSION_STRING, flashtile_version());
        return 1;
    }
    float q[seqlen * head_dim] = {0}, k[seqlen * head_dim], v[seqlen * head_dim], out[seqlen * head_dim], lse[seqlen];
    for (int n = 0; n < seqlen * head_dim; ++n) {
        k[n] = 0.25f * (float)n;
        v[n] = (float)(n * n % 7);
    }
    const int64_t shape[4] = {1, seqlen, 1, head_dim};
    const int64_t lse_shape[3] = {1, 1, seqlen};
    flashtile_tensor tq = dense(q, 4, shape), tk = dense(k, 4, shape), tv = dense(v, 4, shape);
    flashtile_tensor tout = dense(out, 4, shape), tlse = dense(lse, 3, lse_shape);

    flashtile_options options = FLASHTILE_OPTIONS_INIT;
    options.causal = FLASHTILE_CAUSAL_BOTTOM_RIGHT;
    flashtile_inputs inputs = FLASHTILE_INPUTS_INIT;
    inputs.q = &tq;
    inputs.k = &tk;
    inputs.v = &tv;
    flashtile_forward_outputs outputs = FLASHTILE_FORWARD_OUTPUTS_INIT;
    outputs.out = &tout;
    outputs.lse = &tlse;
    if (flashtile_forward(&options, &inputs, &outputs) != FLASHTILE_OK) {
        fprintf(stderr, "%s\n", flashtile_last_error());
        return 1;
    }
    for (int i = 0; i < seqlen; ++i) {
        double worst = fabs(lse[i] - log(i + 1.0));
        for (int c = 0; c < head_dim; ++c) {
            double mean = 0;
            for (int j = 0; j <= i; ++j) mean += v[j * head_dim + c] / (i + 1.0);
            worst = fmax(worst, fabs(out[i * head_dim + c] - mean));
        }
        if (!(worst < 1e-5)) {
            fprintf(stderr, "row %d is off by %g\n", i, worst);
            return 1;
        }
    }

    inputs.q = NULL;
    if (flashtile_forward(&options, &inputs, &outputs) != FLASHTILE_INVALID_ARGUMENT ||
        flashtile_last_error()[0] == '\0') {
        fprintf(stderr, "a missing q was not refused\n");
        return 1;
    }
    printf("C: flashtile %s, %s\n", flashtile_version(), flashtile_last_run());
    return 0;
}

// An example of every function in flashtile.hpp, each a function by its name. The reference shows them (tools/
// write_reference, which fails where one is missing), and the tests run them: a step that does not come out as the
// example says ends the program.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <flashtile/flashtile.hpp>
#include <stdexcept>
#include <string>
#include <vector>

// --- what all examples use ---

namespace ft = flashtile;

namespace {

#define REQUIRE(what) \
    if (!(what)) throw std::runtime_error("not so: " #what)

// Two sequences of four tokens, one head. q is 0: a query then attends to all keys that it sees alike.
constexpr std::int64_t batch = 2, seqlen = 4, heads = 1, d = 8, size = batch * seqlen * heads * d;

struct Tensors {
    std::vector<float> q = std::vector<float>(size), k = q, v = q, out = q, lse = std::vector<float>(batch * seqlen);
    Tensors() {
        for (int n = 0; n < size; ++n) k[n] = 0.1f * n, v[n] = static_cast<float>(n % 7);
    }
};

ft::tensor rows(std::vector<float>& x) {
    return ft::view(x.data(), ft::fp32, {batch, seqlen, heads, d});
}
ft::tensor lse_rows(std::vector<float>& x) {
    return ft::view(x.data(), ft::fp32, {batch, heads, seqlen});
}

// --- the examples ---

void view_() {
    std::vector<float> x(size);
    const ft::tensor contiguous = ft::view(x.data(), ft::fp32, {batch, seqlen, heads, d});
    // The same memory as (batch, heads, seqlen, d): strides in elements.
    const ft::tensor turned =
        ft::view(x.data(), ft::fp32, {batch, heads, seqlen, d}, {seqlen * heads * d, d, heads * d, 1});
    const ft::tensor on_a_gpu = ft::view(x.data(), ft::bf16, {batch, seqlen, heads, d}, ft::cuda(0));
    REQUIRE(contiguous.raw().stride[1] == turned.raw().stride[2] && on_a_gpu.raw().device_type == FLASHTILE_CUDA);
}

void cuda_() {
    const ft::device second = ft::cuda(1);
    REQUIRE(second.type == FLASHTILE_CUDA && second.id == 1);
}

void named_() {
    Tensors t;
    std::vector<float> slopes = {0.5f};
    const std::array tensors = {ft::named("slope", ft::view(slopes.data(), ft::fp32, {heads}))};
    ft::options o;
    o.score_function = "s - slope[h] * abs(i - j)";
    o.function_tensors = tensors;
    ft::forward(o, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse));
    REQUIRE(std::fabs(std::exp(t.lse[0]) - (1 + std::exp(-0.5) + std::exp(-1.0) + std::exp(-1.5))) < 1e-5);
}

void forward_() {
    Tensors t;
    ft::forward({.causal = true}, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse));
    REQUIRE(std::equal(t.v.begin(), t.v.begin() + d, t.out.begin()));  // the first query sees the first key alone
    REQUIRE(std::fabs(t.lse[3] - std::log(4)) < 1e-6);                 // the last one sees four scores of 0
}

void append_forward_() {
    // A cache with room for 16 tokens a sequence, which have 0 and 3 of them; k and v are each one's next four.
    Tensors t;
    std::vector<float> k_cache(batch * 16 * heads * d), v_cache = k_cache;
    const std::vector<std::int32_t> lengths = {0, 3};
    ft::options o{.causal = true};
    o.seqused_k = ft::view(lengths.data(), ft::dtype::int32, {batch});  // before the call
    ft::append_forward(o, {.k = rows(t.k), .v = rows(t.v)}, rows(t.q),
                       ft::view(k_cache.data(), ft::fp32, {batch, 16, heads, d}),
                       ft::view(v_cache.data(), ft::fp32, {batch, 16, heads, d}), rows(t.out));
    REQUIRE(std::equal(t.v.begin(), t.v.begin() + d, t.out.begin()));  // of an empty cache, the first new token alone
}

void backward_() {
    Tensors t;
    std::vector<float> dout(size, 1.0f), dq(size), dk(size), dv(size);
    ft::forward({}, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse));
    ft::backward({}, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse), rows(dout), rows(dq), rows(dk),
                 rows(dv));
    REQUIRE(std::fabs(dv[0] - 1) < 1e-6);  // a fourth of each of four queries
}

void forward_workspace_() {
    Tensors t;
    ft::options o;
    o.workspace_size = ft::forward_workspace(o, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse));
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::vector<Line> memory(o.workspace_size / sizeof(Line) + 1);
    o.workspace = memory.data();
    ft::forward(o, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse));  // allocates nothing
    REQUIRE(std::fabs(t.lse[0] - std::log(4)) < 1e-6);
}

void backward_workspace_() {
    Tensors t;
    std::vector<float> dout(size, 1.0f), dq(size), dk(size), dv(size);
    const ft::backward_args args{
        .out = rows(t.out), .lse = lse_rows(t.lse), .dout = rows(dout), .dq = rows(dq), .dk = rows(dk), .dv = rows(dv)};
    ft::forward({}, rows(t.q), rows(t.k), rows(t.v), rows(t.out), lse_rows(t.lse));
    ft::options o;
    o.workspace_size = ft::backward_workspace(o, rows(t.q), rows(t.k), rows(t.v), args);
    struct alignas(64) Line {
        std::byte bytes[64];
    };
    std::vector<Line> memory(o.workspace_size / sizeof(Line) + 1);
    o.workspace = memory.data();
    ft::backward(o, rows(t.q), rows(t.k), rows(t.v), args);  // allocates nothing
    REQUIRE(std::fabs(dv[0] - 1) < 1e-6);
}

void dropout_mask_() {
    std::vector<unsigned char> keep(64 * 64);
    ft::dropout_mask({.dropout = 0.25, .seed = 7}, ft::view(keep.data(), ft::boolean, {1, 1, 64, 64}));
    const auto kept = std::count(keep.begin(), keep.end(), 1);
    REQUIRE(kept > 2872 && kept < 3272);  // three of four
}

void merge_() {
    // Keys 0 and 1 in one call, 2 and 3 in another, of each sequence.
    Tensors t;
    std::vector<float> outs(2 * size), lses(2 * batch * seqlen);
    for (int n = 0; n < 2; ++n) {
        const auto half = [&](std::vector<float>& x) {  // the strides stay those of the whole
            return ft::view(x.data() + 2 * n * d, ft::fp32, {batch, 2, heads, d}, {seqlen * d, d, d, 1});
        };
        ft::forward({}, rows(t.q), half(t.k), half(t.v),
                    ft::view(outs.data() + n * size, ft::fp32, {batch, seqlen, heads, d}),
                    ft::view(lses.data() + n * batch * seqlen, ft::fp32, {batch, heads, seqlen}));
    }
    ft::merge({}, ft::view(outs.data(), ft::fp32, {2, batch, seqlen, heads, d}),
              ft::view(lses.data(), ft::fp32, {2, batch, heads, seqlen}), rows(t.out), lse_rows(t.lse));
    REQUIRE(std::fabs(t.out[0] - (t.v[0] + t.v[d] + t.v[2 * d] + t.v[3 * d]) / 4) < 1e-6);  // the mean of all
}

void append_kv_() {
    // Pages of 4 rows: of two sequences, which have 0 and 3 tokens, the first has pages 5 and 0, the second 2 and 1.
    Tensors t;
    std::vector<float> k_cache(6 * 4 * heads * d), v_cache = k_cache;
    const std::vector<std::int32_t> lengths = {0, 3}, table = {5, 0, 2, 1};
    ft::append_kv({}, {.k = rows(t.k),
                       .v = rows(t.v),
                       .k_cache = ft::view(k_cache.data(), ft::fp32, {6, 4, heads, d}),
                       .v_cache = ft::view(v_cache.data(), ft::fp32, {6, 4, heads, d}),
                       .block_table = ft::view(table.data(), ft::dtype::int32, {batch, 2}),
                       .cache_seqlens = ft::view(lengths.data(), ft::dtype::int32, {batch})});
    REQUIRE(std::equal(t.v.begin(), t.v.begin() + d, v_cache.begin() + 5 * 4 * d));  // row 0 of page 5
}

void version_() {
    REQUIRE(std::string(ft::version()) == FLASHTILE_VERSION_STRING);  // the library's and the header's
}

void last_run_() {
    Tensors t;
    ft::forward({}, rows(t.q), rows(t.k), rows(t.v), rows(t.out));
    std::printf("%s\n", ft::last_run());
    REQUIRE(std::string(ft::last_run()).starts_with("cpu "));
}

void isa_available_() {
    REQUIRE(ft::isa_available(ft::isa::portable));  // on every CPU
}

void isa_why_not_() {
    if (!ft::isa_available(ft::isa::amx)) std::printf("no AMX: %s\n", ft::isa_why_not(ft::isa::amx));
    REQUIRE(std::string(ft::isa_why_not(ft::isa::portable)).empty());
}

void isa_name_() {
    REQUIRE(std::string(ft::isa_name(ft::isa::avx2)) == "avx2");
}

void set_threads_() {
    Tensors t;
    ft::set_threads(1);
    ft::forward({}, rows(t.q), rows(t.k), rows(t.v), rows(t.out));
    REQUIRE(std::string(ft::last_run()).find(", 1 thread") != std::string::npos);
    ft::set_threads(0);  // as it was
}

void get_threads_() {
    ft::set_threads(3);
    REQUIRE(ft::get_threads() == 3);
    ft::set_threads(0);
}

void can_run_forward_() {
    Tensors t;
    const ft::runnable answer = ft::can_run_forward({}, rows(t.q), rows(t.k), rows(t.v));
    REQUIRE(answer && answer.on.starts_with("cpu "));
    const ft::tensor there = ft::view(t.q.data(), ft::bf16, {batch, seqlen, heads, d}, ft::cuda(1000));
    REQUIRE(!ft::can_run_forward({}, there, there, there));  // a GPU that this machine cannot have
}

void can_run_backward_() {
    Tensors t;
    const ft::runnable answer = ft::can_run_backward({.causal = true}, rows(t.q), rows(t.k), rows(t.v));
    std::printf("%s\n", answer ? answer.on.c_str() : answer.why_not.c_str());
    REQUIRE(answer);
}

void cuda_info_() {
    std::printf("%s\n", ft::cuda_info().c_str());
    REQUIRE(ft::cuda_info().find("\"driver\": {\"found\": ") != std::string::npos);
}

void plan_report_() {
    // No memory is read, so that any address will do; the GPU need not be here.
    void* const address = reinterpret_cast<void*>(1 << 20);
    const ft::tensor x = ft::view(address, ft::bf16, {1, 4096, 16, 128}, ft::cuda());
    const std::string json = ft::plan_report({.causal = true}, x, x, x, "H200");
    REQUIRE(json.find("\"forward\": {\"candidate\": \"forward_sm90\"") != std::string::npos);
}

void use_choice_() {
    Tensors t;
    const std::string json = ft::plan_report({}, rows(t.q), rows(t.k), rows(t.v)), mark = "\"choice\": \"";
    const std::size_t start = json.find(mark) + mark.size();                   // of the plan's alternatives the first
    ft::use_choice(json.substr(start, json.find('"', start) - start), false);  // in this process alone
}

void forget_choices_() {
    ft::forget_choices(false);  // those of later processes stay
}

void compile_bundle_() {
    flashtile_bundle_item item = FLASHTILE_BUNDLE_ITEM_INIT;  // needs NVRTC, and no GPU
    item.architecture = 90;
    item.dtype = FLASHTILE_BF16;
    item.head_dim = 128;
    item.backward = 0;
    item.options = FLASHTILE_WITH_CAUSAL | FLASHTILE_ONLY_MANY_QUERIES;
    std::size_t compiled = 0;
    ft::compile_bundle("kernels.ftb", {&item, 1}, [&](std::size_t done, std::size_t) { compiled = done; });
    REQUIRE(compiled > 0);
}

void load_bundle_() {
    ft::load_bundle("kernels.ftb");  // as compile_bundle wrote it
    REQUIRE(ft::cuda_info().find("kernels.ftb") != std::string::npos);
}

void prepare_() {
    Tensors t;
    ft::prepare({.causal = true}, rows(t.q), rows(t.k), rows(t.v));  // on the CPU there is nothing to wait for
}

}  // namespace

int main() try {
    for (const auto example : {view_,
                               cuda_,
                               named_,
                               forward_,
                               append_forward_,
                               backward_,
                               forward_workspace_,
                               backward_workspace_,
                               dropout_mask_,
                               merge_,
                               append_kv_,
                               version_,
                               last_run_,
                               isa_available_,
                               isa_why_not_,
                               isa_name_,
                               set_threads_,
                               get_threads_,
                               can_run_forward_,
                               can_run_backward_,
                               cuda_info_,
                               plan_report_,
                               use_choice_,
                               forget_choices_,
                               compile_bundle_,
                               load_bundle_,
                               prepare_})
        example();
    std::puts("every example came out as it says");
    return 0;
} catch (const std::exception& wrong) {
    std::fprintf(stderr, "%s\n", wrong.what());
    return 1;
}

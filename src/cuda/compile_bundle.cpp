// compile_bundle.cpp: see compile_bundle.h.
#include "cuda/compile_bundle.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/in_parallel.h"
#include "cuda/driver.h"
#include "cuda/jit/bundle.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/config_fields.h"
#include "cuda/jit/images.h"
#include "cuda/jit/render.h"
#include "cuda/plan/append_kv.h"
#include "cuda/plan/merge.h"
#include "cuda/plan/plan.h"

namespace flashtile::gpu {
namespace {

struct Job {
    KernelConfig config;
    int architecture;

    bool operator==(const Job&) const = default;
};

[[noreturn]] void refuse(const std::string& message) {
    throw Error(FLASHTILE_INVALID_ARGUMENT, message);
}

// The GPUs of an architecture, whose plans may differ in what they hold on chip.
std::vector<DeviceFacts> devices_of(int architecture) {
    std::vector<DeviceFacts> list;
    std::string allowed;
    for (const DeviceFacts& device : known_devices()) {
        if (device.architecture == architecture) list.push_back(device);
        const std::string number = std::to_string(device.architecture);
        if (allowed.find(number) == std::string::npos) allowed += (allowed.empty() ? "" : ", ") + number;
    }
    if (list.empty()) refuse("architecture is " + std::to_string(architecture) + ", allowed is one of " + allowed);
    return list;
}

void check(const flashtile_bundle_item& item) {
    if (item.dtype != FLASHTILE_FP32 && item.dtype != FLASHTILE_FP16 && item.dtype != FLASHTILE_BF16)
        refuse("dtype is " + std::to_string(item.dtype) + ", allowed is FP32, FP16 or BF16");
    if (item.head_dim < 1 || item.head_dim > FLASHTILE_MAX_HEAD_DIM)
        refuse("head_dim is " + std::to_string(item.head_dim) + ", allowed is 1 to " +
               std::to_string(FLASHTILE_MAX_HEAD_DIM));
    if (item.head_dim_v < 0 || item.head_dim_v > FLASHTILE_MAX_HEAD_DIM_V)
        refuse("head_dim_v is " + std::to_string(item.head_dim_v) + ", allowed is 0 (as head_dim) to " +
               std::to_string(FLASHTILE_MAX_HEAD_DIM_V));
    if (item.group < 0) refuse("group is " + std::to_string(item.group) + ", allowed is 0 (as 1) and more");
    const bool bias = (item.options & (FLASHTILE_WITH_BIAS | FLASHTILE_WITH_BIAS_FP32)) != 0;
    if (!bias && (item.options & FLASHTILE_WITH_BIAS_GRADIENT) != 0)
        refuse("options hold BIAS_GRADIENT, allowed is that with BIAS or BIAS_FP32");
    constexpr std::uint32_t kFewAndMany = FLASHTILE_ONLY_FEW_QUERIES | FLASHTILE_ONLY_MANY_QUERIES;
    if ((item.options & kFewAndMany) == kFewAndMany)
        refuse("options hold ONLY_FEW_QUERIES and ONLY_MANY_QUERIES, allowed is one of them or none, for both");
    if (item.backward != 0 && (item.options & FLASHTILE_ONLY_WITHOUT_LSE) != 0)
        refuse("options hold ONLY_WITHOUT_LSE, allowed is that without backward, which reads lse");
}

// What an option of an item asks for, and the field of KernelConfig that follows from it.
struct BundleOption {
    flashtile_bundle_option bit;
    std::string_view field;  // empty: none of its own
    void (*ask)(Problem&, Access&);
};

constexpr std::int64_t kLength = 1024, kPageSize = 16;

constexpr BundleOption kOptions[] = {
    {FLASHTILE_WITH_CAUSAL, "band", [](Problem& p, Access&) { p.window_right = 0; }},
    {FLASHTILE_WITH_WINDOW, "window", [](Problem& p, Access&) { p.window_left = kLength; }},
    {FLASHTILE_WITH_PACKED, "packed", [](Problem& p, Access&) { p.packed = true; }},
    {FLASHTILE_WITH_SEQUSED, "seqused", [](Problem&, Access& access) { access.seqused = true; }},
    {FLASHTILE_WITH_SOFTCAP, "softcap", [](Problem& p, Access&) { p.softcap = 1.0f; }},
    {FLASHTILE_WITH_ALIBI, "alibi", [](Problem& p, Access&) { p.alibi = true; }},
    {FLASHTILE_WITH_BIAS, "bias", [](Problem& p, Access&) { p.bias = p.dtype; }},
    {FLASHTILE_WITH_BIAS_FP32, "bias", [](Problem& p, Access&) { p.bias = DType::fp32; }},
    {FLASHTILE_WITH_BIAS_GRADIENT, "", [](Problem&, Access& access) { access.dbias = true; }},
    {FLASHTILE_WITH_MASK, "mask", [](Problem& p, Access&) { p.mask = true; }},
    {FLASHTILE_WITH_DROPOUT, "dropout", [](Problem& p, Access&) { p.dropout_threshold = 1; }},
    {FLASHTILE_WITH_DETERMINISTIC, "deterministic", [](Problem& p, Access&) { p.deterministic = true; }},
    {FLASHTILE_WITH_BATCH_INVARIANT, "", [](Problem& p, Access&) { p.batch_invariant = p.exact_max = true; }},
    {FLASHTILE_WITH_EXACT_MAX, "exact_max", [](Problem& p, Access&) { p.exact_max = true; }},
    {FLASHTILE_WITH_CACHE, "cache", [](Problem& p, Access&) { p.cache = true; }},
    {FLASHTILE_WITH_PAGES, "paged", [](Problem& p, Access&) { p.cache = true, p.page_size = kPageSize; }},
    {FLASHTILE_WITH_SEQUSED_Q, "seqused_q", [](Problem& p, Access&) { p.used_q = true; }},
    {FLASHTILE_WITH_FIRST_K, "first_k", [](Problem& p, Access&) { p.first_k = true; }},
    {FLASHTILE_WITH_ATTENTION_CHUNK, "chunk", [](Problem& p, Access&) { p.attention_chunk = kLength; }},
    {FLASHTILE_WITH_DIAGONALS, "diagonals", [](Problem& p, Access&) { p.diagonals = true; }},
    {FLASHTILE_WITH_TREE_MASK, "tree_mask", [](Problem& p, Access&) { p.tree_mask = true; }},
    {FLASHTILE_WITH_SINKS, "sinks", [](Problem& p, Access& access) { p.sinks = DType::fp32, access.dsinks = true; }},
};

// No bundle holds the user's functions, which are known when they are called.
constexpr std::string_view kNotInBundles[] = {"functions",   "score_function", "mask_function",
                                              "block_lists", "lists_alone",    "near_positions"};

consteval bool has_every_option() {
    bool every = true;
    visit_members([&](std::string_view name, auto, FieldGroup group) {
        bool found = group != FieldGroup::option || std::ranges::find(kNotInBundles, name) != std::end(kNotInBundles);
        for (const BundleOption& option : kOptions) found = found || option.field == name;
        every = every && found;
    });
    return every;
}
static_assert(has_every_option(), "kOptions lacks an option of KernelConfig: no bundle could hold its kernels");

// Without any of the options.
Problem plain_problem(const flashtile_bundle_item& item) {
    Problem p;
    p.dtype = static_cast<DType>(item.dtype);
    p.batch = p.kv_heads = 1;
    p.heads = std::max(item.group, 1);
    p.seqlen_q = p.seqlen_k = p.total_q = p.total_k = kLength;
    p.head_dim = item.head_dim;
    p.head_dim_v = item.head_dim_v != 0 ? item.head_dim_v : item.head_dim;
    p.scale = 1.0f;
    return p;
}

Queries queries_of(const flashtile_bundle_item& item) {
    if ((item.options & FLASHTILE_ONLY_FEW_QUERIES) != 0) return Queries::few;
    return (item.options & FLASHTILE_ONLY_MANY_QUERIES) != 0 ? Queries::many : Queries::any;
}

void add_jobs(const flashtile_bundle_item& item, std::vector<Job>& jobs) {
    check(item);
    Problem problem = plain_problem(item);
    Access access = contiguous_access(problem);
    for (const BundleOption& option : kOptions)
        if ((item.options & option.bit) != 0) option.ask(problem, access);
    const Passes passes = item.backward != 0 ? Passes::forward_and_backward : Passes::forward;
    const auto add = [&](const std::vector<KernelConfig>& configs) {
        for (const KernelConfig& config : configs) {
            const Job job{config, item.architecture};
            if (std::ranges::find(jobs, job) == jobs.end()) jobs.push_back(job);
        }
    };
    for (const DeviceFacts& device : devices_of(item.architecture)) {
        for (const bool lse : {false, true}) {
            if (lse && (item.options & FLASHTILE_ONLY_WITHOUT_LSE) != 0) continue;
            access.lse = lse;
            add(configs_for(problem, access, device, passes, queries_of(item)));
        }
        add(merge_configs_for(problem, device));
        add(append_configs_for(problem, device));
    }
}

// What the image of a job is compiled for. NVRTC 13 makes the same instructions for sm_89 as for sm_86 (of the wheel's
// kernels all but the one that prepares backward, where two stand in another order), and the driver loads the one's
// images on the other: where a bundle serves both, they share an image.
int compiled_for(const Job& job, const std::vector<Job>& jobs) {
    const bool also_86 = job.architecture == 89 && std::ranges::find(jobs, Job{job.config, 86}) != jobs.end();
    return also_86 ? 86 : job.architecture;
}

void require_known(int architecture) {
    const std::vector<int>& known = nvrtc().architectures();
    if (std::ranges::find(known, architecture) != known.end()) return;
    throw Error(FLASHTILE_UNSUPPORTED, "NVRTC " + version_text(nvrtc().version()) + " (" + nvrtc().path() +
                                           ") makes no machine code for " + target_name(architecture) +
                                           "; a newer one does");
}

}  // namespace

void compile_bundle(const std::string& path, std::span<const flashtile_bundle_item> items,
                    const std::function<void(std::size_t, std::size_t)>& progress) {
    if (items.empty()) refuse("count is 0, allowed is at least one item");
    std::vector<Job> jobs;
    for (const flashtile_bundle_item& item : items) add_jobs(item, jobs);
    for (const Job& job : jobs) require_known(job.architecture);
    // Minutes of work should not end at a folder that cannot be written.
    const std::string folder = std::filesystem::absolute(path).parent_path();
    if (::access(folder.c_str(), W_OK) != 0)
        refuse("path is " + path + ", whose folder cannot be written: " + std::strerror(errno));

    std::vector<BundledKernel> kernels(jobs.size());
    in_parallel(
        jobs.size(),
        [&](std::size_t n) {
            const auto& [config, architecture] = jobs[n];
            kernels[n] = {key_of(program_for(config, architecture)), target_name(architecture), to_string(config),
                          image_for_bundle(config, compiled_for(jobs[n], jobs))};
        },
        progress);
    write_bundle(path, kernels);
}

}  // namespace flashtile::gpu

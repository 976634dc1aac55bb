// plan_test.cpp: plans for every known GPU: that there is one or a reason, that it fits the GPU, grids, workspaces,
// what falls back from Hopper's kernels, and what batch_invariant fixes. Limits are those of the CUDA programming
// guide's table of compute capabilities.
#include "cuda/plan/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "core/error.h"
#include "cuda/kernel_names.h"
#include "cuda/plan/describe.h"
#include "functions/functions.h"

namespace flashtile::gpu {
namespace {

constexpr int kReserve = 1024;  // of a multiprocessor's shared memory, for each of its blocks

// Shared memory of a multiprocessor in KiB, by compute capability; a block may have all but one of them.
int shared_kib(int architecture) {
    switch (architecture) {
        case 80:
            return 164;
        case 90:
        case 100:
            return 228;
        case 86:
        case 89:
        case 120:
            return 100;
        default:
            throw std::invalid_argument("a compute capability that the test does not know");
    }
}

Problem problem(DType dtype, int d, int dv) {
    Problem p;
    p.dtype = dtype;
    p.batch = 2;
    p.heads = 12;
    p.kv_heads = 4;
    p.seqlen_q = 1000;
    p.seqlen_k = 777;
    p.head_dim = d;
    p.head_dim_v = dv;
    p.scale = 0.125f;
    return p;
}

struct Change {
    const char* name;
    std::function<void(Problem&, Access&)> make;
};

const std::vector<Change>& options() {
    static const std::vector<Change> list = {
        {"none", [](Problem&, Access&) {}},
        {"causal", [](Problem& p, Access&) { p.window_right = 0; }},
        {"packed",
         [](Problem& p, Access&) {
             p.packed = true, p.total_q = p.batch * p.seqlen_q, p.total_k = p.batch * p.seqlen_k;
         }},
        {"seqused", [](Problem&, Access& a) { a.seqused = true; }},
        {"softcap", [](Problem& p, Access&) { p.softcap = 20.0f; }},
        {"bias", [](Problem& p, Access& a) { p.bias = p.dtype, a.dbias = true; }},
        {"dropout", [](Problem& p, Access&) { p.dropout_threshold = 9000; }},
    };
    return list;
}

// What is said of a candidate that does not run the problem.
PassedOver passed_over(const Plan& plan, std::string_view name) {
    for (const PassedOver& candidate : plan.passed_over)
        if (candidate.name == name) return candidate;
    ADD_FAILURE() << name << " is not passed over";
    return {};
}

// Where a plan is refused, the reason has to say of which GPU and which dimensions it speaks.
std::optional<Plan> planned(Plan make(const Problem&, const Access&, const DeviceFacts&, TunedTiles), const Problem& p,
                            const Access& access, const DeviceFacts& device) {
    try {
        return make(p, access, device, {});
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), FLASHTILE_UNSUPPORTED);
        const std::string text = error.what();
        EXPECT_NE(text.find("head_dim is " + std::to_string(p.head_dim)), std::string::npos) << text;
        return std::nullopt;
    }
}

void expect_fits(const Launch& kernel, const DeviceFacts& device, std::int64_t size) {
    const KernelConfig& c = kernel.config;
    const int whole = shared_kib(device.architecture) * 1024;
    ASSERT_LE(kernel.shared_memory, whole - kReserve) << describe(kernel);
    ASSERT_LE(c.blocks_per_sm * (kernel.shared_memory + kReserve), whole) << describe(kernel);
    ASSERT_GE(kernel.shared_memory, c.Bc * (c.head_dim + c.head_dim_v) * size)
        << "K and V of a block; " << describe(kernel);
    ASSERT_EQ(c.Br % 16, 0);
    ASSERT_EQ(c.Bc % 16, 0);
    ASSERT_GE(c.warps, 1);
    ASSERT_LE(c.warps, 32);
    ASSERT_NE(std::string(kernel.why), "");
}

template <class Check>
void for_head_dims(int most, Check check) {
    for (const DeviceFacts& device : known_devices())
        for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
            for (const Change& option : options()) {
                SCOPED_TRACE(device.name + " " + name(dtype) + " " + option.name);
                for (int d = 1; d <= most; ++d)
                    for (const int dv : {d, 1, 64, most, most + 1 - d}) {
                        Problem p = problem(dtype, d, dv);
                        Access access = contiguous_access(p);
                        option.make(p, access);
                        check(p, access, device);
                        if (testing::Test::HasFatalFailure()) return;
                    }
            }
}

TEST(Plan, ForwardFitsEveryGpuUpTo512) {
    for_head_dims(512, [](const Problem& p, const Access& access, const DeviceFacts& device) {
        const auto plan = planned(plan_forward, p, access, device);
        if (!plan) {
            ASSERT_GT(std::max(p.head_dim, p.head_dim_v), 256) << to_string(p);
            return;
        }
        const KernelConfig& c = plan->main().config;
        expect_fits(plan->main(), device, size_of(p.dtype));
        ASSERT_EQ(c.head_dim, p.head_dim);
        ASSERT_GE(c.value_slices * c.head_dim_v, p.head_dim_v);
        // O lies in registers, of which a lane has 255, in fp32
        const int owners = c.kernel == Kernel::forward_sm90 ? c.Br / 16 : c.warps;  // others produce or draw
        ASSERT_LT(c.Br * c.head_dim_v / (owners * 32), 255);
        const std::int64_t tiles = (p.seqlen_q + c.Br - 1) / c.Br * p.heads * p.batch * c.value_slices;
        if (c.kernel == Kernel::forward_sm90 && p.packed)  // a sequence may leave a part of a tile over
            ASSERT_EQ(plan->main().blocks, std::min<std::int64_t>(p.heads * p.units(c.Br), 132 * c.blocks_per_sm));
        else if (c.kernel == Kernel::forward_sm90)  // may be persistent
            ASSERT_TRUE(plan->main().blocks == tiles ||
                        plan->main().blocks == std::min<std::int64_t>(tiles, 132 * c.blocks_per_sm));
        else
            ASSERT_EQ(plan->main().blocks, tiles);
    });
}

TEST(Plan, BackwardFitsEveryGpuUpTo256) {
    for_head_dims(256, [](const Problem& p, const Access& access, const DeviceFacts& device) {
        const auto plan = planned(plan_backward, p, access, device);
        if (!plan) {
            ASSERT_TRUE(p.dtype == DType::fp32 && std::max(p.head_dim, p.head_dim_v) > 128) << to_string(p);
            return;
        }
        const KernelConfig& c = plan->main().config;
        expect_fits(plan->main(), device, size_of(p.dtype));
        const int at_once = c.kernel == Kernel::backward_pair_sm90 ? 2 : 1;  // blocks of keys
        ASSERT_EQ(plan->main().blocks,
                  (p.seqlen_k + at_once * c.Bc - 1) / (at_once * c.Bc) * at_once * p.kv_heads * p.batch * c.head_parts);
        for (const Kernel kernel : {Kernel::backward_prepare, Kernel::backward_finish}) {
            const Launch* around = plan->find(kernel);
            ASSERT_NE(around, nullptr);
            ASSERT_EQ(around->config.Br, c.Br);
            ASSERT_EQ(around->blocks, (p.seqlen_q + c.Br - 1) / c.Br * p.heads * p.batch);
            ASSERT_LE(around->shared_memory, (shared_kib(device.architecture) - 1) * 1024);
        }
        if (!access.dbias) {
            ASSERT_EQ(plan->launches.size(), 3u);
            return;
        }
        const Launch* bias = plan->find(Kernel::backward_bias_sm80);
        ASSERT_NE(bias, nullptr);
        expect_fits(*bias, device, size_of(p.dtype));
        ASSERT_EQ(c.Br % bias->config.Br, 0) << "a tile of dbias reads rows of one unit";
    });
}

TEST(Plan, BackwardOver256IsRefusedByName) {
    for (const DeviceFacts& device : known_devices())
        for (const auto& [d, dv] : {std::pair(257, 64), std::pair(64, 257)}) {
            const Problem p = problem(DType::bf16, d, dv);
            EXPECT_FALSE(planned(plan_backward, p, contiguous_access(p), device));
        }
}

// A block may have every byte that the GPU lets it opt in to, and not one more.
TEST(Plan, UsesSharedMemoryToTheLastByte) {
    const Problem p = problem(DType::bf16, 128, 128);
    DeviceFacts device = known_device("A100-80");
    const Launch first = plan_forward(p, contiguous_access(p), device).main();
    device.shared_memory_per_block = first.shared_memory;
    EXPECT_EQ(plan_forward(p, contiguous_access(p), device).main().config, first.config);
    device.shared_memory_per_block = first.shared_memory - 1;
    EXPECT_LT(plan_forward(p, contiguous_access(p), device).main().shared_memory, first.shared_memory);
}

TEST(Plan, DbiasHasATileForEachOfItsOwnBlocks) {
    Problem p = problem(DType::bf16, 64, 64);
    p.bias = DType::bf16;
    Access access = contiguous_access(p);
    access.dbias = true;
    access.bias_batch = 2, access.bias_heads = 12, access.bias_rows = 1000, access.bias_cols = 777;
    const DeviceFacts& device = known_device("A100-80");
    const Launch full = *plan_backward(p, access, device).find(Kernel::backward_bias_sm80);
    const auto tiles = [](std::int64_t count, int tile) { return (count + tile - 1) / tile; };
    EXPECT_EQ(full.blocks, 2 * 12 * tiles(1000, full.config.Br) * tiles(777, full.config.Bc));
    access.bias_batch = access.bias_rows = 1;
    EXPECT_EQ(plan_backward(p, access, device).find(Kernel::backward_bias_sm80)->blocks,
              12 * tiles(777, full.config.Bc));
}

TEST(Plan, WorkspaceHoldsItsPartsAndGrowsWithTheProblem) {
    const DeviceFacts& device = known_device("H200");
    for (const bool packed : {false, true})
        for (const int d : {1, 64, 100, 256}) {
            std::size_t before = 0;
            for (const std::int64_t seqlen : {0, 1, 63, 64, 1000, 100000})
                for (const std::int64_t heads : {1, 3}) {
                    Problem p = problem(DType::bf16, d, d);
                    p.packed = packed;
                    p.heads = p.kv_heads = heads;
                    p.seqlen_q = seqlen;
                    p.total_q = p.batch * seqlen;
                    const Plan plan = plan_backward(p, contiguous_access(p), device);
                    const auto rows = static_cast<std::size_t>(p.batch * heads * seqlen);
                    const std::size_t least[] = {rows * 4, rows * 4, rows * 4, rows * 4 * static_cast<std::size_t>(d),
                                                 static_cast<std::size_t>(heads * plan.units) * 4};
                    constexpr Region kNames[] = {Region::lse, Region::lse_natural, Region::D, Region::dq, Region::turn};
                    ASSERT_EQ(plan.workspace.regions.size(), std::size(kNames));
                    std::size_t end = 0;
                    for (std::size_t n = 0; n < std::size(kNames); ++n) {
                        const PlannedRegion& region = plan.workspace.regions[n];
                        EXPECT_EQ(region.name, kNames[n]);
                        EXPECT_EQ(region.offset % 256, 0u);
                        EXPECT_GE(region.offset, end) << "part " << n << " of " << to_string(p);
                        EXPECT_GE(region.bytes, least[n]) << "part " << n << " of " << to_string(p);
                        end = region.offset + region.bytes;
                    }
                    EXPECT_GE(plan.workspace.bytes, end);
                    // one fp32 dQ and a few words a row: d may be padded to 64, and each sequence to a unit
                    const std::size_t padded_rows = rows + static_cast<std::size_t>(p.batch * heads) * 128;
                    EXPECT_LE(plan.workspace.bytes,
                              padded_rows * 4 * static_cast<std::size_t>((d + 63) / 64 * 64 + 4) + 5 * 256);
                    if (heads != 1) continue;
                    EXPECT_GE(plan.workspace.bytes, before);
                    before = plan.workspace.bytes;
                }
        }
}

// Hopper's forward deals tiles out by a counter where lengths lie in device memory, and clears it first.
TEST(Plan, ForwardsWorkspaceIsACounterWhereLengthsDiffer) {
    const DeviceFacts& device = known_device("H200");
    Problem p = problem(DType::bf16, 128, 128);
    Access access = contiguous_access(p);
    EXPECT_EQ(plan_forward(p, access, device).workspace.bytes, 0u);
    access.seqused = true;
    const PlannedWorkspace workspace = plan_forward(p, access, device).workspace;
    ASSERT_EQ(workspace.regions.size(), 1u);
    EXPECT_EQ(workspace.regions[0].name, Region::ticket);
    EXPECT_TRUE(workspace.regions[0].cleared);
    EXPECT_EQ(workspace.bytes, 4u);
    p.seqlen_q = 0;
    EXPECT_EQ(plan_forward(p, access, device).workspace.bytes, 0u) << "nothing runs that would count";
}

TEST(Plan, LaunchesNameTheOperandsThatTmaReads) {
    using enum MappedOperand;
    const auto maps_of = [](const Launch& launch) {
        std::vector<MappedOperand> names;
        for (const PlannedMap& map : launch.maps) names.push_back(map.operand);
        return names;
    };
    using Names = std::vector<MappedOperand>;
    Problem p = problem(DType::bf16, 128, 128);
    Access access = contiguous_access(p);
    const DeviceFacts &hopper = known_device("H200"), &ampere = known_device("A100-80");
    EXPECT_EQ(maps_of(plan_forward(p, access, hopper).main()), (Names{q, k, v, out}));
    EXPECT_EQ(maps_of(plan_forward(p, access, ampere).main()), Names());
    const Plan backward = plan_backward(p, access, hopper);
    ASSERT_EQ(backward.launches.size(), 3u);
    EXPECT_EQ(maps_of(backward.launches[0]), Names());
    EXPECT_EQ(maps_of(backward.launches[1]), (Names{q, k, v, dout}));
    EXPECT_EQ(maps_of(backward.launches[2]), Names());
    p.bias = p.dtype;
    EXPECT_EQ(maps_of(plan_forward(p, access, hopper).main()).back(), bias);
    access.bias_map = false;
    EXPECT_EQ(maps_of(plan_forward(p, access, hopper).main()), (Names{q, k, v, out}));
}

// As a GPU of that architecture would be whose shared memory holds none of the special kernel's tiles.
TEST(Plan, ACandidateWithoutATileThatFitsIsPassedOver) {
    const Problem p = problem(DType::bf16, 128, 128);
    DeviceFacts small = known_device("H200");
    small.shared_memory_per_block = 99 * 1024;
    const Plan plan = plan_forward(p, contiguous_access(p), small);
    EXPECT_STREQ(plan.name, "forward_sm80");
    const PassedOver hoppers = passed_over(plan, "forward_sm90");
    EXPECT_EQ(hoppers.reason, "none of its tiles fits the GPU's shared memory");
    EXPECT_TRUE(hoppers.asked);
}

TEST(Plan, ConfigsOfTheForwardPassAloneHaveNoBackwardKernel) {
    Problem p = problem(DType::bf16, 128, 128);
    for (const char* name : {"A100-80", "H200"}) {
        const std::vector<KernelConfig> forward =
            configs_for(p, contiguous_access(p), known_device(name), Passes::forward);
        const std::vector<KernelConfig> both = configs_for(p, contiguous_access(p), known_device(name));
        EXPECT_EQ(both.size(), forward.size() + 3) << name;
        for (const KernelConfig& config : forward)
            EXPECT_EQ(std::string(name_of(config.kernel)).find("backward"), std::string::npos) << name;
    }
}

// Sizes as only broadcast dimensions could have them: a plan that is right, or a refusal.
TEST(Plan, NothingOverflows) {
    const DeviceFacts& device = known_device("H200");
    for (const bool packed : {false, true})
        for (int log_batch = 0; log_batch <= 30; log_batch += 5)
            for (int log_heads = 0; log_heads <= 30; log_heads += 5)
                for (int log_rows = 0; log_rows + log_batch + log_heads <= 61; log_rows += 5) {
                    Problem p = problem(DType::bf16, 1, 1);
                    p.packed = packed;
                    p.batch = std::int64_t{1} << log_batch;
                    p.heads = p.kv_heads = std::int64_t{1} << log_heads;
                    p.seqlen_q = p.seqlen_k = std::int64_t{1} << std::min(log_rows, 30);
                    p.total_q = p.total_k = std::int64_t{1} << (log_rows + log_batch);
                    if (!packed && log_rows > 30) continue;
                    const double rows = std::ldexp(1.0, log_rows + log_batch + log_heads);
                    SCOPED_TRACE(to_string(p));
                    try {
                        const Plan plan = plan_backward(p, contiguous_access(p), device);
                        EXPECT_GE(static_cast<double>(plan.workspace.bytes), rows * 4 * 4);
                        EXPECT_LT(static_cast<double>(plan.workspace.bytes), std::ldexp(1.0, 62));
                        const double blocks = std::ldexp(
                            std::ceil(static_cast<double>(p.seqlen_k) / plan.main().config.Bc), log_batch + log_heads);
                        EXPECT_EQ(static_cast<double>(plan.main().blocks), blocks);
                        EXPECT_LT(blocks, 2147483648.0);
                    } catch (const Error& error) {
                        EXPECT_EQ(error.status(), FLASHTILE_UNSUPPORTED);
                        EXPECT_GT(std::ldexp(rows, packed ? log_batch : 0), 1e9) << error.what();
                    }
                }
}

// Two tiles for each query of 128 heads, and one for 4 queries of 16. Where queries are few, keys are shared out.
TEST(Plan, LatentHeadsShareTiles) {
    Problem p = problem(DType::bf16, 512, 512);
    p.heads = 128;
    p.kv_heads = 1;
    p.batch = 8;
    p.seqlen_q = 100;
    Access access = contiguous_access(p);
    access.values_in_keys = true;
    const Plan plan = plan_forward(p, access, known_device("H200"));
    EXPECT_STREQ(plan.name, "latent_forward_sm90");
    EXPECT_EQ(plan.main().config.group_rows, 128);
    EXPECT_EQ(plan.main().blocks, 132);
    EXPECT_EQ(plan.launches.size(), 1u);
    p.heads = 15;
    EXPECT_EQ(plan_forward(p, access, known_device("H200")).main().config.group_rows, 16);
    EXPECT_STREQ(plan_forward(p, access, known_device("A100-80")).name, "forward_sm80");
    Problem few = p;
    few.seqlen_q = 1;
    const Plan shared = plan_forward(few, access, known_device("H200"));
    EXPECT_STREQ(shared.name, "latent_forward_sm90");
    EXPECT_TRUE(shared.main().config.shares);
    EXPECT_NE(shared.find(Kernel::combine_shares), nullptr);
    access.values_in_keys = false;  // a bundle has the kernel all the same
    const std::vector<KernelConfig> all = configs_for(p, access, known_device("H200"), Passes::forward);
    EXPECT_TRUE(
        std::ranges::any_of(all, [](const KernelConfig& c) { return c.kernel == Kernel::latent_forward_sm90; }));
    access.values_in_keys = true;
    for (const Change& change :
         std::vector<Change>{{"v of its own", [](Problem&, Access&a) { a.values_in_keys = false; }},
                             {"narrow", [](Problem&q, Access&) { q.head_dim = q.head_dim_v = 256; }},
                             {"packed", [](Problem&q, Access&) { q.packed = true, q.total_q = q.total_k = 100; }},
                             {"alibi", [](Problem&q, Access&) { q.alibi = true; }},
                             {"batch_invariant", [](Problem&q, Access&) { q.batch_invariant = true; }},
                             {"unaligned", [](Problem&, Access&a) { a.tensor_maps = false; }}}) {
        Problem other = p;
        Access others = access;
        change.make(other, others);
        EXPECT_STRNE(plan_forward(other, others, known_device("H200")).name, "latent_forward_sm90") << change.name;
    }
}

struct Fallback {
    Change change;
    const char* reason;
};

void expect_fallbacks(const std::vector<Fallback>& list, bool backward) {
    for (const Fallback& each : list) {
        Problem p = problem(DType::bf16, 128, 128);
        Access access = contiguous_access(p);
        each.change.make(p, access);
        const DeviceFacts& device = known_device("H200");
        const Plan plan = backward ? plan_backward(p, access, device) : plan_forward(p, access, device);
        EXPECT_EQ(plan.main().config.kernel, backward ? Kernel::backward_sm80 : Kernel::forward_sm80)
            << each.change.name;
        EXPECT_STREQ(plan.name, backward ? "backward_sm80" : "forward_sm80") << each.change.name;
        const PassedOver hoppers = passed_over(plan, backward ? "backward_sm90" : "forward_sm90");
        EXPECT_NE(hoppers.reason.find(each.reason), std::string_view::npos)
            << each.change.name << ": " << hoppers.reason;
    }
}

const std::vector<Fallback>& fallbacks_of_both() {
    static const std::vector<Fallback> list = {
        {{"fp32", [](Problem& p, Access&) { p.dtype = DType::fp32; }}, "fp32"},
        {{"unaligned", [](Problem&, Access& a) { a.vector_bytes = 8; }}, "16 bytes"},
        {{"broadcast", [](Problem&, Access& a) { a.tensor_maps = false; }}, "broadcast"},
        {{"functions and a bias",
          [](Problem& p, Access&) { p.bias = p.dtype, p.functions = functions::number_of("s * 2.0", "", {}); }},
         "score_function or mask_function with"},
        {{"functions and a mask",
          [](Problem& p, Access&) { p.mask = true, p.functions = functions::number_of("", "i >= j", {}); }},
         "score_function or mask_function with"},
    };
    return list;
}

// Hopper's kernels walk a map of blocks, and backward its transpose.
TEST(Plan, HopperServesFunctions) {
    const DeviceFacts& device = known_device("H200");
    const auto of = [&](auto plan_pass, int d, const char* score, const char* mask) {
        Problem p = problem(DType::bf16, d, d);
        p.functions = functions::number_of(score, mask, {});
        return plan_pass(p, contiguous_access(p), device, {});
    };
    EXPECT_EQ(of(plan_forward, 256, "", "i >= j").main().config.kernel, Kernel::forward_sm80);
    for (const int d : {64, 128, 192}) {
        const Plan plan = of(plan_forward, d, "s * 2.0", "i >= j");
        EXPECT_EQ(plan.main().config.kernel, Kernel::forward_sm90) << d;
        EXPECT_FALSE(plan.main().config.map_of_keys);
        EXPECT_NE(plan.workspace.find(Region::ticket), nullptr) << "only the device knows what tiles have to do";
        EXPECT_EQ(of(plan_forward, d, "s * 2.0", "").workspace.find(Region::ticket), nullptr);
    }
    EXPECT_EQ(of(plan_backward, 128, "s * 2.0", "i >= j").main().config.kernel, Kernel::backward_sm90);
    EXPECT_EQ(of(plan_backward, 64, "s + float(i)", "i >= j").main().config.kernel, Kernel::backward_sm90);
    const std::pair<int, const char*> passed_over_of[] = {{64, "derivative is not 1"}, {192, "over 128"}};
    for (const auto& [d, reason] : passed_over_of) {
        const Plan plan = of(plan_backward, d, "s * 2.0", "i >= j");
        EXPECT_EQ(plan.main().config.kernel, Kernel::backward_sm80) << d;
        EXPECT_NE(passed_over(plan, "backward_sm90").reason.find(reason), std::string_view::npos) << d;
    }
}

TEST(Plan, PositionsOfFunctionsAreNearUnlessTheHostSaysOtherwise) {
    const auto near = [](void (*change)(Problem&)) {
        Problem p = problem(DType::bf16, 64, 64);
        p.functions = functions::number_of("", "i >= j", {});
        change(p);
        const Plan plan = plan_forward(p, contiguous_access(p), known_device("H200"));
        for (const Launch& launch : plan.launches)
            EXPECT_EQ(launch.config.near_positions, plan.main().config.near_positions) << describe(launch);
        return plan.main().config.near_positions;
    };
    EXPECT_TRUE(near([](Problem&) {}));
    EXPECT_TRUE(near([](Problem& p) { p.origin_i = kNearPositions - 4000, p.origin_j = 1 << 20; }));
    EXPECT_FALSE(near([](Problem& p) { p.origin_i = kNearPositions - 1500; })) << "with a tile's rows past the end";
    EXPECT_FALSE(near([](Problem& p) { p.origin_j = -1; }));
    EXPECT_FALSE(near([](Problem& p) { p.origin_h = kNearPositions; }));
    EXPECT_FALSE(near([](Problem& p) { p.seqlen_k = kNearPositions; }));
    EXPECT_FALSE(near([](Problem& p) { p.origins_i = true; })) << "they lie in memory";
}

TEST(Plan, ForwardFallsBackFromHopper) {
    expect_fallbacks(fallbacks_of_both(), false);
    expect_fallbacks({{{"wide", [](Problem& p, Access&) { p.head_dim = 264; }}, "over 256"},
                      {{"wide v", [](Problem& p, Access&) { p.head_dim_v = 264; }}, "over 256"},
                      {{"wide and both",
                        [](Problem& p, Access&) {
                            p.head_dim = 256;
                            p.bias = p.dtype;
                            p.mask = true;
                        }},
                       "over 192"},
                      {{"dropout of a shard", [](Problem& p, Access&) { p.dropout_threshold = 9, p.origin_j = 8; }},
                       "no multiple of 16"}},
                     false);
}

TEST(Plan, SequencesThatAreShardsAreTheGeneralKernels) {
    const std::vector<Fallback> list = {
        {{"diagonals", [](Problem& p, Access&) { p.diagonals = true, p.window_right = 0; }}, "diagonals"},
        {{"diagonals of alibi", [](Problem& p, Access&) { p.diagonals = p.alibi = true; }}, "diagonals"},
        {{"origins_i", [](Problem& p, Access&) { p.dropout_threshold = 9, p.origins_i = true; }}, "lies in memory"},
        {{"origins_j", [](Problem& p, Access&) { p.dropout_threshold = 9, p.origins_j = true; }}, "lies in memory"},
    };
    expect_fallbacks(list, false);
    expect_fallbacks(list, true);
    // of which nothing asks, they are nothing to any kernel
    Problem p = problem(DType::bf16, 128, 128);
    p.diagonals = p.origins_i = p.origins_j = true;
    EXPECT_EQ(plan_forward(p, contiguous_access(p), known_device("H200")).main().config.kernel, Kernel::forward_sm90);
    Problem latent = problem(DType::bf16, 576, 512);
    latent.diagonals = true, latent.window_right = 0;
    Access access = contiguous_access(latent);
    access.values_in_keys = true;
    const Plan plan = plan_forward(latent, access, known_device("H200"));
    EXPECT_NE(passed_over(plan, "latent_forward_sm90").reason.find("diagonals"), std::string_view::npos);
}

// Of a problem's kernels those that see scores have its functions; the others are shared by all.
TEST(Plan, FunctionsAreOfTheKernelsThatSeeScores) {
    for (const DeviceFacts& device : known_devices()) {
        SCOPED_TRACE(device.name);
        Problem p = problem(DType::bf16, 64, 64);
        p.bias = p.dtype;
        p.functions = functions::number_of("s + float(i)", "", {});
        Access access = contiguous_access(p);
        access.dbias = true;
        for (const std::int64_t queries : {1, 1000}) {
            p.seqlen_q = queries;
            p.seqlen_k = 100000;  // with one query split over thread blocks
            for (const auto plan_pass : {plan_forward, plan_backward}) {
                const Plan plan = plan_pass(p, access, device, {});
                for (const Launch& launch : plan.launches) {
                    const KernelConfig& c = launch.config;
                    const bool sees = c.kernel == Kernel::forward_sm80 || c.kernel == Kernel::split_forward_sm80 ||
                                      c.kernel == Kernel::backward_sm80 || c.kernel == Kernel::backward_bias_sm80;
                    EXPECT_EQ(c.near_positions, sees) << describe(launch);
                    EXPECT_EQ(c.functions, sees ? p.functions : 0) << describe(launch);
                    EXPECT_EQ(c.score_function, sees) << describe(launch);
                    EXPECT_FALSE(c.mask_function) << describe(launch);
                    EXPECT_EQ(c.group_rows, 1) << "rows of a tile are of one head: " << describe(launch);
                }
            }
        }
        EXPECT_TRUE(plan_forward(p, access, device).main().config.scale_first) << "functions see natural units";
    }
}

// A kernel before the main one finds the blocks of the scores that a mask function shows something of.
TEST(Plan, AMaskFunctionHasAMapOfBlocks) {
    for (const char* name : {"A100-80", "H200", "RTX 5090"})
        for (const auto plan_pass : {plan_forward, plan_backward}) {
            SCOPED_TRACE(name);
            const auto plan_of = [&](const char* score, const char* mask, std::int64_t keys, bool deterministic) {
                Problem p = problem(DType::bf16, 128, 128);
                p.seqlen_k = keys;
                p.deterministic = deterministic;
                p.functions = functions::number_of(score, mask, {});
                return plan_pass(p, contiguous_access(p), known_device(name), {});
            };
            const Plan plan = plan_of("", "i >= j", 777, false);
            const Launch& map = plan.launches[0];
            const KernelConfig& main = plan.main().config;
            ASSERT_EQ(map.config.kernel, Kernel::mask_blocks);
            EXPECT_TRUE(main.kernel == Kernel::forward_sm80 || main.kernel == Kernel::backward_sm80 ||
                        main.kernel == Kernel::forward_sm90 || main.kernel == Kernel::backward_sm90);
            EXPECT_EQ(map.config.functions, main.functions);
            EXPECT_EQ(map.config.Br, main.Br);
            EXPECT_EQ(map.config.Bc, main.Bc);
            const auto count = [](std::int64_t rows, int block) { return (rows + block - 1) / block; };
            const bool of_keys = main.kernel == Kernel::backward_sm90;
            EXPECT_EQ(main.map_of_keys, of_keys);
            EXPECT_EQ(map.config.map_of_keys, of_keys);
            const std::int64_t pairs = of_keys ? count(777, main.Bc) * count(1000, 32 * main.Br)
                                               : count(1000, main.Br) * count(777, 32 * main.Bc);
            EXPECT_EQ(map.blocks, pairs) << "of one head and one sequence for all";
            const PlannedRegion* const region = plan.workspace.find(Region::block_map);
            ASSERT_NE(region, nullptr);
            EXPECT_EQ(region->bytes, static_cast<std::size_t>(pairs) * 8) << "two bits a block";
            EXPECT_FALSE(region->cleared) << "every word is written";

            const Plan by_head = plan_of("", "i >= j * h", 777, false);
            EXPECT_EQ(by_head.launches[0].blocks, 12 * pairs);
            EXPECT_EQ(by_head.block_map_heads, 12);
            EXPECT_EQ(plan_of("", "i >= j", 255, false).find(Kernel::mask_blocks) != nullptr,
                      main.kernel == Kernel::forward_sm90 || main.kernel == Kernel::backward_sm90)
                << "few keys: Hopper's kernels have no other walk";
            EXPECT_EQ(plan_of("s * 2", "", 777, false).find(Kernel::mask_blocks), nullptr) << "no mask function";
            EXPECT_NE(plan_of("", "i >= j", 777, true).find(Kernel::mask_blocks), nullptr) << "deterministic too";
        }
}

// Narrow heads have tiles of 64 x 64, more of which a mask hides whole, unless the sequences are long and it hides
// little.
TEST(Plan, TilesBesideAMaskFunction) {
    const auto tile = [](const char* mask, std::int64_t keys, int d = 64) {
        Problem p = problem(DType::bf16, d, d);
        p.seqlen_q = p.seqlen_k = keys;
        p.functions = functions::number_of("", mask, {{"document", 1, functions::Type::integer, DType::int32}});
        const KernelConfig c = plan_forward(p, contiguous_access(p), known_device("H200"), {}).main().config;
        return std::pair(c.Br, c.Bc);
    };
    EXPECT_EQ(tile("i >= j", 16384), std::pair(192, 128));
    EXPECT_EQ(tile("j < document[0] || i >= j", 16384), std::pair(192, 128));
    EXPECT_EQ(tile("i >= j", 4096), std::pair(64, 64));
    EXPECT_EQ(tile("i >= j && i - j < 1024", 16384), std::pair(64, 64));
    EXPECT_EQ(tile("document[i] == document[j]", 16384), std::pair(64, 64)) << "only the device knows";
    EXPECT_EQ(tile("i >= j", 16384, 128), std::pair(128, 128));
}

// A byte for each block comes first, and the map of blocks comes of these.
TEST(Plan, ListsOfBlocksAreReadBeforeTheMap) {
    for (const char* name : {"A100-80", "H200"})
        for (const auto plan_pass : {plan_forward, plan_backward})
            for (const bool masked : {false, true})
                for (const bool by_head : {false, true}) {
                    SCOPED_TRACE(name);
                    Problem p = problem(DType::bf16, 128, 128);
                    p.block_q = 64;
                    p.block_k = 192;
                    p.list_batch = p.batch;
                    if (by_head) p.list_heads = p.heads;
                    if (masked) p.functions = functions::number_of("", "i >= j * h", {});
                    const Plan plan = plan_pass(p, contiguous_access(p), known_device(name), {});
                    ASSERT_EQ(plan.launches[0].config.kernel, Kernel::block_kinds);
                    ASSERT_EQ(plan.launches[1].config.kernel, Kernel::mask_blocks);
                    EXPECT_EQ(plan.launches[1].config.functions, 0) << "no function is asked";
                    for (const Launch& launch : {plan.launches[1], plan.main()}) {
                        EXPECT_TRUE(launch.config.block_lists);
                        EXPECT_TRUE(launch.config.mask_function);
                    }
                    EXPECT_EQ(plan.main().config.lists_alone, !masked);
                    EXPECT_EQ(plan.launches[0].config.lists_alone, !masked);
                    const std::int64_t lines = p.batch * (by_head ? p.heads : 1) * ((p.seqlen_q + 63) / 64);
                    EXPECT_EQ(plan.launches[0].blocks, (lines + 7) / 8);
                    const PlannedRegion* const kinds = plan.workspace.find(Region::block_kinds);
                    ASSERT_NE(kinds, nullptr);
                    EXPECT_EQ(kinds->bytes, static_cast<std::size_t>(lines * ((p.seqlen_k + 191) / 192)));
                    EXPECT_EQ(plan.block_map_batch, p.batch);
                    EXPECT_EQ(plan.block_map_heads, by_head ? p.heads : 1);
                    if (plan.main().config.kernel == Kernel::backward_sm90) {
                        EXPECT_TRUE(plan.main().config.narrow_lists) << "a consumer's 64 keys may lie in other blocks";
                        p.block_k = 256;
                        EXPECT_FALSE(
                            plan_pass(p, contiguous_access(p), known_device(name), {}).main().config.narrow_lists);
                    }
                    if (plan.main().config.kernel != Kernel::forward_sm90) continue;
                    const auto tile = [&] {
                        const KernelConfig c = plan_pass(p, contiguous_access(p), known_device(name), {}).main().config;
                        return std::pair(c.Br, c.Bc);
                    };
                    EXPECT_EQ(tile(), std::pair(64, 64)) << "which divides 192";
                    p.block_k = 256;
                    EXPECT_EQ(tile(), std::pair(64, 64)) << "blocks have 64 queries";
                    p.block_q = 128;
                    EXPECT_EQ(tile(), std::pair(128, 128));
                }
}

TEST(Plan, GradientsOfTensorsAreAPassOfTheirOwn) {
    Problem p = problem(DType::bf16, 128, 128);
    const std::vector<functions::TensorType> tensors = {{"table", 2, functions::Type::real, DType::fp32},
                                                        {"n", 1, functions::Type::integer, DType::int32}};
    Access access = contiguous_access(p);
    access.dtensors = true;
    for (const char* name : {"A100-80", "H200", "RTX 3090"}) {
        p.deterministic = false;
        p.functions = functions::number_of("s + table[h, n[j]]", "", tensors);
        const Plan plan = plan_backward(p, access, known_device(name));
        ASSERT_NE(plan.find(Kernel::clear_tensors), nullptr);
        const Launch* const added = plan.find(Kernel::backward_tensors_sm80);
        ASSERT_NE(added, nullptr);
        EXPECT_GT(added, plan.find(Kernel::clear_tensors)) << "which sets them to zero";
        EXPECT_EQ(added->blocks, p.batch * p.heads * ((p.seqlen_q + added->config.Br - 1) / added->config.Br));
        EXPECT_LE(added->config.Br, plan.unit_rows) << "a unit holds rows of one sequence";
        p.functions = functions::number_of("s * float(n[j])", "", tensors);
        const Plan without = plan_backward(p, access, known_device(name));
        EXPECT_NE(without.find(Kernel::clear_tensors), nullptr);
        EXPECT_EQ(without.find(Kernel::backward_tensors_sm80), nullptr) << "it reads none of them";
        p.deterministic = true;
        EXPECT_THROW(plan_backward(p, access, known_device(name)), Error);
    }
}

TEST(Plan, LatentHeadsWithFunctionsAreTheGeneralKernels) {
    Problem p = problem(DType::bf16, 576, 512);
    p.functions = functions::number_of("", "i >= j", {});
    Access access = contiguous_access(p);
    access.values_in_keys = true;
    const Plan plan = plan_forward(p, access, known_device("H200"));
    EXPECT_STREQ(plan.name, "forward_sm80");
    EXPECT_NE(passed_over(plan, "latent_forward_sm90").reason.find("mask_function"), std::string_view::npos);
}

TEST(Plan, OnlyDropoutAsksWhereAShardStarts) {
    for (const bool dropout : {false, true})
        for (const std::int64_t origin : {0, 16, 4112, 8}) {
            Problem p = problem(DType::bf16, 64, 64);
            p.dropout_threshold = dropout ? 9 : 0;
            p.origin_i = p.origin_j = origin;
            p.diagonal = 5;
            const Plan plan = plan_forward(p, contiguous_access(p), known_device("H200"));
            EXPECT_EQ(plan.main().config.shifted_dropout, dropout && origin == 8);
            EXPECT_EQ(plan.main().config.kernel, dropout && origin == 8 ? Kernel::forward_sm80 : Kernel::forward_sm90);
            const Plan backward = plan_backward(p, contiguous_access(p), known_device("H200"));
            EXPECT_EQ(backward.main().config.kernel,
                      dropout && origin == 8 ? Kernel::backward_sm80 : Kernel::backward_sm90);
        }
}

TEST(Plan, HoppersForwardTakesABiasOrAMask) {
    for (const int head_dim : {64, 128, 192, 256})
        for (const std::uint32_t dropout_threshold : {0, 100}) {
            Problem p = problem(DType::bf16, head_dim, head_dim);
            p.mask = true;
            p.dropout_threshold = dropout_threshold;
            const Launch kernel = plan_forward(p, contiguous_access(p), known_device("H200")).main();
            EXPECT_EQ(kernel.config.kernel, Kernel::forward_sm90) << head_dim;
            if (head_dim > 64) {
                EXPECT_EQ(kernel.config.Bc, 64) << "more keys' masks do not fit the registers";
            }
        }
}

TEST(Plan, HeadsOfAGroupShareATileWhereQueriesAreFew) {
    const auto plan_of = [](const auto& change) {
        Problem p = problem(DType::bf16, 128, 128);
        p.seqlen_q = 16;
        p.seqlen_k = 100;  // too few to be split
        Access access = contiguous_access(p);
        change(p, access);
        return plan_forward(p, access, known_device("H200"));
    };
    const Plan three = plan_of([](Problem&, Access&) {});
    EXPECT_EQ(three.main().config.group_rows, 4) << "three heads and a row to spare";
    EXPECT_EQ(three.main().blocks, 2 * 4 * 2) << "two blocks of keys for each key head of each sequence";
    const Plan whole = plan_of([](Problem& p, Access&) { p.heads = 64, p.seqlen_q = 64; });
    EXPECT_EQ(whole.main().config.group_rows, 16);
    EXPECT_EQ(whole.main().blocks, std::min(2 * 4 * 64 * 16 / whole.main().config.Br * 2, 132));

    const std::vector<Change> apart = {
        {"one head", [](Problem& p, Access&) { p.kv_heads = p.heads; }},
        {"many queries", [](Problem& p, Access&) { p.seqlen_q = 65; }},
        {"a large group", [](Problem& p, Access&) { p.heads = 4 * 65; }},
        {"a head's own slope", [](Problem& p, Access&) { p.alibi = true; }},
        {"a head's own bias", [](Problem& p, Access&) { p.bias = p.dtype; }},
        {"a head's own mask", [](Problem& p, Access&) { p.mask = true; }},
        {"dropout", options()[6].make},
        {"general kernels", [](Problem&, Access& a) { a.tensor_maps = false; }},
    };
    for (const Change& change : apart) EXPECT_EQ(plan_of(change.make).main().config.group_rows, 1) << change.name;
}

TEST(Plan, BackwardFallsBackFromHopper) {
    expect_fallbacks(fallbacks_of_both(), true);
    expect_fallbacks(
        {{{"batch_invariant", [](Problem& p, Access&) { p.batch_invariant = true; }}, "batch_invariant"},
         {{"wide v", [](Problem& p, Access&) { p.head_dim = 64; }}, "wider than head_dim"},
         {{"softcap, ALiBi", [](Problem& p, Access&) { p.softcap = 3.0f, p.alibi = true; }}, "ALiBi"},
         {{"softcap, narrow", [](Problem& p, Access&) { p.softcap = 3.0f, p.head_dim = p.head_dim_v = 64; }}, "to 64"},
         {{"wide, alibi", [](Problem& p, Access&) { p.alibi = true, p.head_dim = 192; }}, "over 128"},
         {{"wide, mask", [](Problem& p, Access&) { p.mask = true, p.head_dim = 192; }}, "over 128"},
         {{"softcap, mask", [](Problem& p, Access&) { p.softcap = 3.0f, p.mask = true; }}, "softcap with"},
         {{"bias, mask", [](Problem& p, Access&) { p.bias = p.dtype, p.mask = true; }}, "a mask with"},
         {{"wide, scale", [](Problem& p, Access&) { p.scale = -1.0f, p.head_dim = 192; }}, "over 128"},
         {{"wide, dropout", [](Problem& p, Access&) { p.dropout_threshold = 1, p.head_dim = 192; }}, "over 128"}},
        true);
}

TEST(Plan, HoppersBackwardOfTheWidestHeadsWorksInPairs) {
    const auto plan_of = [](int d, int dv, const std::function<void(Problem&, Access&)>& change) {
        Problem p = problem(DType::bf16, d, dv);
        Access access = contiguous_access(p);
        change(p, access);
        return plan_backward(p, access, known_device("H200"));
    };
    for (const auto& [d, dv] : {std::pair{256, 256}, {200, 256}, {256, 200}, {224, 240}})
        for (const int seqlen_k : {65, 128, 129, 777}) {
            const Plan plan = plan_of(d, dv, [&](Problem& p, Access&) { p.seqlen_k = seqlen_k; });
            EXPECT_EQ(plan.main().config.kernel, Kernel::backward_pair_sm90) << d << "x" << dv;
            EXPECT_EQ(plan.main().blocks, 2 * ((seqlen_k + 127) / 128) * 4 * 2) << "whole pairs of 128 keys";
        }
    const std::vector<Change> in_pairs = {
        {"deterministic", [](Problem& p, Access&) { p.deterministic = true; }},
        {"exact_max", [](Problem& p, Access&) { p.exact_max = true; }},
        {"packed", [](Problem& p, Access&) { p.packed = true; }},
        {"used keys", [](Problem&, Access& a) { a.seqused = true; }},
    };
    for (const Change& change : in_pairs)
        EXPECT_EQ(plan_of(256, 256, change.make).main().config.kernel, Kernel::backward_pair_sm90) << change.name;
    const std::vector<Change> apart = {
        {"one block of keys", [](Problem& p, Access&) { p.seqlen_k = 64; }},
        {"narrower", [](Problem& p, Access&) { p.head_dim = p.head_dim_v = 192; }},
        {"narrower v", [](Problem& p, Access&) { p.head_dim_v = 128; }},
        {"P in fp32", [](Problem& p, Access&) { p.head_dim = 192, p.head_dim_v = 128, p.exact_max = true; }},
    };
    for (const Change& change : apart)
        EXPECT_EQ(plan_of(256, 256, change.make).main().config.kernel, Kernel::backward_wide_sm90) << change.name;
}

TEST(Plan, HoppersBackwardOfNarrowValuesHas128Keys) {
    for (const auto& [d, dv] : {std::pair{192, 128}, {192, 64}, {160, 104}, {136, 80}})
        for (const bool deterministic : {false, true}) {
            Problem p = problem(DType::bf16, d, dv);
            p.deterministic = deterministic;
            const Plan plan = plan_backward(p, contiguous_access(p), known_device("H200"));
            EXPECT_EQ(plan.main().config.kernel, Kernel::backward_sm90) << d << "x" << dv;
            EXPECT_EQ(plan.main().config.Bc, 128);
        }
}

TEST(Plan, HoppersBackwardSharesHeadsWhereBlocksOfKeysAreFew) {
    const auto plan_of = [](int d, int heads, int kv_heads, int batch, int seqlen, bool causal,
                            bool deterministic = false) {
        Problem p = problem(DType::bf16, d, d);
        p.deterministic = deterministic;
        p.heads = heads, p.kv_heads = kv_heads, p.batch = batch;
        p.seqlen_q = p.seqlen_k = seqlen;
        if (causal) p.window_right = 0;
        return plan_backward(p, contiguous_access(p), known_device("H200"));
    };
    struct Shape {
        int d, heads, kv_heads, batch, seqlen;
        bool causal;
        int parts;
    };
    for (const Shape& s : {Shape{128, 16, 1, 1, 16384, true, 2},  // 128 blocks, of which one has twice the mean's work
                           Shape{128, 16, 1, 4, 4096, false, 1},  // 128 equal blocks for 132 multiprocessors
                           Shape{128, 16, 1, 1, 4096, false, 2},  // 32 of them
                           Shape{64, 8, 2, 1, 16384, true, 2},    // thread blocks stay closer together
                           Shape{128, 64, 8, 1, 4096, true, 2},   // likewise
                           Shape{128, 64, 8, 1, 8192, false, 1},  // 512 equal blocks
                           Shape{128, 24, 8, 1, 2048, true, 1},   // three heads cannot be halved
                           Shape{128, 16, 16, 1, 1024, true, 1},  // nothing is shared
                           Shape{192, 16, 1, 1, 4096, false, 1}}) {  // another kernel
        const Plan plan = plan_of(s.d, s.heads, s.kv_heads, s.batch, s.seqlen, s.causal);
        EXPECT_EQ(plan.main().config.head_parts, s.parts) << s.d << " " << s.heads << "/" << s.kv_heads;
        EXPECT_EQ(plan.main().blocks,
                  s.seqlen / plan.main().config.Bc * s.kv_heads * s.batch * plan.main().config.head_parts);
    }
    // Sections of heads are large enough that every multiprocessor begins with a block of keys.
    EXPECT_EQ(plan_of(128, 64, 8, 1, 4096, true).section_heads, 4);
    EXPECT_EQ(plan_of(128, 16, 16, 1, 16384, true).section_heads, 2);
    EXPECT_EQ(plan_of(128, 16, 16, 4, 4096, true).section_heads, 8);
    EXPECT_EQ(plan_of(256, 8, 8, 1, 16384, true).section_heads, 1) << "66 pairs of thread blocks begin at a time";
    // Where they add in turns, all that the heads read and add to is in use at once.
    EXPECT_EQ(plan_of(128, 16, 16, 1, 16384, true, true).section_heads, 1);
    EXPECT_EQ(plan_of(128, 16, 16, 4, 4096, true, true).section_heads, 2);
    EXPECT_EQ(plan_of(64, 16, 16, 4, 4096, true, true).section_heads, 4);
}

TEST(Plan, HoppersBackwardCountsTheBlocksOfPackedSequences) {
    Problem p = problem(DType::bf16, 128, 128);
    p.packed = true;
    p.batch = 16;
    p.total_q = p.total_k = 16384;
    p.seqlen_q = p.seqlen_k = 3423;
    const Plan plan = plan_backward(p, contiguous_access(p), known_device("H200"));
    EXPECT_EQ(plan.main().blocks, (16384 / 128 + 16) * p.kv_heads) << "each sequence may begin a block of its own";
}

TEST(Plan, HoppersBackwardTakesABiasOrAMask) {
    for (const int head_dim : {64, 128})
        for (const DType bias : {DType::unset, DType::bf16, DType::fp32})
            for (const bool mapped : {true, false}) {
                Problem p = problem(DType::bf16, head_dim, head_dim);
                p.bias = bias;
                p.mask = bias == DType::unset;
                Access access = contiguous_access(p);
                access.bias_map = mapped;
                access.dbias = bias != DType::unset;
                const Plan plan = plan_backward(p, access, known_device("H200"));
                const KernelConfig& c = plan.main().config;
                EXPECT_EQ(c.kernel, Kernel::backward_sm90);
                EXPECT_EQ(c.bias_mapped, mapped && bias == DType::bf16);
                const bool has_map = std::ranges::any_of(
                    plan.main().maps, [](const PlannedMap& map) { return map.operand == MappedOperand::bias; });
                EXPECT_EQ(has_map, c.bias_mapped);
                // the general kernel of dbias reads LSE and D of each row where the row is
                EXPECT_EQ(plan.row_flip, access.dbias ? 0 : 1);
                EXPECT_EQ(plan.find(Kernel::backward_bias_sm80) != nullptr, access.dbias);
            }
}

TEST(Plan, HoppersBackwardTakesWhatWorksOnScores) {
    for (const Change& change : std::vector<Change>{{"softcap", [](Problem&p, Access&) { p.softcap = 3.0f; }},
                                                    {"alibi", [](Problem&p, Access&) { p.alibi = true; }},
                                                    {"scale", [](Problem&p, Access&) { p.scale = -1.0f; }},
                                                    {"dropout", [](Problem&p, Access&) { p.dropout_threshold = 1; }}}) {
        Problem p = problem(DType::bf16, 128, 128);
        Access access = contiguous_access(p);
        change.make(p, access);
        EXPECT_EQ(plan_backward(p, access, known_device("H200")).main().config.kernel, Kernel::backward_sm90)
            << change.name;
    }
}

TEST(Plan, HoppersKernelsAreForHopper) {
    for (const DeviceFacts& device : known_devices())
        for (const int d : {64, 128}) {
            const Problem p = problem(DType::fp16, d, d);
            const Plan forward = plan_forward(p, contiguous_access(p), device);
            const Plan backward = plan_backward(p, contiguous_access(p), device);
            const bool hopper = shared_kib(device.architecture) == 228 && device.architecture == 90;
            EXPECT_EQ(forward.main().config.kernel, hopper ? Kernel::forward_sm90 : Kernel::forward_sm80)
                << device.name;
            EXPECT_EQ(backward.main().config.kernel, hopper ? Kernel::backward_sm90 : Kernel::backward_sm80)
                << device.name;
            for (const Plan* plan : {&forward, &backward}) {
                const std::string pass = plan == &forward ? "forward" : "backward";
                const PassedOver other = passed_over(*plan, pass + (hopper ? "_sm80" : "_sm90"));
                EXPECT_EQ(other.asked, !hopper);
                EXPECT_EQ(other.reason,
                          hopper ? "a more special one serves" : "the GPU is not of compute capability 9.0");
            }
        }
}

// What decides a row's bits: the order in which its keys (and a key's queries) are taken, and whether rows share a
// decision. None of it may depend on batch, heads, lengths, packing or where the tensors lie.
TEST(Plan, BatchInvariantFixesTheOrderOfSums) {
    const std::vector<Change> surroundings = {
        {"alone", [](Problem& p, Access&) { p.batch = 1, p.heads = p.kv_heads = 1; }},
        {"long", [](Problem& p, Access&) { p.seqlen_q = p.seqlen_k = 100000; }},
        {"the fewest queries of this class", [](Problem& p, Access&) { p.seqlen_q = 65; }},
        {"unaligned", [](Problem&, Access& a) { a.vector_bytes = 2, a.tensor_maps = false; }},
        {"seqused", options()[3].make},
        {"packed", options()[2].make},
        {"no lse", [](Problem&, Access& a) { a.lse = false; }},
    };
    for (const DeviceFacts& device : known_devices())
        for (const DType dtype : {DType::fp32, DType::bf16})
            for (const Change& option : {options()[0], options()[1], options()[4], options()[6]})
                for (const int d : {32, 64, 96, 128, 192, 256}) {
                    if (dtype == DType::fp32 && d > 128) continue;  // backward: not on every GPU
                    Problem p = problem(dtype, d, d);
                    p.batch_invariant = true;
                    Access access = contiguous_access(p);
                    option.make(p, access);
                    const KernelConfig forward = plan_forward(p, access, device).main().config;
                    const KernelConfig backward = plan_backward(p, access, device).main().config;
                    EXPECT_FALSE(forward.lazy_rescale);
                    for (const Change& around : surroundings) {
                        SCOPED_TRACE(device.name + " " + option.name + " " + around.name + " d=" + std::to_string(d));
                        Problem other = p;
                        Access other_access = access;
                        around.make(other, other_access);
                        const KernelConfig f = plan_forward(other, other_access, device).main().config;
                        EXPECT_EQ(f.kernel, forward.kernel);
                        EXPECT_EQ(f.Bc, forward.Bc);
                        EXPECT_EQ(f.lazy_rescale, forward.lazy_rescale);
                        EXPECT_EQ(f.scale_first, forward.scale_first);
                        const KernelConfig b = plan_backward(other, other_access, device).main().config;
                        EXPECT_EQ(b.kernel, backward.kernel);
                        EXPECT_EQ(b.Br, backward.Br);
                        EXPECT_EQ(b.Bc, backward.Bc);
                        EXPECT_EQ(b.warps_s, backward.warps_s);
                        // D is summed by as many lanes as loads of a row have pieces
                        EXPECT_EQ(plan_backward(other, other_access, device).launches[0].config.vector_bytes,
                                  size_of(dtype));
                    }
                }
}

// exact_max changes no tile, only what kernels do with maxima and P; batch_invariant has no need of it.
TEST(Plan, ExactMaximaKeepKernelsAndTiles) {
    for (const DeviceFacts& device : known_devices())
        for (const int d : {64, 128, 256}) {
            SCOPED_TRACE(device.name + " d=" + std::to_string(d));
            Problem p = problem(DType::bf16, d, d);
            const Access access = contiguous_access(p);
            KernelConfig forward = plan_forward(p, access, device).main().config;
            KernelConfig backward = plan_backward(p, access, device).main().config;
            EXPECT_TRUE(forward.lazy_rescale);
            EXPECT_FALSE(backward.exact_max);
            p.exact_max = true;
            forward.lazy_rescale = false;
            backward.exact_max =
                backward.kernel == Kernel::backward_sm90 || backward.kernel == Kernel::backward_pair_sm90;
            EXPECT_TRUE(plan_forward(p, access, device).main().config == forward);
            EXPECT_TRUE(plan_backward(p, access, device).main().config == backward);
            EXPECT_FALSE(plan_backward(p, access, device).find(Kernel::backward_prepare)->config.exact_max);
        }
}

// What `flashtile compile` makes ahead of time serves every batch and every length.
TEST(Plan, ConfigsForAreAllThatCallsGet) {
    const std::vector<Change> changes = {
        options()[0],
        options()[1],
        options()[3],
        {"rows of a cache", [](Problem& p, Access& a) { p.cache = a.seqused = true; }},
        {"pages", [](Problem& p, Access& a) { p.cache = a.seqused = true, p.page_size = 16, p.window_right = 0; }},
        {"packed queries on pages",
         [](Problem& p, Access& a) { p.cache = p.packed = a.seqused = true, p.page_size = 16; }},
        {"short pages", [](Problem& p, Access& a) { p.cache = a.seqused = true, p.page_size = 24; }},
        {"sinks", [](Problem& p, Access&) { p.sinks = DType::fp32; }},
    };
    for (const DeviceFacts& device : known_devices())
        for (const int d : {64, 128, 192, 256})
            for (const Change& change : changes) {
                Problem p = problem(DType::bf16, d, d);
                Access access = contiguous_access(p);
                change.make(p, access);
                Problem bundled = p;  // as compile_bundle.cpp has it
                bundled.batch = bundled.kv_heads = 1;
                bundled.heads = p.group();
                const std::vector<KernelConfig> all = configs_for(bundled, access, device);
                const auto expect_among = [&](const Plan& plan) {
                    for (const Launch& launch : plan.launches)
                        ASSERT_NE(std::ranges::find(all, launch.config), all.end())
                            << to_string(p) << device.name << " " << change.name << "\n"
                            << describe(launch);
                };
                for (p.batch = 1; p.batch < 1000; p.batch *= 7)
                    for (p.seqlen_q = 1; p.seqlen_q < 100000; p.seqlen_q = p.seqlen_q * 3 / 2 + 1)
                        for (p.seqlen_k = 1; p.seqlen_k < 100000; p.seqlen_k = p.seqlen_k * 3 / 2 + 1) {
                            p.total_q = p.batch * p.seqlen_q, p.total_k = p.batch * p.seqlen_k;
                            expect_among(plan_forward(p, access, device));
                            Problem mixed = p;  // one long sequence, the others have a query each
                            mixed.total_q = p.seqlen_q + p.batch - 1;
                            if (p.packed) expect_among(plan_forward(mixed, access, device));
                            if (!p.cache && p.batch == 1) expect_among(plan_backward(p, access, device));
                            if (testing::Test::HasFatalFailure()) return;
                        }
            }
}

// LSE counts them, and so the kernels of the other gradients are those of a problem without sinks.
TEST(Plan, GradientsOfSinksComeLast) {
    for (const char* name : {"A100-80", "H200"}) {
        Problem p = problem(DType::bf16, 128, 128);
        Access access = contiguous_access(p);
        const Plan without = plan_backward(p, access, known_device(name));
        p.sinks = DType::fp32;
        access.dsinks = true;
        const Plan plan = plan_backward(p, access, known_device(name));
        ASSERT_EQ(plan.launches.size(), without.launches.size() + 1);
        for (std::size_t n = 0; n < without.launches.size(); ++n)
            EXPECT_TRUE(plan.launches[n].config == without.launches[n].config) << name;
        const Launch& sinks = plan.launches[without.launches.size()];
        EXPECT_EQ(sinks.config.kernel, Kernel::backward_sinks);
        EXPECT_EQ(sinks.config.Br, plan.main().config.Br) << "the rows of a unit, in which D and LSE lie";
        EXPECT_EQ(sinks.blocks, p.heads);
        access.dsinks = false;
        EXPECT_EQ(plan_backward(p, access, known_device(name)).find(Kernel::backward_sinks), nullptr);
    }
}

TEST(Plan, RefusalsNameWhatIsWrong) {
    const auto refusal = [](const std::function<void(Problem&, DeviceFacts&)>& change) -> std::string {
        Problem p = problem(DType::bf16, 64, 64);
        DeviceFacts device = known_device("A10");
        change(p, device);
        try {
            plan_forward(p, contiguous_access(p), device);
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), FLASHTILE_UNSUPPORTED);
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refusal([](Problem&, DeviceFacts& d) { d.architecture = 75; }).find("7.5"), std::string::npos);
    EXPECT_NE(
        refusal([](Problem& p, DeviceFacts&) { p.seqlen_q = std::int64_t{1} << 31; }).find("seqlen_q is 2147483648"),
        std::string::npos);
    EXPECT_NE(refusal([](Problem& p, DeviceFacts&) {
                  p.seqlen_k = std::int64_t{1} << 30, p.seqlen_q = std::int64_t{1} << 20;
                  p.diagonal = -(std::int64_t{1} << 30);
              }).find("diagonal is -1073741824, supported on CUDA at these lengths is at most 1072692223"),
              std::string::npos);
    EXPECT_NE(refusal([](Problem& p, DeviceFacts&) {
                  p.seqlen_k = std::int64_t{1} << 30;
                  p.diagonals = true;
              }).find("diagonals is given with seqlen_q + seqlen_k"),
              std::string::npos);
    EXPECT_NE(refusal([](Problem& p, DeviceFacts&) { p.batch = std::int64_t{1} << 30; }).find("thread blocks"),
              std::string::npos);
}

TEST(KnownDevice, IsFoundWithoutCaseAndSpaces) {
    EXPECT_EQ(known_device("rtx4090").name, "RTX 4090");
    try {
        known_device("RTX 4091");
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), FLASHTILE_INVALID_ARGUMENT);
        EXPECT_NE(std::string(error.what()).find("'RTX 4091', allowed is one of A100-40"), std::string::npos);
    }
}

}  // namespace
}  // namespace flashtile::gpu

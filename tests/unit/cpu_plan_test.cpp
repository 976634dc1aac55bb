// cpu_plan_test.cpp: the CPU's plan, as flashtile_plan_report prints it, is what then runs. What runs is seen from
// outside: flashtile_last_run(), how many tasks an executor is given, the bits of results, the workspace.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "unit/call.h"
#include "unit/run.h"

namespace flashtile::unit {
namespace {

using conformance::Case;

Case small(std::int64_t seqlen_q = 20, std::int64_t seqlen_k = 30) {
    Case c;
    c.batch = 2;
    c.heads = 4;
    c.kv_heads = 2;
    c.seqlen_q = seqlen_q;
    c.seqlen_k = seqlen_k;
    c.head_dim = c.head_dim_v = 64;
    return c;
}

Case packed() {
    Case c = small();
    c.lengths_q = {150, 1, 0, 40};
    c.lengths_k = {150, 30, 7, 260};
    return c;
}

Case biased() {
    Case c = small(70, 200);
    c.bias.present = true;
    return c;
}

nlohmann::json plan_of(const Call& call) {
    const char* json = nullptr;
    detail::check(flashtile_plan_report(&call.options, &call.inputs, nullptr, 0, &json));
    return nlohmann::json::parse(json);
}

// An executor of many threads that runs everything on one and notes how many slots it is given each time.
struct Noting {
    std::vector<std::int64_t> slots;
    flashtile_executor executor{run_all, this, 64};

    static void run_all(void* self, std::int64_t count, void (*task)(void*, std::int64_t), void* arg) {
        static_cast<Noting*>(self)->slots.push_back(count);
        for (std::int64_t n = 0; n < count; ++n) task(arg, n);
    }
};

// Each kernel of the pass is given as many threads as the plan says, and not asked for more where that is one.
void expect_slots(const std::vector<std::int64_t>& slots, const nlohmann::json& kernels) {
    std::vector<std::int64_t> planned;
    for (const auto& kernel : kernels)
        if (kernel["threads"] > 1) planned.push_back(kernel["threads"]);
    EXPECT_EQ(slots, planned) << kernels;
}

// The tasks of a dense problem cover its rows, each once.
void expect_cover(const nlohmann::json& kernel, std::int64_t heads, std::int64_t length) {
    const std::int64_t rows = kernel["task_rows"];
    EXPECT_EQ(kernel["tasks"], heads * ((length + rows - 1) / rows)) << kernel;
    EXPECT_EQ(kernel["tasks_exact"], true);
}

TEST(CpuPlan, IsWhatRuns) {
    for (const isa which : kIsas)
        for (const dtype type : kTypes)
            for (Case c : {small(), small(300, 400), biased(), packed()}) {
                if (!isa_available(which)) continue;
                SCOPED_TRACE(std::string(isa_name(which)) + " dtype " + std::to_string(static_cast<int>(type)) +
                             " seqlen_q " + std::to_string(c.seqlen_q));
                c.type = type;
                Call call(c);
                Noting noting;
                call.options.isa = static_cast<std::int32_t>(which);
                call.options.executor = &noting.executor;
                call.options.threads = 64;
                const nlohmann::json plan = plan_of(call);
                EXPECT_EQ(plan["device"], "cpu");
                EXPECT_EQ(plan["threads"], 64);
                std::size_t bytes = 0;

                const nlohmann::json& forward = plan["forward"];
                ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
                EXPECT_EQ(last_run(), "cpu " + forward["candidate"].get<std::string>() + " forward, 64 threads");
                ASSERT_EQ(flashtile_forward_workspace(&call.options, &call.inputs, &call.outputs, &bytes),
                          FLASHTILE_OK);
                EXPECT_EQ(forward["workspace"], bytes);

                const nlohmann::json& backward = plan["backward"];
                EXPECT_EQ(backward["kernels"].size(), c.bias.present ? 4u : 3u);
                if (!c.packed()) {
                    expect_slots(noting.slots, forward["kernels"]);
                    expect_cover(forward["kernels"][0], 8, c.seqlen_q);
                    expect_cover(backward["kernels"][0], 8, c.seqlen_q);
                    expect_cover(backward["kernels"][1], 4, c.seqlen_k);
                    expect_cover(backward["kernels"][2], 8, c.seqlen_q);
                    if (c.bias.present) expect_cover(backward["kernels"][3], 8, c.seqlen_q);
                } else {
                    EXPECT_EQ(forward["kernels"][0]["tasks_exact"], false);
                    EXPECT_LE(noting.slots.at(0), forward["kernels"][0]["threads"]);
                }

                noting.slots.clear();
                ASSERT_EQ(call.backward(), FLASHTILE_OK) << flashtile_last_error();
                EXPECT_EQ(last_run(), "cpu " + backward["candidate"].get<std::string>() + " backward, 64 threads");
                ASSERT_EQ(flashtile_backward_workspace(&call.options, &call.inputs, &call.gradients, &bytes),
                          FLASHTILE_OK);
                EXPECT_EQ(backward["workspace"], bytes);
                if (!c.packed()) expect_slots(noting.slots, backward["kernels"]);
            }
}

// A task of decode is a split of keys. Where lengths lie in memory their number is not known.
TEST(CpuPlan, SplitsOfKeysAreWhatRuns) {
    struct Expected {
        std::vector<std::int64_t> used_k;
        int num_splits;
        std::int64_t seqlen_k, count, keys;
        const char* why;
    };
    const char *few = "512 keys each, as up to 32768 keys", *forced = "num_splits, as far as steps of 128 keys allow";
    for (const Expected& e : {Expected{{}, 0, 1100, 3, 512, few}, Expected{{}, 3, 512, 2, 256, forced},
                              Expected{{}, 9, 1100, 9, 128, forced}, Expected{{200, 1100}, 0, 1100, 3, 512, few}}) {
        SCOPED_TRACE(e.num_splits);
        Case c = small(1, e.seqlen_k);
        c.head_dim = c.head_dim_v = 8;
        c.used_k = e.used_k;
        c.num_splits = e.num_splits;
        Call call(c);
        Noting noting;
        call.options.executor = &noting.executor;
        call.options.threads = 64;
        const nlohmann::json forward = plan_of(call)["forward"], splits = forward["splits"];
        EXPECT_EQ(splits["count"], e.count);
        EXPECT_EQ(splits["count_exact"], e.used_k.empty());
        EXPECT_EQ(splits["keys"], e.keys);
        EXPECT_EQ(splits["why"], e.why);
        const nlohmann::json &decode = forward["kernels"][0], &combine = forward["kernels"][1];
        EXPECT_EQ(decode["tasks"], 4 * e.count);  // 2 sequences, 2 key heads
        EXPECT_EQ(decode["tasks_exact"], e.used_k.empty());
        EXPECT_EQ(combine["tasks"], 8);
        EXPECT_EQ(combine["tasks_exact"], true);
        ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
        if (e.used_k.empty())
            expect_slots(noting.slots, forward["kernels"]);
        else
            EXPECT_EQ(noting.slots.at(0), 2 * (1 + 3));
    }
}

TEST(CpuPlan, SplitsOfKeysGrowWhereTheyWouldBeTooMany) {
    const auto splits = [](std::int64_t queries, std::int64_t keys) {
        const auto rows = [](std::int64_t length) {  // of which nobody reads the memory
            return view(reinterpret_cast<void*>(std::uintptr_t{64}), fp32, {1, length, 2, 8});
        };
        return nlohmann::json::parse(plan_report({}, rows(queries), rows(keys), rows(keys)))["forward"]["splits"];
    };
    EXPECT_EQ(splits(1, 32768)["count"], 64);
    const nlohmann::json longer = splits(1, 32769);
    EXPECT_EQ(longer["count"], 52);
    EXPECT_EQ(longer["keys"], 640);
    EXPECT_EQ(longer["why"], "64 at most, in steps of 128 keys");
    const nlohmann::json none = splits(100, 1000);
    EXPECT_EQ(none["count"], 1);
    EXPECT_FALSE(none.contains("keys"));
    EXPECT_EQ(none["why"], "longer sequences are not split");
}

TEST(CpuPlan, BackwardTakesNoCache) {
    Case c = small(1, 40);
    c.cache = {.present = true, .page_size = 16};
    const nlohmann::json plan = plan_of(Call(c));
    EXPECT_EQ(plan["backward"],
              (nlohmann::json{{"why_not", "it takes no cache, first_k, seqused_q, tree_mask or e4m3"}}));
    EXPECT_EQ(plan["forward"]["splits"]["count"], 1);
}

// One vector of the portable set has 4 lanes, and a panel 8 queries.
TEST(CpuPlan, BlocksFollowLengthsAndThreads) {
    const auto kernels = [](std::int64_t length, int threads) {
        Case c = small(length, length);
        c.batch = c.heads = c.kv_heads = 1;
        Call call(c);
        call.options.isa = FLASHTILE_ISA_PORTABLE;
        call.options.threads = threads;
        const nlohmann::json plan = plan_of(call);
        return std::pair(plan["forward"]["kernels"][0], plan["backward"]["kernels"][1]);
    };
    const auto [few, few_keys] = kernels(20, 1);
    EXPECT_EQ(few["Br"], 32);
    EXPECT_EQ(few["why"], "the sequence has no more");
    EXPECT_EQ(few_keys["task_rows"], 32);
    EXPECT_EQ(few_keys["Bc"], 32);
    EXPECT_EQ(few_keys["why"], "the sequence has no more");
    const auto [many, many_keys] = kernels(5000, 1);
    EXPECT_EQ(many["Br"], 64);  // K and V are read where they lie
    EXPECT_EQ(many["Bc"], 128);
    EXPECT_EQ(many["why"], "the most that a task takes");
    EXPECT_EQ(many_keys["task_rows"], 1024);
    EXPECT_EQ(many_keys["Br"], 128);
    EXPECT_EQ(many_keys["Bc"], 128);
    EXPECT_EQ(many_keys["why"], "the most that a task takes");
    const auto [shared, shared_keys] = kernels(5000, 50);
    EXPECT_EQ(shared["Br"], 16);  // 4 * 50 * 32 rows are more than 5000, 4 * 50 * 16 are not
    EXPECT_EQ(shared["why"], "so few that every thread has work");
    EXPECT_EQ(shared_keys["task_rows"], 32);
    EXPECT_EQ(shared_keys["why"], "so few that every thread has work");
}

// Sets that multiply alike give the same bits, and others do not: so the plan names what multiplied.
TEST(CpuPlan, ArithmeticIsWhatTheBitsShow) {
    for (const dtype type : {bf16, fp16})
        for (const std::int64_t seqlen_k : {6, 100}) {
            SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(type)) + " keys " + std::to_string(seqlen_k));
            std::map<std::string, std::vector<double>> lse_of;
            for (const isa which : {isa::avx512, isa::avx512_bf16, isa::amx}) {
                if (!isa_available(which)) continue;
                Case c = small(200, seqlen_k);
                c.type = type;
                Call call(c);
                call.options.isa = static_cast<std::int32_t>(which);
                const std::string arithmetic = plan_of(call)["forward"]["arithmetic"];
                ASSERT_EQ(call.forward(), FLASHTILE_OK) << flashtile_last_error();
                const std::vector<double> lse = call.data.lse.values();
                for (const auto& [other, lse_of_other] : lse_of)
                    EXPECT_EQ(lse == lse_of_other, arithmetic == other) << arithmetic << " and " << other;
                lse_of.emplace(arithmetic, lse);
            }
        }
}

TEST(CpuPlan, TilesBeginWhereItSays) {
    if (!isa_available(isa::amx)) GTEST_SKIP() << "this CPU cannot run amx";
    for (const dtype type : {bf16, fp16}) {
        Case c = small();
        c.type = type;
        const auto plan = [&](std::int64_t keys, bool invariant) {
            c.seqlen_k = keys;
            c.batch_invariant = invariant;
            Call call(c);
            call.options.isa = FLASHTILE_ISA_AMX;
            return plan_of(call)["backward"];
        };
        const std::int64_t from = plan(1, false)["tiles_from"];
        EXPECT_EQ(from, type == bf16 ? 16 : 64);
        EXPECT_EQ(plan(from - 1, false)["arithmetic"], "fp32 vectors");
        EXPECT_EQ(plan(from - 1, false)["why_arithmetic"], "faster than tiles for so few keys");
        EXPECT_EQ(plan(from, false)["arithmetic"].get<std::string>().substr(0, 10), "bf16 tiles");
        EXPECT_EQ(plan(1, true)["arithmetic"], plan(from, false)["arithmetic"]);
    }
}

TEST(CpuPlan, SaysWhyInstructionSetsArePassedOver) {
    Call call(small());
    call.options.isa = FLASHTILE_ISA_PORTABLE;
    const nlohmann::json forced = plan_of(call)["forward"];
    EXPECT_EQ(forced["why"], "isa is portable");
    EXPECT_EQ(forced["passed_over"], (nlohmann::json{{"neon_bf16", "isa is portable"},
                                                     {"amx", "isa is portable"},
                                                     {"avx512_bf16", "isa is portable"},
                                                     {"avx512", "isa is portable"},
                                                     {"avx2", "isa is portable"}}));
    if (std::getenv("FLASHTILE_ISA") != nullptr) return;
    call.options.isa = FLASHTILE_ISA_AUTO;
    const nlohmann::json free = plan_of(call)["forward"];
    EXPECT_EQ(free["candidate"], isa_name(static_cast<isa>(flashtile_isa_chosen(FLASHTILE_FP32))));
    EXPECT_EQ(free["passed_over"].size(), 5u);
    EXPECT_EQ(free["passed_over"]["amx"], "its tiles multiply no fp32");
    for (const char* which : {"avx512_bf16", "neon_bf16"})
        EXPECT_EQ(free["passed_over"][which], "its dot product takes bf16 alone");
    for (const isa which : {isa::avx2, isa::avx512})
        if (!isa_available(which)) {
            EXPECT_EQ(free["passed_over"][isa_name(which)], isa_why_not(which));
        }
    if (free["candidate"] != "portable") {
        EXPECT_EQ(free["passed_over"]["portable"], "a faster one serves");
    }
}

TEST(CpuPlan, AForcedSetThatCannotRunIsTheAnswer) {
    for (const isa which : kIsas) {
        if (isa_available(which)) continue;
        Call call(small());
        call.options.isa = static_cast<std::int32_t>(which);
        const nlohmann::json plan = plan_of(call);
        EXPECT_EQ(call.forward(), FLASHTILE_UNSUPPORTED);
        EXPECT_EQ(plan["forward"], (nlohmann::json{{"why_not", flashtile_last_error()}}));
        EXPECT_EQ(plan["backward"], plan["forward"]);
    }
}

// Neither the rows of a cache nor the groups that share a prefix.
TEST(CpuPlan, ReadsNoList) {
    Case rows = small(), prefixes = small();
    rows.cache = {.present = true, .page_size = 0};
    prefixes.cache = {.present = true, .page_size = 4, .groups = {0, 2}, .prefixes = {8}};
    for (const Case& c : {rows, prefixes}) {
        Call call(c);
        const nlohmann::json plan = plan_of(call)["forward"];
        for (flashtile_tensor* t :
             {&call.block_table, &call.cache_batch_idx, &call.prefix_groups, &call.prefix_lengths})
            t->data = reinterpret_cast<void*>(std::uintptr_t{64});
        EXPECT_EQ(plan_of(call)["forward"], plan);
    }
}

TEST(CpuPlan, ReadsNoMemory) {
    Call call(packed());
    for (flashtile_tensor* t : {&call.q, &call.k, &call.v, &call.cu_seqlens_q, &call.cu_seqlens_k})
        t->data = reinterpret_cast<void*>(std::uintptr_t{64});
    EXPECT_TRUE(plan_of(call)["backward"].contains("kernels"));
}

TEST(CpuPlan, RefusesWhatCannotBe) {
    const auto refusal = [](const Call& call, const char* device_name, const char** json) {
        EXPECT_EQ(flashtile_plan_report(&call.options, &call.inputs, device_name, 0, json), FLASHTILE_INVALID_ARGUMENT);
        return std::string(flashtile_last_error());
    };
    const char* json = nullptr;
    Call call(small());
    EXPECT_EQ(refusal(call, "H200", &json), "device_name is 'H200', allowed for tensors on the CPU is NULL");
    EXPECT_EQ(refusal(call, nullptr, nullptr), "json is NULL, allowed is a pointer");
    call.options.softcap = -1.0f;
    EXPECT_EQ(refusal(call, nullptr, &json), "softcap is -1, allowed is 0 (off) or a number from 1e-30");
    EXPECT_EQ(json, nullptr);
}

TEST(Environment, ThePlanNamesWhatItChose) {
    const char* wish = std::getenv("FLASHTILE_ISA");
    if (wish == nullptr) GTEST_SKIP() << "FLASHTILE_ISA is not set";
    const nlohmann::json forward = plan_of(Call(small()))["forward"];
    EXPECT_EQ(forward["candidate"], wish);
    EXPECT_EQ(forward["why"], std::string("FLASHTILE_ISA is ") + wish);
}

}  // namespace
}  // namespace flashtile::unit

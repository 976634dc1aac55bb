// tuned_tile_test.cpp: what a tuned tile holds for, that the planner takes it there and nowhere else, the text that it
// is kept as, and that every alternative tile has a plan that fits.
#include "cuda/tuned_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cuda/kernel_names.h"
#include "cuda/plan/tile_fit.h"
#include "flashtile/version.h"
#include "functions/functions.h"

namespace flashtile::gpu {
namespace {

Problem problem(int d = 128, DType dtype = DType::bf16) {
    Problem p;
    p.dtype = dtype;
    p.batch = 4;
    p.heads = p.kv_heads = 16;
    p.seqlen_q = p.seqlen_k = 4096;
    p.head_dim = p.head_dim_v = d;
    p.scale = 0.125f;
    return p;
}

std::vector<TunedTile> forward_alternatives(const Problem& p, const DeviceFacts& device) {
    return alternatives_of(plan_forward(p, contiguous_access(p), device).main(), p, device);
}

Launch forward_with(const TunedTile& tuned, const Problem& p, const DeviceFacts& device) {
    return plan_forward(p, contiguous_access(p), device, {&tuned, 1}).main();
}

// An alternative to the table's tile, with a measurement.
TunedTile other(const Problem& p, const DeviceFacts& device) {
    TunedTile tuned = forward_alternatives(p, device).at(1);
    tuned.nanoseconds = 1234500;
    tuned.table_nanoseconds = 1300000;
    return parse_tuned_tile(to_text(tuned)).value();
}

TEST(TunedTile, ThePlannerTakesItAndSaysWhatWasMeasured) {
    for (const char* name : {"A100-80", "RTX 4090", "H200"}) {
        const DeviceFacts& device = known_device(name);
        const Launch table = plan_forward(problem(), contiguous_access(problem()), device).main();
        EXPECT_FALSE(table.measured);
        const TunedTile tuned = other(problem(), device);
        const Launch kernel = forward_with(tuned, problem(), device);
        EXPECT_TRUE(kernel.measured);
        EXPECT_EQ(kernel.config.Br, tuned.tile.Br);
        EXPECT_EQ(kernel.config.Bc, tuned.tile.Bc);
        EXPECT_EQ(kernel.config.warps, tuned.tile.warps);
        EXPECT_EQ(kernel.config.stages, tuned.tile.stages);
        EXPECT_NE(kernel.config, table.config);
        EXPECT_STREQ(kernel.why,
                     "measured on this GPU, batch 4, 16 heads, 16 key heads: 1234.5 us, the table's tile 1300.0 us");
    }
}

// The rest of a backward plan follows the tile: kernels before and after it, and the workspace, whose units are Br.
TEST(TunedTile, BackwardsOtherKernelsAndWorkspaceFollow) {
    const DeviceFacts& device = known_device("A100-80");
    const Problem p = problem();
    const Plan table = plan_backward(p, contiguous_access(p), device);
    const std::vector<TunedTile> list = alternatives_of(table.main(), p, device);
    const auto found =
        std::ranges::find_if(list, [&](const TunedTile& c) { return c.tile.Br != table.main().config.Br; });
    ASSERT_NE(found, list.end());
    const Plan plan = plan_backward(p, contiguous_access(p), device, {&*found, 1});
    EXPECT_TRUE(plan.main().measured);
    EXPECT_EQ(plan.main().config.Br, found->tile.Br);
    EXPECT_EQ(plan.launches[0].config.Br, found->tile.Br);
    EXPECT_EQ(plan.launches[2].config.Br, found->tile.Br);
    EXPECT_EQ(plan.units, 4 * 4096 / found->tile.Br + 4);
    EXPECT_EQ(plan.launches[0].blocks, 4096 / found->tile.Br * 16 * 4);
}

TEST(TunedTile, HoldsForItsKindOfProblemOnly) {
    const DeviceFacts& device = known_device("H200");
    const Problem p = problem();
    const TunedTile tuned = other(p, device);
    const auto taken = [&](auto change) {
        Problem changed = p;
        change(changed);
        return forward_with(tuned, changed, device).measured;
    };
    EXPECT_TRUE(taken([](Problem&) {}));
    EXPECT_TRUE(taken([](Problem& q) { q.batch = 9, q.kv_heads = 2, q.scale = 0.5f; }));
    // 4096 stands for 3072 to 6143.
    EXPECT_TRUE(taken([](Problem& q) { q.seqlen_q = 3072, q.seqlen_k = 6143; }));
    EXPECT_FALSE(taken([](Problem& q) { q.seqlen_q = 3071; }));
    EXPECT_FALSE(taken([](Problem& q) { q.seqlen_k = 6144; }));
    // as the kernel sees them, heads of 113 to 128 columns are equally wide
    EXPECT_TRUE(taken([](Problem& q) { q.head_dim = 120; }));
    EXPECT_FALSE(taken([](Problem& q) { q.head_dim = 112; }));
    EXPECT_FALSE(taken([](Problem& q) { q.dtype = DType::fp16; }));
    EXPECT_FALSE(taken([](Problem& q) { q.window_right = 0; }));
    EXPECT_FALSE(taken([](Problem& q) { q.softcap = 30.0f; }));
    // 128 blocks of 128 queries, and 132 multiprocessors
    EXPECT_FALSE(taken([](Problem& q) { q.batch = 1, q.heads = q.kv_heads = 4; }));
    EXPECT_FALSE(taken([](Problem& q) { q.batch_invariant = true; }))
        << "a row's bits would depend on the longest sequence of its batch";
}

// Numbers of functions are a process's own, and so no tile is for certain functions.
TEST(TunedTile, HoldsForAllFunctionsOfAKind) {
    const DeviceFacts& device = known_device("H200");
    const auto with_score = [](const char* text) {
        Problem p = problem();
        p.functions = functions::number_of(text, "", {});
        return p;
    };
    const TunedTile tuned = other(with_score("s + 1.0"), device);
    EXPECT_TRUE(forward_with(tuned, with_score("s + 1.0"), device).measured);
    const Launch another = forward_with(tuned, with_score("s + 2.0"), device);
    EXPECT_TRUE(another.measured);
    EXPECT_EQ(another.config.functions, with_score("s + 2.0").functions);
    Problem masked = problem();
    masked.functions = functions::number_of("", "i >= j", {});
    EXPECT_FALSE(forward_with(tuned, masked, device).measured);
}

TEST(TunedTile, LseDoesNotCount) {
    const DeviceFacts& device = known_device("H200");
    const TunedTile tuned = other(problem(), device);
    Access access = contiguous_access(problem());
    access.lse = false;
    EXPECT_TRUE(plan_forward(problem(), access, device, {&tuned, 1}).main().measured);
}

// As when a later version's kernel no longer takes a tile, or the GPU has less shared memory.
TEST(TunedTile, WhatIsNotLegalIsIgnored) {
    const DeviceFacts& device = known_device("H200");
    const Launch table = plan_forward(problem(), contiguous_access(problem()), device).main();
    const TunedTile good = other(problem(), device);
    const std::vector<void (*)(Tile&)> changes = {
        [](Tile& t) { t.Br = 100; },   [](Tile& t) { t.Bc += 16; },          [](Tile& t) { t.warps = 0; },
        [](Tile& t) { t.stages = 9; }, [](Tile& t) { t.blocks_per_sm = 7; },
    };
    for (const auto change : changes) {
        TunedTile bad = good;
        change(bad.tile);
        EXPECT_EQ(forward_with(bad, problem(), device).config, table.config) << to_text(bad);
    }
}

TEST(TunedTile, WhatDoesNotFitIsIgnored) {
    const DeviceFacts& device = known_device("H200");
    Problem narrow = problem();  // wider heads' own tiles already fill shared memory
    narrow.head_dim = narrow.head_dim_v = 64;
    const Launch table = plan_forward(narrow, contiguous_access(narrow), device).main();
    DeviceFacts small = device;
    small.shared_memory_per_block = table.shared_memory;
    const std::vector<TunedTile> list = forward_alternatives(narrow, device);
    const auto large = std::ranges::find_if(list, [&](const TunedTile& c) {
        return with_tile(table.config, c.tile, device)->shared_memory > table.shared_memory;
    });
    ASSERT_NE(large, list.end());
    EXPECT_TRUE(forward_with(*large, narrow, device).measured);
    EXPECT_FALSE(forward_with(*large, narrow, small).measured);
}

TEST(TunedTile, TheTablesOwnTileMayHaveWon) {
    const DeviceFacts& device = known_device("H200");
    const TunedTile own = forward_alternatives(problem(), device).front();
    const Launch table = plan_forward(problem(), contiguous_access(problem()), device).main();
    const Launch kernel = forward_with(own, problem(), device);
    EXPECT_EQ(kernel.config, table.config);
    EXPECT_TRUE(kernel.measured);
}

TEST(TunedTileText, ComesBackAsItWas) {
    const DeviceFacts& device = known_device("RTX 4090");
    const TunedTile tuned = other(problem(), device);
    EXPECT_EQ(tuned.version, FLASHTILE_VERSION_STRING);
    EXPECT_EQ(tuned.device, "RTX_4090/89");
    EXPECT_EQ(tuned.batch, 4);
    EXPECT_EQ(tuned.nanoseconds, 1234500);
    EXPECT_TRUE(tuned.subject.full);
    EXPECT_EQ(tuned.subject.seqlen_q, 4096);
    const std::string line = to_text(tuned);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    EXPECT_NE(line.find(" kernel=forward_sm80 element=bf16 head_dim=128 "), std::string::npos) << line;
    const TunedTile again = parse_tuned_tile(line).value();
    EXPECT_EQ(to_text(again), line);
    EXPECT_EQ(again.subject, tuned.subject);
}

TEST(TunedTileText, AnythingElseIsNone) {
    const std::string line = to_text(other(problem(), known_device("H200")));
    ASSERT_TRUE(parse_tuned_tile(line));
    for (std::size_t bytes = 0; bytes < line.size(); ++bytes) {
        // The last number cut short is a number still.
        if (line.substr(bytes).find_first_not_of("0123456789") == std::string::npos && line[bytes - 1] != '=') continue;
        EXPECT_FALSE(parse_tuned_tile(line.substr(0, bytes))) << bytes;
    }
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = line;
        const std::size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return changed.replace(at, from.size(), to);
    };
    EXPECT_TRUE(parse_tuned_tile(with("full=1", "full=0")));
    for (const auto& [from, to] : {std::pair("full=1", "full=2"),
                                   {"full=1", "full="},
                                   {"full=1", "full=01"},
                                   {"full=1", "Full=1"},
                                   {"seqlen_q=4096", "seqlen_q=-4096"},
                                   {"seqlen_q=4096", "seqlen_q=4096x"},
                                   {"seqlen_q=4096", "seqlen_q=99999999999999999999"},
                                   {"warps=", "warps=4294967296"},
                                   {"kernel=forward_sm90", "kernel=forward_sm70"},
                                   {"kernel=forward_sm90", "kernel=unknown"},
                                   {"element=bf16", "element=fp64"},
                                   {"element=bf16", "element=unknown"},
                                   {" seqlen_k=", " more=1 seqlen_k="},
                                   {" full=1", "  full=1"}})
        EXPECT_FALSE(parse_tuned_tile(with(from, to))) << to;
    EXPECT_FALSE(parse_tuned_tile(line + " "));
    EXPECT_FALSE(parse_tuned_tile(line + " more=1"));
    EXPECT_FALSE(parse_tuned_tile(" " + line));
    EXPECT_FALSE(parse_tuned_tile(""));
}

// Every GPU, both passes, with options: each alternative is taken by the planner, fits, and leaves a plan for dbias.
TEST(Alternatives, AllHavePlans) {
    std::set<std::string> kernels;
    for (const DeviceFacts& device : known_devices())
        for (const int d : {16, 64, 80, 128, 192, 200, 256})
            for (const int options : {0, 1, 2}) {
                Problem p = problem(d);
                if (options == 1) p.window_right = 0;
                if (options == 2) p.bias = p.dtype;
                Access access = contiguous_access(p);
                access.dbias = options == 2;
                const auto check = [&](const Launch& table, auto with) {
                    const std::vector<TunedTile> list = alternatives_of(table, p, device);
                    std::set<std::string> tiles;
                    for (const TunedTile& tuned : list) {
                        tiles.insert(describe(tuned.tile));
                        const Launch kernel = with(tuned);
                        EXPECT_TRUE(kernel.measured) << to_text(tuned);
                        EXPECT_LE(kernel.shared_memory, device.shared_memory_per_block);
                        EXPECT_LE(kernel.config.blocks_per_sm * (kernel.shared_memory + 1024),
                                  device.shared_memory_per_multiprocessor);
                        kernels.insert(name_of(kernel.config.kernel));
                    }
                    EXPECT_EQ(tiles.size(), list.size()) << "a tile twice";
                    EXPECT_NE(list.size(), 1u);
                };
                check(plan_forward(p, access, device).main(), [&](const TunedTile& tuned) {
                    return plan_forward(p, access, device, {&tuned, 1}).main();
                });
                check(plan_backward(p, access, device).main(), [&](const TunedTile& tuned) {
                    const Plan plan = plan_backward(p, access, device, {&tuned, 1});
                    EXPECT_EQ(plan.find(Kernel::backward_bias_sm80) != nullptr, access.dbias);
                    return plan.main();
                });
            }
    EXPECT_EQ(kernels, (std::set<std::string>{"forward_sm80", "forward_sm90", "backward_sm80", "backward_sm90",
                                              "backward_wide_sm90"}));
}

// A tile of a long problem's is checked on a short one.
TEST(Alternatives, AreTheSameAtEveryLength) {
    for (const DeviceFacts& device : known_devices())
        for (const int d : {64, 128, 192, 256})
            for (const bool dropout : {false, true}) {
                const auto tiles_at = [&](std::int64_t length) {
                    Problem p = problem(d);
                    p.seqlen_q = p.seqlen_k = length;
                    p.dropout_threshold = dropout ? 6554 : 0;
                    std::set<std::string> tiles;
                    for (const TunedTile& tuned : forward_alternatives(p, device)) tiles.insert(describe(tuned.tile));
                    for (const TunedTile& tuned :
                         alternatives_of(plan_backward(p, contiguous_access(p), device).main(), p, device))
                        tiles.insert("backward " + describe(tuned.tile));
                    return tiles;
                };
                EXPECT_EQ(tiles_at(600), tiles_at(2500)) << device.name << " d=" << d;
                EXPECT_EQ(tiles_at(600), tiles_at(9000)) << device.name << " d=" << d;
            }
}

TEST(Alternatives, NoneWhereNothingIsListed) {
    const DeviceFacts& device = known_device("H200");
    EXPECT_TRUE(forward_alternatives(problem(128, DType::fp32), device).empty());
    EXPECT_TRUE(forward_alternatives(problem(512), device).empty());
    EXPECT_GE(forward_alternatives(problem(128), device).size(), 4u);
    Problem p = problem();
    p.batch_invariant = true;
    EXPECT_TRUE(forward_alternatives(p, device).empty());
}

}  // namespace
}  // namespace flashtile::gpu

// decode_tasks_test.cpp: which sequences a task of few queries serves.
#include "cpu/decode_tasks.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

namespace flashtile {
namespace {

// Each split of each sequence has one task, and those in a prefix one for all sequences of the group.
TEST(DecodeTasks, ReadAPrefixOnce) {
    const std::vector<std::int32_t> groups{0, 3, 4}, prefixes{1100, 600}, used{1500, 1101, 1250, 700, 700};
    Problem p;
    p.batch = 5;
    p.heads = p.kv_heads = 2;
    p.seqlen_q = 1;
    p.seqlen_k = 2000;
    p.prefix_groups = 2;
    Operands x;
    x.prefix_groups = {groups.data(), false};
    x.prefix_lengths = {prefixes.data(), false};
    x.seqused_k = {used.data(), false};
    cpu::DecodePlan plan{.queries = 8, .splits = 4, .stored = true};
    const auto tasks_of = [&] {
        const cpu::DecodeTasks tasks(p, x, plan);
        std::map<std::array<std::int64_t, 3>, int> count;  // of a sequence, key head and split
        std::int64_t together = 0;
        for (std::int64_t n = 0; n < tasks.count(); ++n) {
            const cpu::KeyRange range = tasks[n];
            together += range.end_b - range.b > 1;
            for (std::int64_t b = range.b; b < range.end_b; ++b)
                for (std::int64_t split = range.first; split < range.end; ++split) ++count[{b, range.kv_head, split}];
        }
        EXPECT_EQ(tasks.sequences(), 5);
        EXPECT_EQ(count.size(), 2u * (3 + 3 + 3 + 2 + 2));  // splits of 512 keys
        for (const auto& [key, times] : count) EXPECT_EQ(times, 1) << key[0] << ' ' << key[2];
        return together;
    };
    EXPECT_EQ(tasks_of(), 2 * 2);  // two splits of three sequences; a group of one shares nothing
    p.window_left = 100;
    EXPECT_EQ(tasks_of(), 0) << "a sequence may hide what another sees";
    p.window_left = -1;
    p.diagonals = true;
    EXPECT_EQ(tasks_of(), 0) << "likewise where each has a diagonal of its own";
}

// Tasks of all key heads have each split once, too.
TEST(DecodeTasks, TakeAllKeyHeadsTogether) {
    Problem p;
    p.batch = 2;
    p.heads = 8;
    p.kv_heads = 4;
    p.seqlen_q = 1;
    p.seqlen_k = 1100;
    const Operands x;
    for (const std::int64_t together : {1, 2, 5}) {
        const cpu::DecodePlan plan{.queries = 8, .splits = 3, .stored = true, .key_heads = 4, .task_splits = together};
        const cpu::DecodeTasks tasks(p, x, plan);
        std::map<std::array<std::int64_t, 2>, int> count;  // of a sequence and split
        for (std::int64_t n = 0; n < tasks.count(); ++n) {
            EXPECT_EQ(tasks[n].kv_head, 0);
            EXPECT_EQ(tasks[n].end_kv_head, 4);
            for (std::int64_t split = tasks[n].first; split < tasks[n].end; ++split) ++count[{tasks[n].b, split}];
        }
        EXPECT_EQ(tasks.count(), 2 * (together == 1 ? 3 : together == 2 ? 2 : 1));
        EXPECT_EQ(count.size(), 2u * 3);
        for (const auto& [split, times] : count) EXPECT_EQ(times, 1) << split[0] << ' ' << split[1];
    }
}

}  // namespace
}  // namespace flashtile

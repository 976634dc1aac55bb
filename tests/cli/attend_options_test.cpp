// attend_options_test.cpp: each flag of `flashtile attend` that changes what is computed, and all of them together.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "attention_files.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

using oracle::Precision;
using oracle::Problem;

oracle::Broadcast random_bias(const std::array<std::int64_t, 4>& shape) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    oracle::Broadcast bias{shape,
                           std::vector<double>(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]))};
    for (double& value : bias.values) value = normal(random);
    return bias;
}

// Keeps two of three, and nothing in the first row.
oracle::Broadcast some_mask(const std::array<std::int64_t, 4>& shape) {
    oracle::Broadcast mask = random_bias(shape);
    for (std::size_t n = 0; n < mask.values.size(); ++n)
        mask.values[n] = static_cast<std::int64_t>(n) >= shape[3] && n % 3 != 0 ? 1.0 : 0.0;
    return mask;
}

struct OptionCase {
    const char* name;
    Command flags;
    std::function<void(Problem&)> meaning;
    const char* bias_dtype = "fp32";
    const char* mask_dtype = "bool";
    Precision computed = Precision::fp32;
    const char* slopes_flag = "alibi";
};

void PrintTo(const OptionCase& c, std::ostream* stream) {
    *stream << c.name;
}

class AttendOptions : public testing::TestWithParam<OptionCase> {};

TEST_P(AttendOptions, MeanWhatTheOracleTakesThemFor) {
    const OptionCase& c = GetParam();
    const Sizes sizes;
    Problem problem = random_problem(sizes);
    c.meaning(problem);
    const Arranged files = arrange(problem, sizes);

    const TemporaryFolder folder;
    Command command = {"attend"};
    const auto add = [&](const std::string& flag, const Tensor& tensor) {
        write_npy(folder.file(flag + ".npy"), tensor);
        command.insert(command.end(), {"--" + flag, folder.file(flag + ".npy")});
    };
    add("q", files.q);
    add("k", files.k);
    add("v", files.v);
    // Without the leading dimensions of size 1, as NumPy broadcasts.
    const auto shape_of = [](const oracle::Broadcast& tensor) {
        const auto first = std::find_if(tensor.shape.begin(), tensor.shape.end(), [](auto size) { return size != 1; });
        return std::vector<std::int64_t>(first, tensor.shape.end());
    };
    if (problem.bias.present()) add("bias", {c.bias_dtype, shape_of(problem.bias), problem.bias.values});
    if (problem.mask.present()) add("mask", {c.mask_dtype, shape_of(problem.mask), problem.mask.values});
    if (!problem.slopes.empty()) {
        std::vector<std::int64_t> shape = {sizes.heads};
        if (problem.slopes_per_batch) shape.insert(shape.begin(), sizes.batch);
        add(c.slopes_flag, {"fp32", shape, problem.slopes});
    }
    command.insert(command.end(), {"--out", folder.file("out.safetensors"), "--lse", folder.file("lse.npy")});
    command.insert(command.end(), c.flags.begin(), c.flags.end());

    const Ending ending = flashtile(command);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    expect_right(problem, sizes, "bshd", c.computed, read_safetensors(folder.file("out.safetensors"), "out"),
                 read_npy(folder.file("lse.npy")));
}

// ALiBi and a window, written as functions.
TEST(AttendFunctions, MeanWhatTheOracleTakesTheOptionsFor) {
    const Sizes sizes;
    Problem problem = random_problem(sizes);
    problem.slopes = {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625};
    problem.window_left = 5, problem.window_right = 2;
    const Arranged files = arrange(problem, sizes);
    const TemporaryFolder folder;
    Command command = {"attend"};
    for (const auto& [name, tensor] : {std::pair("q", &files.q), std::pair("k", &files.k), std::pair("v", &files.v)}) {
        write_npy(folder.file(std::string(name) + ".npy"), *tensor);
        command.insert(command.end(), {std::string("--") + name, folder.file(std::string(name) + ".npy")});
    }
    // fp64 is read as fp32.
    write_npy(folder.file("slopes.npy"), {"fp64", {sizes.heads}, problem.slopes});
    command.insert(command.end(), {"--score-function=s - slope[h] * abs(i + seqlen_k - seqlen_q - j)",
                                   "--mask-function=d = j - i - seqlen_k + seqlen_q; -5 <= d && d <= 2",
                                   "--function-tensor", "slope=" + folder.file("slopes.npy"), "--out",
                                   folder.file("out.safetensors"), "--lse", folder.file("lse.npy")});
    const Ending ending = flashtile(command);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    expect_right(problem, sizes, "bshd", Precision::fp32, read_safetensors(folder.file("out.safetensors"), "out"),
                 read_npy(folder.file("lse.npy")));

    command.back() = folder.file("other.npy");
    for (std::string& word : command)
        if (word.starts_with("slope=")) word = "slope";
    const Ending refused = flashtile(command);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("--function-tensor: is 'slope', allowed is a name, = and what it is"), std::string::npos)
        << refused.err;
}

// Blocks of 64 x 64: a hidden one in each row, full ones, and others in which a mask function counts.
TEST(AttendBlockLists, HideWhatTheyDoNotName) {
    const Sizes sizes{.seqlen_q = 100, .seqlen_k = 150};
    Problem problem = random_problem(sizes);
    problem.mask = {{1, 1, 100, 150}, std::vector<double>(100 * 150)};
    for (std::size_t i = 0; i < 100; ++i)
        for (std::size_t j = 0; j < 150; ++j) {
            const bool hidden = i < 64 ? j / 64 == 1 : j / 64 == 0;
            problem.mask.values[i * 150 + j] = !hidden && (j / 64 == 2 || i % 3 != 0 || i >= 64) ? 1.0 : 0.0;
        }
    const Arranged files = arrange(problem, sizes);
    const TemporaryFolder folder;
    Command command = {"attend"};
    for (const auto& [name, tensor] : {std::pair("q", &files.q), std::pair("k", &files.k), std::pair("v", &files.v)}) {
        write_npy(folder.file(std::string(name) + ".npy"), *tensor);
        command.insert(command.end(), {std::string("--") + name, folder.file(std::string(name) + ".npy")});
    }
    // of 64 queries the mask function hides a third of the first block of keys; the third one is full
    write_safetensors(folder.file("lists.safetensors"), {{"counts", {"int32", {1, 1, 2}, {1, 2}}},
                                                         {"indices", {"int32", {1, 1, 2, 2}, {0, 9, 2, 1}}},
                                                         {"full_counts", {"int32", {1, 1, 2}, {1, 0}}},
                                                         {"full_indices", {"int32", {1, 1, 2, 1}, {2, 7}}}});
    command.insert(command.end(), {"--block-lists", folder.file("lists.safetensors"), "--block-size=64,64",
                                   "--mask-function=i % 3 != 0 || i >= 64", "--out", folder.file("out.npy")});
    const Ending ending = flashtile(command);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    expect_right(problem, sizes, "bshd", Precision::fp32, read_npy(folder.file("out.npy")));

    write_safetensors(folder.file("lists.safetensors"), {{"counts", {"int32", {1, 1, 2}, {1, 2}}}});
    const Ending refused = flashtile(command);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.err.find("indices"), std::string::npos) << refused.err;
}

constexpr Sizes sizes;
const std::vector<double> slopes = {0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625};

const std::vector<OptionCase> option_cases = {
    {"causal", {"--causal"}, [](Problem& p) { p.causal = true; }},
    {"causal_bottom_right", {"--causal=bottom-right"}, [](Problem& p) { p.causal = true; }},
    {"causal_top_left", {"--causal=top-left"}, [](Problem& p) { p.causal = p.top_left = true; }},
    {"window",
     {"--window=5,2"},
     [](Problem& p) {
         p.window_left = 5;
         p.window_right = 2;
     }},
    {"window_open_to_the_left", {"--window=-1,3"}, [](Problem& p) { p.window_right = 3; }},
    {"window_open_to_the_right", {"--window", "0,-1"}, [](Problem& p) { p.window_left = 0; }},
    {"window_top_left",
     {"--window=4,4", "--align=top-left"},
     [](Problem& p) {
         p.window_left = p.window_right = 4;
         p.top_left = true;
     }},
    {"window_aligned_as_c_spells_it",
     {"--window=4,4", "--alignment=top-left"},
     [](Problem& p) {
         p.window_left = p.window_right = 4;
         p.top_left = true;
     }},
    {"softcap", {"--softcap=1.5"}, [](Problem& p) { p.softcap = 1.5; }},
    {"scale", {"--scale=0.75"}, [](Problem& p) { p.scale = 0.75; }},
    {"scale_negative", {"--scale=-0.25"}, [](Problem& p) { p.scale = -0.25; }},
    {"alibi", {}, [](Problem& p) { p.slopes = slopes; }},
    {"alibi_as_the_library_spells_it",
     {},
     [](Problem& p) { p.slopes = slopes; },
     "fp32",
     "bool",
     Precision::fp32,
     "alibi-slopes"},
    {"alibi_per_batch",
     {"--causal"},
     [](Problem& p) {
         p.slopes = slopes;
         p.slopes.insert(p.slopes.end(), slopes.rbegin(), slopes.rend());
         p.slopes_per_batch = p.causal = true;
     }},
    {"bias",
     {},
     [](Problem& p) {
         p.bias = random_bias({sizes.batch, sizes.heads, sizes.seqlen_q, sizes.seqlen_k});
     }},
    {"bias_of_heads_and_keys",
     {},
     [](Problem& p) {
         p.bias = random_bias({1, sizes.heads, 1, sizes.seqlen_k});
     }},
    {"bias_fp64",
     {},
     [](Problem& p) {
         p.bias = random_bias({sizes.batch, 1, sizes.seqlen_q, 1});
     },
     "fp64"},
    {"bias_and_alibi_stay_in_fp32",
     {"--dtype=bf16"},
     [](Problem& p) {
         p.slopes = slopes;
         p.bias = random_bias({1, sizes.heads, sizes.seqlen_q, sizes.seqlen_k});
         p.bias_in_fp32 = true;
     },
     "fp32",
     "bool",
     Precision::bf16},
    {"mask",
     {},
     [](Problem& p) {
         p.mask = some_mask({sizes.batch, sizes.heads, sizes.seqlen_q, sizes.seqlen_k});
     }},
    {"mask_of_keys",
     {},
     [](Problem& p) {
         p.mask = some_mask({sizes.batch, 1, 1, sizes.seqlen_k});
     }},
    {"mask_uint8",
     {},
     [](Problem& p) {
         p.mask = some_mask({1, 1, sizes.seqlen_q, sizes.seqlen_k});
     },
     "fp32",
     "uint8"},
    {"dropout",
     {"--dropout=0.3", "--seed=77"},
     [](Problem& p) {
         p.dropout = 0.3;
         p.seed = 77;
     }},
    {"dropout_as_python_spells_it",
     {"--dropout-p=0.3", "--seed=77"},
     [](Problem& p) {
         p.dropout = 0.3;
         p.seed = 77;
     }},
    {"dropout_largest_seed",
     {"--dropout=0.5", "--seed=18446744073709551615"},
     [](Problem& p) {
         p.dropout = 0.5;
         p.seed = ~std::uint64_t{0};
     }},
    {"exact_max", {"--exact-max"}, [](Problem&) {}},
    {"batch_invariant", {"--batch-invariant"}, [](Problem&) {}},
    {"all_together",
     {"--causal=top-left", "--window=20,-1", "--softcap=3", "--scale=0.5", "--dropout=0.125", "--seed=3",
      "--batch-invariant", "--exact-max"},
     [](Problem& p) {
         p.causal = p.top_left = true;
         p.window_left = 20;
         p.softcap = 3.0;
         p.scale = 0.5;
         p.dropout = 0.125;
         p.seed = 3;
         p.slopes = slopes;
         p.bias = random_bias({1, sizes.heads, sizes.seqlen_q, sizes.seqlen_k});
         p.mask = some_mask({sizes.batch, 1, sizes.seqlen_q, sizes.seqlen_k});
     }},
};

INSTANTIATE_TEST_SUITE_P(All, AttendOptions, testing::ValuesIn(option_cases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace flashtile::tests

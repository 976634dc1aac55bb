// render_test.cpp: the text of a kernel's translation unit, what it includes, and the key it is kept under.
#include "cuda/jit/render.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "core/error.h"
#include "cuda/jit/compile.h"
#include "cuda/jit/function_source.h"
#include "cuda/jit/kernel_sources.h"
#include "functions/functions.h"
#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

#define TEXT_OF(...) #__VA_ARGS__
#define AS_TEXT(...) TEXT_OF(__VA_ARGS__)

// Every field with another value than its default, so that the text of each is seen. The compiler reads these words as
// C++, and the test holds to_string against the same words as text.
// clang-format off
#define CONFIG flashtile::KernelConfig{.kernel = flashtile::Kernel::backward_sm80, .element = flashtile::Element::fp16, .head_dim = 96, .head_dim_v = 128, .value_slices = 3, .group_rows = 4, .Br = 64, .Bc = 32, .warps = 8, .stages = 2, .warps_s = 3, .warps_dkv = 4, .warps_dq = 5, .blocks_per_sm = 6, .vector_bytes = 16, .out_element = flashtile::Element::fp32, .converts_q = true, .converts_kv = true, .scale_blocks = true, .lse = true, .band = true, .window = true, .packed = true, .seqused = true, .seqused_q = true, .cache = true, .paged = true, .first_k = true, .chunk = true, .diagonals = true, .tree_mask = true, .sinks = true, .scale_first = true, .softcap = true, .alibi = true, .bias = flashtile::BiasElement::same, .bias_mapped = true, .mask = true, .functions = 7, .score_function = true, .mask_function = true, .block_lists = true, .lists_alone = true, .narrow_lists = true, .near_positions = true, .map_of_keys = true, .dropout = true, .shifted_dropout = true, .deterministic = true, .lazy_rescale = true, .shares = true, .prefixes = true, .split = true, .exact_max = true, .head_parts = 2}
// clang-format on

TEST(Render, TheConfigIsTheCppThatMakesIt) {
    EXPECT_EQ(to_string(CONFIG), AS_TEXT(CONFIG));
    EXPECT_NE(to_string(KernelConfig{}).find(".bias = flashtile::BiasElement::none, .bias_mapped = false"),
              std::string::npos);
}

TEST(Render, EveryKernelNamesItsFileAndFunction) {
    const std::pair<Kernel, const char*> expected[] = {{Kernel::forward_sm80, "forward_sm80"},
                                                       {Kernel::backward_prepare, "backward_prepare"},
                                                       {Kernel::backward_sm80, "backward_sm80"},
                                                       {Kernel::backward_finish, "backward_finish"},
                                                       {Kernel::backward_bias_sm80, "backward_bias_sm80"}};
    for (const auto& [kernel, name] : expected) {
        const std::string text = render({.kernel = kernel});
        EXPECT_NE(text.find("\n#include \"cuda/kernels/" + std::string(name) + ".h\"\n"), std::string::npos) << text;
        EXPECT_NE(text.find("flashtile::" + std::string(name) + "<config>(params);"), std::string::npos) << text;
        EXPECT_NE(text.find("flashtile_kernel(const __grid_constant__ flashtile::KernelParams params)"),
                  std::string::npos);
    }
}

TEST(Render, AKernelBesideAttentionTakesItsOwnStruct) {
    EXPECT_NE(render({.kernel = Kernel::merge}).find("(const __grid_constant__ flashtile::MergeParams params)"),
              std::string::npos);
    EXPECT_NE(render({.kernel = Kernel::append_kv}).find("(const __grid_constant__ flashtile::AppendParams params)"),
              std::string::npos);
}

TEST(Render, OnlyPairsAreClusters) {
    KernelConfig config{.kernel = Kernel::backward_pair_sm90};
    EXPECT_NE(render(config).find("config.blocks_per_sm)\n__cluster_dims__(2, 1, 1)\nflashtile_kernel("),
              std::string::npos);
    config.kernel = Kernel::backward_wide_sm90;
    EXPECT_EQ(render(config).find("cluster"), std::string::npos);
}

TEST(Render, StressIsSetBeforeAnythingIsIncluded) {
    EXPECT_TRUE(render({}).starts_with(
        "namespace flashtile { [[maybe_unused]] constexpr unsigned kStressSeed = 0; }\n#include"));
    EXPECT_TRUE(render({}, 7).starts_with(
        "namespace flashtile { [[maybe_unused]] constexpr unsigned kStressSeed = 7; }\n#include"));
}

TEST(KernelSources, AreTheFilesOfTheTree) {
    std::set<std::string> embedded;
    for (const EmbeddedSource& source : embedded_sources()) {
        EXPECT_TRUE(source.text == read_file(std::filesystem::path(SOURCES) / source.name))
            << source.name << " has changed since this was built";
        embedded.emplace(source.name);
    }
    std::set<std::string> there;
    for (const char* folder : {"shared", "cuda/kernels"})
        for (const auto& entry : std::filesystem::recursive_directory_iterator(std::filesystem::path(SOURCES) / folder))
            if (entry.path().extension() == ".h")
                there.insert(std::filesystem::relative(entry.path(), SOURCES).string());
    EXPECT_EQ(embedded, there);
}

// A tree of one's own: a diamond of includes, one name in a comment, one file that nothing includes.
struct Tree {
    TemporaryFolder folder;
    Environment environment{"FLASHTILE_KERNEL_SOURCES", folder.path()};

    Tree() {
        write_file(folder / "cuda/kernels/forward_sm80.h",
                   "#include \"a.h\"\n#include \"b.h\"\n// #include \"no.h\"\n");
        write_file(folder / "a.h", "#include \"c.h\"\nint a;\n");
        write_file(folder / "b.h", "#include \"c.h\"\nint b;\n");
        write_file(folder / "c.h", "int c;\n");
        write_file(folder / "apart.h", "int apart;\n");
    }
};

TEST(KernelSources, AreWhatIsIncludedAndNothingElse) {
    const Tree tree;
    std::vector<std::string> names;
    for (const SourceFile& file : with_includes("cuda/kernels/forward_sm80.h")) names.push_back(file.name);
    EXPECT_EQ(names, (std::vector<std::string>{"cuda/kernels/forward_sm80.h", "a.h", "c.h", "b.h"}));
}

TEST(KernelSources, AMissingOneIsNamedWithItsIncluder) {
    const Tree tree;
    std::filesystem::remove(tree.folder / "c.h");
    try {
        with_includes("cuda/kernels/forward_sm80.h");
        FAIL() << "no error";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("c.h, which a.h includes,"), std::string::npos) << error.what();
    }
}

TEST(Key, ChangesWithEveryInputAndWithNothingElse) {
    const Tree tree;
    const KernelConfig config{.head_dim = 64, .warps = 4};
    std::set<std::string> keys;
    const auto expect_new = [&](const std::string& key) { EXPECT_TRUE(keys.insert(key).second) << keys.size(); };
    expect_new(key_of(program_for(config, 80)));
    expect_new(key_of(program_for(config, 80), 13000));
    expect_new(key_of(program_for(config, 80), 13010));
    expect_new(key_of(program_for(config, 86)));
    expect_new(key_of(program_for(config, 86, 80)));  // PTX for sm_80, instead of machine code for it
    expect_new(key_of(program_for({.head_dim = 64, .warps = 8}, 80)));
    Program program = program_for(config, 80);
    program.options.emplace_back("-G");
    expect_new(key_of(program));

    write_file(tree.folder / "apart.h", "int changed;\n");
    EXPECT_FALSE(keys.insert(key_of(program_for(config, 80))).second);
    write_file(tree.folder / "c.h", "int d;\n");
    expect_new(key_of(program_for(config, 80)));
    // The same bytes, but the border between two of them is elsewhere.
    program.options = {"-DA", "-DB"};
    expect_new(key_of(program));
    program.options = {"-DA-DB"};
    expect_new(key_of(program));
}

KernelConfig with_functions(std::string_view score, std::string_view mask, DType table) {
    const std::vector<functions::TensorType> tensors = {{"table", 1, functions::Type::real, table}};
    return {.head_dim = 64,
            .warps = 4,
            .functions = functions::number_of(score, mask, tensors),
            .score_function = !score.empty(),
            .mask_function = !mask.empty()};
}

TEST(Key, OfKernelsWithFunctionsIsAnotherForEveryFunction) {
    std::set<std::string> keys;
    const auto key = [](std::string_view score, std::string_view mask, DType table = DType::fp32) {
        return key_of(program_for(with_functions(score, mask, table), 80));
    };
    const auto expect_new = [&](const std::string& made) { EXPECT_TRUE(keys.insert(made).second) << keys.size(); };
    expect_new(key_of(program_for({.head_dim = 64, .warps = 4}, 80)));
    expect_new(key("s + 1.0", ""));
    expect_new(key("s + 2.0", ""));
    expect_new(key("s + 1.0", "i >= j"));
    expect_new(key("", "i >= j"));
    expect_new(key("", "i >= j + 1"));
    expect_new(key("s + table[h]", ""));
    expect_new(key("s + table[h]", "", DType::bf16));
    // Another process may have other numbers for them, and another user other names and other spaces.
    EXPECT_FALSE(keys.insert(key("(s) + 1.0 # one", "(i) >= (j)")).second);
}

// What stands in a text, as in a comment that ends with its line, is never compiled as it stands.
TEST(Render, WritesWhatFunctionsComputeAndNotTheirTexts) {
    const Program program = program_for(with_functions("s * 3.0 # } #error\n", "", DType::fp32), 80);
    EXPECT_EQ(program.headers.back().name, kFunctionFile);
    const std::string& text = program.headers.back().text;
    EXPECT_NE(text.find("__fmul_rn("), std::string::npos) << text;
    EXPECT_EQ(text.find("#error"), std::string::npos) << text;
    EXPECT_NE(program.main.text.find("#include \"" + std::string(kFunctionFile) + "\""), std::string::npos);
    EXPECT_NE(program.main.text.find(".functions = 0, .score_function = true"), std::string::npos);
}

// What a mask function shows of a block is asked of intervals, with elements of tensors but for 16-bit ones.
TEST(Render, WritesMaskFunctionsOfIntervals) {
    const auto text = [](DType dtype) {
        return program_for(with_functions("", "i >= j && table[h] < 9", dtype), 90).headers.back().text;
    };
    const std::string of_fp32 = text(DType::fp32);
    EXPECT_NE(of_fp32.find("intervals::less_equal("), std::string::npos) << of_fp32;
    EXPECT_NE(of_fp32.find("intervals::loaded<float>(tensors[0], "), std::string::npos) << of_fp32;
    EXPECT_NE(text(DType::bf16).find("intervals::any_real()"), std::string::npos);
}

// Ints have 64 bits unless near positions say that 32 do, and fp32 has differences of these.
TEST(Render, WritesShortIntsForNearPositions) {
    const auto text = [](std::string_view score, std::string_view mask, bool near) {
        KernelConfig config = with_functions(score, mask, DType::fp32);
        config.near_positions = near;
        return program_for(config, 90).headers.back().text;
    };
    const std::string far = text("", "i - j < 9", false), near = text("", "i - j < 9", true);
    EXPECT_NE(far.find("op::subtract("), std::string::npos) << far;
    EXPECT_EQ(near.find("op::subtract("), std::string::npos) << near;
    EXPECT_EQ(near.find("long long v"), std::string::npos) << near;
    EXPECT_NE(text("", "i * j * j < 9", true).find("op::multiply("), std::string::npos) << "it does not fit";
    EXPECT_EQ(text("s + float(abs(i - j))", "", true).find("static_cast<float>"), std::string::npos);
    EXPECT_NE(text("s + float(i * j)", "", true).find("static_cast<float>"), std::string::npos);
    EXPECT_NE(text("s + 1.0", "", true).find("kUnitDerivative = true"), std::string::npos);
    EXPECT_NE(text("s * 2.0", "", true).find("kUnitDerivative = false"), std::string::npos);
}

// What depends on i - j alone is computed once a diagonal: sums in which i and j cancel out, and comparisons of ints
// that do not wrap.
TEST(Render, WritesDiagonals) {
    const auto text = [](std::string_view score, std::string_view mask, bool near = true) {
        KernelConfig config = with_functions(score, mask, DType::fp32);
        config.near_positions = near;
        return program_for(config, 90).headers.back().text;
    };
    const auto shares = [](const std::string& source) { return source.find("diagonal.v") != std::string::npos; };
    EXPECT_TRUE(shares(text("", "i >= j")));
    EXPECT_TRUE(shares(text("", "max(i, j + 3) - j < 9")));
    EXPECT_FALSE(shares(text("", "i >= j", false))) << "beyond near positions it may be a sum that wrapped";
    EXPECT_TRUE(shares(text("", "(i - j) % 3 == 0", false)));
    EXPECT_FALSE(shares(text("", "i >= 2 * j")));
    EXPECT_FALSE(shares(text("", "i + j < 9")));
    EXPECT_FALSE(shares(text("s + float(i * (j + 1))", "")));
    for (const auto& [score, adds] : {std::pair("s + table[j - i]", true),
                                      {"s - 0.1 * abs(i - j)", true},
                                      {"table[i - j] + s", true},
                                      {"0.5 - s", false},
                                      {"table[i - j] - s", false},
                                      {"s * table[i - j]", false},
                                      {"s + table[j]", false}}) {
        const char* said = adds ? "kAddsByDiagonal = true" : "kAddsByDiagonal = false";
        EXPECT_NE(text(score, "").find(said), std::string::npos) << score;
    }
}

TEST(Key, OfKernelsUnderStressIsAnotherForEverySeed) {
    const Tree tree;
    std::set<std::string> keys;
    for (const char* seed : {"1", "2", "4294967295"}) {
        const Environment stress{"FLASHTILE_KERNEL_STRESS", seed};
        EXPECT_NE(program_for({}, 90).main.text.find(std::string("kStressSeed = ") + seed + ";"), std::string::npos);
        keys.insert(key_of(program_for({}, 90)));
    }
    for (const char* off : {"", "0"}) {
        const Environment stress{"FLASHTILE_KERNEL_STRESS", off};
        keys.insert(key_of(program_for({}, 90)));
    }
    keys.insert(key_of(program_for({}, 90)));
    EXPECT_EQ(keys.size(), 4u);  // the last three are one
}

TEST(Program, RefusesAStressThatIsNoNumber) {
    const Tree tree;
    for (const char* wrong : {"yes", "-1", "1.5", "7 ", "4294967296"}) {
        const Environment stress{"FLASHTILE_KERNEL_STRESS", wrong};
        try {
            program_for({}, 90);
            ADD_FAILURE() << "took '" << wrong << "'";
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), FLASHTILE_INVALID_ARGUMENT);
            EXPECT_NE(std::string(error.what()).find("FLASHTILE_KERNEL_STRESS is '" + std::string(wrong) + "'"),
                      std::string::npos)
                << error.what();
        }
    }
}

TEST(Program, AsksForMachineCodeWhereTheCompilerKnowsTheGpu) {
    const Tree tree;
    EXPECT_EQ(program_for({}, 90, 90).options.front(), "--gpu-architecture=sm_90a");
    EXPECT_EQ(program_for({}, 86, 120).options.front(), "--gpu-architecture=sm_86");
    EXPECT_FALSE(program_for({}, 86, 120).ptx);
    EXPECT_EQ(program_for({}, 120, 90).options.front(), "--gpu-architecture=compute_90");
    EXPECT_TRUE(program_for({}, 120, 90).ptx);
}

}  // namespace
}  // namespace flashtile::gpu

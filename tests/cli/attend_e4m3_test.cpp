// attend_e4m3_test.cpp: `flashtile attend` on files of F8_E4M3, with every kind of scale. Scales are powers of two, so
// that the elements stand for numbers that 16-bit types hold, and the oracle attends to those.
#include <gtest/gtest.h>

#include <cmath>

#include "attention_files.h"
#include "process.h"
#include "temporary_folder.h"

namespace flashtile::tests {
namespace {

using oracle::Precision;
using oracle::Problem;

enum class Scaling { none, tensor, heads, blocks };
constexpr std::int64_t kBlock = 64;

// One of e4m3's numbers with a few powers of two either way.
double scale_of(std::int64_t b, std::int64_t h, std::int64_t block) {
    return std::exp2(static_cast<double>((b + 2 * h + 3 * block) % 4 - 2));
}

// The numbers of one tensor, (b, s, h, d), and their scales. The problem's values become what these stand for.
struct Quantized {
    Tensor numbers, scales{"fp32", {}, {}};

    Quantized(std::vector<double>& values, const std::array<std::int64_t, 4>& sizes, Scaling scaling) {
        const auto [batch, rows, heads, columns] = sizes;
        const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
        const auto scale = [&](std::int64_t b, std::int64_t s, std::int64_t h) {
            if (scaling == Scaling::none) return 1.0;
            if (scaling == Scaling::tensor) return 0.5;
            return scale_of(b, h, scaling == Scaling::heads ? 0 : s / kBlock);
        };
        std::vector<double> stored(values.size());
        std::size_t n = 0;
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t s = 0; s < rows; ++s)
                for (std::int64_t h = 0; h < heads; ++h)
                    for (std::int64_t c = 0; c < columns; ++c, ++n) {
                        stored[n] = oracle::round_to(static_cast<float>(values[n]), Precision::e4m3);
                        values[n] = stored[n] * scale(b, s, h);
                    }
        numbers = arrange(stored, sizes, "bshd");
        numbers.dtype = "e4m3";
        if (scaling == Scaling::tensor) scales.values = {0.5};
        if (scaling == Scaling::heads) scales.shape = {batch, heads};
        if (scaling == Scaling::blocks) scales.shape = {batch, heads, blocks};
        if (scales.shape.empty()) return;
        for (std::int64_t b = 0; b < batch; ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t block = 0; block < (scaling == Scaling::blocks ? blocks : 1); ++block)
                    scales.values.push_back(scale_of(b, h, block));
    }
};

class AttendE4m3 : public testing::TestWithParam<Scaling> {
protected:
    Sizes sizes_{.seqlen_k = 131, .head_dim = 32, .head_dim_v = 48};
    Problem problem_ = random_problem(sizes_, "bf16");
    TemporaryFolder folder_;
    std::map<std::string, Tensor> tensors_;
    Command command_ = {"attend", "--out", folder_.file("out.safetensors"), "--lse", folder_.file("lse.npy")};

    void add(const std::string& name, const Tensor& tensor) {
        tensors_[name] = tensor;
        std::string flag = "--" + name;
        if (name.ends_with("_scale")) flag.replace(flag.find('_'), 1, "-");
        command_.insert(command_.end(), {flag, folder_.file("layer.safetensors") + ":" + name});
    }
    void add_quantized(const std::string& name, std::vector<double>& values, std::int64_t rows, std::int64_t heads,
                       std::int64_t columns, Scaling scaling) {
        const Quantized quantized(values, {sizes_.batch, rows, heads, columns}, scaling);
        add(name, quantized.numbers);
        if (scaling != Scaling::none) add(name + "_scale", quantized.scales);
    }
    void add_keys(Scaling scaling) {
        add_quantized("k", problem_.k, sizes_.seqlen_k, sizes_.kv_heads, sizes_.head_dim, scaling);
        add_quantized("v", problem_.v, sizes_.seqlen_k, sizes_.kv_heads, sizes_.head_dim_v, scaling);
        if (scaling == Scaling::blocks) command_.push_back("--scale-block=" + std::to_string(kBlock));
    }
    void add_queries(const std::string& dtype) {
        Tensor q = arrange(problem_.q, {sizes_.batch, sizes_.seqlen_q, sizes_.heads, sizes_.head_dim}, "bshd");
        q.dtype = dtype;
        add("q", q);
    }
    void expect_attention(Precision computed) {
        write_safetensors(folder_.file("layer.safetensors"), tensors_);
        const Ending ending = flashtile(command_);
        ASSERT_EQ(ending.exit_code, 0) << ending.err;
        expect_right(problem_, sizes_, "bshd", computed, read_safetensors(folder_.file("out.safetensors"), "out"),
                     read_npy(folder_.file("lse.npy")));
    }
};

TEST_P(AttendE4m3, KeysBesideQueriesOf16Bits) {
    add_queries("bf16");
    add_keys(GetParam());
    expect_attention(Precision::bf16);
}

TEST_P(AttendE4m3, AllOfThemMakeBf16) {
    // q's scales are those of its group's key head, where blocks have none of their own
    const Scaling of_q = GetParam() == Scaling::heads ? Scaling::tensor : GetParam();
    add_quantized("q", problem_.q, sizes_.seqlen_q, sizes_.heads, sizes_.head_dim, of_q);
    add_keys(GetParam());
    expect_attention(Precision::bf16);
}

INSTANTIATE_TEST_SUITE_P(Scales, AttendE4m3,
                         testing::Values(Scaling::none, Scaling::tensor, Scaling::heads, Scaling::blocks));

TEST_F(AttendE4m3, DtypeIsThatOfQueriesAndResult) {
    add_queries("fp32");
    add_keys(Scaling::tensor);
    command_.push_back("--dtype=fp16");
    expect_attention(Precision::fp16);
}

TEST_F(AttendE4m3, DtypeIsTheResultsWhereQueriesAreE4m3) {
    add_quantized("q", problem_.q, sizes_.seqlen_q, sizes_.heads, sizes_.head_dim, Scaling::none);
    add_keys(Scaling::none);
    command_.push_back("--dtype=fp16");
    expect_attention(Precision::fp16);
}

TEST_F(AttendE4m3, ScalesLackTheDimensionsThatQueriesLack) {
    sizes_.batch = 1;
    problem_ = random_problem(sizes_, "bf16");
    add_queries("bf16");
    add_keys(Scaling::blocks);
    for (const char* name : {"q", "k", "v", "k_scale", "v_scale"}) {
        ASSERT_EQ(tensors_[name].shape.front(), 1);
        tensors_[name].shape.erase(tensors_[name].shape.begin());
    }
    write_safetensors(folder_.file("layer.safetensors"), tensors_);
    const Ending ending = flashtile(command_);
    ASSERT_EQ(ending.exit_code, 0) << ending.err;
    expect_right(problem_, sizes_, "shd", Precision::bf16, read_safetensors(folder_.file("out.safetensors"), "out"));
}

TEST_F(AttendE4m3, NewKeysOfACacheAreDividedByItsScales) {
    // The last key of each sequence is appended: it is 16 bits wide, and a number of e4m3 times the scale.
    const std::int64_t used = sizes_.seqlen_k - 1;
    add_queries("bf16");
    add_keys(Scaling::heads);
    for (const auto& [name, columns] : {std::pair("k", sizes_.head_dim), {"v", sizes_.head_dim_v}}) {
        Tensor& cached = tensors_[name];
        const std::vector<double>& meant = *name == 'k' ? problem_.k : problem_.v;
        Tensor appended{"bf16", {sizes_.batch, 1, sizes_.kv_heads, columns}, {}};
        const std::int64_t row = sizes_.kv_heads * columns;
        for (std::int64_t b = 0; b < sizes_.batch; ++b)
            for (std::int64_t c = 0; c < row; ++c) {
                const auto at = static_cast<std::size_t>((b * sizes_.seqlen_k + used) * row + c);
                appended.values.push_back(meant[at]);
                cached.values[at] = 448.0;
            }
        add(std::string("append-") + name, appended);
        for (std::string& word : command_)
            if (word == std::string("--") + name) word = std::string("--cache-") + name;
    }
    command_.insert(command_.end(), {"--seqused-k=" + std::to_string(used) + "," + std::to_string(used),
                                     "--cache-k-out", folder_.file("k.safetensors")});
    expect_attention(Precision::bf16);
    const Tensor cache = read_safetensors(folder_.file("k.safetensors"), "k");
    EXPECT_EQ(cache.dtype, "e4m3");
    for (std::size_t n = 0; n < cache.values.size(); ++n) {
        const auto h = static_cast<std::int64_t>(n) / sizes_.head_dim % sizes_.kv_heads;
        const auto b = static_cast<std::int64_t>(n) / (sizes_.head_dim * sizes_.kv_heads * sizes_.seqlen_k);
        ASSERT_EQ(cache.values[n] * scale_of(b, h, 0), problem_.k[n]) << n;
    }
}

struct Refusal {
    const char* name;
    const char* q;
    const char* k;
    const char* v;
    Command flags;
    const char* message;
};
void PrintTo(const Refusal& refusal, std::ostream* stream) {
    *stream << refusal.name;
}

class AttendE4m3Refuses : public testing::TestWithParam<Refusal> {};

TEST_P(AttendE4m3Refuses, ByName) {
    const Refusal& c = GetParam();
    const Sizes sizes;
    const Arranged files = arrange(random_problem(sizes), sizes);
    const TemporaryFolder folder;
    Command command = {"attend", "--out", folder.file("out.safetensors")};
    const auto add = [&](const std::string& name, Tensor tensor, const char* dtype) {
        tensor.dtype = dtype;
        write_safetensors(folder.file(name + ".safetensors"), {{name, tensor}});
        command.insert(command.end(), {"--" + name, folder.file(name + ".safetensors")});
    };
    add("q", files.q, c.q);
    add("k", files.k, c.k);
    add("v", files.v, c.v);
    write_safetensors(folder.file("scale.safetensors"), {{"scale", {"fp32", {3}, {1.0, 1.0, 1.0}}}});
    for (std::string flag : c.flags) {
        if (const auto at = flag.find("SCALE"); at != std::string::npos)
            flag.replace(at, 5, folder.file("scale.safetensors"));
        command.push_back(flag);
    }
    const Ending ending = flashtile(command);
    EXPECT_EQ(ending.exit_code, 2);
    EXPECT_NE(ending.err.find(c.message), std::string::npos) << ending.err;
    EXPECT_FALSE(std::filesystem::exists(folder.file("out.safetensors")));
}

INSTANTIATE_TEST_SUITE_P(
    What, AttendE4m3Refuses,
    testing::Values(
        Refusal{"queries_alone", "e4m3", "bf16", "bf16", {}, "holds bf16, allowed is e4m3: keys and values both are"},
        Refusal{"keys_alone", "bf16", "e4m3", "bf16", {}, "holds bf16, allowed is e4m3: keys and values both are"},
        Refusal{
            "beside_fp32", "fp32", "e4m3", "e4m3", {}, "is to be fp32, allowed beside keys in e4m3 is fp16 or bf16"},
        Refusal{"computed_in_fp32",
                "bf16",
                "e4m3",
                "e4m3",
                {"--dtype=fp32"},
                "is to be fp32, allowed beside keys in e4m3 is fp16 or bf16"},
        Refusal{"scales_of_16_bits", "bf16", "bf16", "bf16", {"--k-scale", "SCALE"}, "k_scale"},
        Refusal{"as_many_scales_as_nothing", "bf16", "e4m3", "e4m3", {"--k-scale", "SCALE"}, "k_scale"},
        Refusal{"another_block", "bf16", "e4m3", "e4m3", {"--scale-block=32"}, "--scale-block"}),
    testing::PrintToStringParamName());

}  // namespace
}  // namespace flashtile::tests

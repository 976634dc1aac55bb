// paper.cpp: see paper.h. Five parts: a layer of GPT-2 (FlashAttention paper, Figure 2, left), blocks (its Figure 2,
// middle), block sparsity (its Figure 2, right), lengths of one sequence with the memory that they take (its Figure 3
// and memory tables), and the grid of the FlashAttention-2 paper (Figures 4 to 7; causal's gain; what Hopper's
// instructions add to our general kernels).
#include "bench_cuda/paper.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "bench_cuda/measure.h"
#include "bench_cuda/report.h"
#include "schedule.h"
#include "this_run.h"

namespace flashtile::cli::bench_cuda {
namespace {

using nlohmann::json;

// Calls: FlashAttention tries its tiles, two runs each, and every method has five samples at least. Overhead: random
// tensors, and pieces of results that are downloaded.
constexpr LeastMeasurement kLeastMeasurement{.calls = 10.0, .overhead_seconds = 0.15};
constexpr double kBlocksShare = 0.1, kSparsityShare = 0.1;  // of the time after compiling
constexpr double kMib = 1 << 20;

Shape shape_of(std::int64_t batch, std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
    return {.batch = batch,
            .seqlen_q = seqlen,
            .seqlen_k = seqlen,
            .heads = heads,
            .kv_heads = heads,
            .head_dim = head_dim,
            .causal = false,
            .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
}

// What is measured: a part's name in results.json, and a shape, forward and backward.
struct Part {
    const char* name;
    Shape shape;
};

double flops_of_both(const Shape& shape) {
    return flops(shape, Pass::forward) + flops(shape, Pass::backward);
}

std::string kind_of(const Shape& s) {
    return "d=" + std::to_string(s.head_dim) + (s.causal ? " causal" : "");
}

// "n=2048 d=64 batch=8 heads=16"
std::string describe(const Shape& s) {
    return "n=" + std::to_string(s.seqlen_q) + " " + kind_of(s) + " batch=" + std::to_string(s.batch) +
           " heads=" + std::to_string(s.heads);
}

// The least first, so that what the time does not reach is the greatest lengths of every figure. GPT-2's layer is a
// table by itself, so it comes first.
std::vector<Part> parts_of(const Options& options) {
    constexpr std::int64_t kHeadDim = 64, kHeads = 16;  // of GPT-2 medium
    const std::int64_t heads = options.heads != 0 ? options.heads : kHeads;
    std::vector<std::int64_t> lengths = options.seqlens;
    if (lengths.empty())
        for (std::int64_t n = 128; n <= 65536; n *= 2) lengths.push_back(n);
    std::vector<Part> parts;
    for (const Shape& shape : grid(options)) parts.push_back({"grid", shape});
    for (const std::int64_t n : lengths) parts.push_back({"lengths", shape_of(1, n, heads, kHeadDim)});
    std::ranges::stable_sort(parts, {}, [](const Part& part) { return flops_of_both(part.shape); });
    const std::int64_t n = std::min<std::int64_t>(1024, std::ranges::max(lengths));
    parts.insert(parts.begin(),
                 {"gpt2", shape_of(std::clamp<std::int64_t>(options.tokens / n, 1, 64), n, heads, kHeadDim)});
    return parts;
}

// tools/plot_bench.py knows methods by these names: the same algorithms run on CPUs too.
std::string json_name(const std::string& method) {
    static const std::map<std::string, std::string> names = {{kStandard, "cuda_standard"},
                                                             {name_of(WorkPartition{}), "cuda_flash1"},
                                                             {kGeneral, "cuda_general"},
                                                             {kBlocksAsMask, "flashtile_mask"}};
    const auto found = names.find(method);
    return found == names.end() ? method : found->second;
}

std::string first_line(const std::string& text) {
    return text.substr(0, text.find('\n'));
}

class Paper {
public:
    explicit Paper(const PaperOptions& options)
        : options_(options), element_(options.grid.fp16 ? Element::fp16 : Element::bf16) {}

    void compile(const std::vector<Part>& parts) {
        std::vector<Method> methods = block_methods(blocks_shape(), element_, blocks());
        for (const Part& part : parts)
            std::ranges::move(paper_methods(part.shape, element_), std::back_inserter(methods));
        compile_all(methods);
        std::vector<Shape> shapes = {blocks_shape(), sparsity_shape()};
        for (const Part& part : parts) shapes.push_back(part.shape);
        call_library(shapes, element_);
        std::printf("kernels compiled in %.0f s\n", elapsed());
    }

    // Forward of our general kernels, whose blocks can be forced.
    void measure_blocks() {
        const Shape shape = blocks_shape();
        Problem problem(shape, type());
        const std::vector<Method> methods = block_methods(shape, element_, blocks());
        const auto rows = measure(problem, shape, methods, element_, Pass::forward, kBlocksShare * left());
        for (const Blocks size : blocks()) {
            const auto row = std::ranges::find(rows, name_of(size), &Row::method);
            note(*row, "blocks");
            if (row->milliseconds > 0.0)
                result_["blocks"].push_back({{"algorithm", "cuda_general"},
                                             {"Br", size.Br},
                                             {"Bc", size.Bc},
                                             {"tile", row->tile},
                                             {"ms", row->milliseconds}});
        }
        result_["blocks_point"] = "forward " + describe(shape);
        add_own_blocks(problem, shape);
        std::printf("blocks: %zu pairs of Br and Bc\n", result_["blocks"].size());
    }

    // The library with lists of blocks of which a share is seen, or, where all are seen, without. Lists are compared
    // with the same blocks as a boolean mask.
    void measure_sparsity() {
        const Shape shape = sparsity_shape();
        Problem problem(shape, type());
        const double seconds = kSparsityShare * left() / std::size(BlockPattern::shares);
        for (const double share : BlockPattern::shares) {
            const SeenBlocks seen(BlockPattern(shape.seqlen_q, share), shape.seqlen_q);
            const auto methods = share < 1.0 ? block_sparse_methods(shape, element_, seen) : own_methods(shape);
            for (const Pass pass : {Pass::forward, Pass::backward})
                for (const Row& row : measure(problem, shape, methods, element_, pass,
                                              seconds * flops(shape, pass) / flops_of_both(shape))) {
                    note(row, "sparsity " + std::string(name_of(pass)));
                    if (row.milliseconds > 0.0 && row.method != kStandard)
                        result_["sparsity"].push_back({{"method", json_name(row.method)},
                                                       {"share", share},
                                                       {"pass", name_of(pass)},
                                                       {"ms", row.milliseconds}});
                }
        }
        result_["sparsity_point"] = describe(shape);
        std::printf("sparsity: %zu shares of the blocks\n", std::size(BlockPattern::shares));
    }

    void measure_parts(const std::vector<Part>& parts) {
        std::vector<Work> works;
        works.reserve(parts.size());
        for (const Part& part : parts) works.push_back({flops_of_both(part.shape), kind_of(part.shape)});
        Schedule schedule(works, kLeastMeasurement);
        std::map<std::string, std::string> not_reached;
        for (std::size_t n = 0; n < parts.size(); ++n) {
            const auto seconds = schedule.share(n, left());
            if (seconds) {
                const auto [once, methods] = measure_part(parts[n], *seconds);
                schedule.measured(n, once, methods);
            } else {
                std::string& lengths = not_reached[std::string(parts[n].name) + ": " + works[n].kind];
                lengths += (lengths.empty() ? "" : ", ") + std::to_string(parts[n].shape.seqlen_q);
            }
        }
        for (const auto& [what, lengths] : not_reached) {
            std::string line = what;
            leave_out(line.append(", lengths ").append(lengths).append(": the time does not reach"));
        }
    }

    int write() {
        const gpu::DeviceFacts& device = gpu::device(0).facts();
        result_["machine"] = {{"gpu", device.name},
                              {"architecture", device.architecture},
                              {"flashtile", version()},
                              {"command", command_line()},
                              {"date", utc_now()}};
        result_["minutes"] = options_.seconds / 60.0;
        for (const std::string& line : left_out_) {
            result_["left_out"].push_back(line);
            std::printf("left out: %s\n", line.c_str());
        }
        const std::string path = options_.folder + "/results.json";
        std::ofstream file(path);
        file << result_.dump(1) << '\n';
        if (!file.flush()) throw std::runtime_error(path + " could not be written");
        std::printf("results: %s, after %.0f s\n", path.c_str(), elapsed());
        return wrong_ ? 1 : 0;
    }

private:
    double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
    double left() const { return options_.seconds - elapsed(); }
    dtype type() const { return options_.grid.fp16 ? fp16 : bf16; }

    void leave_out(const std::string& line) {
        if (std::ranges::count(left_out_, line) == 0) left_out_.push_back(line);
    }

    void note(const Row& row, const std::string& where) {
        if (row.out_because.empty()) return;
        wrong_ = wrong_ || row.wrong;
        leave_out(where + ": " + row.method + (row.wrong ? ": WRONG RESULT, no speed: " : ": ") +
                  first_line(row.out_because));
    }

    Shape blocks_shape() const {
        const Options& o = options_.grid;
        return filled(o.seqlens.empty() ? 2048 : std::ranges::max(o.seqlens));
    }
    Shape sparsity_shape() const {
        const Options& o = options_.grid;
        return filled(o.seqlens.empty() ? 4096 : std::min<std::int64_t>(4096, std::ranges::max(o.seqlens)));
    }
    // So many sequences of n that the GPU is full.
    Shape filled(std::int64_t n) const {
        const Options& o = options_.grid;
        return shape_of(std::clamp<std::int64_t>(o.tokens / n, 1, 8), n, o.heads != 0 ? o.heads : 16, 64);
    }

    std::vector<Blocks> blocks() const {
        std::vector<Blocks> sizes;
        for (int Br = 32; Br <= 256; Br *= 2)
            for (int Bc = 16; Bc <= 128; Bc *= 2)
                if (Br == 32 || Br <= blocks_shape().seqlen_q) sizes.push_back({Br, Bc});
        return sizes;
    }

    // The library, behind standard attention, with which it is compared.
    std::vector<Method> own_methods(const Shape& shape) const {
        std::vector<Method> own = paper_methods(shape, element_);
        std::erase_if(own, [](const Method& m) { return m.name != kStandard && m.name != kLibrary; });
        return own;
    }

    void add_own_blocks(Problem& problem, const Shape& shape) {
        const Row row = measure(problem, shape, own_methods(shape), element_, Pass::forward, 0.0).back();
        note(row, "blocks");
        if (row.milliseconds <= 0.0) return;
        const Blocks own_blocks = planned_blocks(shape, element_, Pass::forward);
        result_["own_blocks"] = {{"Br", own_blocks.Br}, {"Bc", own_blocks.Bc}, {"ms", row.milliseconds}};
    }

    // Seconds of one call of every method, and how many methods there are.
    std::pair<double, std::size_t> measure_part(const Part& part, double seconds) {
        const Shape& s = part.shape;
        Problem problem(s, type());
        double once = 0.0;
        std::size_t methods = 0;
        for (const Pass pass : {Pass::forward, Pass::backward}) {
            const double share = seconds * flops(s, pass) / flops_of_both(s);
            const MeasuredPoint point{pass, s, measure(problem, s, paper_methods(s, element_), element_, pass, share)};
            print_point(point);
            std::fflush(stdout);
            methods = std::max(methods, point.rows.size());
            json memory = {{"pass", name_of(pass)}, {"seqlen", s.seqlen_q}, {"heads", s.heads}};
            for (const Row& row : point.rows) {
                note(row, std::string(part.name) + " " + name_of(pass) + " " + kind_of(s) +
                              " n=" + std::to_string(s.seqlen_q));
                if (row.out_because.empty())
                    memory[json_name(row.method) + "_mib"] = static_cast<double>(row.extra_bytes) / kMib;
                if (row.milliseconds <= 0.0) continue;
                once += 1e-3 * row.milliseconds;
                result_[part.name].push_back(to_row(point, row));
            }
            if (std::string(part.name) == "lengths") result_["memory"].push_back(memory);
        }
        return {once, methods};
    }

    json to_row(const MeasuredPoint& point, const Row& row) const {
        const Shape& s = point.shape;
        return {{"method", json_name(row.method)},
                {"pass", name_of(point.pass)},
                {"dtype", options_.grid.fp16 ? "fp16" : "bf16"},
                {"head_dim", s.head_dim},
                {"causal", s.causal},
                {"seqlen", s.seqlen_q},
                {"batch", s.batch},
                {"heads", s.heads},
                {"kv_heads", s.kv_heads},
                {"regime", "in turns"},
                {"ms", row.milliseconds},
                {"tflops", row.teraflops},
                {"ceiling_share", nullptr},
                {"tile", row.tile},
                {"error", row.error}};
    }

    PaperOptions options_;
    Element element_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    json result_ = {
        {"grid", json::array()},    {"lengths", json::array()}, {"gpt2", json::array()},     {"memory", json::array()},
        {"blocks", json::array()},  {"traffic", json::array()}, {"sparsity", json::array()}, {"repeats", 5},
        {"left_out", json::array()}};
    std::vector<std::string> left_out_;
    bool wrong_ = false;
};

}  // namespace

int run_paper(const PaperOptions& options) {
    std::printf("%s; every result is compared with standard attention's\n", gpu::device(0).facts().name.c_str());
    std::filesystem::create_directories(options.folder);
    const std::vector<Part> parts = parts_of(options.grid);
    Paper paper(options);
    paper.compile(parts);
    paper.measure_blocks();
    paper.measure_sparsity();
    paper.measure_parts(parts);
    return paper.write();
}

}  // namespace flashtile::cli::bench_cuda

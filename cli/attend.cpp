// attend.cpp: `flashtile attend`: attention of tensors in files, the result into a file. Inputs are mapped; the output
// is computed where it will lie on the disk.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "attend_inputs.h"
#include "attention_options.h"
#include "available_memory.h"
#include "commands.h"
#include "io/convert.h"
#include "io/output_array.h"
#include "list_flags.h"
#include "placement.h"
#include "progress.h"

namespace flashtile::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* examples = R"(Examples:
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --causal
  flashtile attend --q layer.safetensors:q --k layer.safetensors:k --v layer.safetensors:v --out out.safetensors
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --lse lse.npy --window=256,0 --softcap=30
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.safetensors --dtype=bf16 --layout=bhsd --mask keep.npy
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --device=cuda
  flashtile attend --q q.npy --cache-k ck.npy --cache-v cv.npy --block-table table.npy --seqused-k=4,3 --out out.npy

Shapes: (s, d), (s, h, d) or (b, s, h, d), with --layout=bhsd (h, s, d) or (b, h, s, d). The heads of q are a multiple
of those of k and v; s of q may differ from that of k and v, and the head dimension of v from that of q and k.
The result has q's shape with v's head dimension, in the type computed in; --lse is fp32 (b, h, s), natural logarithm.
--bias and --mask broadcast to (b, h, s of q, s of k); a mask is bool or uint8, and nonzero keeps. --alibi is (h) or
(b, h). NumPy has no bf16: a bf16 result goes to .safetensors.
A cache is (rows, s, h, d), where sequence b has row b or the row that --cache-batch-idx says; or it is pages, (pages,
page size, h, d), that --block-table, (b, pages of a sequence), names. LIST is whole numbers, one a sequence; their FILE
is int32 or int64. --tree-mask is (s, s), (h, s, s) or (b, h, s, s), of q's s. Queries past --seqused-q get 0.
Exit codes: 0 ok, 2 usage or bad input.)";

struct Arguments {
    AttentionOptions attention;
    std::string q, k, v, cache_k, cache_v, out, lse, alibi, bias, mask, sinks, tree_mask;
    ListFlags lists;
    std::string layout = "bshd";
    bool json = false;

    bool cache() const { return !cache_k.empty(); }
};

struct Inputs {
    AttendInput q, k, v;
    std::optional<AttendInput> alibi, bias, mask, sinks, tree_mask;
    std::vector<List> lists;

    template <class Do>
    void for_each(Do action) {
        for (AttendInput* input : {&q, &k, &v}) action(*input);
        for (auto* input : {&alibi, &bias, &mask, &sinks, &tree_mask})
            if (*input) action(**input);
    }
};

std::optional<AttendInput> open_optional(const char* flag, const std::string& file) {
    if (file.empty()) return std::nullopt;
    return std::make_optional<AttendInput>(flag, file);
}

Inputs open(const Arguments& a) {
    Inputs inputs{.q = {"--q", a.q},
                  .k = a.cache() ? AttendInput("--cache-k", a.cache_k) : AttendInput("--k", a.k),
                  .v = a.cache() ? AttendInput("--cache-v", a.cache_v) : AttendInput("--v", a.v),
                  .alibi = open_optional("--alibi", a.alibi),
                  .bias = open_optional("--bias", a.bias),
                  .mask = open_optional("--mask", a.mask),
                  .sinks = open_optional("--sinks", a.sinks),
                  .tree_mask = open_optional("--tree-mask", a.tree_mask),
                  .lists = {}};
    const auto& q = inputs.q.shape();
    inputs.lists = a.cache() ? a.lists.open_for_cache(q.size() == 4 ? q.front() : 1) : a.lists.open();
    return inputs;
}

// Says in which type each input is wanted; returns that of q, k, v and the result.
io::DType choose_types(Inputs& inputs, const Arguments& arguments) {
    check_ranks(inputs.q, inputs.k, inputs.v, arguments.cache());
    const io::DType compute = compute_dtype(inputs.q, inputs.k, inputs.v, arguments.attention.dtype);
    for (AttendInput* input : {&inputs.q, &inputs.k, &inputs.v}) input->want(compute);
    for (auto* input : {&inputs.alibi, &inputs.bias, &inputs.sinks}) {
        if (!*input) continue;
        if (!io::is_floating((*input)->dtype()))
            throw std::invalid_argument(fmt::format("{} holds {}, allowed is fp64, fp32, fp16 or bf16",
                                                    (*input)->title(), io::name((*input)->dtype())));
        const bool kept = input != &inputs.alibi && (*input)->dtype() == compute;
        (*input)->want(kept ? compute : io::DType::fp32);
    }
    for (auto* input : {&inputs.mask, &inputs.tree_mask})
        if (*input && (*input)->dtype() != io::DType::boolean && (*input)->dtype() != io::DType::uint8)
            throw std::invalid_argument(
                fmt::format("{} holds {}, allowed is bool or uint8", (*input)->title(), io::name((*input)->dtype())));
    return compute;
}

// A result must not replace an input's file. A .safetensors file may hold other tensors too, which would be lost.
void refuse_shared_files(const Arguments& arguments, Inputs& inputs) {
    const auto refuse_same = [](const char* flag, const std::string& file, const char* other_flag,
                                const std::string& other_file) {
        const auto real = [](const std::string& name) { return fs::weakly_canonical(fs::absolute(name)); };
        if (real(file) == real(other_file))
            throw std::invalid_argument(
                fmt::format("{} is {}, allowed is another file than that of {}", flag, file, other_flag));
    };
    const auto refuse_input = [&](const std::string& flag, const std::string& file) {
        refuse_same("--out", arguments.out, flag.c_str(), file);
        if (!arguments.lse.empty()) refuse_same("--lse", arguments.lse, flag.c_str(), file);
    };
    inputs.for_each([&](const AttendInput& input) { refuse_input(input.flag(), input.file()); });
    for (const List& list : inputs.lists)
        if (const io::InputArray* file = list.numbers.file()) refuse_input(list.numbers.flag(), file->file());
    if (!arguments.lse.empty()) refuse_same("--lse", arguments.lse, "--out", arguments.out);
}

void refuse_beyond(std::uint64_t available, std::uint64_t needed, const char* what = "inputs, outputs and workspace") {
    if (needed > available)
        throw flashtile::error(FLASHTILE_OUT_OF_MEMORY,
                               fmt::format("this takes {} of memory for {}, and {} is available", format_bytes(needed),
                                           what, format_bytes(available)));
}

// The library's refusals and those of sizes are about several files at once.
std::string with_files(const char* problem, Inputs& inputs) {
    std::string files;
    inputs.for_each([&](const AttendInput& input) { files += (files.empty() ? "" : ", ") + input.title(); });
    for (const List& list : inputs.lists) files += ", " + list.numbers.title();
    return fmt::format("{}; the inputs are {}", problem, files);
}

void report(const Arguments& arguments, const std::vector<std::int64_t>& shape, io::DType dtype, double seconds) {
    if (arguments.json) {
        nlohmann::ordered_json json = {{"out", arguments.out},         {"shape", shape},
                                       {"dtype", io::name(dtype)},     {"layout", arguments.layout},
                                       {"ran", flashtile::last_run()}, {"seconds", seconds}};
        if (!arguments.lse.empty()) json["lse"] = arguments.lse;
        // A file's name need not be valid UTF-8, but JSON must.
        fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
        return;
    }
    fmt::print("{}: {} {}, {:.3g} ms ({})\n", arguments.out, io::to_string(shape), io::name(dtype), seconds * 1e3,
               flashtile::last_run());
}

// (b, h, s, s) of an array that may lack b, or b and h.
flashtile::tensor tree_mask_view(const AttendInput& tree) {
    flashtile_tensor raw = tree.view().raw();
    const std::vector<std::int64_t>& shape = tree.shape();
    if (shape.size() < 2 || shape.size() > 4)
        throw std::invalid_argument(fmt::format("{} has shape {}, allowed is (s, s), (h, s, s) or (b, h, s, s)",
                                                tree.title(), io::to_string(shape)));
    std::vector<std::int64_t> full(4 - shape.size(), 1);
    full.insert(full.end(), shape.begin(), shape.end());
    return flashtile::view(raw.data, boolean, full);
}

void attend(const Arguments& arguments, Inputs& inputs) {
    const std::uint64_t available = available_memory();
    const Layout layout = arguments.layout == "bhsd" ? Layout::bhsd : Layout::bshd;
    const io::DType dtype = choose_types(inputs, arguments);

    std::vector<std::int64_t> out_shape = inputs.q.shape();
    out_shape.back() = inputs.v.shape().back();
    const std::vector<std::int64_t> logsumexp_shape = lse_shape(out_shape, layout);
    std::uint64_t needed = 0;
    inputs.for_each([&](const AttendInput& input) { needed += input.memory(); });
    const auto output_bytes = [](const std::vector<std::int64_t>& shape, io::DType type) {
        const auto bytes = io::checked_bytes(shape, io::size_of(type));
        if (!bytes) throw std::invalid_argument(fmt::format("the result's shape would be {}", io::to_string(shape)));
        return *bytes;
    };
    for (const List& list : inputs.lists) needed += list.numbers.memory();
    needed += output_bytes(out_shape, dtype);
    if (!arguments.lse.empty()) needed += output_bytes(logsumexp_shape, io::DType::fp32);
    refuse_beyond(available, needed);

    io::OutputArray out(arguments.out, "out", dtype, out_shape);
    std::optional<io::OutputArray> lse;
    if (!arguments.lse.empty()) lse.emplace(arguments.lse, "lse", io::DType::fp32, logsumexp_shape);
    inputs.for_each([](AttendInput& input) { input.reserve(); });
    for (List& list : inputs.lists) list.numbers.fill();  // the library's checks read them

    auto options = arguments.attention.to_options();
    Placement place(arguments.attention.device);
    if (inputs.alibi) options.alibi_slopes = place.input(inputs.alibi->view());
    if (inputs.bias) options.bias = place.input(inputs.bias->view());
    if (inputs.mask) options.mask = place.input(inputs.mask->view());
    if (inputs.sinks) options.sinks = place.input(inputs.sinks->view());
    if (inputs.tree_mask) options.tree_mask = place.input(tree_mask_view(*inputs.tree_mask));
    for (const List& list : inputs.lists) options.*list.meaning = place.input(list.numbers.view());
    const auto q = place.input(inputs.q.view(layout)), k = place.input(inputs.k.view(layout)),
               v = place.input(inputs.v.view(layout));
    // Rows past seqused_q are not written: they stay 0, as the files are.
    const auto out_view = place.output(rows_view(out.data(), to_flashtile(dtype), out_shape, layout));
    flashtile::tensor lse_view;
    if (lse) {
        const auto& rows = out_view.raw().shape;
        lse_view = place.output(flashtile::view(lse->data(), fp32, {rows[0], rows[2], rows[1]}));
    }
    // Checks every argument, before any time goes into conversion.
    const std::size_t workspace = flashtile::forward_workspace(options, q, k, v, out_view, lse_view);
    if (place.on_gpu())
        refuse_beyond(gpu_resources::free_bytes(), workspace, "workspace on the GPU");
    else
        refuse_beyond(available, needed + workspace);

    double seconds = 0.0;
    {
        const Progress progress("converting inputs");
        inputs.for_each([](AttendInput& input) { input.fill(); });
        place.upload();
    }
    {
        const Progress progress(fmt::format("attending, q {}", io::to_string(inputs.q.shape())));
        options.check_values = true;  // files hold what they like
        const auto start = std::chrono::steady_clock::now();
        flashtile::forward(options, q, k, v, out_view, lse_view);
        place.wait();
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    {
        const Progress progress("writing " + arguments.out);
        place.download();
        out.flush();
        if (lse) lse->flush();
        out.commit();
        if (lse) lse->commit();
    }
    report(arguments, out_shape, dtype, seconds);
}

// CLI11's own message would be "1 required FILE missing".
std::string check_name(const std::string& name) {
    return name.empty() ? "is '', allowed is the name of a file" : "";
}

}  // namespace

void add_attend(CLI::App& app, int& exit_code) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("attend", "Attention of tensors in .npy or .safetensors files");
    command->footer(examples);
    const auto input = [&](const char* flag, std::string& value, const char* help) {
        return command->add_option(flag, value, help)->type_name("FILE[:TENSOR]");
    };
    input("--q", arguments->q, "Queries")->required();
    auto* k = input("--k", arguments->k, "Keys");
    auto* v = input("--v", arguments->v, "Values");
    auto* cache_k =
        input("--cache-k", arguments->cache_k, "Keys in a cache, in the place of --k")->excludes(k)->excludes(v);
    auto* cache_v = input("--cache-v", arguments->cache_v, "Values in a cache")->needs(cache_k);
    cache_k->needs(cache_v);
    command->add_option("--out", arguments->out, "Result: .npy or .safetensors")->required()->type_name("FILE");
    command->add_option("--lse", arguments->lse, "Also write the log-sum-exp of every query's scores")
        ->type_name("FILE");
    for (const char* flag : {"--out", "--lse"}) command->get_option(flag)->check(check_name);
    input("--alibi,--alibi-slopes", arguments->alibi, "ALiBi slopes");
    input("--bias", arguments->bias, "Added to the scores");
    input("--mask", arguments->mask, "Keys that a query may see");
    input("--sinks", arguments->sinks, "Attention sinks: a logit for each head");
    input("--tree-mask", arguments->tree_mask, "Which of the last keys a query sees, as many as queries");
    arguments->lists.add_to(*command, cache_k);
    command->add_option("--layout", arguments->layout, "Order of dimensions: bshd or bhsd")
        ->check(CLI::IsMember({"bshd", "bhsd"}))
        ->type_name("ORDER");
    arguments->attention.add_to(*command);
    command->add_flag("--json", arguments->json, "Print JSON");

    command->callback([arguments, &exit_code] {
        if (arguments->k.empty() && !arguments->cache()) throw CLI::RequiredError("--k, or --cache-k,");
        if (arguments->v.empty() && !arguments->cache()) throw CLI::RequiredError("--v");
        try {
            Inputs inputs = open(*arguments);
            refuse_shared_files(*arguments, inputs);
            try {
                attend(*arguments, inputs);
            } catch (const flashtile::error& problem) {
                throw std::invalid_argument(with_files(problem.what(), inputs));
            }
            exit_code = exit_ok;
        } catch (const flashtile::out_of_memory& problem) {
            fmt::print(stderr, "flashtile attend: {}\n", problem.what());
            exit_code = exit_usage;
        } catch (const std::bad_alloc&) {
            fmt::print(stderr, "flashtile attend: out of memory\n");
            exit_code = exit_usage;
        } catch (const std::exception& problem) {
            fmt::print(stderr, "flashtile attend: {}\n", problem.what());
            exit_code = exit_usage;
        }
    });
}

}  // namespace flashtile::cli

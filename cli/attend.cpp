// attend.cpp: `flashtile attend`: attention of tensors in files, the result into a file. Inputs are mapped; the output
// is computed where it will lie on the disk.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <flashtile/flashtile.hpp>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "append_flags.h"
#include "attend_inputs.h"
#include "attention_options.h"
#include "available_memory.h"
#include "block_list_flags.h"
#include "commands.h"
#include "function_flags.h"
#include "io/convert.h"
#include "list_flags.h"
#include "number_checks.h"
#include "placement.h"
#include "progress.h"
#include "result_files.h"
#include "scale_flags.h"

namespace flashtile::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* examples = R"(Examples:
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --causal
  flashtile attend --q layer.safetensors:q --k layer.safetensors:k --v layer.safetensors:v --out out.safetensors
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --lse lse.npy --window=256,0 --softcap=30
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.safetensors --dtype=bf16 --layout=bhsd --mask keep.npy
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --device=cuda
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --score-function='s - 0.1 * abs(i - j)'
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --mask-function='m[j] || j < 4' --function-tensor m=keep.npy
  flashtile attend --q q.npy --k k.npy --v v.npy --out out.npy --block-lists lists.safetensors --block-size=128,128
  flashtile attend --q q.npy --cache-k ck.npy --cache-v cv.npy --block-table table.npy --seqused-k=4,3 --out out.npy
  flashtile attend --q packed.npy --cu-seqlens-q=0,3,8 --cache-k ck.npy --cache-v cv.npy --out out.npy
  flashtile attend --q q.safetensors --k f8.safetensors:k --v f8.safetensors:v --k-scale f8.safetensors:scale --out out.npy
  flashtile attend --q q.npy --cache-k ck.npy --head-dim-v=6 --append-k new.npy --seqused-k=3,0 --out out.npy

Shapes: (s, d), (s, h, d) or (b, s, h, d), with --layout=bhsd (h, s, d) or (b, h, s, d). The heads of q are a multiple
of those of k and v; s of q may differ from that of k and v, and the head dimension of v from that of q and k.
The result has q's shape with v's head dimension, in the type computed in; --lse is fp32 (b, h, s), natural logarithm.
--bias and --mask broadcast to (b, h, s of q, s of k); a mask is bool or uint8, and nonzero keeps. --alibi is (h) or
(b, h). NumPy has no bf16: a bf16 result goes to .safetensors.
A cache is (rows, s, h, d), where sequence b has row b or the row that --cache-batch-idx says; or it is pages, (pages,
page size, h, d), that --block-table, (b, pages of a sequence), names. LIST is whole numbers, one a sequence; their FILE
is int32 or int64. --tree-mask is (s, s), (h, s, s) or (b, h, s, s), of q's s. Queries past --seqused-q get 0.
Queries beside a cache may be packed, (s of all sequences, h, d): those of sequence b start at the b-th number of
--cu-seqlens-q, whose last one is where they end. --head-dim-v=N takes the first N columns of K for V (latent heads).
--append-k and --append-v are written to a copy of the cache behind --seqused-k and attended to as well; packed they are
(new keys of all sequences, h, d) with --cu-seqlens-k-new. --rotary-cos and --rotary-sin, (positions, angles), rotate
new keys and queries. The files of q and of the cache stay as they are: --q-out and --cache-k-out get what was made.
Keys and values of .safetensors files may be F8_E4M3, beside a 16-bit q or one of F8_E4M3, whose result is bf16 or
--dtype. Each is multiplied by its scale: one number, (b, heads of k), or with --scale-block (b, heads, blocks); of a
cache (rows or pages, heads, blocks). Scales leave out what q leaves out.
Exit codes: 0 ok, 2 usage or bad input.)";

struct Arguments {
    AttentionOptions attention;
    FunctionFlags functions;
    BlockListFlags block_lists;
    ScaleFlags scales;
    std::string q, k, v, cache_k, cache_v, out, lse, alibi, bias, mask, sinks, tree_mask;
    ListFlags lists;
    AppendFlags append;
    std::int64_t head_dim_v = 0;  // not 0: V is as many columns of K
    std::string layout = "bshd";
    bool json = false;

    bool cache() const { return !cache_k.empty(); }

    // Flags of results with their files.
    std::vector<std::pair<const char*, std::string>> results() const {
        std::vector<std::pair<const char*, std::string>> given = {{"--out", out},
                                                                  {"--lse", lse},
                                                                  {"--q-out", append.q_out},
                                                                  {"--cache-k-out", append.cache_k_out},
                                                                  {"--cache-v-out", append.cache_v_out}};
        std::erase_if(given, [](const auto& result) { return result.second.empty(); });
        return given;
    }
};

struct Inputs {
    AttendInput q, k;
    std::optional<AttendInput> v, alibi, bias, mask, sinks, tree_mask;
    std::vector<std::pair<std::string, AttendInput>> function_tensors;  // with their names
    BlockListInputs block_lists;
    std::vector<ScaleInput> scales;
    std::optional<AppendInputs> append;
    std::vector<List> lists;

    bool packed() const { return find(lists, &options::cu_seqlens_q) != nullptr; }

    template <class Do>
    void for_each(Do action) {
        const auto if_given = [&](auto&... inputs) { ((inputs ? action(*inputs) : void()), ...); };
        action(q), action(k);
        if_given(v, alibi, bias, mask, sinks, tree_mask);
        for (auto& [name, tensor] : function_tensors) action(tensor);
        for (auto& [meaning, tensor] : block_lists) action(tensor);
        for (ScaleInput& scale : scales) action(scale.file);
        if (!append) return;
        action(append->k);
        if_given(append->v, append->cos, append->sin);
    }
    template <class Do>
    void for_each_list(Do action) {
        for (List& list : lists) action(list.numbers);
        if (append)
            for (AppendInputs::List& list : append->lists) action(list.numbers);
    }
};

Inputs open(const Arguments& a) {
    Inputs inputs{.q = {"--q", a.q},
                  .k = a.cache() ? AttendInput("--cache-k", a.cache_k) : AttendInput("--k", a.k),
                  .v = a.cache() ? open_optional("--cache-v", a.cache_v) : open_optional("--v", a.v),
                  .alibi = open_optional("--alibi", a.alibi),
                  .bias = open_optional("--bias", a.bias),
                  .mask = open_optional("--mask", a.mask),
                  .sinks = open_optional("--sinks", a.sinks),
                  .tree_mask = open_optional("--tree-mask", a.tree_mask),
                  .function_tensors = {},
                  .block_lists = a.block_lists.open(),
                  .scales = a.scales.open(),
                  .append = a.append.open(),
                  .lists = {}};
    for (const auto& [name, file] : a.functions.tensors)
        inputs.function_tensors.emplace_back(name, AttendInput("--function-tensor", file));
    const auto& q = inputs.q.shape();
    inputs.lists = a.cache() ? a.lists.open_for_cache(q.size() == 4 ? q.front() : 1) : a.lists.open();
    return inputs;
}

// Says in which type each input is wanted; returns that of the result, and of q, k and v but where they are e4m3.
io::DType choose_types(Inputs& inputs, const Arguments& arguments) {
    AttendInput* const v = inputs.v ? &*inputs.v : nullptr;
    std::vector<AttendInput*> others = {&inputs.k};
    if (v != nullptr) others.push_back(v);
    check_ranks(inputs.q, {others.begin(), others.end()}, arguments.cache(), inputs.packed());
    if (inputs.append) {
        inputs.append->check();
        others.push_back(&inputs.append->k);
        if (inputs.append->v) others.push_back(&*inputs.append->v);
        for (auto* table : {&inputs.append->cos, &inputs.append->sin})
            if (*table && (*table)->dtype() == io::DType::fp64) (*table)->want(io::DType::fp32);
    }
    const auto is_e4m3 = [](const AttendInput* input) { return input->dtype() == io::DType::e4m3; };
    const std::string& wanted = arguments.attention.dtype;
    const io::DType compute = is_e4m3(&inputs.q) || std::ranges::any_of(others, is_e4m3)
                                  ? dtype_beside_e4m3(inputs.q, inputs.k, v, wanted)
                                  : compute_dtype(inputs.q, {others.begin(), others.end()}, wanted);
    others.push_back(&inputs.q);
    for (AttendInput* input : others)
        if (!is_e4m3(input)) input->want(compute);
    for (ScaleInput& scale : inputs.scales) {
        check_floating(scale.file);
        scale.file.want(io::DType::fp32);
    }
    for (auto* input : {&inputs.alibi, &inputs.bias, &inputs.sinks}) {
        if (!*input) continue;
        check_floating(**input);
        const bool kept = input != &inputs.alibi && (*input)->dtype() == inputs.q.wanted();
        (*input)->want(kept ? compute : io::DType::fp32);
    }
    for (auto& [name, tensor] : inputs.function_tensors)
        if (tensor.dtype() == io::DType::fp64) tensor.want(io::DType::fp32);
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
    const auto results = arguments.results();
    const auto refuse_input = [&](const std::string& flag, const std::string& file) {
        for (const auto& [result, result_file] : results) refuse_same(result, result_file, flag.c_str(), file);
    };
    inputs.for_each([&](const AttendInput& input) { refuse_input(input.flag(), input.file()); });
    inputs.for_each_list([&](const WholeNumbers& numbers) {
        if (const io::InputArray* file = numbers.file()) refuse_input(numbers.flag(), file->file());
    });
    for (std::size_t n = 0; n < results.size(); ++n)
        for (std::size_t before = 0; before < n; ++before)
            refuse_same(results[n].first, results[n].second, results[before].first, results[before].second);
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
    inputs.for_each_list([&](const WholeNumbers& numbers) { files += ", " + numbers.title(); });
    return fmt::format("{}; the inputs are {}", problem, files);
}

// The library's name of a flag: "q_out" of --q-out.
std::string json_name(std::string flag) {
    flag.erase(0, 2);
    std::ranges::replace(flag, '-', '_');
    return flag;
}

void report(const Arguments& arguments, const std::vector<std::int64_t>& shape, io::DType dtype, double seconds) {
    if (arguments.json) {
        nlohmann::ordered_json json = {{"out", arguments.out},         {"shape", shape},
                                       {"dtype", io::name(dtype)},     {"layout", arguments.layout},
                                       {"ran", flashtile::last_run()}, {"seconds", seconds}};
        // --out first, which is there.
        for (const auto& [flag, file] : arguments.results()) json[json_name(flag)] = file;
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

// The first columns of `k`'s rows.
flashtile::tensor first_columns(const flashtile::tensor& k, std::int64_t columns) {
    flashtile_tensor raw = k.raw();
    raw.shape[raw.rank - 1] = columns;
    return flashtile::tensor(raw);
}

std::int64_t head_dim_v(const Arguments& arguments, const Inputs& inputs) {
    if (inputs.v) return inputs.v->shape().back();
    const std::int64_t columns = inputs.k.shape().back();
    if (arguments.head_dim_v > columns)
        throw std::invalid_argument(fmt::format("--head-dim-v is {}, allowed is 1 to {}, the columns of {}",
                                                arguments.head_dim_v, columns, inputs.k.title()));
    return arguments.head_dim_v;
}

void attend(const Arguments& arguments, Inputs& inputs) {
    const std::uint64_t available = available_memory();
    const Layout layout = arguments.layout == "bhsd" ? Layout::bhsd : Layout::bshd;
    const io::DType dtype = choose_types(inputs, arguments);

    std::vector<std::int64_t> out_shape = inputs.q.shape();
    out_shape.back() = head_dim_v(arguments, inputs);
    const std::vector<std::int64_t> logsumexp_shape = lse_shape(out_shape, layout);
    std::uint64_t needed = 0;
    inputs.for_each([&](const AttendInput& input) { needed += input.memory(); });
    const auto output_bytes = [](const std::vector<std::int64_t>& shape, io::DType type) {
        const auto bytes = io::checked_bytes(shape, io::size_of(type));
        if (!bytes) throw std::invalid_argument(fmt::format("the result's shape would be {}", io::to_string(shape)));
        return *bytes;
    };
    inputs.for_each_list([&](const WholeNumbers& numbers) { needed += numbers.memory(); });
    needed += output_bytes(out_shape, dtype);
    if (!arguments.lse.empty()) needed += output_bytes(logsumexp_shape, io::DType::fp32);
    if (!arguments.append.q_out.empty()) needed += output_bytes(inputs.q.shape(), inputs.q.wanted());
    refuse_beyond(available, needed);

    ResultFiles results;
    void* const out = results.add(arguments.out, "out", dtype, out_shape);
    void* const lse = results.add(arguments.lse, "lse", io::DType::fp32, logsumexp_shape);
    void* const q_out = results.add(arguments.append.q_out, "q", inputs.q.wanted(), inputs.q.shape());
    if (inputs.append) {
        const auto want_copy = [&](AttendInput& cache, const std::string& file, const char* name) {
            cache.want_copy(results.add(file, name, cache.wanted(), cache.shape()));
        };
        want_copy(inputs.k, arguments.append.cache_k_out, "k");
        if (inputs.v) want_copy(*inputs.v, arguments.append.cache_v_out, "v");
    }
    inputs.for_each([](AttendInput& input) { input.reserve(); });
    // the library's checks read them
    inputs.for_each_list([](WholeNumbers& numbers) { numbers.fill(); });
    for (auto& [meaning, tensor] : inputs.block_lists) tensor.fill();

    auto options = arguments.attention.to_options();
    Placement place(arguments.attention.device);
    if (inputs.alibi) options.alibi_slopes = place.input(inputs.alibi->view());
    if (inputs.bias) options.bias = place.input(inputs.bias->view());
    if (inputs.mask) options.mask = place.input(inputs.mask->view());
    if (inputs.sinks) options.sinks = place.input(inputs.sinks->view());
    if (inputs.tree_mask) options.tree_mask = place.input(tree_mask_view(*inputs.tree_mask));
    arguments.functions.set(options);
    std::vector<flashtile_named_tensor> function_tensors;
    for (const auto& [name, tensor] : inputs.function_tensors)
        function_tensors.push_back(named(name.c_str(), place.input(tensor.view())));
    options.function_tensors = function_tensors;
    options.block_lists.block_q = arguments.block_lists.block_size.at(0);
    options.block_lists.block_k = arguments.block_lists.block_size.at(1);
    for (const auto& [meaning, tensor] : inputs.block_lists) options.block_lists.*meaning = place.input(tensor.view());
    const bool packed = inputs.packed();
    options.scale_block = arguments.scales.block;
    for (const ScaleInput& scale : inputs.scales)
        options.*scale.meaning = place.input(scale.view(arguments.cache() ? 4 : inputs.q.shape().size(), packed));
    for (const List& list : inputs.lists) options.*list.meaning = place.input(list.numbers.view());
    if (packed) options.max_seqlen_q = find(inputs.lists, &flashtile::options::cu_seqlens_q)->numbers.longest_step();
    const auto rows_of_q = [&](void* data, io::DType type, const std::vector<std::int64_t>& shape) {
        return place.output(rows_view(data, to_flashtile(type), shape, layout, packed));
    };
    // A cache that is appended to is read and written.
    const auto place_cache = [&](const flashtile::tensor& host) {
        return inputs.append ? place.output(host) : place.input(host);
    };
    const auto q = place.input(inputs.q.view(layout, packed)), k = place_cache(inputs.k.view(layout)),
               v = inputs.v ? place_cache(inputs.v->view(layout)) : first_columns(k, out_shape.back());
    // Rows past seqused_q are not written: they stay 0, as the files are.
    const auto out_view = rows_of_q(out, dtype, out_shape);
    flashtile::tensor lse_view;
    if (lse != nullptr) {
        const auto& rows = out_view.raw().shape;
        lse_view = place.output(packed ? flashtile::view(lse, fp32, {rows[1], rows[0]})
                                       : flashtile::view(lse, fp32, {rows[0], rows[2], rows[1]}));
    }
    std::optional<append_args> append;
    if (inputs.append) {
        append = inputs.append->place(place, layout);
        if (q_out != nullptr) append->q_out = rows_of_q(q_out, inputs.q.wanted(), inputs.q.shape());
    }
    // Checks every argument, before any time goes into conversion.
    const std::size_t workspace = append ? append_forward_workspace(options, *append, q, k, v, out_view, lse_view)
                                         : flashtile::forward_workspace(options, q, k, v, out_view, lse_view);
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
        if (append)
            flashtile::append_forward(options, *append, q, k, v, out_view, lse_view);
        else
            flashtile::forward(options, q, k, v, out_view, lse_view);
        place.wait();
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    {
        const Progress progress("writing " + arguments.out);
        place.download();
        results.commit();
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
    command
        ->add_option("--head-dim-v", arguments->head_dim_v, "Values are the first N columns of the keys (latent heads)")
        ->check(at_least_1)
        ->excludes(v)
        ->excludes(cache_v)
        ->type_name("N");
    command->add_option("--out", arguments->out, "Result: .npy or .safetensors")->required()->type_name("FILE");
    command->add_option("--lse", arguments->lse, "Also write the log-sum-exp of every query's scores")
        ->type_name("FILE");
    input("--alibi,--alibi-slopes", arguments->alibi, "ALiBi slopes");
    input("--bias", arguments->bias, "Added to the scores");
    input("--mask", arguments->mask, "Keys that a query may see");
    input("--sinks", arguments->sinks, "Attention sinks: a logit for each head");
    arguments->functions.add_texts_to(*command);
    arguments->functions.add_tensors_to(*command, "FILE[:TENSOR]", "A tensor that these two may name");
    arguments->block_lists.add_to(*command);
    arguments->scales.add_to(*command);
    input("--tree-mask", arguments->tree_mask, "Which of the last keys a query sees, as many as queries");
    arguments->lists.add_to(*command, cache_k);
    arguments->append.add_to(*command, cache_k);
    command->get_option("--append-v")->needs(cache_v);
    command->get_option("--cache-v-out")->needs(cache_v);
    for (const char* flag : {"--out", "--lse", "--append-k", "--append-v", "--rotary-cos", "--rotary-sin", "--q-out",
                             "--cache-k-out", "--cache-v-out"})
        command->get_option(flag)->check(check_name);
    command->add_option("--layout", arguments->layout, "Order of dimensions: bshd or bhsd")
        ->check(CLI::IsMember({"bshd", "bhsd"}))
        ->type_name("ORDER");
    arguments->attention.add_to(*command);
    command->add_flag("--json", arguments->json, "Print JSON");

    command->callback([arguments, &exit_code] {
        if (arguments->k.empty() && !arguments->cache()) throw CLI::RequiredError("--k, or --cache-k,");
        if (arguments->head_dim_v == 0) {
            if (arguments->cache() ? arguments->cache_v.empty() : arguments->v.empty())
                throw CLI::RequiredError(arguments->cache() ? "--cache-v, or --head-dim-v," : "--v, or --head-dim-v,");
            if (arguments->append.given() && arguments->append.v.empty()) throw CLI::RequiredError("--append-v");
        }
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

// compile.cpp: `flashtile compile`: CUDA kernels ahead of time, into one file, for machines that have no NVRTC or no
// patience. No GPU is needed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <flashtile/flashtile.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "commands.h"
#include "status_line.h"

namespace flashtile::cli {
namespace {

constexpr const char* examples = R"(Examples:
  flashtile compile --arch=sm_80,sm_90a -o kernels.ftb                 fp16 and bf16, d 64 and 128, full and causal
  flashtile compile --arch=sm_90a --dtypes=bf16 --head-dims=192x128 --with=causal,packed,dropout -o kernels.ftb
  flashtile compile --arch=sm_89 --forward-only --with=none --with=causal,seqused -o kernels.ftb
  flashtile compile --list=python/common_kernels.txt -o kernels.ftb    what the Python wheel carries
  FLASHTILE_BUNDLE=kernels.ftb ./program                               uses it

A kernel serves the calls that use just its options: give --with once for each set of options that your calls use
together.)";

struct Named {
    const char* name;
    int value;
};

constexpr auto dtypes =
    std::to_array<Named>({{"fp32", FLASHTILE_FP32}, {"fp16", FLASHTILE_FP16}, {"bf16", FLASHTILE_BF16}});

constexpr auto bundle_options = std::to_array<Named>({{"none", 0},
                                                      {"causal", FLASHTILE_WITH_CAUSAL},
                                                      {"window", FLASHTILE_WITH_WINDOW},
                                                      {"packed", FLASHTILE_WITH_PACKED},
                                                      {"seqused", FLASHTILE_WITH_SEQUSED},
                                                      {"softcap", FLASHTILE_WITH_SOFTCAP},
                                                      {"alibi", FLASHTILE_WITH_ALIBI},
                                                      {"bias", FLASHTILE_WITH_BIAS},
                                                      {"bias-fp32", FLASHTILE_WITH_BIAS_FP32},
                                                      {"bias-gradient", FLASHTILE_WITH_BIAS_GRADIENT},
                                                      {"mask", FLASHTILE_WITH_MASK},
                                                      {"dropout", FLASHTILE_WITH_DROPOUT},
                                                      {"deterministic", FLASHTILE_WITH_DETERMINISTIC},
                                                      {"batch-invariant", FLASHTILE_WITH_BATCH_INVARIANT},
                                                      {"exact-max", FLASHTILE_WITH_EXACT_MAX},
                                                      {"cache", FLASHTILE_WITH_CACHE},
                                                      {"pages", FLASHTILE_WITH_PAGES},
                                                      {"seqused-q", FLASHTILE_WITH_SEQUSED_Q},
                                                      {"first-k", FLASHTILE_WITH_FIRST_K},
                                                      {"attention-chunk", FLASHTILE_WITH_ATTENTION_CHUNK},
                                                      {"tree-mask", FLASHTILE_WITH_TREE_MASK},
                                                      {"sinks", FLASHTILE_WITH_SINKS},
                                                      {"diagonals", FLASHTILE_WITH_DIAGONALS},
                                                      {"only-without-lse", FLASHTILE_ONLY_WITHOUT_LSE},
                                                      {"only-few-queries", FLASHTILE_ONLY_FEW_QUERIES},
                                                      {"only-many-queries", FLASHTILE_ONLY_MANY_QUERIES}});

template <std::size_t n>
std::string names_of(const std::array<Named, n>& list) {
    std::vector<std::string> names;
    names.reserve(n);
    for (const Named& each : list) names.emplace_back(each.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

template <std::size_t n>
int value_of(const std::array<Named, n>& list, const char* option, const std::string& word) {
    for (const Named& each : list)
        if (word == each.name) return each.value;
    throw CLI::ValidationError(option, fmt::format("is {}, allowed is {}", word, names_of(list)));
}

std::uint32_t options_of(const std::string& set) {
    std::uint32_t options = 0;
    for (const std::string& word : CLI::detail::split(set, ','))
        options |= static_cast<std::uint32_t>(value_of(bundle_options, "--with", word));
    return options;
}

// "sm_90a" or "90".
int architecture_of(const std::string& word) {
    std::string digits = word.starts_with("sm_") ? word.substr(3) : word;
    if (digits.ends_with('a')) digits.pop_back();
    int number = 0;
    if (!CLI::detail::lexical_cast(digits, number))
        throw CLI::ValidationError("--arch", fmt::format("is {}, allowed is a target as sm_80 or sm_90a", word));
    return number;
}

// "128", or "192x128": d and dv.
std::pair<int, int> head_dims_of(const std::string& word) {
    const std::size_t x = word.find('x');
    std::pair<int, int> dims;
    if (!CLI::detail::lexical_cast(word.substr(0, x), dims.first) ||
        (x != std::string::npos && !CLI::detail::lexical_cast(word.substr(x + 1), dims.second)))
        throw CLI::ValidationError("--head-dims", fmt::format("is {}, allowed is d, or d and dv as 192x128", word));
    return dims;
}

struct Settings {
    std::vector<std::string> architectures, dtypes = {"fp16", "bf16"}, head_dims = {"64", "128"},
                                            sets = {"none", "causal"};
    int group = 1;
    bool forward_only = false;
};

void add_flags(CLI::App& app, Settings& settings) {
    app.add_option("--arch", settings.architectures, "Targets: sm_80, sm_86, sm_89, sm_90a, sm_100, sm_120")
        ->delimiter(',');
    app.add_option("--dtypes,--dtype", settings.dtypes, names_of(cli::dtypes))->delimiter(',')->capture_default_str();
    app.add_option("--head-dims,--head-dim", settings.head_dims, "d, or d and dv as 192x128")
        ->delimiter(',')
        ->capture_default_str();
    app.add_option("--with", settings.sets, "Options that calls use together: " + names_of(bundle_options))
        ->take_all()
        ->capture_default_str();
    app.add_option("--group", settings.group, "Query heads that share a key head")->capture_default_str();
    app.add_flag("--forward-only", settings.forward_only, "No backward kernels");
}

std::vector<flashtile_bundle_item> items_of(const Settings& settings) {
    std::vector<flashtile_bundle_item> items;
    for (const std::string& architecture : settings.architectures)
        for (const std::string& dtype : settings.dtypes)
            for (const std::string& dims : settings.head_dims)
                for (const std::string& set : settings.sets) {
                    flashtile_bundle_item item = FLASHTILE_BUNDLE_ITEM_INIT;
                    item.architecture = architecture_of(architecture);
                    item.dtype = value_of(cli::dtypes, "--dtypes", dtype);
                    std::tie(item.head_dim, item.head_dim_v) = head_dims_of(dims);
                    item.backward = settings.forward_only ? 0 : 1;
                    item.options = options_of(set);
                    item.group = settings.group;
                    items.push_back(item);
                }
    return items;
}

// Of a file whose lines are flags, as on the command line.
std::vector<flashtile_bundle_item> items_of_list(const std::string& path) {
    std::vector<flashtile_bundle_item> items;
    std::ifstream file(path);
    int number = 0;
    for (std::string line; std::getline(file, line);) {
        ++number;
        line.resize(std::min(line.find('#'), line.size()));
        if (CLI::detail::trim_copy(line).empty()) continue;
        Settings settings;
        CLI::App flags;
        add_flags(flags, settings);
        flags.get_option("--arch")->required();
        try {
            flags.parse(line);
            const std::vector<flashtile_bundle_item> more = items_of(settings);
            items.insert(items.end(), more.begin(), more.end());
        } catch (const CLI::Error& error) {
            throw CLI::ValidationError("--list", fmt::format("{}, line {}: {}", path, number, error.what()));
        }
    }
    if (items.empty()) throw CLI::ValidationError("--list", path + " has no line of flags that can be read");
    return items;
}

}  // namespace

void add_compile(CLI::App& app, int& exit_code) {
    CLI::App* command = app.add_subcommand("compile", "CUDA kernels ahead of time, into one file");
    command->footer(examples);
    struct Asked : Settings {
        std::string list, path;
    };
    auto settings = std::make_shared<Asked>();
    add_flags(*command, *settings);
    CLI::Option* arch = command->get_option("--arch");
    const std::vector<CLI::Option*> of_a_line =
        command->get_options([](const CLI::Option* option) { return option->get_name() != "--help"; });
    CLI::Option* list =
        command
            ->add_option("--list", settings->list,
                         "A file with a line of the flags above for each set of kernels; # starts a comment")
            ->check(CLI::ExistingFile);
    for (CLI::Option* option : of_a_line) list->excludes(option);
    command->add_option("-o,--output", settings->path, "The bundle to write")->required();
    command->callback([settings, arch, &exit_code] {
        if (arch->empty() && settings->list.empty()) throw CLI::RequiredError("--arch or --list");
        const std::vector<flashtile_bundle_item> items =
            settings->list.empty() ? items_of(*settings) : items_of_list(settings->list);
        std::size_t kernels = 0;
        StatusLine status;
        flashtile::compile_bundle(settings->path, items, [&](std::size_t done, std::size_t total) {
            kernels = total;
            status.say(fmt::format("{} of {} kernels", done, total));
        });
        status.clear();
        fmt::print("{}: {} kernels\n", settings->path, kernels);
        exit_code = exit_ok;
    });
}

}  // namespace flashtile::cli

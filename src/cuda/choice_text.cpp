// choice_text.cpp: a choice as a line of text, "version=0.1.0 device=NVIDIA_H200/90 kernel=forward_sm90 ...": every
// field by its name, in one order, so that whatever is not exactly that is no choice.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <sstream>
#include <type_traits>

#include "cuda/choice.h"
#include "cuda/jit/config_fields.h"

namespace flashtile::gpu {
namespace {

constexpr std::string_view kUnknown = "unknown";  // as name_of() has what is no kernel

// The sizes of a tile stand in the choice, not in the config.
constexpr std::string_view kTileFields[] = {"Br",      "Bc",        "warps",    "stages",
                                            "warps_s", "warps_dkv", "warps_dq", "blocks_per_sm"};

template <class AnyChoice, class Visit>
void visit_choice(AnyChoice& choice, Visit visit) {
    visit("version", choice.version);
    visit("device", choice.device);
    visit_fields(choice.subject.config, [&](const char* name, auto& value) {
        if (std::ranges::find(kTileFields, name) == std::end(kTileFields)) visit(name, value);
    });
    visit("seqlen_q", choice.subject.seqlen_q);
    visit("seqlen_k", choice.subject.seqlen_k);
    visit("full", choice.subject.full);
    visit("Br", choice.tile.Br);
    visit("Bc", choice.tile.Bc);
    visit("warps", choice.tile.warps);
    visit("stages", choice.tile.stages);
    visit("blocks_per_sm", choice.tile.blocks_per_sm);
    visit("batch", choice.batch);
    visit("heads", choice.heads);
    visit("kv_heads", choice.kv_heads);
    visit("nanoseconds", choice.nanoseconds);
    visit("table_nanoseconds", choice.table_nanoseconds);
}

std::string text_of(const std::string& text) {
    return text;
}
std::string text_of(Kernel kernel) {
    return name_of(kernel);
}
std::string text_of(Element element) {
    return name_of(element);
}
template <class Number>
std::string text_of(Number number) {
    return std::to_string(static_cast<std::int64_t>(number));
}

bool read(std::string_view text, std::string& value) {
    value = text;
    return !text.empty();
}
// Enumerators have successive numbers from 0.
template <class Enum>
bool read_name(std::string_view text, Enum& value) {
    for (int n = 0; text_of(static_cast<Enum>(n)) != kUnknown; ++n)
        if (text_of(static_cast<Enum>(n)) == text) {
            value = static_cast<Enum>(n);
            return true;
        }
    return false;
}
bool read(std::string_view text, Kernel& value) {
    return read_name(text, value);
}
bool read(std::string_view text, Element& value) {
    return read_name(text, value);
}
template <class Number>
bool read(std::string_view text, Number& value) {
    constexpr std::int64_t kMost = std::is_same_v<Number, bool> ? 1
                                   : std::is_same_v<Number, std::int64_t>
                                       ? std::numeric_limits<std::int64_t>::max()
                                       : std::int64_t{std::numeric_limits<int>::max()};
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > kMost) return false;
    value = static_cast<Number>(number);
    return true;
}

std::string measurement(const Choice& c) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "measured on this GPU, batch %lld, %lld heads, %lld key heads: %.1f us, the table's tile %.1f us",
                  static_cast<long long>(c.batch), static_cast<long long>(c.heads), static_cast<long long>(c.kv_heads),
                  static_cast<double>(c.nanoseconds) * 1e-3, static_cast<double>(c.table_nanoseconds) * 1e-3);
    return text;
}

}  // namespace

std::string to_text(const Choice& choice) {
    std::string line;
    visit_choice(choice, [&](const char* name, const auto& value) {
        if (!line.empty()) line += ' ';
        line.append(name).append(1, '=').append(text_of(value));
    });
    return line;
}

std::optional<Choice> parse_choice(std::string_view line) {
    Choice choice;
    std::string_view rest = line;
    bool good = true;
    visit_choice(choice, [&](std::string_view name, auto& value) {
        good = good && rest.starts_with(name) && rest.substr(name.size()).starts_with('=');
        if (!good) return;
        rest.remove_prefix(name.size() + 1);
        const std::size_t end = rest.find(' ');
        good = read(rest.substr(0, end), value);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    });
    if (!good || to_text(choice) != line) return std::nullopt;  // a number has one way to be written
    choice.why = measurement(choice);
    return choice;
}

std::string describe(const Subject& subject) {
    const KernelConfig& c = subject.config;
    std::ostringstream text;
    text << name_of(c.kernel) << ' ' << name_of(c.element) << " d=" << c.head_dim << " dv=" << c.head_dim_v;
    const std::pair<bool, const char*> options[] = {{c.band && !c.window, "causal"},
                                                    {c.window, "window"},
                                                    {c.packed, "packed"},
                                                    {c.seqused, "seqused"},
                                                    {c.softcap, "softcap"},
                                                    {c.alibi, "ALiBi"},
                                                    {c.bias != BiasElement::none, "bias"},
                                                    {c.mask, "mask"},
                                                    {c.dropout, "dropout"},
                                                    {c.deterministic, "deterministic"},
                                                    {!subject.full, "too few queries to fill the GPU"}};
    for (const auto& [on, name] : options)
        if (on) text << ' ' << name;
    text << ", about " << subject.seqlen_q << " x " << subject.seqlen_k;
    return text.str();
}

std::string describe(const Tile& tile) {
    std::ostringstream text;
    text << tile.Br << 'x' << tile.Bc << " tile, " << tile.warps << " warps, " << tile.stages
         << (tile.stages == 1 ? " stage" : " stages");
    if (tile.blocks_per_sm != 1) text << ", " << tile.blocks_per_sm << " a multiprocessor";
    return text.str();
}

}  // namespace flashtile::gpu

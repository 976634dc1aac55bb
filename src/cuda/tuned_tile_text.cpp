// tuned_tile_text.cpp: a tuned tile as a line of text, "version=0.1.0 device=NVIDIA_H200/90 kernel=forward_sm90 ...":
// every field by its name, in one order, so that whatever is not exactly that is none.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <sstream>
#include <type_traits>

#include "cuda/jit/config_fields.h"
#include "cuda/kernel_names.h"
#include "cuda/tuned_tile.h"

namespace flashtile::gpu {
namespace {

template <class AnyTunedTile, class Visit>
void visit_tuned_tile(AnyTunedTile& tuned, Visit visit) {
    visit("version", tuned.version);
    visit("device", tuned.device);
    // The sizes of the tile stand in the tile, not in the config.
    visit_members([&](const char* name, auto member, FieldGroup group) {
        if (group != FieldGroup::tile) visit(name, tuned.subject.config.*member);
    });
    visit("seqlen_q", tuned.subject.seqlen_q);
    visit("seqlen_k", tuned.subject.seqlen_k);
    visit("full", tuned.subject.full);
    visit("Br", tuned.tile.Br);
    visit("Bc", tuned.tile.Bc);
    visit("warps", tuned.tile.warps);
    visit("stages", tuned.tile.stages);
    visit("blocks_per_sm", tuned.tile.blocks_per_sm);
    visit("batch", tuned.batch);
    visit("heads", tuned.heads);
    visit("kv_heads", tuned.kv_heads);
    visit("nanoseconds", tuned.nanoseconds);
    visit("table_nanoseconds", tuned.table_nanoseconds);
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
    for (int n = 0; text_of(static_cast<Enum>(n)) != kUnknownName; ++n)
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

std::string measurement(const TunedTile& c) {
    char text[200];
    std::snprintf(text, sizeof text,
                  "measured on this GPU, batch %lld, %lld heads, %lld key heads: %.1f us, the table's tile %.1f us",
                  static_cast<long long>(c.batch), static_cast<long long>(c.heads), static_cast<long long>(c.kv_heads),
                  static_cast<double>(c.nanoseconds) * 1e-3, static_cast<double>(c.table_nanoseconds) * 1e-3);
    return text;
}

}  // namespace

std::string to_text(const TunedTile& tuned) {
    std::string line;
    visit_tuned_tile(tuned, [&](const char* name, const auto& value) {
        if (!line.empty()) line += ' ';
        line.append(name).append(1, '=').append(text_of(value));
    });
    return line;
}

std::optional<TunedTile> parse_tuned_tile(std::string_view line) {
    TunedTile tuned;
    std::string_view rest = line;
    bool good = true;
    visit_tuned_tile(tuned, [&](std::string_view name, auto& value) {
        good = good && rest.starts_with(name) && rest.substr(name.size()).starts_with('=');
        if (!good) return;
        rest.remove_prefix(name.size() + 1);
        const std::size_t end = rest.find(' ');
        good = read(rest.substr(0, end), value);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    });
    if (!good || to_text(tuned) != line) return std::nullopt;  // a number has one way to be written
    tuned.why = measurement(tuned);
    return tuned;
}

std::string describe(const Subject& subject) {
    const KernelConfig& c = subject.config;
    std::ostringstream text;
    text << name_of(c.kernel) << ' ' << name_of(c.element) << " d=" << c.head_dim << " dv=" << c.head_dim_v;
    visit_members([&](std::string_view name, auto member, FieldGroup group) {
        if (group != FieldGroup::option || c.*member == KernelConfig{}.*member) return;
        if (name != "band")
            text << ' ' << name;
        else if (!c.window)
            text << " causal";
    });
    if (!subject.full) text << " too few queries to fill the GPU";
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

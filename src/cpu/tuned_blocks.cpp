// tuned_blocks.cpp: see tuned_blocks.h.
#include "cpu/tuned_blocks.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "core/error.h"
#include "core/snapshots.h"
#include "cpu/features.h"
#include "cuda/tuned_tiles.h"
#include "flashtile/version.h"

namespace flashtile::cpu {
namespace {

using List = std::vector<TunedBlocks>;

constinit Snapshots<List> snapshots;

List from_file() {
    List list;
    for (const std::string& line : gpu::kept_choices().lines)
        if (auto tuned = parse_tuned_blocks(line)) list.push_back(*std::move(tuned));
    return list;
}

constinit Snapshots<std::string> cpu_name;

std::string read_cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    std::string model = "unknown";
    for (std::string line; std::getline(file, line);)
        if (const auto colon = line.find(": "); line.starts_with("model name") && colon != std::string::npos) {
            model = line.substr(colon + 2);
            break;
        }
    std::ranges::replace_if(
        model, [](unsigned char c) { return c <= ' ' || c > '~'; }, '_');
    return model;
}

bool replaces(const TunedBlocks& a, const TunedBlocks& b) {
    return a.version == b.version && a.cpu == b.cpu && a.subject == b.subject;
}

std::int64_t nearest_power(std::int64_t number) {
    const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(number, 1));
    const std::uint64_t below = std::bit_floor(n);
    return static_cast<std::int64_t>(n >= below + below / 2 && below > 1 ? 2 * below : below);
}

const char* name(Pass pass) {
    return pass == Pass::forward ? "forward" : "backward";
}

constexpr flashtile_isa kIsas[] = {FLASHTILE_ISA_PORTABLE,    FLASHTILE_ISA_AVX2, FLASHTILE_ISA_AVX512,
                                   FLASHTILE_ISA_AVX512_BF16, FLASHTILE_ISA_AMX,  FLASHTILE_ISA_NEON_BF16};
constexpr DType kDtypes[] = {DType::fp32, DType::fp16, DType::bf16};

// The fields of a line, in their order.
class Fields {
public:
    explicit Fields(std::string_view line) : rest_(line) {}

    std::string_view text(std::string_view name) {
        good_ = good_ && rest_.starts_with(name) && rest_.substr(name.size()).starts_with('=');
        if (!good_) return {};
        rest_.remove_prefix(name.size() + 1);
        const std::string_view value = rest_.substr(0, rest_.find(' '));
        rest_.remove_prefix(std::min(rest_.size(), value.size() + 1));
        return value;
    }
    std::int64_t number(std::string_view name) {
        const std::string_view digits = text(name);
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        good_ = good_ && error == std::errc() && end == digits.data() + digits.size() && value >= 0;
        return value;
    }
    template <class Value, std::size_t n, class NameOf>
    Value one_of(std::string_view name, const Value (&values)[n], NameOf name_of) {
        const std::string_view wanted = text(name);
        const auto found = std::ranges::find_if(values, [&](Value value) { return name_of(value) == wanted; });
        good_ = good_ && found != std::end(values);
        return good_ ? *found : values[0];
    }
    bool good() const { return good_; }

private:
    std::string_view rest_;
    bool good_ = true;
};

std::string measurement(const TunedBlocks& tuned) {
    char text[120];
    std::snprintf(text, sizeof text, "measured on this CPU: %.1f us, the plan's own rows %.1f us",
                  static_cast<double>(tuned.nanoseconds) * 1e-3, static_cast<double>(tuned.table_nanoseconds) * 1e-3);
    return text;
}

}  // namespace

BlocksSubject subject_of(Pass pass, flashtile_isa isa, std::int32_t threads, const Problem& p) {
    return {pass,
            isa,
            p.dtype_of_k(),
            p.head_dim,
            p.head_dim_v,
            p.window_left >= 0 || p.window_right >= 0,
            threads,
            nearest_power(p.seqlen_q),
            nearest_power(p.seqlen_k),
            nearest_power(p.batch * p.heads)};
}

const std::string& tuned_cpu() {
    return cpu_name.get(read_cpu_name);
}

std::string to_text(const TunedBlocks& tuned) {
    const BlocksSubject& s = tuned.subject;
    std::ostringstream line;
    line << "cpu=" << tuned.cpu << " version=" << tuned.version << " pass=" << name(s.pass)
         << " isa=" << isa_name(s.isa) << " dtype=" << flashtile::name(s.dtype) << " head_dim=" << s.head_dim
         << " head_dim_v=" << s.head_dim_v << " band=" << int{s.band} << " threads=" << s.threads
         << " seqlen_q=" << s.seqlen_q << " seqlen_k=" << s.seqlen_k << " heads=" << s.heads << " rows=" << tuned.rows
         << " nanoseconds=" << tuned.nanoseconds << " table_nanoseconds=" << tuned.table_nanoseconds;
    return line.str();
}

std::optional<TunedBlocks> parse_tuned_blocks(std::string_view line) {
    constexpr Pass kPasses[] = {Pass::forward, Pass::backward};
    constexpr bool kYesNo[] = {false, true};
    Fields fields(line);
    TunedBlocks tuned;
    BlocksSubject& s = tuned.subject;
    tuned.cpu = fields.text("cpu");
    tuned.version = fields.text("version");
    s.pass = fields.one_of("pass", kPasses, [](Pass pass) { return std::string_view(name(pass)); });
    s.isa = fields.one_of("isa", kIsas, [](flashtile_isa isa) { return std::string_view(isa_name(isa)); });
    s.dtype = fields.one_of("dtype", kDtypes, [](DType dtype) { return std::string_view(flashtile::name(dtype)); });
    s.head_dim = fields.number("head_dim");
    s.head_dim_v = fields.number("head_dim_v");
    s.band = fields.one_of("band", kYesNo, [](bool band) { return std::string_view(band ? "1" : "0"); });
    s.threads = fields.number("threads");
    s.seqlen_q = fields.number("seqlen_q");
    s.seqlen_k = fields.number("seqlen_k");
    s.heads = fields.number("heads");
    tuned.rows = fields.number("rows");
    tuned.nanoseconds = fields.number("nanoseconds");
    tuned.table_nanoseconds = fields.number("table_nanoseconds");
    if (!fields.good() || to_text(tuned) != line) return std::nullopt;  // a number has one way to be written
    tuned.why = measurement(tuned);
    return tuned;
}

bool is_of_cpu(std::string_view line) {
    return line.starts_with("cpu=");
}

std::string describe(const BlocksSubject& s) {
    std::ostringstream text;
    text << name(s.pass) << ' ' << isa_name(s.isa) << ' ' << flashtile::name(s.dtype) << " d=" << s.head_dim
         << " dv=" << s.head_dim_v << (s.band ? " causal or a window" : "") << ", " << s.threads
         << (s.threads == 1 ? " thread" : " threads") << ", about " << s.seqlen_q << " x " << s.seqlen_k << ", "
         << s.heads << (s.heads == 1 ? " head" : " heads");
    return text.str();
}

const TunedBlocks* tuned_blocks_for(const BlocksSubject& subject) {
    const List& list = all_tuned_blocks();
    const auto found = std::ranges::find_if(list, [&](const TunedBlocks& tuned) {
        return tuned.subject == subject && tuned.version == FLASHTILE_VERSION_STRING && tuned.cpu == tuned_cpu();
    });
    return found != list.end() ? &*found : nullptr;
}

const List& all_tuned_blocks() {
    return snapshots.get(from_file);
}

void use_tuned_blocks(std::string_view text, bool keep) {
    const std::optional<TunedBlocks> tuned = parse_tuned_blocks(text);
    if (!tuned)
        throw Error(FLASHTILE_INVALID_ARGUMENT,
                    "choice is '" + std::string(text) + "', allowed is a line that flashtile_plan_report gives");
    snapshots.publish([&](const List* before) {
        List next = before != nullptr ? *before : from_file();
        std::erase_if(next, [&](const TunedBlocks& old) { return replaces(*tuned, old); });
        next.push_back(*tuned);
        return next;
    });
    if (!keep) return;
    gpu::edit_kept_choices([&](std::vector<std::string>& lines) {
        std::erase_if(lines, [&](const std::string& line) {
            const auto old = parse_tuned_blocks(line);
            return old && replaces(*tuned, *old);
        });
        lines.push_back(to_text(*tuned));
    });
}

void forget_tuned_blocks() {
    snapshots.publish([](const List*) { return List(); });
}

}  // namespace flashtile::cpu

// append_flags.cpp: see append_flags.h.
#include "append_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "io/convert.h"

namespace flashtile::cli {

bool AppendInputs::packed() const {
    return std::ranges::any_of(lists, [](const List& list) { return list.meaning == &append_args::cu_seqlens_k_new; });
}

void AppendInputs::check() const {
    for (const auto* input : {&cos, &sin})
        if (*input) check_floating(**input);
    for (const AttendInput* rows : {&k, v ? &*v : nullptr}) {
        if (rows == nullptr) continue;
        check_floating(*rows);
        const std::size_t rank = rows->shape().size();
        if (packed() ? rank != 3 : rank < 2 || rank > 4)
            throw std::invalid_argument(fmt::format("{} has shape {}, allowed is {}", rows->title(),
                                                    io::to_string(rows->shape()),
                                                    packed() ? "(s of all sequences, h, d) beside --cu-seqlens-k-new"
                                                             : "(s, d), (s, h, d) or (b, s, h, d)"));
    }
}

append_args AppendInputs::place(Placement& place, Layout layout) const {
    append_args a{.k = place.input(k.view(layout, packed()))};
    if (v) a.v = place.input(v->view(layout, packed()));
    if (cos) a.rotary_cos = place.input(cos->view());
    if (sin) a.rotary_sin = place.input(sin->view());
    for (const List& list : lists) a.*list.meaning = place.input(list.numbers.view());
    a.rotary_begin = rotary_begin;
    a.rotary_interleaved = rotary_interleaved;
    return a;
}

void AppendFlags::add_to(CLI::App& command, CLI::Option* cache) {
    CLI::Option* seqused = command.get_option("--seqused-k");
    CLI::Option* append = command.add_option("--append-k", k, "New keys, written to the cache behind --seqused-k");
    append->needs(cache)->needs(seqused);
    const auto file = [&](const char* flag, std::string& value, const char* help, CLI::Option* needs) {
        return command.add_option(flag, value, help)->type_name("FILE[:TENSOR]")->needs(needs);
    };
    append->type_name("FILE[:TENSOR]");
    file("--append-v", v, "New values", append);
    CLI::Option* cos = file("--rotary-cos", cos_, "Cosines: rotates new keys and queries", append);
    cos->needs(file("--rotary-sin", sin_, "Sines", cos));
    command.add_option("--rotary-begin", begin_, "First column that is rotated")->type_name("N")->needs(cos);
    command.add_flag("--rotary-interleaved", interleaved_, "Rotate columns 2n and 2n+1 as a pair")->needs(cos);
    for (Flag& flag : lists_) {
        const bool rotates = flag.meaning != &append_args::cu_seqlens_k_new;
        command.add_option(flag.name, flag.given, flag.help)->type_name("LIST|FILE")->needs(rotates ? cos : append);
    }
    const auto result = [&](const char* flag, std::string& value, const char* help, CLI::Option* needs) {
        command.add_option(flag, value, help)->type_name("FILE")->needs(needs);
    };
    result("--q-out", q_out, "Also write the rotated queries", cos);
    result("--cache-k-out", cache_k_out, "Also write the keys' cache with the new ones", append);
    result("--cache-v-out", cache_v_out, "Also write the values' cache with the new ones", append);
}

std::optional<AppendInputs> AppendFlags::open() const {
    if (!given()) return std::nullopt;
    AppendInputs inputs{.k = {"--append-k", k},
                        .v = open_optional("--append-v", v),
                        .cos = open_optional("--rotary-cos", cos_),
                        .sin = open_optional("--rotary-sin", sin_),
                        .lists = {},
                        .rotary_begin = begin_,
                        .rotary_interleaved = interleaved_};
    for (const Flag& flag : lists_)
        if (!flag.given.empty()) inputs.lists.push_back({flag.meaning, {flag.name, flag.given}});
    return inputs;
}

std::size_t append_forward_workspace(const options& o, const append_args& a, const tensor& q, const tensor& k,
                                     const tensor& v, const tensor& out, const tensor& lse) {
    const auto c_options = detail::c_options(o);
    const auto append = detail::c_append(a);
    auto inputs = detail::c_inputs(o, q, k, v);
    inputs.append = &append;
    const auto outputs = detail::c_outputs(out, lse);
    std::size_t bytes = 0;
    detail::check(flashtile_forward_workspace(&c_options, &inputs, &outputs, &bytes));
    return bytes;
}

}  // namespace flashtile::cli

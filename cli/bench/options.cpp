// options.cpp: see options.h.
#include "bench/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "attention_names.h"

namespace flashtile::cli::bench {
namespace {

constexpr std::int64_t paper_hidden = 2048;

std::vector<std::int64_t> powers_of_two(std::int64_t first, std::int64_t last) {
    std::vector<std::int64_t> result;
    for (std::int64_t n = first; n <= last; n *= 2) result.push_back(n);
    return result;
}

std::vector<bool> causal_values(const std::string& causal) {
    if (causal == "both") return {false, true};
    return {causal == "1"};
}

}  // namespace

std::vector<Pass> passes(const Options& options) {
    if (options.work.empty()) return {Pass::forward, Pass::backward, Pass::both};
    std::vector<Pass> result;
    for (const Pass pass : {Pass::forward, Pass::backward, Pass::both})
        if (std::ranges::count(options.work, name_of(pass))) result.push_back(pass);
    return result;
}

bool wants_memory(const Options& options) {
    return std::ranges::count(options.work, "memory") > 0;
}

const std::vector<std::string>& peer_names() {
    static const std::vector<std::string> names = {"torch", "openvino"};
    return names;
}

bool wants(const Options& options, const std::string& peer) {
    return std::ranges::count(options.against, peer) > 0;
}

std::vector<std::string> others(const Options& options) {
    std::vector<std::string> names;
    std::ranges::remove_copy_if(options.against, std::back_inserter(names),
                                [](const std::string& name) { return std::ranges::count(peer_names(), name) > 0; });
    return names;
}

std::vector<Point> grid(const Options& options) {
    const auto seqlens =
        options.seqlens.empty() ? powers_of_two(512, std::min<std::int64_t>(16384, options.tokens)) : options.seqlens;
    if (seqlens.empty())
        throw std::invalid_argument(
            fmt::format("--tokens is {}, allowed is at least 512, or give --seqlen", options.tokens));
    const auto threads = options.threads.empty() ? std::vector<int>{flashtile::get_threads()} : options.threads;

    std::vector<Point> points;
    for (const Pass pass : passes(options))
        for (const auto& dtype : options.dtypes)
            for (const int count : threads)
                for (const std::int64_t d : options.head_dims)
                    for (const bool causal : causal_values(options.causal))
                        for (const std::int64_t n : seqlens) {
                            Point p{.pass = pass, .dtype = parse_dtype(dtype), .head_dim = d, .causal = causal};
                            p.seqlen = n;
                            p.batch = options.batch ? options.batch : std::max<std::int64_t>(1, options.tokens / n);
                            p.heads = options.heads ? options.heads : std::max<std::int64_t>(1, paper_hidden / d);
                            p.kv_heads = options.kv_heads ? options.kv_heads : p.heads;
                            p.threads = count;
                            if (p.heads % p.kv_heads)
                                throw std::invalid_argument(fmt::format(
                                    "--kv-heads is {}, allowed are divisors of the {} heads", p.kv_heads, p.heads));
                            points.push_back(p);
                        }
    return points;
}

bool wants_paper(const Options& options) {
    return std::ranges::count(options.work, "paper") > 0;
}

bool wants_functions(const Options& options) {
    return std::ranges::count(options.work, "functions") > 0;
}

bool wants_decode(const Options& options) {
    return std::ranges::count(options.work, "decode") > 0;
}

std::vector<Point> decode_grid(const Options& options, std::int64_t last_level_cache_bytes) {
    if (options.work.size() != 1)
        throw std::invalid_argument(
            fmt::format("work is {}, allowed is decode alone or others", fmt::join(options.work, " ")));
    Point p{.pass = Pass::decode};
    p.batch = options.batch ? options.batch : 1;
    p.heads = options.heads ? options.heads : 32;
    p.kv_heads = options.kv_heads ? options.kv_heads : options.heads ? options.heads : 8;
    p.queries = options.queries;
    if (p.heads % p.kv_heads)
        throw std::invalid_argument(
            fmt::format("--kv-heads is {}, allowed are divisors of the {} heads", p.kv_heads, p.heads));
    std::vector<Point> points;
    for (const auto& dtype : options.dtypes)
        for (const int threads : options.threads.empty() ? std::vector<int>{flashtile::get_threads()} : options.threads)
            for (const std::int64_t d : options.head_dims) {
                p.dtype = parse_dtype(dtype), p.threads = threads, p.head_dim = d, p.seqlen = 1;
                // In whole thousands of keys, which common pages divide.
                const auto keys_of = [&](std::int64_t bytes) {
                    return std::max<std::int64_t>(1, bytes / 1024 / static_cast<std::int64_t>(cache_bytes(p))) * 1024;
                };
                const auto seqlens = options.seqlens.empty()
                                         ? std::vector<std::int64_t>{keys_of(4 * last_level_cache_bytes),
                                                                     keys_of(last_level_cache_bytes / 4)}
                                         : options.seqlens;
                for (const std::int64_t n : seqlens)
                    for (const std::int64_t page : options.page_sizes) {
                        p.seqlen = n, p.page_size = page;
                        if (page != 0 && n % page != 0)
                            throw std::invalid_argument(
                                fmt::format("--page-size is {}, allowed are divisors of --seqlen, {}", page, n));
                        points.push_back(p);
                    }
            }
    return points;
}

std::vector<std::int64_t> memory_seqlens(const Options& options) {
    return options.seqlens.empty() ? powers_of_two(1024, 65536) : options.seqlens;
}

}  // namespace flashtile::cli::bench

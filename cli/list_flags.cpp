// list_flags.cpp: see list_flags.h.
#include "list_flags.h"

#include <algorithm>

namespace flashtile::cli {
namespace {

constexpr const char *kList = "LIST|FILE", *kFile = "FILE[:TENSOR]";

}  // namespace

const List* find(const std::vector<List>& lists, flashtile::tensor options::*meaning) {
    const auto found = std::ranges::find(lists, meaning, &List::meaning);
    return found == lists.end() ? nullptr : &*found;
}

ListFlags::ListFlags()
    : flags_{
          {"--block-table", &options::block_table, "Pages of each sequence", kFile, true},
          {"--cache-batch-idx", &options::cache_batch_idx, "Row of the cache of each sequence", kList, true},
          {"--cu-seqlens-q", &options::cu_seqlens_q, "Packed queries: where each sequence's start", kList, true},
          {"--seqused-k", &options::seqused_k, "Keys that each sequence uses", kList, false, ",--seqused"},
          {"--seqused-q", &options::seqused_q, "Queries that each sequence uses", kList},
          {"--first-k", &options::first_k, "Keys before it are hidden, of each sequence", kList},
          {"--diagonals", &options::diagonals, "--diagonal of each sequence", kList, false, "", dtype::int64},
          {"--origins-i", &options::origins_i, "--origin's I of each sequence", kList, false, "", dtype::int64},
          {"--origins-j", &options::origins_j, "--origin's J of each sequence", kList, false, "", dtype::int64},
          {"--positions", &options::positions, "Position of each query, beside --tree-mask", kFile},
          {"--prefix-groups", &options::prefix_groups, "Bounds of groups of sequences that share pages", kList, true},
          {"--prefix-lengths", &options::prefix_lengths, "Keys that a group's sequences share", kList, true}} {}

void ListFlags::add_to(CLI::App& command, CLI::Option* cache) {
    for (Flag& flag : flags_) {
        CLI::Option* option = command.add_option(flag.name + flag.alias, flag.given, flag.help)->type_name(flag.type);
        if (flag.of_a_cache) option->needs(cache);
    }
}

std::vector<List> ListFlags::open() const {
    std::vector<List> lists;
    for (const Flag& flag : flags_)
        if (!flag.given.empty()) lists.push_back({flag.meaning, {flag.name, flag.given, flag.numbers}});
    return lists;
}

std::vector<List> ListFlags::open_for_cache(std::int64_t sequences) const {
    std::vector<List> lists = open();
    const bool named = find(lists, &options::block_table) != nullptr ||
                       find(lists, &options::cache_batch_idx) != nullptr ||
                       find(lists, &options::cu_seqlens_q) != nullptr;
    if (!named) lists.push_back({&options::cache_batch_idx, {"--cache-batch-idx", sequences}});
    return lists;
}

}  // namespace flashtile::cli

// attention_names.cpp: see attention_names.h.
#include "attention_names.h"

#include <iterator>
#include <stdexcept>
#include <utility>

namespace flashtile::cli {
namespace {

constexpr std::pair<const char*, dtype> kDtypes[] = {{"bf16", bf16}, {"fp16", fp16}, {"fp32", fp32}};

}  // namespace

std::vector<std::string> instruction_set_names() {
    std::vector<std::string> names;
    names.reserve(std::size(kInstructionSets));
    for (const isa set : kInstructionSets) names.emplace_back(isa_name(set));
    return names;
}

isa parse_isa(const std::string& name) {
    if (name == "auto") return isa::automatic;
    for (const isa set : kInstructionSets)
        if (name == isa_name(set)) return set;
    throw std::invalid_argument("'" + name + "' is no instruction set");
}

std::vector<std::string> dtype_names() {
    std::vector<std::string> names;
    names.reserve(std::size(kDtypes));
    for (const auto& [name, type] : kDtypes) names.emplace_back(name);
    return names;
}

dtype parse_dtype(const std::string& name) {
    for (const auto& [known, type] : kDtypes)
        if (name == known) return type;
    throw std::invalid_argument("'" + name + "' is no dtype to compute in");
}

}  // namespace flashtile::cli

// parse.h: from the text of a function to nodes of a graph.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/operand.h"
#include "functions/graph.h"

namespace flashtile::functions {

constexpr std::size_t kMostCharacters = 4096;

// A tensor as a text may name it.
struct TensorType {
    std::string name;
    int rank = 0;
    Type type = Type::real;
    DType dtype = DType::unset;  // as kernels that are compiled for it read it; no text depends on it

    bool operator==(const TensorType&) const = default;
};

enum class Kind : std::uint8_t { score, mask };

// What is wrong with a text, and where.
class SyntaxError : public std::runtime_error {
public:
    SyntaxError(const std::string& what, std::size_t position) : std::runtime_error(what), position_(position) {}
    std::size_t position() const { return position_; }  // the first character's is 0

private:
    std::size_t position_;
};

// True for what may be a tensor's name: letters, digits and _, no digit first, and no word of the language.
bool is_a_name(std::string_view text);

// The node that the text's value is: a real one for a score, a boolean one for a mask.
int parse(std::string_view text, Kind kind, std::span<const TensorType> tensors, Graph& graph);

}  // namespace flashtile::functions

// expression.h: score and mask functions, read and evaluated the plain way: a tree that is walked anew for every place.
// The language is what docs/functions.md says. Nothing here comes from the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flashtile::oracle {

enum class ValueType { real, integer, boolean };

// A named tensor, dense and row-major; booleans are the integers 0 and 1.
struct ExpressionTensor {
    std::string name;
    std::vector<std::int64_t> shape;
    ValueType type = ValueType::real;
    std::vector<double> reals;
    std::vector<std::int64_t> integers;
};

class Expression {
public:
    // A score function, or without one a mask function. Throws std::invalid_argument for a wrong text or tensor.
    Expression(const std::string& text, std::vector<ExpressionTensor> tensors, bool with_score);

    struct Place {
        double s = 0.0;
        std::int64_t b = 0, h = 0, i = 0, j = 0, seqlen_q = 0, seqlen_k = 0;
    };
    struct Dual {
        double value;
        double derivative;  // by s
    };
    // The derivative of a score by one element of a tensor of reals.
    struct ByElement {
        std::size_t tensor;   // in the order in which they were given
        std::size_t element;  // row-major
        double derivative;
    };

    // single: in fp32, each operation rounded, as standard attention has it; else in fp64, literals alone being fp32.
    Dual score(const Place& place, bool single) const;
    // By each element that the score at this place reads.
    std::vector<ByElement> by_elements(const Place& place, bool single) const;
    // Always in fp32: a float of the language is one, and what a mask decides has no error that a tolerance could
    // cover.
    bool mask(const Place& place) const;

    enum class Operation {
        literal,
        score,
        coordinate,
        part,
        load,
        choose,
        logical_or,
        logical_and,
        bit_or,
        bit_xor,
        bit_and,
        equal,
        unequal,
        less,
        less_equal,
        greater,
        greater_equal,
        shift_left,
        shift_right,
        add,
        subtract,
        multiply,
        divide,
        floor_divide,
        remainder,
        negate,
        logical_not,
        bit_not,
        min,
        max,
        abs,
        exp,
        log,
        tanh,
        sqrt,
        to_real,
        to_integer,
        to_boolean
    };
    struct Node {
        Operation operation = Operation::literal;
        ValueType type = ValueType::integer;  // of what it gives
        std::vector<Node> operands;
        double real = 0.0;         // of a literal
        std::int64_t integer = 0;  // of a literal; booleans are 0 and 1
        std::size_t index = 0;     // of a part or tensor
        std::int64_t Place::*coordinate = nullptr;
    };

private:
    std::vector<ExpressionTensor> tensors_;
    std::vector<Node> parts_;  // the named ones in order, then the whole
    bool with_score_;
};

}  // namespace flashtile::oracle

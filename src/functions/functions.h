// functions.h: the score and mask functions of a call, parsed once in a process. Problems name them by a number, so
// that problems stay comparable and free of pointers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "functions/builder.h"
#include "functions/parse.h"

namespace flashtile::functions {

class Functions {
public:
    // An empty text is no function. Throws SyntaxErrorOf.
    Functions(std::string_view score, std::string_view mask, std::vector<TensorType> tensors);

    const std::string& score_text() const { return score_text_; }
    const std::string& mask_text() const { return mask_text_; }
    const std::vector<TensorType>& tensors() const { return tensors_; }
    // Nodes; -1: there is none.
    int score() const { return score_; }
    int derivative() const { return derivative_; }
    int mask() const { return mask_; }
    bool mask_depends_on(Op given) const;  // h, for example
    bool derivative_is_one() const;        // of the score function by s, everywhere
    const Graph& score_graph() const { return score_graph_; }
    const Graph& mask_graph() const { return mask_graph_; }
    // The score with its derivatives by its loads of floats.
    const Graph& by_loads_graph() const { return by_loads_graph_; }
    // The score with its derivative by s, the same with those by its loads, and the mask.
    const BuiltProgram& gradient_program() const { return gradient_program_; }
    const BuiltProgram& by_loads_program() const { return by_loads_program_; }
    const BuiltProgram& mask_program() const { return mask_program_; }

    // Whether the score function and its derivatives by what it loads are few enough operations to be computed.
    bool loads_are_differentiable() const { return loads_are_differentiable_; }

    FunctionsView view(const FunctionTensor* tensors) const;

private:
    std::string score_text_, mask_text_;
    std::vector<TensorType> tensors_;
    Graph score_graph_, by_loads_graph_, mask_graph_;
    int score_ = -1, derivative_ = -1, mask_ = -1;
    bool loads_are_differentiable_ = true;
    BuiltProgram score_program_, gradient_program_, mask_program_, by_loads_program_;
};

// A SyntaxError of one of the two texts.
struct SyntaxErrorOf {
    Kind kind;
    SyntaxError error;
};

// The number, from 1, of functions with these texts and tensors; the same for the same in one process.
int number_of(std::string_view score, std::string_view mask, const std::vector<TensorType>& tensors);
const Functions& functions_of(int number);
// Whether a mask function is among them; none of number 0 is.
bool has_mask(int number);

}  // namespace flashtile::functions

// functions.cpp: see functions.h.
#include "functions/functions.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "core/per_process.h"
#include "functions/derivative.h"

namespace flashtile::functions {
namespace {

int parse_as(std::string_view text, Kind kind, const std::vector<TensorType>& tensors, Graph& graph) {
    if (text.empty()) return -1;
    try {
        return parse(text, kind, tensors, graph);
    } catch (const SyntaxError& error) {
        throw SyntaxErrorOf{kind, error};
    }
}

// The score, and its derivatives by each of its loads of floats, which are added to its graph.
BuiltProgram with_derivatives_by_loads(Graph& graph, int score) {
    std::vector<std::pair<int, int>> loads;
    for (int n = 0; n <= score; ++n)
        if (graph[n].op == Op::load && graph[n].type == Type::real)
            if (const std::optional<int> by_load = derivative_by(graph, score, n)) loads.emplace_back(n, *by_load);
    return BuiltProgram(graph, score, -1, loads);
}

struct Known {
    std::mutex lock;
    std::deque<Functions> functions;  // addresses stay
};

constinit PerProcess<Known> known;

}  // namespace

Functions::Functions(std::string_view score, std::string_view mask, std::vector<TensorType> tensors)
    : score_text_(score), mask_text_(mask), tensors_(std::move(tensors)) {
    score_ = parse_as(score, Kind::score, tensors_, score_graph_);
    mask_ = parse_as(mask, Kind::mask, tensors_, mask_graph_);
    if (score_ >= 0) {
        try {
            derivative_ = derivative_by_s(score_graph_, score_);
        } catch (const std::length_error&) {
            throw SyntaxErrorOf{
                Kind::score,
                SyntaxError("it and its derivative have more than " + std::to_string(kMostNodes) + " operations", 0)};
        }
        score_program_ = BuiltProgram(score_graph_, score_, -1);
        gradient_program_ = BuiltProgram(score_graph_, score_, derivative_);
        try {
            by_loads_graph_ = score_graph_;
            by_loads_program_ = with_derivatives_by_loads(by_loads_graph_, score_);
        } catch (const std::length_error&) {
            loads_are_differentiable_ = false;
        }
    }
    if (mask_ >= 0) mask_program_ = BuiltProgram(mask_graph_, mask_, -1);
}

bool Functions::mask_depends_on(Op given) const {
    const Program& program = mask_program_.view();
    return std::any_of(program.steps, program.steps + program.end[kStages - 1],
                       [&](const Step& step) { return step.op == given; });
}

bool Functions::derivative_is_one() const {
    if (derivative_ < 0) return false;
    const Node& node = score_graph_[derivative_];
    return node.op == Op::constant && node.real == 1.0f;
}

FunctionsView Functions::view(const FunctionTensor* tensors) const {
    return {this,   score_program_.view(), gradient_program_.view(), mask_program_.view(), by_loads_program_.view(),
            tensors};
}

int number_of(std::string_view score, std::string_view mask, const std::vector<TensorType>& tensors) {
    Known& all = known.get();
    const std::lock_guard held(all.lock);
    int number = 0;
    for (const Functions& one : all.functions) {
        ++number;
        if (one.score_text() == score && one.mask_text() == mask && one.tensors() == tensors) return number;
    }
    all.functions.emplace_back(score, mask, tensors);
    return number + 1;
}

int most_buffers(int number) {
    const FunctionsView view = view_of(number, nullptr);
    return std::max({view.score.buffers, view.gradient.buffers, view.mask.buffers});
}

FunctionsView view_of(int number, const FunctionTensor* tensors) {
    return number == 0 ? FunctionsView{} : functions_of(number).view(tensors);
}

const Functions& functions_of(int number) {
    Known& all = known.get();
    const std::lock_guard held(all.lock);
    return all.functions.at(static_cast<std::size_t>(number) - 1);
}

bool has_mask(int number) {
    return number != 0 && functions_of(number).mask() >= 0;
}

}  // namespace flashtile::functions

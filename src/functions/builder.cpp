// builder.cpp: see builder.h.
#include "functions/builder.h"

#include <algorithm>

namespace flashtile::functions {
namespace {

Stage stage_of(const Node& node, const std::vector<Stage>& stages) {
    switch (node.op) {
        case Op::i:
            return Stage::row;
        case Op::j:
            return Stage::column;
        case Op::s:
            return Stage::tile;
        default:
            break;
    }
    Stage stage = Stage::uniform;
    for (int a = 0; a < node.arguments; ++a) {
        const Stage of = stages[static_cast<std::size_t>(node.argument[static_cast<std::size_t>(a)])];
        if (stage == Stage::uniform || stage == of)
            stage = of;
        else if (of != Stage::uniform)
            stage = Stage::tile;
    }
    return stage;
}

}  // namespace

BuiltProgram::BuiltProgram(const Graph& graph, int result, int derivative,
                           const std::vector<std::pair<int, int>>& loads) {
    const auto size = static_cast<std::size_t>(graph.size());
    std::vector<bool> used(size);
    const auto use = [&](int n) { used[static_cast<std::size_t>(n)] = true; };
    use(result);
    if (derivative >= 0) use(derivative);
    for (const auto& [load, by_load] : loads) use(load), use(by_load);
    for (int n = graph.size(); n-- > 0;)
        if (used[static_cast<std::size_t>(n)])
            for (int a = 0; a < graph[n].arguments; ++a) use(graph[n].argument[static_cast<std::size_t>(a)]);

    std::vector<Stage> stages(size, Stage::uniform);
    std::vector<int> own(size, -1), across(size, -1);  // buffers: of its stage, and as tiles read it
    std::vector<bool> read(size);                      // by a later stage
    for (int n = 0; n < graph.size(); ++n) {
        const auto at = static_cast<std::size_t>(n);
        if (!used[at]) continue;
        stages[at] = stage_of(graph[n], stages);
        across[at] = own[at] = program_.buffers++;
        if (graph[n].op == Op::s) program_.given = own[at];
    }
    const auto read_by_a_tile = [&](int n) {
        const auto at = static_cast<std::size_t>(n);
        read[at] = true;
        if (stages[at] == Stage::column && across[at] == own[at]) across[at] = program_.buffers++;
        return across[at];
    };

    for (int stage = 0; stage < kStages; ++stage) {
        for (int n = 0; n < graph.size(); ++n) {
            const auto at = static_cast<std::size_t>(n);
            if (!used[at] || static_cast<int>(stages[at]) != stage) continue;
            const Node& node = graph[n];
            Step step{};
            step.op = node.op;
            step.type = step.of = node.type;
            step.stage = stages[at];
            step.out = static_cast<std::int16_t>(own[at]);
            step.expanded = -1;
            step.tensor = node.tensor;
            step.rank = node.arguments;
            step.integer = node.integer;
            step.real = node.real;
            for (int a = 0; a < node.arguments; ++a) {
                const int argument = node.argument[static_cast<std::size_t>(a)];
                step.of = graph[argument].type;
                if (step.stage > stages[static_cast<std::size_t>(argument)])
                    read[static_cast<std::size_t>(argument)] = true;
                step.argument[a] = static_cast<std::int16_t>(
                    step.stage == Stage::tile ? read_by_a_tile(argument) : own[static_cast<std::size_t>(argument)]);
            }
            steps_.push_back(step);
            nodes_.push_back(n);
        }
        program_.end[stage] = static_cast<int>(steps_.size());
    }
    program_.result = read_by_a_tile(result);
    if (derivative >= 0) program_.derivative = read_by_a_tile(derivative);
    for (const auto& [load, by_load] : loads) {
        const Node& node = graph[load];
        LoadDerivative one{};
        one.derivative = static_cast<std::int16_t>(read_by_a_tile(by_load));
        for (int a = 0; a < node.arguments; ++a)
            one.index[a] = static_cast<std::int16_t>(read_by_a_tile(node.argument[static_cast<std::size_t>(a)]));
        one.tensor = node.tensor;
        one.rank = node.arguments;
        loads_.push_back(one);
    }
    for (Step& step : steps_)
        for (std::size_t n = 0; n < size; ++n)
            if (own[n] == step.out && step.stage != Stage::tile && read[n])
                step.expanded = static_cast<std::int16_t>(across[n]);
    program_.steps = steps_.data();
    program_.loads = loads_.data();
    program_.load_count = static_cast<int>(loads_.size());
}

}  // namespace flashtile::functions

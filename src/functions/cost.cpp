// cost.cpp: see cost.h.
#include "functions/cost.h"

#include <cstdint>
#include <initializer_list>
#include <utility>

#include "functions/program.h"

namespace flashtile::functions {
namespace {

// What is given or constant costs nothing to speak of.
Members cost_of(const Program& program, Stage stage) {
    std::int64_t operations = 0, loads = 0;
    for (const Step* step = program.steps; step != program.steps + program.end[kStages - 1]; ++step) {
        if (step->stage != stage) continue;
        if (step->op == Op::load)
            ++loads;
        else if (step->rank > 0)
            ++operations;
    }
    return Members().add("operations", operations).add("loads", loads);
}

}  // namespace

Members cost_report(int number) {
    const FunctionsView view = view_of(number, nullptr);
    Members report;
    for (const auto& [name, program] :
         {std::pair("score", &view.score), std::pair("gradient", &view.gradient), std::pair("mask", &view.mask)}) {
        if (!*program) continue;
        Members cost;
        for (const auto& [often, stage] : {std::pair("a_score", Stage::tile), std::pair("a_key", Stage::column),
                                           std::pair("a_query", Stage::row), std::pair("a_head", Stage::uniform)})
            cost.add(often, cost_of(*program, stage), "{}");
        report.add(name, cost, "{}");
    }
    return report;
}

}  // namespace flashtile::functions

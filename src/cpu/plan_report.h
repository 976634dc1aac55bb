// plan_report.h: how a problem runs on this CPU, and why so, for people and programs.
#pragma once

#include <string>

#include "core/problem.h"

namespace flashtile::cpu {

// JSON, in the form of the GPUs' report: for forward and backward the instruction set as "candidate", and those that
// were passed over, each with its reason; what multiplies; the kernels in their order with their blocks, tasks and
// threads; and the workspace; or why it cannot run. dbias is assumed to be asked for where there is a bias.
std::string plan_report(const Problem& problem, const Operands& operands, const Execution& execution);

}  // namespace flashtile::cpu

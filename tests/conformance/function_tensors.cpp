// function_tensors.cpp: see function_tensors.h.
#include "conformance/function_tensors.h"

#include <algorithm>
#include <string_view>

namespace flashtile::conformance {

std::vector<FunctionTensor> function_tensors(const Case& problem) {
    const std::vector<FunctionTensor> all = {
        {"slope", fp32, {problem.heads}},
        {"table", problem.type, {problem.heads, 31}},
        {"document", dtype::int32, {problem.sequences(), std::max(problem.longest_q(), problem.longest_k())}},
        {"prefix", dtype::int64, {problem.sequences()}},
        {"pattern", boolean, {4, 4, 2}},
    };
    std::vector<FunctionTensor> named;
    for (const FunctionTensor& tensor : all)
        for (const std::string* text : {&problem.score_function, &problem.mask_function})
            if (text->find(std::string(tensor.name) + "[") != std::string::npos) {
                named.push_back(tensor);
                break;
            }
    return named;
}

void fill_function_tensor(const FunctionTensor& what, const Case& problem, RandomSource& random,
                          GuardedTensor& tensor) {
    const std::string_view name = what.name;
    double document = 0.0;
    for (std::size_t n = 0; n < tensor.size(); ++n) {
        if (name == "slope") {
            tensor.set(n, 0.5 * random.uniform());
        } else if (name == "table") {
            tensor.set(n, random.normal());
        } else if (name == "document") {
            if (n % static_cast<std::size_t>(what.shape[1]) == 0) document = 0.0;
            tensor.set(n, document += random.chance(0.04) ? 1.0 : 0.0);
        } else if (name == "prefix") {
            tensor.set(n, static_cast<double>(random.integer(0, problem.longest_k())));
        } else {
            tensor.set(n, random.chance(0.5) ? 1.0 : 0.0);
        }
    }
}

oracle::ExpressionTensor as_the_oracle_reads(const FunctionTensor& what, const GuardedTensor& tensor) {
    oracle::ExpressionTensor read;
    read.name = what.name;
    read.shape = what.shape;
    const std::vector<double> values = tensor.values();
    const bool whole = what.type == dtype::int32 || what.type == dtype::int64;
    read.type = whole                  ? oracle::ValueType::integer
                : what.type == boolean ? oracle::ValueType::boolean
                                       : oracle::ValueType::real;
    if (read.type == oracle::ValueType::real)
        read.reals = values;
    else
        read.integers.assign(values.begin(), values.end());
    return read;
}

}  // namespace flashtile::conformance

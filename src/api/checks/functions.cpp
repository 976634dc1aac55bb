// functions.cpp: see functions.h.
#include "functions/functions.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "api/checks/functions.h"
#include "api/checks/refuse.h"

namespace flashtile::api {
namespace {

functions::Type type_of(const TensorArgument& tensor) {
    switch (tensor.dtype()) {
        case DType::fp32:
        case DType::fp16:
        case DType::bf16:
            return functions::Type::real;
        case DType::int32:
        case DType::int64:
            return functions::Type::integer;
        case DType::boolean:
            return functions::Type::boolean;
        default:
            refuse(text(tensor.name(), ".dtype"), name(tensor.dtype()), "fp32, fp16, bf16, int32, int64 or bool");
    }
}

std::vector<functions::TensorType> check_tensors(CallUnderCheck& c) {
    const std::int64_t count = c.inputs.function_tensor_count;
    if (count < 0 || count > FLASHTILE_MAX_FUNCTION_TENSORS)
        refuse("function_tensor_count", count, text("0 to ", FLASHTILE_MAX_FUNCTION_TENSORS));
    if (count > 0 && c.inputs.function_tensors == nullptr) refuse("function_tensors", "NULL", text(count, " tensors"));
    std::vector<functions::TensorType> types;
    for (std::int64_t n = 0; n < count; ++n) {
        const flashtile_named_tensor& given = c.inputs.function_tensors[n];
        const std::string place = text("function_tensors[", n, "].name");
        if (given.name == nullptr) refuse(place, "NULL", "a name");
        if (!functions::is_a_name(given.name))
            refuse(place, text("'", given.name, "'"),
                   "letters, digits and _, no digit first, and no word of the language");
        if (std::ranges::find(types, given.name, &functions::TensorType::name) != types.end())
            refuse(place, text("'", given.name, "'"), "a name that no other tensor has");
        const TensorArgument tensor(&given.tensor, given.name);
        tensor.check_form();
        tensor.check_device({c.inputs.q, "q"});
        if (tensor->rank < 1 || tensor->rank > functions::kMostDimensions)
            refuse(text(given.name, ".rank"), tensor->rank, text("1 to ", functions::kMostDimensions));
        types.push_back({given.name, tensor->rank, type_of(tensor), tensor.dtype()});
        functions::FunctionTensor& x = c.call.operands.function_tensors[n];
        x.data = tensor->data;
        x.dtype = tensor->dtype;
        x.rank = tensor->rank;
        for (int d = 0; d < tensor->rank; ++d) {
            x.shape[d] = tensor.shape(d);
            x.stride[d] = tensor.stride(d);
        }
        c.memory.reads(tensor);
    }
    return types;
}

[[noreturn]] void refuse_text(std::string_view given, const functions::SyntaxErrorOf& wrong) {
    constexpr std::size_t kShown = 20;
    const std::size_t at = wrong.error.position();
    const std::string_view rest = given.substr(std::min(at, given.size()), kShown);
    throw Error(
        FLASHTILE_INVALID_ARGUMENT,
        text(wrong.kind == functions::Kind::score ? "score_function" : "mask_function", " is wrong at character ",
             at + 1, rest.empty() ? ", its end" : text(", '", rest, "'"), ": ", wrong.error.what()));
}

}  // namespace

void check_functions(CallUnderCheck& c) {
    const auto given = [](const char* function) { return function != nullptr ? std::string_view(function) : ""; };
    const std::string_view score = given(c.inputs.score_function), mask = given(c.inputs.mask_function);
    const bool any = c.inputs.score_function != nullptr || c.inputs.mask_function != nullptr;
    if (!any && c.inputs.function_tensor_count != 0)
        refuse("function_tensors", "given without a function", "a score_function or mask_function beside them");
    if (!any) return;
    if (c.inputs.score_function != nullptr && score.empty())
        refuse("score_function", "empty", "an expression, or NULL");
    if (c.inputs.mask_function != nullptr && mask.empty()) refuse("mask_function", "empty", "an expression, or NULL");
    const std::vector<functions::TensorType> types = check_tensors(c);
    try {
        c.call.problem.functions = functions::number_of(score, mask, types);
    } catch (const functions::SyntaxErrorOf& wrong) {
        refuse_text(wrong.kind == functions::Kind::score ? score : mask, wrong);
    }
}

}  // namespace flashtile::api

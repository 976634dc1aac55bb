// function_source.cpp: see function_source.h. A function becomes a struct. What its expression computes without a query
// or a key is a member of it, what depends on the query alone of its Row, on the key alone of its Column; the rest is
// computed by value(). An operation is one line.
#include "cuda/jit/function_source.h"

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "functions/functions.h"

namespace flashtile::gpu {
namespace {

using functions::Op;
using functions::Program;
using functions::Stage;
using functions::Step;
using functions::TensorType;
using functions::Type;

std::string joined(std::initializer_list<std::string_view> parts) {
    std::string text;
    for (const std::string_view part : parts) text += part;
    return text;
}

std::string type_name(Type type) {
    switch (type) {
        case Type::boolean:
            return "bool";
        case Type::integer:
            return "long long";
        case Type::real:
            return "float";
    }
    throw std::logic_error("a function's value has no type");
}

std::string call(const std::string& function, std::span<const std::string> arguments) {
    std::string text = function + "(";
    for (const std::string& argument : arguments)
        text.append(&argument == arguments.data() ? "" : ", ").append(argument);
    return text + ")";
}

std::string infix(const std::string& a, const char* op, const std::string& b) {
    return joined({a, " ", op, " ", b});
}

std::string constant(const Step& step) {
    switch (step.type) {
        case Type::boolean:
            return step.integer != 0 ? "true" : "false";
        case Type::integer:
            return joined({"op::wrapped(", std::to_string(static_cast<std::uint64_t>(step.integer)), "ull)"});
        case Type::real:
            return joined({"__uint_as_float(", std::to_string(std::bit_cast<std::uint32_t>(step.real)), "u)"});
    }
    throw std::logic_error("a function's constant has no type");
}

// An element of `tensor`, of the type that the language gives it.
std::string load(int number, DType dtype, std::span<const std::string> indices) {
    std::vector<std::string> arguments = {joined({"tensors[", std::to_string(number), "]"})};
    arguments.insert(arguments.end(), indices.begin(), indices.end());
    const auto element = [&](const std::string& type) { return call(joined({"op::element<", type, ">"}), arguments); };
    switch (dtype) {
        case DType::fp32:
            return element("float");
        case DType::fp16:
            return joined({"Math<Element::fp16>::to_float(", element("Math<Element::fp16>::Scalar"), ")"});
        case DType::bf16:
            return joined({"Math<Element::bf16>::to_float(", element("Math<Element::bf16>::Scalar"), ")"});
        case DType::int32:
            return element("int");
        case DType::int64:
            return element("long long");
        case DType::boolean:
            return element("unsigned char") + " != 0";
        default:
            throw std::logic_error("a function reads a tensor of a type that it cannot");
    }
}

std::string conversion(const Step& step, const std::string& of) {
    if (step.type == Type::boolean) return of + " != 0";
    if (step.type == Type::integer && step.of == Type::real) return joined({"op::truncated(", of, ")"});
    return joined({"static_cast<", type_name(step.type), ">(", of, ")"});
}

// What the operation of a step gives. `x` are its arguments.
std::string value_of(const Step& step, std::span<const std::string> x, std::span<const TensorType> tensors) {
    const bool whole = step.type == Type::integer;
    switch (step.op) {
        case Op::constant:
            return constant(step);
        case Op::s:
            return "s";
        case Op::b:
            return "given.b";
        case Op::h:
            return "given.h";
        case Op::seqlen_q:
            return "given.seqlen_q";
        case Op::seqlen_k:
            return "given.seqlen_k";
        case Op::i:
            return "i";
        case Op::j:
            return "j";
        case Op::load:
            return load(step.tensor, tensors[static_cast<std::size_t>(step.tensor)].dtype, x);
        case Op::add:
            return whole ? call("op::add", x) : infix(x[0], "+", x[1]);
        case Op::subtract:
            return whole ? call("op::subtract", x) : infix(x[0], "-", x[1]);
        case Op::multiply:  // in fp32 without a sum taken in, which would round otherwise than docs/functions.md says
            return call(whole ? "op::multiply" : "__fmul_rn", x);
        case Op::divide:
            return infix(x[0], "/", x[1]);
        case Op::floor_divide:
            return call("op::floor_divide", x);
        case Op::remainder:
            return call("op::remainder", x);
        case Op::negate:
            return whole ? call("op::negate", x) : joined({"-", x[0]});
        case Op::minimum:
            return call("op::minimum", x);
        case Op::maximum:
            return call("op::maximum", x);
        case Op::absolute:
            return call(whole ? "op::absolute" : "fabsf", x);
        case Op::shift_left:
            return call("op::shift_left", x);
        case Op::shift_right:
            return call("op::shift_right", x);
        case Op::bit_and:
            return infix(x[0], "&", x[1]);
        case Op::bit_or:
            return infix(x[0], "|", x[1]);
        case Op::bit_xor:
            return infix(x[0], "^", x[1]);
        case Op::bit_not:
            return joined({whole ? "~" : "!", x[0]});
        case Op::less:
            return infix(x[0], "<", x[1]);
        case Op::less_equal:
            return infix(x[0], "<=", x[1]);
        case Op::equal:
            return infix(x[0], "==", x[1]);
        case Op::not_equal:
            return infix(x[0], "!=", x[1]);
        case Op::select:
            return joined({x[0], " ? ", x[1], " : ", x[2]});
        case Op::exp:
            return call("expf", x);
        case Op::log:
            return call("logf", x);
        case Op::tanh:
            return call("tanhf", x);
        case Op::sqrt:
            return call("sqrtf", x);
        case Op::convert:
            return conversion(step, x[0]);
    }
    throw std::logic_error("a function has an unknown operation");
}

// Writes the struct of one function.
class Writer {
public:
    Writer(const Program& program, std::span<const TensorType> tensors) : program_(program), tensors_(tensors) {}

    // `value` is how value() begins, and `end` what it does last; `also` is what else the struct has.
    std::string function(std::string_view name, std::string_view value, std::string_view end,
                         std::string_view also = "") const {
        constexpr const char* kInline = "    __device__ __forceinline__ ";
        return joined({"template <KernelConfig config>\nstruct ",
                       name,
                       " {\n",
                       also,
                       "    const DeviceFunctionTensor* const tensors;\n",
                       members(Stage::uniform, "    "),
                       kInline,
                       "explicit ",
                       name,
                       "(const FunctionArguments& given) : tensors(given.tensors) {\n",
                       assignments(Stage::uniform, ""),
                       "    }\n",
                       "    struct Row {\n",
                       members(Stage::row, "        "),
                       "    };\n",
                       kInline,
                       "Row row_of(long long i) const {\n        Row row;\n",
                       assignments(Stage::row, "row."),
                       "        return row;\n    }\n",
                       "    struct Column {\n",
                       members(Stage::column, "        "),
                       "    };\n",
                       kInline,
                       "Column column_of(long long j) const {\n        Column column;\n",
                       assignments(Stage::column, "column."),
                       "        return column;\n    }\n",
                       kInline,
                       value,
                       " const {\n",
                       constants(),
                       end,
                       "    }\n};\n"});
    }

    // How value() reads what a buffer of the program holds.
    std::string name_of(int buffer) const {
        for (const Step& step : all_steps())
            if (step.out == buffer || step.expanded == buffer) {
                constexpr const char* kHolders[] = {"", "row.", "column.", ""};
                return joined({kHolders[static_cast<int>(step.stage)], own_name(step)});
            }
        throw std::logic_error("a function reads a value that nothing computes");
    }

private:
    std::span<const Step> all_steps() const { return {program_.steps, static_cast<std::size_t>(program_.end[3])}; }
    std::span<const Step> steps_of(Stage stage) const {
        const int n = static_cast<int>(stage), first = n == 0 ? 0 : program_.end[n - 1];
        return all_steps().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(program_.end[n] - first));
    }

    static std::string own_name(const Step& step) { return joined({"v", std::to_string(step.out)}); }
    std::string value(const Step& step) const {
        std::vector<std::string> arguments;
        arguments.reserve(static_cast<std::size_t>(step.rank));
        for (int a = 0; a < step.rank; ++a) arguments.push_back(name_of(step.argument[a]));
        return value_of(step, arguments, tensors_);
    }

    std::string members(Stage stage, std::string_view indent) const {
        std::string text;
        for (const Step& step : steps_of(stage))
            text += joined({indent, type_name(step.type), " ", own_name(step), ";\n"});
        return text;
    }
    std::string assignments(Stage stage, std::string_view holder) const {
        std::string text;
        for (const Step& step : steps_of(stage))
            text += joined({"        ", holder, own_name(step), " = ", value(step), ";\n"});
        return text;
    }
    std::string constants() const {
        std::string text;
        for (const Step& step : steps_of(Stage::tile))
            text += joined({"        const ", type_name(step.type), " ", own_name(step), " = ", value(step), ";\n"});
        return text;
    }

    const Program& program_;
    const std::span<const TensorType> tensors_;
};

std::string score_source(const Program& program, std::span<const TensorType> tensors) {
    const Writer writer(program, tensors);
    return writer.function("ScoreFunction",
                           "float value(const Row& row, const Column& column, float s, float& derivative)",
                           joined({"        derivative = ", writer.name_of(program.derivative), ";\n        return ",
                                   writer.name_of(program.result), ";\n"}));
}

std::string mask_source(const Program& program, std::span<const TensorType> tensors) {
    const Writer writer(program, tensors);
    return writer.function("MaskFunction", "bool value(const Row& row, const Column& column)",
                           joined({"        return ", writer.name_of(program.result), ";\n"}));
}

std::string loads_source(const Program& program, std::span<const TensorType> tensors) {
    const Writer writer(program, tensors);
    std::string calls;
    for (int n = 0; n < program.load_count; ++n) {
        const functions::LoadDerivative& load = program.loads[n];
        calls += joined({"        add(", std::to_string(n), ", ", std::to_string(load.tensor), ", ",
                         writer.name_of(load.derivative)});
        for (int d = 0; d < load.rank; ++d) calls += joined({", ", writer.name_of(load.index[d])});
        calls += ");\n";
    }
    return writer.function("ScoreLoads", "void each(const Row& row, const Column& column, float s, auto add)", calls,
                           joined({"    static constexpr int kLoads = ", std::to_string(program.load_count), ";\n"}));
}

}  // namespace

std::string function_source(int number) {
    const std::span<const TensorType> tensors = functions::functions_of(number).tensors();
    const functions::FunctionsView view = functions::view_of(number, nullptr);
    return joined({"#pragma once\nnamespace flashtile {\n", view.gradient ? score_source(view.gradient, tensors) : "",
                   view.by_loads.load_count > 0 ? loads_source(view.by_loads, tensors) : "",
                   view.mask ? mask_source(view.mask, tensors) : "", "}  // namespace flashtile\n"});
}

}  // namespace flashtile::gpu

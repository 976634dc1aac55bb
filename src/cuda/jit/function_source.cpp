// function_source.cpp: see function_source.h. A function becomes a struct. What its expression computes without a query
// or a key is a member of it, what depends on the query alone of its Row, on the key alone of its Column, on i - j
// alone of its Diagonal, since a lane's scores have half as many diagonals as there are scores; the rest is computed by
// value(). A mask function is also a function of intervals of queries and keys. An operation is one line.
// An int has 64 bits; near positions say of many that they fit 32, on which a GPU computes three to ten times as fast,
// and of some that fp32 holds them exactly, which saves converting them.
#include "cuda/jit/function_source.h"

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "functions/functions.h"
#include "functions/interval.h"
#include "shared/kernel_config.h"

namespace flashtile::gpu {
namespace {

using functions::BuiltProgram;
using functions::IntBounds;
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

std::string type_name(Type type, bool short_ints) {
    switch (type) {
        case Type::boolean:
            return "bool";
        case Type::integer:
            return short_ints ? "int" : "long long";
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

constexpr std::int64_t kLeast32 = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kGreatest32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kExact = 1 << 24;  // fp32 has every int up to here

std::string constant(const Step& step, bool short_ints) {
    switch (step.type) {
        case Type::boolean:
            return step.integer != 0 ? "true" : "false";
        case Type::integer:
            if (short_ints) return joined({"static_cast<int>(", std::to_string(step.integer), "ll)"});
            return joined({"op::wrapped(", std::to_string(static_cast<std::uint64_t>(step.integer)), "ull)"});
        case Type::real:
            return joined({"__uint_as_float(", std::to_string(std::bit_cast<std::uint32_t>(step.real)), "u)"});
    }
    throw std::logic_error("a function's constant has no type");
}

// What an element of a tensor is, and what the language makes of it.
std::string element_type(DType dtype) {
    switch (dtype) {
        case DType::fp32:
            return "float";
        case DType::fp16:
            return "Math<Element::fp16>::Scalar";
        case DType::bf16:
            return "Math<Element::bf16>::Scalar";
        case DType::int32:
            return "int";
        case DType::int64:
            return "long long";
        case DType::boolean:
            return "unsigned char";
        default:
            throw std::logic_error("a function reads a tensor of a type that it cannot");
    }
}
std::string value_of_element(DType dtype, const std::string& element) {
    if (dtype == DType::fp16) return joined({"Math<Element::fp16>::to_float(", element, ")"});
    if (dtype == DType::bf16) return joined({"Math<Element::bf16>::to_float(", element, ")"});
    return dtype == DType::boolean ? element + " != 0" : element;
}

// A call with a tensor and then indices.
std::string of_tensor(const char* function, int number, DType dtype, std::span<const std::string> indices) {
    std::vector<std::string> arguments = {joined({"tensors[", std::to_string(number), "]"})};
    arguments.insert(arguments.end(), indices.begin(), indices.end());
    return call(joined({"op::", function, "<", element_type(dtype), ">"}), arguments);
}

std::string conversion(const Step& step, const std::string& of) {
    if (step.type == Type::boolean) return of + " != 0";
    if (step.type == Type::integer && step.of == Type::real) return joined({"op::truncated(", of, ")"});
    return joined({"static_cast<", type_name(step.type, false), ">(", of, ")"});
}

std::string quotient(const std::string& a, const char* op, const std::string& b) {
    return joined({"static_cast<int>(static_cast<unsigned>(", a, ") ", op, " static_cast<unsigned>(", b, "))"});
}

// The same of ints of 32 bits, to which results and arguments are known to fit; empty where it is no other operation.
// `natural`: the first argument is not negative.
std::string short_value_of(Op op, std::span<const std::string> x, bool natural) {
    switch (op) {
        case Op::add:
            return infix(x[0], "+", x[1]);
        case Op::subtract:
            return infix(x[0], "-", x[1]);
        case Op::multiply:
            return infix(x[0], "*", x[1]);
        case Op::floor_divide:
            return natural ? quotient(x[0], "/", x[1]) : "";
        case Op::remainder:
            return natural ? quotient(x[0], "%", x[1]) : "";
        case Op::negate:
            return joined({"-", x[0]});
        case Op::shift_left:
            return infix(x[0], "<<", x[1]);
        case Op::shift_right:
            return infix(x[0], ">>", x[1]);
        default:
            return "";
    }
}

// What the operation of a step gives. `x` are its arguments.
std::string value_of(const Step& step, std::span<const std::string> x, std::span<const TensorType> tensors) {
    const bool whole = step.type == Type::integer;
    switch (step.op) {
        case Op::constant:
            return constant(step, false);
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
            return "i.at";
        case Op::j:
            return "j.at";
        case Op::load: {
            const DType dtype = tensors[static_cast<std::size_t>(step.tensor)].dtype;
            return value_of_element(dtype, of_tensor("element", step.tensor, dtype, x));
        }
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
    // `bounds` are those of the graph's nodes, where positions are near; otherwise empty.
    Writer(const BuiltProgram& program, std::span<const TensorType> tensors, std::vector<IntBounds> bounds)
        : program_(program.view()), nodes_(program.nodes()), tensors_(tensors), bounds_(std::move(bounds)) {
        for (const Step& step : all_steps()) keys_in_.push_back(keys_in(step));
    }
    const Program& program() const { return program_; }

    // `first` is what it says of itself, `value` how value() begins, and `end` what it does last; `more` stands behind
    // it.
    std::string function(std::string_view name, std::string_view first, std::string_view value, std::string_view end,
                         std::string_view more = "") const {
        constexpr const char* kInline = "    __device__ __forceinline__ ";
        return joined(
            {"template <KernelConfig config>\nstruct ",
             name,
             " {\n",
             first,
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
             "Row row_of(const Position<config>& i) const {\n        Row row;\n",
             assignments(Stage::row, "row."),
             "        return row;\n    }\n",
             "    struct Column {\n",
             members(Stage::column, "        "),
             "    };\n",
             kInline,
             "Column column_of(const Position<config>& j) const {\n        Column column;\n",
             assignments(Stage::column, "column."),
             "        return column;\n    }\n",
             "    struct Diagonal {\n",
             diagonal_members(),
             "    };\n",
             kInline,
             "Diagonal diagonal_of(const Row& row, const Column& column) const {\n        Diagonal diagonal;\n",
             diagonal_assignments(),
             "        return diagonal;\n    }\n",
             kInline,
             value,
             " const {\n",
             constants(),
             end,
             "    }\n",
             more,
             "};\n"});
    }

    // How value() reads what a buffer of the program holds.
    std::string name_of(int buffer) const { return name_of(step_of(buffer)); }

    // What the result adds to s, where that depends on i - j alone; empty where it is something else.
    std::string added_by_diagonal() const {
        const Step& result = step_of(program_.result);
        if (result.op != Op::add && result.op != Op::subtract) return "";
        const Step &first = argument(result, 0), &second = argument(result, 1);
        if (first.op == Op::s && is_diagonal(second)) return (result.op == Op::subtract ? "-" : "") + name_of(second);
        return result.op == Op::add && second.op == Op::s && is_diagonal(first) ? name_of(first) : "";
    }

private:
    std::span<const Step> all_steps() const { return {program_.steps, static_cast<std::size_t>(program_.end[3])}; }
    std::span<const Step> steps_of(Stage stage) const {
        const int n = static_cast<int>(stage), first = n == 0 ? 0 : program_.end[n - 1];
        return all_steps().subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(program_.end[n] - first));
    }
    const Step& step_of(int buffer) const {
        for (const Step& step : all_steps())
            if (step.out == buffer || step.expanded == buffer) return step;
        throw std::logic_error("a function reads a value that nothing computes");
    }
    const Step& argument(const Step& step, int n) const { return step_of(step.argument[n]); }

    static std::string own_name(const Step& step) { return joined({"v", std::to_string(step.out)}); }
    // A position in fp32.
    static std::string real_name(const Step& step) { return joined({"r", std::to_string(step.out)}); }
    std::string holder_of(const Step& step) const {
        constexpr const char* kHolders[] = {"", "row.", "column.", ""};
        return is_diagonal(step) ? "diagonal." : kHolders[static_cast<int>(step.stage)];
    }
    std::string name_of(const Step& step) const { return holder_of(step) + own_name(step); }

    bool near() const { return !bounds_.empty(); }
    bool within(const Step& step, std::int64_t low, std::int64_t high) const {
        if (!near()) return false;
        const IntBounds& bounds = bounds_[static_cast<std::size_t>(nodes_[number_of(step)])];
        return bounds.low >= low && bounds.high <= high;
    }
    // Whether it is an int that fits 32 bits, or that fp32 has.
    bool is_short(const Step& step) const { return step.type == Type::integer && within(step, kLeast32, kGreatest32); }
    bool is_exact(const Step& step) const { return step.type == Type::integer && within(step, -kExact, kExact); }
    bool is_position(const Step& step) const { return near() && (step.op == Op::i || step.op == Op::j); }

    // How often the value of a step has j in it, beside what depends on i - j alone: once that of i, too, which is j
    // and i - j. Empty where it is no such sum.
    std::optional<std::int64_t> keys_in(const Step& step) const {
        if (step.stage == Stage::uniform) return 0;
        if (step.op == Op::i || step.op == Op::j) return 1;
        if (step.op == Op::s) return std::nullopt;
        std::vector<std::int64_t> x;
        bool none = true, small = true;  // no argument has j in it; no int passes 32 bits
        for (int a = 0; a < step.rank; ++a) {
            const std::optional<std::int64_t> keys = keys_in_[number_of(argument(step, a))];
            if (!keys) return std::nullopt;
            x.push_back(*keys);
            none = none && *keys == 0;
            small = small && (argument(step, a).type != Type::integer || is_short(argument(step, a)));
        }
        if (none) return 0;
        switch (step.op) {
            case Op::add:
                return x[0] + x[1];
            case Op::subtract:
                return x[0] - x[1];
            case Op::negate:
                return -x[0];
            case Op::less:
            case Op::less_equal:
            case Op::equal:
            case Op::not_equal:  // of ints that did not wrap, it is that of their difference
                return small && x[0] == x[1] ? std::optional<std::int64_t>(0) : std::nullopt;
            case Op::minimum:
            case Op::maximum:
                return small && x[0] == x[1] ? std::optional(x[0]) : std::nullopt;
            default:
                return std::nullopt;
        }
    }
    std::size_t number_of(const Step& step) const { return static_cast<std::size_t>(&step - program_.steps); }
    bool is_diagonal(const Step& step) const { return step.stage == Stage::tile && keys_in_[number_of(step)] == 0; }

    // Whether an operation on ints may be one of 32 bits.
    bool computes_short(const Step& step) const {
        if (step.type == Type::integer && !is_short(step)) return false;
        for (int a = 0; a < step.rank; ++a)
            if (argument(step, a).type == Type::integer && !is_short(argument(step, a))) return false;
        if (step.op == Op::shift_left || step.op == Op::shift_right) return within(argument(step, 1), 0, 31);
        if (step.op == Op::floor_divide || step.op == Op::remainder) return within(argument(step, 1), 1, kGreatest32);
        return true;
    }

    std::string value(const Step& step) const {
        const bool shorter = computes_short(step);
        if (step.op == Op::constant) return constant(step, shorter);
        if (step.op == Op::load && has_short_indices(step)) return near_load(step);
        if (step.op == Op::convert && step.type == Type::real && step.of == Type::integer)
            return real_of(argument(step, 0));
        std::vector<std::string> arguments;
        arguments.reserve(static_cast<std::size_t>(step.rank));
        for (int a = 0; a < step.rank; ++a) {
            const Step& from = argument(step, a);
            // functions are overloaded by the width of their ints
            const bool widens = !shorter && is_short(from) && step.op != Op::load;
            arguments.push_back(widens ? joined({"static_cast<long long>(", name_of(from), ")"}) : name_of(from));
        }
        if (shorter && step.type == Type::integer)
            if (std::string text = short_value_of(step.op, arguments, is_natural(step)); !text.empty()) return text;
        std::string text = value_of(step, arguments, tensors_);
        return is_short(step) && !shorter ? joined({"static_cast<int>(", text, ")"}) : text;
    }
    // Loads with indices of 32 bits. What the last index does not take part in is computed before, where it may be: a
    // line of the tensor.
    bool has_short_indices(const Step& step) const {
        for (int a = 0; a < step.rank; ++a)
            if (!is_short(argument(step, a))) return false;
        return true;
    }
    std::vector<std::string> indices_of(const Step& step, int count) const {
        std::vector<std::string> indices;
        indices.reserve(static_cast<std::size_t>(count));
        for (int a = 0; a < count; ++a) indices.push_back(name_of(argument(step, a)));
        return indices;
    }
    static std::string line_name(const Step& step) { return joined({"l", std::to_string(step.out)}); }
    // The stage at which a load's line is known, before the element is.
    std::optional<Stage> line_stage(const Step& step) const {
        if (step.op != Op::load || !has_short_indices(step)) return std::nullopt;
        Stage latest = Stage::uniform;
        for (int a = 0; a + 1 < step.rank; ++a) {
            const Stage stage = argument(step, a).stage;
            if (stage == latest || stage == Stage::uniform) continue;
            latest = latest == Stage::uniform ? stage : Stage::tile;
        }
        if (latest == Stage::tile || latest == step.stage) return std::nullopt;
        return latest;
    }
    DType dtype_of(const Step& load) const { return tensors_[static_cast<std::size_t>(load.tensor)].dtype; }
    std::string near_load(const Step& step) const {
        const DType dtype = dtype_of(step);
        if (const std::optional<Stage> stage = line_stage(step)) {
            constexpr const char* kHolders[] = {"", "row.", "column.", ""};
            return value_of_element(dtype, joined({kHolders[static_cast<int>(*stage)], line_name(step), "[",
                                                   name_of(argument(step, step.rank - 1)), "]"}));
        }
        return value_of_element(dtype, of_tensor("near_element", step.tensor, dtype, indices_of(step, step.rank)));
    }

    bool is_natural(const Step& step) const { return step.rank > 0 && within(argument(step, 0), 0, kGreatest32); }

    // An int in fp32. Where fp32 has it, and the ints that it is made of, no instruction converts it.
    std::string real_of(const Step& step) const {
        std::string converted = joined({"static_cast<float>(", name_of(step), ")"});
        if (!is_exact(step)) return converted;
        if (is_position(step)) return holder_of(step) + real_name(step);
        std::vector<std::string> x;
        for (int a = 0; a < step.rank; ++a) {
            if (!is_exact(argument(step, a))) return converted;
            x.push_back(real_of(argument(step, a)));
        }
        switch (step.op) {
            case Op::add:
                return joined({"(", x[0], " + ", x[1], ")"});
            case Op::subtract:
                return joined({"(", x[0], " - ", x[1], ")"});
            case Op::negate:
                return joined({"(0.0f - ", x[0], ")"});  // of 0 it is 0, as it is of an int
            case Op::absolute:
                return call("fabsf", x);
            case Op::minimum:
                return call("op::minimum", x);
            case Op::maximum:
                return call("op::maximum", x);
            default:
                return converted;
        }
    }

    std::string members(Stage stage, std::string_view indent) const {
        std::string text;
        for (const Step& step : steps_of(stage)) {
            text += joined({indent, type_name(step.type, is_short(step)), " ", own_name(step), ";\n"});
            if (is_position(step)) text += joined({indent, "float ", real_name(step), ";\n"});
        }
        for (const Step& step : all_steps())
            if (line_stage(step) == stage)
                text += joined({indent, "op::Line<", element_type(dtype_of(step)), "> ", line_name(step), ";\n"});
        return text;
    }
    std::string assignments(Stage stage, std::string_view holder) const {
        std::string text;
        for (const Step& step : steps_of(stage)) {
            text += joined({"        ", holder, own_name(step), " = ", value(step), ";\n"});
            if (is_position(step))
                text += joined({"        ", holder, real_name(step), " = ", step.op == Op::i ? "i" : "j", ".real;\n"});
        }
        for (const Step& step : all_steps())
            if (line_stage(step) == stage)
                text +=
                    joined({"        ", holder, line_name(step), " = ",
                            of_tensor("line_of", step.tensor, dtype_of(step), indices_of(step, step.rank - 1)), ";\n"});
        return text;
    }
    std::string diagonal_members() const {
        std::string text;
        for (const Step& step : steps_of(Stage::tile))
            if (is_diagonal(step))
                text += joined({"        ", type_name(step.type, is_short(step)), " ", own_name(step), ";\n"});
        return text;
    }
    // Sums with j in them are there for the diagonals that are made of them.
    std::string diagonal_assignments() const {
        std::string text;
        for (const Step& step : steps_of(Stage::tile))
            if (is_diagonal(step))
                text += joined({"        ", name_of(step), " = ", value(step), ";\n"});
            else if (keys_in_[number_of(step)])
                text += constant_of(step);
        return text;
    }
    std::string constants() const {
        std::string text;
        for (const Step& step : steps_of(Stage::tile))
            if (!is_diagonal(step)) text += constant_of(step);
        return text;
    }
    std::string constant_of(const Step& step) const {
        return joined({"        [[maybe_unused]] const ", type_name(step.type, is_short(step)), " ", own_name(step),
                       " = ", value(step), ";\n"});
    }

    const Program& program_;
    const std::vector<int>& nodes_;  // of its steps
    const std::span<const TensorType> tensors_;
    const std::vector<IntBounds> bounds_;
    std::vector<std::optional<std::int64_t>> keys_in_;  // of each step
};

// How intervals.h and function_intervals.h name an operation. Of types that differ it has overloads.
std::string interval_of(const Step& step, std::span<const std::string> x, std::span<const TensorType> tensors) {
    const auto on = [&](const char* operation) { return call(joined({"intervals::", operation}), x); };
    switch (step.op) {
        case Op::constant:
            return joined({"intervals::only(", constant(step, false), ")"});
        case Op::b:
        case Op::h:
        case Op::seqlen_q:
        case Op::seqlen_k:
            return joined({"intervals::only(", value_of(step, x, tensors), ")"});
        case Op::i:
            return "i";
        case Op::j:
            return "j";
        case Op::load: {
            const DType dtype = tensors[static_cast<std::size_t>(step.tensor)].dtype;
            if (dtype == DType::fp16 || dtype == DType::bf16) return "intervals::any_real()";
            std::vector<std::string> arguments = {joined({"tensors[", std::to_string(step.tensor), "]"})};
            arguments.insert(arguments.end(), x.begin(), x.end());
            return call(joined({"intervals::loaded<", element_type(dtype), ">"}), arguments);
        }
        case Op::add:
            return on("add");
        case Op::subtract:
            return on("subtract");
        case Op::multiply:
            return on("multiply");
        case Op::divide:
            return on("divide");
        case Op::floor_divide:
            return on("floor_divide");
        case Op::remainder:
            return on("remainder");
        case Op::negate:
            return on("negate");
        case Op::minimum:
            return on("minimum");
        case Op::maximum:
            return on("maximum");
        case Op::absolute:
            return on("absolute");
        case Op::shift_left:
            return on("shift_left");
        case Op::shift_right:
            return on("shift_right");
        case Op::bit_and:
            return on("bit_and");
        case Op::bit_or:
            return on("bit_or");
        case Op::bit_xor:
            return on("bit_xor");
        case Op::bit_not:
            return on("bit_not");
        case Op::less:
            return on("less");
        case Op::less_equal:
            return on("less_equal");
        case Op::equal:
            return on("equal");
        case Op::not_equal:
            return on("not_equal");
        case Op::select:
            return on("choose");
        case Op::exp:
            return on("exp");
        case Op::log:
            return on("log");
        case Op::tanh:
            return on("tanh");
        case Op::sqrt:
            return on("sqrt");
        case Op::convert:
            return on(step.type == Type::boolean ? "to_bool" : step.type == Type::integer ? "to_int" : "to_real");
        case Op::s:
            break;  // a mask function is not given it
    }
    throw std::logic_error("a mask function has an unknown operation");
}

// What the mask function may give for queries and keys in intervals: one line an operation.
std::string mask_interval_source(const Program& program, std::span<const TensorType> tensors) {
    const std::span<const Step> steps(program.steps, static_cast<std::size_t>(program.end[3]));
    std::vector<std::string> names(static_cast<std::size_t>(program.buffers));  // of what buffers hold
    std::string lines;
    for (const Step& step : steps) {
        std::vector<std::string> arguments;
        arguments.reserve(static_cast<std::size_t>(step.rank));
        for (int a = 0; a < step.rank; ++a) arguments.push_back(names[static_cast<std::size_t>(step.argument[a])]);
        const std::string name = joined({"v", std::to_string(step.out)});
        lines += joined({"    const auto ", name, " = ", interval_of(step, arguments, tensors), ";\n"});
        names[static_cast<std::size_t>(step.out)] = name;
        if (step.expanded >= 0) names[static_cast<std::size_t>(step.expanded)] = name;
    }
    const char* const head =
        "template <KernelConfig config>\n"
        "__device__ __forceinline__ intervals::Bools mask_interval(const FunctionArguments& given, "
        "const intervals::Ints& i, const intervals::Ints& j) {\n"
        "    [[maybe_unused]] const DeviceFunctionTensor* const tensors = given.tensors;\n";
    return joined({head, lines, "    return ", names[static_cast<std::size_t>(program.result)], ";\n}\n"});
}

std::string score_source(const Writer& writer, bool unit_derivative) {
    const std::string added = writer.added_by_diagonal();
    std::string first =
        joined({"    static constexpr bool kUnitDerivative = ", unit_derivative ? "true" : "false", ";\n",
                "    static constexpr bool kAddsByDiagonal = ", added.empty() ? "false" : "true", ";\n"});
    return writer.function(
        "ScoreFunction", first,
        "float value(const Row& row, const Column& column, const Diagonal& diagonal, float s, float& derivative)",
        joined({"        derivative = ", writer.name_of(writer.program().derivative), ";\n        return ",
                writer.name_of(writer.program().result), ";\n"}),
        added.empty() ? ""
                      : joined({"    __device__ __forceinline__ float added(const Diagonal& diagonal) const { return ",
                                added, "; }\n"}));
}

std::string mask_source(const Writer& writer) {
    return writer.function("MaskFunction", "",
                           "bool value(const Row& row, const Column& column, const Diagonal& diagonal)",
                           joined({"        return ", writer.name_of(writer.program().result), ";\n"}));
}

std::string loads_source(const Writer& writer) {
    const Program& program = writer.program();
    std::string calls;
    for (int n = 0; n < program.load_count; ++n) {
        const functions::LoadDerivative& load = program.loads[n];
        calls += joined({"        add(", std::to_string(n), ", ", std::to_string(load.tensor), ", ",
                         writer.name_of(load.derivative)});
        for (int d = 0; d < load.rank; ++d) calls += joined({", ", writer.name_of(load.index[d])});
        calls += ");\n";
    }
    return writer.function(
        "ScoreLoads", joined({"    static constexpr int kLoads = ", std::to_string(program.load_count), ";\n"}),
        "void each(const Row& row, const Column& column, const Diagonal& diagonal, float s, auto add)", calls);
}

}  // namespace

std::string function_source(int number, bool near_positions) {
    const functions::Functions& given = functions::functions_of(number);
    const auto writer_of = [&](const BuiltProgram& program, const functions::Graph& graph) {
        std::vector<IntBounds> bounds;
        if (near_positions) bounds = functions::bounds_near(graph, given.tensors(), kNearPositions);
        return Writer(program, given.tensors(), std::move(bounds));
    };
    std::string text = "#pragma once\nnamespace flashtile {\n";
    if (given.score() >= 0)
        text += score_source(writer_of(given.gradient_program(), given.score_graph()), given.derivative_is_one());
    if (given.by_loads_program().view().load_count > 0)
        text += loads_source(writer_of(given.by_loads_program(), given.by_loads_graph()));
    if (given.mask() >= 0) {
        text += mask_source(writer_of(given.mask_program(), given.mask_graph()));
        text += mask_interval_source(given.mask_program().view(), given.tensors());
    }
    return text + "}  // namespace flashtile\n";
}

}  // namespace flashtile::gpu

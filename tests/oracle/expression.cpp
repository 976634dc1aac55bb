// expression.cpp: a text becomes tokens, a recursive descent makes trees of them in which every conversion is a node of
// its own, and a walk of the trees gives values with their derivatives (forward mode).
#include "oracle/expression.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

namespace flashtile::oracle {
namespace {

using Operation = Expression::Operation;
using Node = Expression::Node;
using Place = Expression::Place;

[[noreturn]] void fail(std::size_t place, const std::string& message) {
    throw std::invalid_argument("expression, character " + std::to_string(place) + ": " + message);
}

// ----- Tokens -----

struct Token {
    enum class Kind { name, integer, real, symbol, end } kind;
    std::string text;
    std::size_t place;
};

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_hex_digit(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool starts_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

class Lexer {
public:
    explicit Lexer(const std::string& text) : text_(text) {}

    std::vector<Token> run() {
        std::vector<Token> tokens;
        do tokens.push_back(next());
        while (tokens.back().kind != Token::Kind::end);
        return tokens;
    }

private:
    // The character so many after the present one; past the end the character 0, which no token has.
    char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

    Token next() {
        while (is_space(peek()) || peek() == '#') {
            if (peek() == '#')
                while (at_ < text_.size() && peek() != '\n') ++at_;
            else
                ++at_;
        }
        const std::size_t begin = at_;
        if (at_ == text_.size()) return {Token::Kind::end, "the end", begin};
        if (is_digit(peek()) || (peek() == '.' && is_digit(peek(1)))) return number();
        if (starts_name(peek())) {
            while (starts_name(peek()) || is_digit(peek())) ++at_;
            return {Token::Kind::name, text_.substr(begin, at_ - begin), begin};
        }
        for (const char* symbol : {"||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "//"})
            if (text_.compare(at_, 2, symbol) == 0) {
                at_ += 2;
                return {Token::Kind::symbol, symbol, begin};
            }
        if (peek() == '\0' || std::string("?:|^&<>+-*/%!~()[],;=").find(peek()) == std::string::npos)
            fail(begin, "a character that means nothing here");
        return {Token::Kind::symbol, std::string(1, text_[at_++]), begin};
    }

    Token number() {
        const std::size_t begin = at_;
        bool real = false;
        if (peek() == '0' && (peek(1) == 'x' || peek(1) == 'X')) {
            at_ += 2;
            if (!is_hex_digit(peek())) fail(begin, "a hexadecimal number without digits");
            while (is_hex_digit(peek())) ++at_;
        } else {
            while (is_digit(peek())) ++at_;
            if (peek() == '.') {
                real = true;
                ++at_;
                while (is_digit(peek())) ++at_;
            }
            if (peek() == 'e' || peek() == 'E') {
                real = true;
                ++at_;
                if (peek() == '+' || peek() == '-') ++at_;
                if (!is_digit(peek())) fail(begin, "an exponent without digits");
                while (is_digit(peek())) ++at_;
            }
        }
        if (starts_name(peek()) || is_digit(peek()) || peek() == '.') fail(begin, "a number that does not end");
        return {real ? Token::Kind::real : Token::Kind::integer, text_.substr(begin, at_ - begin), begin};
    }

    const std::string& text_;
    std::size_t at_ = 0;
};

// ----- Trees -----

struct BinaryOperator {
    const char* text;
    Operation operation;
    int strength;
};
constexpr BinaryOperator kBinaryOperators[] = {
    {"||", Operation::logical_or, 0},    {"&&", Operation::logical_and, 1},
    {"|", Operation::bit_or, 2},         {"^", Operation::bit_xor, 3},
    {"&", Operation::bit_and, 4},        {"==", Operation::equal, 5},
    {"!=", Operation::unequal, 5},       {"<", Operation::less, 6},
    {"<=", Operation::less_equal, 6},    {">", Operation::greater, 6},
    {">=", Operation::greater_equal, 6}, {"<<", Operation::shift_left, 7},
    {">>", Operation::shift_right, 7},   {"+", Operation::add, 8},
    {"-", Operation::subtract, 8},       {"*", Operation::multiply, 9},
    {"/", Operation::divide, 9},         {"//", Operation::floor_divide, 9},
    {"%", Operation::remainder, 9},
};

struct Function {
    const char* name;
    Operation operation;
};
constexpr Function kFunctions[] = {
    {"min", Operation::min},         {"max", Operation::max},       {"abs", Operation::abs},
    {"exp", Operation::exp},         {"log", Operation::log},       {"tanh", Operation::tanh},
    {"sqrt", Operation::sqrt},       {"float", Operation::to_real}, {"int", Operation::to_integer},
    {"bool", Operation::to_boolean},
};

struct Coordinate {
    const char* name;
    std::int64_t Place::*member;
};
constexpr Coordinate kCoordinates[] = {
    {"b", &Place::b},
    {"h", &Place::h},
    {"i", &Place::i},
    {"j", &Place::j},
    {"seqlen_q", &Place::seqlen_q},
    {"seqlen_k", &Place::seqlen_k},
};

bool is_reserved(const std::string& name) {
    for (const Function& function : kFunctions)
        if (name == function.name) return true;
    for (const Coordinate& coordinate : kCoordinates)
        if (name == coordinate.name) return true;
    return name == "s" || name == "true" || name == "false" || name == "inf";
}

class Parser {
public:
    Parser(const std::string& text, const std::vector<ExpressionTensor>& tensors, bool with_score)
        : tokens_(Lexer(text).run()), tensors_(tensors), with_score_(with_score) {}

    std::vector<Node> run() {
        while (token().kind == Token::Kind::name && tokens_[at_ + 1].text == "=") {
            const Token name = token();
            if (is_reserved(name.text) || find_part(name.text) < names_.size() ||
                find_tensor(name.text) < tensors_.size())
                fail(name.place, name.text + " has a meaning already");
            at_ += 2;
            Node value = expression();
            expect(";");
            parts_.push_back(std::move(value));
            names_.push_back(name.text);
        }
        const std::size_t place = token().place;
        Node whole = expression();
        if (token().kind != Token::Kind::end) fail(token().place, "the end expected, met " + token().text);
        if (with_score_)
            whole = real(std::move(whole), place);
        else if (whole.type != ValueType::boolean)
            fail(place, "a mask function gives a bool");
        parts_.push_back(std::move(whole));
        return std::move(parts_);
    }

private:
    const Token& token() const { return tokens_[at_]; }

    bool accept(const std::string& symbol) {
        if (token().kind != Token::Kind::symbol || token().text != symbol) return false;
        ++at_;
        return true;
    }
    void expect(const std::string& symbol) {
        if (!accept(symbol)) fail(token().place, symbol + " expected, met " + token().text);
    }

    std::size_t find_part(const std::string& name) const {
        std::size_t n = 0;
        while (n < names_.size() && names_[n] != name) ++n;
        return n;
    }
    std::size_t find_tensor(const std::string& name) const {
        std::size_t n = 0;
        while (n < tensors_.size() && tensors_[n].name != name) ++n;
        return n;
    }

    static Node node(Operation operation, ValueType type, std::vector<Node> operands = {}) {
        Node result;
        result.operation = operation;
        result.type = type;
        result.operands = std::move(operands);
        return result;
    }
    static Node node(Operation operation, ValueType type, Node a, Node b) {
        std::vector<Node> operands;
        operands.push_back(std::move(a));
        operands.push_back(std::move(b));
        return node(operation, type, std::move(operands));
    }
    static Node literal(ValueType type, double real, std::int64_t integer) {
        Node result = node(Operation::literal, type);
        result.real = real;
        result.integer = integer;
        return result;
    }

    static void require(const Node& a, ValueType type, std::size_t place) {
        static constexpr const char* kNames[] = {"float", "int", "bool"};
        if (a.type != type)
            fail(place,
                 std::string("takes ") + kNames[static_cast<int>(type)] + ", not " + kNames[static_cast<int>(a.type)]);
    }
    // What becomes a float by itself, as one.
    static Node real(Node a, std::size_t place) {
        if (a.type == ValueType::real) return a;
        require(a, ValueType::integer, place);
        return converted(Operation::to_real, ValueType::real, std::move(a));
    }
    static Node converted(Operation operation, ValueType type, Node a) {
        if (a.type == type) return a;
        std::vector<Node> operands;
        operands.push_back(std::move(a));
        return node(operation, type, std::move(operands));
    }
    // Two numbers become two of one type: floats unless both are ints.
    static void unify(Node& a, Node& b, std::size_t place) {
        if (a.type == ValueType::integer && b.type == ValueType::integer) return;
        a = real(std::move(a), place);
        b = real(std::move(b), place);
    }

    Node expression() {
        const std::size_t place = token().place;
        Node condition = binary(0);
        if (!accept("?")) return condition;
        require(condition, ValueType::boolean, place);
        Node yes = expression();
        expect(":");
        Node no = expression();
        if (yes.type != ValueType::boolean || no.type != ValueType::boolean) unify(yes, no, place);
        Node result = node(Operation::choose, yes.type);
        result.operands.push_back(std::move(condition));
        result.operands.push_back(std::move(yes));
        result.operands.push_back(std::move(no));
        return result;
    }

    // Operators of at least this strength; those of one strength from left to right.
    Node binary(int strength) {
        Node left = unary();
        for (;;) {
            const BinaryOperator* met = nullptr;
            for (const BinaryOperator& candidate : kBinaryOperators)
                if (token().kind == Token::Kind::symbol && token().text == candidate.text) met = &candidate;
            if (met == nullptr || met->strength < strength) return left;
            const std::size_t place = token().place;
            ++at_;
            left = combined(met->operation, std::move(left), binary(met->strength + 1), place);
        }
    }

    static Node combined(Operation operation, Node a, Node b, std::size_t place) {
        const bool booleans = a.type == ValueType::boolean && b.type == ValueType::boolean;
        switch (operation) {
            case Operation::logical_or:
            case Operation::logical_and:
                require(a, ValueType::boolean, place);
                require(b, ValueType::boolean, place);
                return node(operation, ValueType::boolean, std::move(a), std::move(b));
            case Operation::bit_or:
            case Operation::bit_xor:
            case Operation::bit_and:
                if (booleans) return node(operation, ValueType::boolean, std::move(a), std::move(b));
                [[fallthrough]];
            case Operation::shift_left:
            case Operation::shift_right:
            case Operation::floor_divide:
            case Operation::remainder:
                require(a, ValueType::integer, place);
                require(b, ValueType::integer, place);
                return node(operation, ValueType::integer, std::move(a), std::move(b));
            case Operation::equal:
            case Operation::unequal:
                if (booleans) return node(operation, ValueType::boolean, std::move(a), std::move(b));
                [[fallthrough]];
            case Operation::less:
            case Operation::less_equal:
            case Operation::greater:
            case Operation::greater_equal:
                unify(a, b, place);
                return node(operation, ValueType::boolean, std::move(a), std::move(b));
            case Operation::divide:
                a = real(std::move(a), place);
                b = real(std::move(b), place);
                return node(operation, ValueType::real, std::move(a), std::move(b));
            default: {  // add, subtract, multiply, min, max
                unify(a, b, place);
                const ValueType type = a.type;
                return node(operation, type, std::move(a), std::move(b));
            }
        }
    }

    Node unary() {
        const std::size_t place = token().place;
        Node result;
        if (accept("-")) {
            result.operation = Operation::negate;
            result.operands.push_back(unary());
            if (result.operands[0].type == ValueType::boolean) fail(place, "takes a number, not bool");
        } else if (accept("!")) {
            result.operation = Operation::logical_not;
            result.operands.push_back(unary());
            require(result.operands[0], ValueType::boolean, place);
        } else if (accept("~")) {
            result.operation = Operation::bit_not;
            result.operands.push_back(unary());
            require(result.operands[0], ValueType::integer, place);
        } else {
            return primary();
        }
        result.type = result.operands[0].type;
        return result;
    }

    Node primary() {
        const Token first = token();
        if (accept("(")) {
            Node inner = expression();
            expect(")");
            return inner;
        }
        ++at_;
        switch (first.kind) {
            case Token::Kind::integer:
                return integer_literal(first);
            case Token::Kind::real:  // read as fp32 at once: rounding it twice could differ
                return literal(ValueType::real, static_cast<double>(std::strtof(first.text.c_str(), nullptr)), 0);
            case Token::Kind::name:
                return named(first);
            default:
                fail(first.place, "a value expected, met " + first.text);
        }
    }

    static Node integer_literal(const Token& token) {
        const bool hexadecimal = token.text.size() > 1 && (token.text[1] == 'x' || token.text[1] == 'X');
        const char* const begin = token.text.data() + (hexadecimal ? 2 : 0);
        std::int64_t value = 0;
        const auto read = std::from_chars(begin, token.text.data() + token.text.size(), value, hexadecimal ? 16 : 10);
        if (read.ec != std::errc()) fail(token.place, "a number that is no int of 64 bits");
        return literal(ValueType::integer, 0.0, value);
    }

    Node named(const Token& name) {
        if (name.text == "true") return literal(ValueType::boolean, 0.0, 1);
        if (name.text == "false") return literal(ValueType::boolean, 0.0, 0);
        if (name.text == "inf") return literal(ValueType::real, HUGE_VAL, 0);
        if (name.text == "s") {
            if (!with_score_) fail(name.place, "a mask function has no s");
            return node(Operation::score, ValueType::real);
        }
        for (const Coordinate& coordinate : kCoordinates)
            if (name.text == coordinate.name) {
                Node result = node(Operation::coordinate, ValueType::integer);
                result.coordinate = coordinate.member;
                return result;
            }
        for (const Function& function : kFunctions)
            if (name.text == function.name) return call(function.operation, name);
        if (const std::size_t part = find_part(name.text); part < names_.size()) {
            Node result = node(Operation::part, parts_[part].type);
            result.index = part;
            return result;
        }
        const std::size_t tensor = find_tensor(name.text);
        if (tensor == tensors_.size()) fail(name.place, name.text + " is unknown");
        expect("[");
        Node result = node(Operation::load, tensors_[tensor].type, list("]"));
        result.index = tensor;
        if (result.operands.size() != tensors_[tensor].shape.size())
            fail(name.place, name.text + " has another number of dimensions");
        for (const Node& index : result.operands) require(index, ValueType::integer, name.place);
        return result;
    }

    std::vector<Node> list(const std::string& closing) {
        std::vector<Node> result;
        do result.push_back(expression());
        while (accept(","));
        expect(closing);
        return result;
    }

    Node call(Operation operation, const Token& name) {
        expect("(");
        std::vector<Node> operands = list(")");
        const bool of_two = operation == Operation::min || operation == Operation::max;
        if (operands.size() != (of_two ? 2 : 1)) fail(name.place, name.text + " takes another number of values");
        if (of_two) return combined(operation, std::move(operands[0]), std::move(operands[1]), name.place);
        switch (operation) {
            case Operation::to_real:
                return converted(operation, ValueType::real, std::move(operands[0]));
            case Operation::to_integer:
                return converted(operation, ValueType::integer, std::move(operands[0]));
            case Operation::to_boolean:
                return converted(operation, ValueType::boolean, std::move(operands[0]));
            case Operation::abs: {
                const ValueType type = operands[0].type;
                if (type == ValueType::boolean) fail(name.place, "abs takes a number, not bool");
                return node(operation, type, std::move(operands));
            }
            default:  // exp, log, tanh, sqrt
                operands[0] = real(std::move(operands[0]), name.place);
                return node(operation, ValueType::real, std::move(operands));
        }
    }

    std::vector<Token> tokens_;
    std::size_t at_ = 0;
    const std::vector<ExpressionTensor>& tensors_;
    bool with_score_;
    std::vector<std::string> names_;  // of parts_
    std::vector<Node> parts_;
};

void check(const std::vector<ExpressionTensor>& tensors) {
    std::set<std::string> names;
    for (const ExpressionTensor& tensor : tensors) {
        bool good = !tensor.name.empty() && starts_name(tensor.name[0]) && !is_reserved(tensor.name);
        for (const char c : tensor.name) good = good && (starts_name(c) || is_digit(c));
        if (!good || !names.insert(tensor.name).second)
            throw std::invalid_argument("a tensor cannot be named " + tensor.name);
        std::int64_t size = 1;
        for (const std::int64_t extent : tensor.shape) size *= extent;
        const std::size_t held = tensor.type == ValueType::real ? tensor.reals.size() : tensor.integers.size();
        if (tensor.shape.empty() || tensor.shape.size() > 4 || static_cast<std::size_t>(size) != held)
            throw std::invalid_argument("the shape of tensor " + tensor.name + " is wrong");
    }
}

// ----- Values -----

// What a node gives: of these that of its type.
template <class Real>
struct Value {
    Real real = 0;
    Real derivative = 0;
    std::int64_t integer = 0;
    bool truth = false;
};

// Ints wrap: they are computed unsigned.
std::uint64_t bits(std::int64_t a) {
    return static_cast<std::uint64_t>(a);
}
std::int64_t wrapped(std::uint64_t a) {
    return static_cast<std::int64_t>(a);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return wrapped(0 - bits(a));  // the least int has no negative: it wraps
    const bool down = a % b != 0 && (a < 0) != (b < 0);
    return a / b - (down ? 1 : 0);
}

std::int64_t floor_remainder(std::int64_t a, std::int64_t b) {
    if (b == 0 || b == -1) return 0;
    const std::int64_t remainder = a % b;
    return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

template <class Real>
std::int64_t to_integer(Real a) {
    constexpr Real kLimit = 9223372036854775808.0;  // 2^63, in fp32 too
    return a >= -kLimit && a < kLimit ? static_cast<std::int64_t>(a) : 0;
}

template <class T>
bool compare(Operation operation, T a, T b) {
    switch (operation) {
        case Operation::equal:
            return a == b;
        case Operation::unequal:
            return a != b;
        case Operation::less:
            return a < b;
        case Operation::less_equal:
            return a <= b;
        case Operation::greater:
            return a > b;
        default:
            return a >= b;
    }
}

// An element of a tensor.
using Element = std::pair<std::size_t, std::size_t>;

// One place's evaluation, with the derivative by s, or by an element of a tensor. The parts' values are kept: a part
// that names another twice would cost twice as much as it.
template <class Real>
class Evaluation {
public:
    Evaluation(const std::vector<Node>& parts, const std::vector<ExpressionTensor>& tensors, const Place& place,
               std::optional<Element> by = {})
        : tensors_(tensors), place_(place), by_(by) {
        for (const Node& part : parts) values_.push_back(evaluate(part));
    }
    const Value<Real>& whole() const { return values_.back(); }
    // Of reals, that were read on the way.
    const std::set<Element>& elements() const { return elements_; }

private:
    using V = Value<Real>;

    static V of_real(Real real, Real derivative = 0) { return {real, derivative, 0, false}; }
    static V of_integer(std::int64_t integer) { return {0, 0, integer, false}; }
    static V of_truth(bool truth) { return {0, 0, 0, truth}; }

    V evaluate(const Node& node) {
        switch (node.operation) {
            case Operation::literal:
                return {static_cast<Real>(node.real), 0, node.integer, node.integer != 0};
            case Operation::score:
                return of_real(static_cast<Real>(place_.s), by_ ? Real(0) : Real(1));
            case Operation::coordinate:
                return of_integer(place_.*node.coordinate);
            case Operation::part:
                return values_[node.index];
            case Operation::load:
                return load(node);
            case Operation::choose:
                return evaluate(node.operands[evaluate(node.operands[0]).truth ? 1 : 2]);
            default:
                break;
        }
        const ValueType type = node.operands[0].type;
        const V a = evaluate(node.operands[0]);
        if (node.operands.size() == 1) return unary(node.operation, type, a);
        const V b = evaluate(node.operands[1]);
        switch (node.operation) {
            case Operation::equal:
            case Operation::unequal:
            case Operation::less:
            case Operation::less_equal:
            case Operation::greater:
            case Operation::greater_equal:
                if (type == ValueType::real) return of_truth(compare(node.operation, a.real, b.real));
                if (type == ValueType::integer) return of_truth(compare(node.operation, a.integer, b.integer));
                return of_truth(compare(node.operation, a.truth, b.truth));
            case Operation::min:
                return (type == ValueType::real ? b.real < a.real : b.integer < a.integer) ? b : a;
            case Operation::max:
                return (type == ValueType::real ? a.real < b.real : a.integer < b.integer) ? b : a;
            default:
                break;
        }
        if (type == ValueType::real) return of_reals(node.operation, a, b);
        if (type == ValueType::integer) return of_integer(of_integers(node.operation, a.integer, b.integer));
        return of_truth(of_truths(node.operation, a.truth, b.truth));
    }

    V load(const Node& node) {
        const ExpressionTensor& tensor = tensors_[node.index];
        std::int64_t at = 0;
        for (std::size_t n = 0; n < tensor.shape.size(); ++n) {
            const std::int64_t index = evaluate(node.operands[n]).integer;
            if (index < 0 || index >= tensor.shape[n]) return {};
            at = at * tensor.shape[n] + index;
        }
        if (tensor.type == ValueType::real) {
            const Element element{node.index, static_cast<std::size_t>(at)};
            elements_.insert(element);
            return of_real(static_cast<Real>(tensor.reals[element.second]), by_ == element ? Real(1) : Real(0));
        }
        const std::int64_t value = tensor.integers[static_cast<std::size_t>(at)];
        return tensor.type == ValueType::integer ? of_integer(value) : of_truth(value != 0);
    }

    // The chain rule. What does not change with s has no derivative, whatever the factor: also where that is infinite.
    static Real chain(Real derivative, Real factor) { return derivative == 0 ? Real(0) : derivative * factor; }

    static V of_reals(Operation operation, const V& a, const V& b) {
        switch (operation) {
            case Operation::add:
                return of_real(a.real + b.real, a.derivative + b.derivative);
            case Operation::subtract:
                return of_real(a.real - b.real, a.derivative - b.derivative);
            case Operation::multiply:
                return of_real(a.real * b.real, chain(a.derivative, b.real) + chain(b.derivative, a.real));
            default: {  // (a/b)' = (a' - (a/b) b') / b
                const Real quotient = a.real / b.real;
                const Real over = a.derivative - chain(b.derivative, quotient);
                return of_real(quotient, over == 0 ? Real(0) : over / b.real);
            }
        }
    }

    static std::int64_t of_integers(Operation operation, std::int64_t a, std::int64_t b) {
        switch (operation) {
            case Operation::bit_or:
                return a | b;
            case Operation::bit_xor:
                return a ^ b;
            case Operation::bit_and:
                return a & b;
            case Operation::shift_left:
                return wrapped(bits(a) << (bits(b) % 64));
            case Operation::shift_right:
                return a >> (bits(b) % 64);  // keeps the sign since C++20
            case Operation::add:
                return wrapped(bits(a) + bits(b));
            case Operation::subtract:
                return wrapped(bits(a) - bits(b));
            case Operation::multiply:
                return wrapped(bits(a) * bits(b));
            case Operation::floor_divide:
                return floor_divide(a, b);
            default:
                return floor_remainder(a, b);
        }
    }

    static bool of_truths(Operation operation, bool a, bool b) {
        switch (operation) {
            case Operation::logical_or:
            case Operation::bit_or:
                return a || b;
            case Operation::bit_xor:
                return a != b;
            default:
                return a && b;
        }
    }

    static V unary(Operation operation, ValueType type, const V& a) {
        switch (operation) {
            case Operation::negate:
                return type == ValueType::real ? of_real(-a.real, -a.derivative)
                                               : of_integer(wrapped(0 - bits(a.integer)));
            case Operation::logical_not:
                return of_truth(!a.truth);
            case Operation::bit_not:
                return of_integer(~a.integer);
            case Operation::abs:
                if (type == ValueType::real)
                    return of_real(std::abs(a.real), a.real < 0 ? -a.derivative : a.derivative);
                return of_integer(a.integer < 0 ? wrapped(0 - bits(a.integer)) : a.integer);
            case Operation::exp: {
                const Real exp = std::exp(a.real);
                return of_real(exp, chain(a.derivative, exp));
            }
            case Operation::log:
                return of_real(std::log(a.real), chain(a.derivative, 1 / a.real));
            case Operation::tanh: {
                const Real tanh = std::tanh(a.real);
                return of_real(tanh, chain(a.derivative, 1 - tanh * tanh));
            }
            case Operation::sqrt: {
                const Real root = std::sqrt(a.real);
                return of_real(root, chain(a.derivative, 1 / (2 * root)));
            }
            case Operation::to_real:
                return of_real(type == ValueType::integer ? static_cast<Real>(a.integer) : Real(a.truth ? 1 : 0));
            case Operation::to_integer:
                return of_integer(type == ValueType::real ? to_integer(a.real) : (a.truth ? 1 : 0));
            default:
                return of_truth(type == ValueType::real ? a.real != 0 : a.integer != 0);
        }
    }

    const std::vector<ExpressionTensor>& tensors_;
    const Place& place_;
    std::optional<Element> by_;
    std::vector<V> values_;
    std::set<Element> elements_;
};

template <class Real>
std::vector<Expression::ByElement> by_elements_of(const std::vector<Node>& parts,
                                                  const std::vector<ExpressionTensor>& tensors, const Place& place) {
    std::vector<Expression::ByElement> all;
    const Evaluation<Real> plain(parts, tensors, place);
    for (const Element& element : plain.elements())
        all.push_back({element.first, element.second,
                       static_cast<double>(Evaluation<Real>(parts, tensors, place, element).whole().derivative)});
    return all;
}

}  // namespace

Expression::Expression(const std::string& text, std::vector<ExpressionTensor> tensors, bool with_score)
    : tensors_(std::move(tensors)), with_score_(with_score) {
    check(tensors_);
    parts_ = Parser(text, tensors_, with_score).run();
}

Expression::Dual Expression::score(const Place& place, bool single) const {
    if (!with_score_) throw std::logic_error("a mask function gives no score");
    if (single) {
        const Evaluation<float> evaluation(parts_, tensors_, place);
        return {evaluation.whole().real, evaluation.whole().derivative};
    }
    const Evaluation<double> evaluation(parts_, tensors_, place);
    return {evaluation.whole().real, evaluation.whole().derivative};
}

std::vector<Expression::ByElement> Expression::by_elements(const Place& place, bool single) const {
    if (!with_score_) throw std::logic_error("a mask function gives no score");
    return single ? by_elements_of<float>(parts_, tensors_, place) : by_elements_of<double>(parts_, tensors_, place);
}

bool Expression::mask(const Place& place) const {
    if (with_score_) throw std::logic_error("a score function masks nothing");
    return Evaluation<float>(parts_, tensors_, place).whole().truth;
}

}  // namespace flashtile::oracle

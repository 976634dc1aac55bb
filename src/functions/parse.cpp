// parse.cpp: recursive descent, a function a level of precedence; types are settled as nodes are made.
#include "functions/parse.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>
#include <vector>

namespace flashtile::functions {
namespace {

struct Word {
    std::string_view name;
    Op op;
};
constexpr Word kGiven[] = {{"s", Op::s},
                           {"b", Op::b},
                           {"h", Op::h},
                           {"i", Op::i},
                           {"j", Op::j},
                           {"seqlen_q", Op::seqlen_q},
                           {"seqlen_k", Op::seqlen_k}};
constexpr Word kFunctions[] = {{"min", Op::minimum}, {"max", Op::maximum}, {"abs", Op::absolute}, {"exp", Op::exp},
                               {"log", Op::log},     {"tanh", Op::tanh},   {"sqrt", Op::sqrt}};
struct Conversion {
    std::string_view name;
    Type type;
};
constexpr Conversion kConversions[] = {{"bool", Type::boolean}, {"int", Type::integer}, {"float", Type::real}};
constexpr std::string_view kConstants[] = {"true", "false", "inf"};

struct Operator {
    std::string_view text;
    Op op;
    bool swapped = false;  // a > b is b < a
};
// The weakest first; a level's operators bind from the left.
const std::vector<std::vector<Operator>> kLevels = {
    {{"||", Op::bit_or}},
    {{"&&", Op::bit_and}},
    {{"|", Op::bit_or}},
    {{"^", Op::bit_xor}},
    {{"&", Op::bit_and}},
    {{"==", Op::equal}, {"!=", Op::not_equal}},
    {{"<=", Op::less_equal}, {">=", Op::less_equal, true}, {"<", Op::less}, {">", Op::less, true}},
    {{"<<", Op::shift_left}, {">>", Op::shift_right}},
    {{"+", Op::add}, {"-", Op::subtract}},
    {{"*", Op::multiply}, {"//", Op::floor_divide}, {"/", Op::divide}, {"%", Op::remainder}},
};
// What a text is cut into; of two that begin alike the longer one first.
constexpr std::string_view kSymbols[] = {"||", "&&", "==", "!=", "<=", ">=", "<<", ">>", "//", "|",
                                         "^",  "&",  "<",  ">",  "+",  "-",  "*",  "/",  "%",  "!",
                                         "~",  "?",  ":",  "(",  ")",  "[",  "]",  ",",  ";",  "="};
constexpr int kDeepest = 200;  // levels of an expression, each of which takes room on the stack

bool starts_a_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool continues_a_name(char c) {
    return starts_a_name(c) || is_digit(c);
}

bool is_a_word(std::string_view text) {
    const auto among = [&](const auto& words) {
        return std::ranges::any_of(words, [&](const auto& w) { return w.name == text; });
    };
    return among(kGiven) || among(kFunctions) || among(kConversions) ||
           std::ranges::find(kConstants, text) != std::end(kConstants);
}

struct Token {
    enum class Kind : std::uint8_t { number, name, symbol, end } kind;
    std::string_view text;
    std::size_t position;
};

std::vector<Token> tokens_of(std::string_view text) {
    std::vector<Token> tokens;
    std::size_t at = 0;
    const auto take = [&](Token::Kind kind, std::size_t length) {
        tokens.push_back({kind, text.substr(at, length), at});
        at += length;
    };
    while (at < text.size()) {
        const char c = text[at];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            ++at;
        } else if (c == '#') {
            at = std::min(text.find('\n', at), text.size());
        } else if (is_digit(c) || (c == '.' && at + 1 < text.size() && is_digit(text[at + 1]))) {
            std::size_t end = at;
            while (end < text.size() &&
                   (continues_a_name(text[end]) || text[end] == '.' ||
                    ((text[end] == '+' || text[end] == '-') && (text[end - 1] == 'e' || text[end - 1] == 'E') &&
                     !text.substr(at).starts_with("0x"))))
                ++end;
            take(Token::Kind::number, end - at);
        } else if (starts_a_name(c)) {
            const std::size_t end = static_cast<std::size_t>(
                std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at), text.end(), continues_a_name) -
                text.begin());
            take(Token::Kind::name, end - at);
        } else {
            const auto symbol = std::ranges::find_if(kSymbols, [&](auto s) { return text.substr(at).starts_with(s); });
            if (symbol == std::end(kSymbols))
                throw SyntaxError(std::isprint(static_cast<unsigned char>(c)) != 0
                                      ? "'" + std::string(1, c) + "' is no part of the language"
                                      : "a character that is no part of the language",
                                  at);
            take(Token::Kind::symbol, symbol->size());
        }
    }
    tokens.push_back({Token::Kind::end, "", text.size()});
    return tokens;
}

std::string quoted(const Token& token) {
    if (token.kind == Token::Kind::end) return "the end";
    return std::string("'").append(token.text).append("'");
}

class Parser {
public:
    Parser(std::string_view text, Kind kind, std::span<const TensorType> tensors, Graph& graph)
        : tokens_(tokens_of(text)), kind_(kind), tensors_(tensors), graph_(graph) {}

    int run() {
        while (next().kind == Token::Kind::name && tokens_[at_ + 1].text == "=") name_a_part();
        const Token first = next();
        int result = ternary();
        if (next().kind != Token::Kind::end)
            fail(quoted(next()) + " follows the expression, which an operator would go on", next());
        if (kind_ == Kind::mask && type(result) != Type::boolean)
            fail(std::string("a mask function gives a bool, not ") + a(type(result)) + ": compare it", first);
        if (kind_ == Kind::score) {
            if (type(result) == Type::boolean)
                fail("a score function gives a float, not a bool: choose with ? :", first);
            result = as_real(result);
        }
        return result;
    }

private:
    [[noreturn]] static void fail(const std::string& what, const Token& where) {
        throw SyntaxError(what, where.position);
    }
    static std::string a(Type type) {
        constexpr const char* kNames[] = {"a bool", "an int", "a float"};
        return kNames[static_cast<int>(type)];
    }

    const Token& next() const { return tokens_[at_]; }
    bool accept(std::string_view symbol) {
        if (next().kind != Token::Kind::symbol || next().text != symbol) return false;
        ++at_;
        return true;
    }
    void expect(std::string_view symbol, const std::string& why) {
        if (!accept(symbol))
            fail("'" + std::string(symbol) + "' " + why + ", and " + quoted(next()) + " was met", next());
    }
    Type type(int node) const { return graph_[node].type; }
    int as_real(int node) { return type(node) == Type::real ? node : graph_.add(Op::convert, Type::real, {node}); }

    void name_a_part() {
        const Token part = next();
        if (is_a_word(part.text)) fail(quoted(part) + " is a word of the language and names no part", part);
        if (parts_.contains(part.text)) fail(quoted(part) + " names a part already", part);
        at_ += 2;
        const int value = ternary();
        expect(";", "ends a part that has a name");
        parts_[part.text] = value;
    }

    int ternary() {
        if (++depth_ > kDeepest)
            fail("the expression is nested too deep: at most " + std::to_string(kDeepest) + " levels", next());
        const Token first = next();
        int value = binary(0);
        if (accept("?")) {
            if (type(value) != Type::boolean) fail("'?' asks for a bool, and this is " + a(type(value)), first);
            const Token where = next();
            int yes = ternary();
            expect(":", "divides the two sides of '?'");
            int no = ternary();
            unify(yes, no, "? :", where);
            value = graph_.add(Op::select, type(yes), {value, yes, no});
        }
        --depth_;
        return value;
    }

    // Makes an int a float where the other side is one.
    void unify(int& a_side, int& b_side, std::string_view op, const Token& where) {
        if (type(a_side) == type(b_side)) return;
        if (type(a_side) == Type::boolean || type(b_side) == Type::boolean)
            fail("'" + std::string(op) + "' is between " + a(type(a_side)) + " and " + a(type(b_side)) +
                     ": float(), int() and bool() convert",
                 where);
        a_side = as_real(a_side);
        b_side = as_real(b_side);
    }

    const Operator* accept(const std::vector<Operator>& level) {
        if (next().kind != Token::Kind::symbol) return nullptr;
        const auto found = std::ranges::find(level, next().text, &Operator::text);
        if (found == level.end()) return nullptr;
        ++at_;
        return &*found;
    }

    int binary(std::size_t level) {
        if (level == kLevels.size()) return unary();
        int left = binary(level + 1);
        for (Token where = next(); const Operator* op = accept(kLevels[level]); where = next()) {
            int right = binary(level + 1);
            left = combine(*op, left, right, where);
        }
        return left;
    }

    int combine(const Operator& op, int left, int right, const Token& where) {
        const std::string text(op.text);
        const auto ask = [&](bool allowed, const char* for_what) {
            if (!allowed)
                fail(
                    "'" + text + "' is between " + a(type(left)) + " and " + a(type(right)) + ", and takes " + for_what,
                    where);
        };
        const auto both = [&](Type t) { return type(left) == t && type(right) == t; };
        switch (op.op) {
            case Op::bit_and:
            case Op::bit_or:
            case Op::bit_xor:
                if (text == "&&" || text == "||")
                    ask(both(Type::boolean), "bools");
                else
                    ask(both(Type::boolean) || both(Type::integer), "two ints, or two bools");
                return graph_.add(op.op, type(left), {left, right});
            case Op::shift_left:
            case Op::shift_right:
            case Op::floor_divide:
            case Op::remainder:
                ask(both(Type::integer), "ints");
                return graph_.add(op.op, Type::integer, {left, right});
            case Op::equal:
            case Op::not_equal:
                unify(left, right, text, where);
                return graph_.add(op.op, Type::boolean, {left, right});
            default:
                break;
        }
        ask(type(left) != Type::boolean && type(right) != Type::boolean, "ints and floats");
        if (op.op == Op::divide) {
            left = as_real(left);
            right = as_real(right);
        }
        unify(left, right, text, where);
        if (op.op == Op::less || op.op == Op::less_equal)
            return op.swapped ? graph_.add(op.op, Type::boolean, {right, left})
                              : graph_.add(op.op, Type::boolean, {left, right});
        return graph_.add(op.op, type(left), {left, right});
    }

    int unary() {
        const Token where = next();
        if (accept("-")) {
            const int value = nested_unary();
            if (type(value) == Type::boolean) fail("'-' takes an int or a float, and this is a bool", where);
            return graph_.add(Op::negate, type(value), {value});
        }
        if (accept("!")) {
            const int value = nested_unary();
            if (type(value) != Type::boolean) fail("'!' takes a bool, and this is " + a(type(value)), where);
            return graph_.add(Op::bit_not, Type::boolean, {value});
        }
        if (accept("~")) {
            const int value = nested_unary();
            if (type(value) != Type::integer) fail("'~' takes an int, and this is " + a(type(value)), where);
            return graph_.add(Op::bit_not, Type::integer, {value});
        }
        return primary();
    }
    int nested_unary() {
        if (++depth_ > kDeepest)
            fail("the expression is nested too deep: at most " + std::to_string(kDeepest) + " levels", next());
        const int value = unary();
        --depth_;
        return value;
    }

    int primary() {
        const Token token = next();
        if (accept("(")) {
            const int value = ternary();
            expect(")", "closes '('");
            return value;
        }
        if (token.kind == Token::Kind::number) {
            ++at_;
            return number(token);
        }
        if (token.kind != Token::Kind::name) fail("a value was expected, and " + quoted(token) + " was met", token);
        ++at_;
        return named(token);
    }

    int number(const Token& token) {
        std::string_view digits = token.text;
        int base = 10;
        if (digits.starts_with("0x")) {
            base = 16;
            digits.remove_prefix(2);
        }
        const char* const end = digits.data() + digits.size();
        std::int64_t integer = 0;
        if (const auto [stop, error] = std::from_chars(digits.data(), end, integer, base);
            stop == end && !digits.empty()) {
            if (error == std::errc()) return graph_.constant(integer);
            fail(quoted(token) + " does not fit 64 bits", token);
        }
        float real = 0.0f;
        const auto [stop, error] = std::from_chars(digits.data(), end, real);
        if (base != 10 || stop != end || error == std::errc::invalid_argument)
            fail(quoted(token) + " is no number", token);
        if (error == std::errc::result_out_of_range) fail(quoted(token) + " is no fp32 number", token);
        return graph_.constant(real);
    }

    int named(const Token& token) {
        for (const Word& given : kGiven)
            if (given.name == token.text) {
                if (given.op == Op::s && kind_ == Kind::mask)
                    fail("'s' is a score, which a mask function does not see", token);
                return graph_.add(given.op, given.op == Op::s ? Type::real : Type::integer, {});
            }
        if (token.text == "true" || token.text == "false") return graph_.constant(token.text == "true");
        if (token.text == "inf") return graph_.constant(std::numeric_limits<float>::infinity());
        for (const Word& function : kFunctions)
            if (function.name == token.text) return call(function.op, token);
        for (const Conversion& conversion : kConversions)
            if (conversion.name == token.text) return convert(conversion.type, token);
        if (const auto part = parts_.find(token.text); part != parts_.end()) return part->second;
        for (std::size_t n = 0; n < tensors_.size(); ++n)
            if (tensors_[n].name == token.text) return load(static_cast<int>(n), token);
        fail(quoted(token) + " is not known; known are " + known_names(), token);
    }

    std::string known_names() const {
        std::string names;
        const auto add = [&](std::string_view one) { (names += names.empty() ? "" : ", ") += one; };
        for (const Word& given : kGiven)
            if (given.op != Op::s || kind_ == Kind::score) add(given.name);
        for (const auto& [part, node] : parts_) add(part);
        for (const TensorType& tensor : tensors_) add(tensor.name);
        for (const Word& function : kFunctions) add(function.name);
        for (const Conversion& conversion : kConversions) add(conversion.name);
        for (const std::string_view constant : kConstants) add(constant);
        return names;
    }

    std::vector<int> arguments(std::string_view close, std::string_view of) {
        std::vector<int> nodes;
        do nodes.push_back(ternary());
        while (accept(","));
        expect(close, "ends the arguments of " + std::string(of));
        return nodes;
    }

    int call(Op op, const Token& token) {
        expect("(", "follows a function's name");
        std::vector<int> given = arguments(")", token.text);
        const bool two = op == Op::minimum || op == Op::maximum;
        if (given.size() != (two ? 2 : 1))
            fail(quoted(token) + " takes " + (two ? "2" : "1") + ", not " + std::to_string(given.size()) + " arguments",
                 token);
        for (const int node : given)
            if (type(node) == Type::boolean) fail(quoted(token) + " takes ints and floats, and this is a bool", token);
        if (two) {
            unify(given[0], given[1], token.text, token);
            return graph_.add(op, type(given[0]), {given[0], given[1]});
        }
        if (op == Op::absolute) return graph_.add(op, type(given[0]), {given[0]});
        return graph_.add(op, Type::real, {as_real(given[0])});
    }

    int convert(Type to, const Token& token) {
        expect("(", "follows a function's name");
        const std::vector<int> given = arguments(")", token.text);
        if (given.size() != 1)
            fail(quoted(token) + " takes 1, not " + std::to_string(given.size()) + " arguments", token);
        return type(given[0]) == to ? given[0] : graph_.add(Op::convert, to, {given[0]});
    }

    int load(int tensor, const Token& token) {
        const TensorType& known = tensors_[static_cast<std::size_t>(tensor)];
        expect("[", "follows a tensor's name");
        const std::vector<int> index = arguments("]", token.text);
        if (index.size() != static_cast<std::size_t>(known.rank))
            fail(quoted(token) + " has " + std::to_string(known.rank) + " dimensions, not " +
                     std::to_string(index.size()),
                 token);
        Node node{.op = Op::load, .type = known.type, .arguments = known.rank, .tensor = tensor};
        for (std::size_t n = 0; n < index.size(); ++n) {
            if (type(index[n]) != Type::integer)
                fail(
                    "index " + std::to_string(n) + " of " + quoted(token) + " is " + a(type(index[n])) + ", not an int",
                    token);
            node.argument[n] = index[n];
        }
        return graph_.add(node);
    }

    std::vector<Token> tokens_;
    Kind kind_;
    std::span<const TensorType> tensors_;
    Graph& graph_;
    std::map<std::string_view, int> parts_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

}  // namespace

bool is_a_name(std::string_view text) {
    return !text.empty() && starts_a_name(text.front()) && std::ranges::all_of(text, continues_a_name) &&
           !is_a_word(text);
}

int parse(std::string_view text, Kind kind, std::span<const TensorType> tensors, Graph& graph) {
    if (text.size() > kMostCharacters)
        throw SyntaxError("it has " + std::to_string(text.size()) + " characters, at most " +
                              std::to_string(kMostCharacters) + " are allowed",
                          kMostCharacters);
    try {
        return Parser(text, kind, tensors, graph).run();
    } catch (const std::length_error&) {
        throw SyntaxError("it has more than " + std::to_string(kMostNodes) + " operations", 0);
    }
}

}  // namespace flashtile::functions

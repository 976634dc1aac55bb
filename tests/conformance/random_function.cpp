// random_function.cpp: a grammar, a function a type. Values stay small, and nothing steps where a score crosses a
// value, so that fp64 and fp32 take the same branches.
#include "conformance/random_function.h"

#include <initializer_list>
#include <string_view>

namespace flashtile::conformance {
namespace {

// g++ 12 takes "(" + text for an overlapping copy.
std::string joined(std::initializer_list<std::string_view> parts) {
    std::string all;
    for (const std::string_view part : parts) all += part;
    return all;
}

class Text {
public:
    Text(RandomSource& random, bool with_score) : random_(random), with_score_(with_score) {}

    std::string real(int depth) {
        if (depth == 0) {
            if (with_score_ && random_.chance(0.6)) return "s";
            return random_.pick({"slope[h]", "0.5", "1.25", "-2e-1", "float(b)"});
        }
        const auto deeper = [&] { return real(depth - 1); };
        switch (random_.integer(0, 11)) {
            case 0:
                return joined({"(", deeper(), " + ", deeper(), ")"});
            case 1:
                return joined({"(", deeper(), " - ", deeper(), ")"});
            case 2:
                return joined({"(", deeper(), " * ", random_.pick({"0.5", "-1.5", "slope[h]"}), ")"});
            case 3:
                return joined({"tanh(", deeper(), ")"});
            case 4:
                return joined({"(", deeper(), " / (1.0 + abs(", deeper(), ")))"});
            case 5:
                return joined({"sqrt(1.0 + abs(", deeper(), "))"});
            case 6:
                return joined({"log(2.0 + abs(", deeper(), "))"});
            case 7:
                return joined({"exp(-abs(", deeper(), "))"});
            case 8:
                return joined({"(", boolean(depth - 1), " ? ", deeper(), " : ", deeper(), ")"});
            case 9:
                return joined({"table[h, ", integer(depth - 1), " % 31]"});
            case 10:
                return joined({random_.pick({"min(", "max("}), deeper(), ", ", random_.pick({"0.3", "-0.7"}), ")"});
            default:
                return joined({"float(", integer(depth - 1), " % 7) / 8"});
        }
    }

    std::string integer(int depth) {
        if (depth == 0)
            return random_.pick({"i", "j", "i", "j", "h", "b", "seqlen_q", "seqlen_k", "3", "0x20", "prefix[b]"});
        const auto deeper = [&] { return integer(depth - 1); };
        switch (random_.integer(0, 9)) {
            case 0:
                return joined({"(", deeper(), " + ", deeper(), ")"});
            case 1:
                return joined({"(", deeper(), " - ", deeper(), ")"});
            case 2:
                return joined({"(", deeper(), " * ", deeper(), ")"});
            case 3:
                return joined({"(", deeper(), " // ", random_.pick({"16", "7", "-3", "j", "0"}), ")"});
            case 4:
                return joined({"(", deeper(), " % ", random_.pick({"16", "7", "-3", "i"}), ")"});
            case 5:
                return joined({"abs(", deeper(), ")"});
            case 6:
                return joined({random_.pick({"min(", "max("}), deeper(), ", ", deeper(), ")"});
            case 7:
                return joined({"(", deeper(), random_.pick({" & ", " | ", " ^ ", " << ", " >> "}), deeper(), ")"});
            case 8:
                return joined({"(", boolean(depth - 1), " ? ", deeper(), " : -", deeper(), ")"});
            default:
                return joined({"document[b, ", deeper(), "]"});
        }
    }

    std::string boolean(int depth) {
        if (depth == 0) return random_.pick({"i >= j", "true", "pattern[i // 8 % 4, j // 8 % 4, h % 2]"});
        switch (random_.integer(0, 4)) {
            case 0:
                return joined(
                    {"(", boolean(depth - 1), random_.pick({" && ", " || ", " ^ "}), boolean(depth - 1), ")"});
            case 1:
                return joined({"!(", boolean(depth - 1), ")"});
            default:
                return joined({"(", integer(depth - 1), random_.pick({" < ", " <= ", " > ", " >= ", " == ", " != "}),
                               integer(depth - 1), ")"});
        }
    }

private:
    RandomSource& random_;
    bool with_score_;
};

}  // namespace

std::string random_score_function(RandomSource& random) {
    return Text(random, true).real(static_cast<int>(random.integer(1, 3)));
}

std::string random_mask_function(RandomSource& random) {
    return Text(random, false).boolean(static_cast<int>(random.integer(1, 3)));
}

}  // namespace flashtile::conformance

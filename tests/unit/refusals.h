// refusals.h: calls that are wrong in one thing each, and what the error must say of it.
#pragma once

#include <flashtile/flashtile.h>
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace flashtile::unit {

template <class Call>
struct Refusal {
    std::function<void(Call&)> spoil;
    std::vector<std::string> said;  // parts of the message
};

// Each call is refused with its message, and leaves the memory as it was, which `untouched` expects of a call.
template <class Call, class Untouched>
void expect_refused(std::span<const Refusal<Call>> list, Untouched untouched) {
    for (const Refusal<Call>& refusal : list) {
        SCOPED_TRACE(refusal.said.front());
        Call call;
        refusal.spoil(call);
        EXPECT_EQ(call.run(), FLASHTILE_INVALID_ARGUMENT);
        for (const std::string& part : refusal.said)
            EXPECT_NE(std::string(flashtile_last_error()).find(part), std::string::npos) << flashtile_last_error();
        untouched(call);
    }
}

}  // namespace flashtile::unit

// damage.h: a few drawn changes to a valid file. Bytes from nowhere seldom get past a magic or a header's length; files
// that were valid once get everywhere.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <string>

namespace flashtile::fuzz {

inline void damage(std::string& file, FuzzedDataProvider& draw) {
    for (int changes = draw.ConsumeIntegralInRange(0, 4); changes > 0; --changes) {
        const auto at = draw.ConsumeIntegralInRange<std::size_t>(0, file.size());
        switch (draw.ConsumeIntegralInRange(0, 3)) {
            case 0:
                if (at < file.size()) file[at] = draw.ConsumeIntegral<char>();
                break;
            case 1:
                file.insert(at, draw.ConsumeRandomLengthString(24));
                break;
            case 2:
                file.erase(at, draw.ConsumeIntegralInRange<std::size_t>(0, 24));
                break;
            default:
                file.resize(at);
        }
    }
}

}  // namespace flashtile::fuzz

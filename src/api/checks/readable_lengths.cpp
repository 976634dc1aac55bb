// readable_lengths.cpp: see readable_lengths.h.
#include "api/checks/readable_lengths.h"

#include "api/checks/refuse.h"

namespace flashtile::api {

void check_ascending(const ReadableLengths& cu, std::int64_t batch, std::int64_t total, const char* name) {
    if (cu[0] != 0) refuse(text(name, "[0]"), cu[0], "0");
    for (std::int64_t b = 0; b < batch; ++b)
        if (cu[b + 1] < cu[b])
            refuse(text(name, "[", b + 1, "]"), cu[b + 1], text("no less than the entry before, ", cu[b]));
    if (cu[batch] > total) refuse(text(name, "[", batch, "]"), cu[batch], text("at most the total, ", total));
}

}  // namespace flashtile::api

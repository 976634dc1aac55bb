// contestants.cpp: see contestants.h.
#include "bench/contestants.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "attention_names.h"
#include "bench/openvino_method.h"
#include "bench/torch_method.h"
#include "status_line.h"

namespace flashtile::cli::bench {

Contestants contestants(const Options& options, const std::vector<Point>& points) {
    Contestants result;
    result.methods.push_back(make_standard());
    result.methods.push_back(make_flashtile(parse_isa(options.isa)));
    for (const std::string& name : others(options)) result.methods.push_back(make_other(name));
    StatusLine status;
    if (wants(options, "torch")) {
        status.say("starting PyTorch");
        const auto torch = start_torch();
        for (const char* name : {"torch_sdpa", "torch_standard"}) result.methods.push_back(make_torch(torch, name));
        result.versions["torch"] = torch->version();
    }
    if (wants(options, "openvino")) {
        if (std::ranges::none_of(points, [](const Point& point) { return openvino_lacks(point).empty(); }))
            throw std::invalid_argument(
                fmt::format("--against is openvino, which can take part nowhere here: {}", openvino_lacks(points[0])));
        status.say("starting OpenVINO");
        const auto openvino = start_openvino();
        result.methods.push_back(make_openvino(openvino));
        result.versions["openvino"] = openvino->version();
    }
    return result;
}

}  // namespace flashtile::cli::bench

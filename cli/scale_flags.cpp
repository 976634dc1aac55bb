// scale_flags.cpp: see scale_flags.h.
#include "scale_flags.h"

#include <tuple>

namespace flashtile::cli {

flashtile::tensor ScaleInput::view(std::size_t dimensions_of_q, bool packed) const {
    const flashtile::tensor given = file.view();
    std::vector<std::int64_t> shape = file.shape();
    const std::size_t full = block == 0 ? 2 : 3, lacking = packed ? 0 : 4 - dimensions_of_q;
    if (shape.empty() || shape.size() + lacking != full) return given;  // for all, or as the library has it
    shape.insert(shape.begin(), lacking, 1);
    return flashtile::view(given.raw().data, fp32, shape);
}

void ScaleFlags::add_to(CLI::App& command) {
    const auto file = [&](const char* flag, std::string& value, const char* help) {
        command.add_option(flag, value, help)->type_name("FILE[:TENSOR]");
    };
    file("--q-scale", q, "What queries in e4m3 are multiplied by");
    file("--k-scale", k, "Likewise, keys");
    file("--v-scale", v, "Likewise, values");
    command.add_option("--scale-block", block, "Rows of a head that share a scale: 64 or 128 (default: all)")
        ->check(CLI::IsMember({64, 128}))
        ->type_name("N");
}

std::vector<ScaleInput> ScaleFlags::open() const {
    std::vector<ScaleInput> inputs;
    for (const auto& [flag, name, meaning] : {std::tuple("--q-scale", &q, &options::q_scale),
                                              {"--k-scale", &k, &options::k_scale},
                                              {"--v-scale", &v, &options::v_scale}})
        if (!name->empty()) inputs.push_back({meaning, {flag, *name}, block});
    return inputs;
}

}  // namespace flashtile::cli

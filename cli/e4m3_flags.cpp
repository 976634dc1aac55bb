// e4m3_flags.cpp: see e4m3_flags.h.
#include "e4m3_flags.h"

namespace flashtile::cli {

void E4m3Flags::add_to(CLI::App& app) {
    CLI::Option* e4m3 = app.add_option("--e4m3", which, "Tensors of e4m3: all of q, k and v, or keys: k and v alone")
                            ->check(CLI::IsMember({"all", "keys"}));
    app.add_option("--scales", scales, "What each of their scales is for: none, tensor, head, block")
        ->check(CLI::IsMember({"none", "tensor", "head", "block"}))
        ->needs(e4m3);
    app.add_option("--scale-block", block, "Rows of a block that has a scale")
        ->check(CLI::IsMember({64, 128}))
        ->needs(e4m3);
}

}  // namespace flashtile::cli

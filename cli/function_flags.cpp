// function_flags.cpp: see function_flags.h. The library itself reads the texts, and says what is wrong with them.
#include "function_flags.h"

#include <fmt/format.h>

namespace flashtile::cli {

void FunctionFlags::add_texts_to(CLI::App& app) {
    app.add_option("--score-function", score,
                   "Takes the place of a score s (docs/functions.md): 's - 0.1 * abs(i - j)'")
        ->type_name("TEXT");
    app.add_option("--mask-function", mask, "Whether query i of head h sees key j: 'j < 4 || i - j < 256'")
        ->type_name("TEXT");
}

void FunctionFlags::add_tensors_to(CLI::App& app, const char* what, const char* help) {
    app.add_option_function<std::vector<std::string>>(
           "--function-tensor",
           [this](const std::vector<std::string>& given) {
               for (const std::string& one : given) {
                   const std::size_t end = one.find('=');
                   if (end == 0 || end == std::string::npos)
                       throw CLI::ValidationError("--function-tensor",
                                                  fmt::format("is '{}', allowed is a name, = and what it is", one));
                   tensors.emplace_back(one.substr(0, end), one.substr(end + 1));
               }
           },
           help)
        ->allow_extra_args(false)
        ->type_name(fmt::format("NAME={}", what));
}

void FunctionFlags::set(flashtile::options& options) const {
    if (!score.empty()) options.score_function = score.c_str();
    if (!mask.empty()) options.mask_function = mask.c_str();
}

}  // namespace flashtile::cli

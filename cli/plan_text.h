// plan_text.h: a plan, as flashtile_plan_report has it, for people.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace flashtile::cli {

// With "can_run" before it, where the report has that: by device and pass, whether it can run here.
void print_plan_text(const nlohmann::ordered_json& report);

}  // namespace flashtile::cli

// cost.h: what a call's functions cost, for `info --plan`: operations and loads, by how often they are done.
#pragma once

#include "core/json.h"

namespace flashtile::functions {

// An object for each of score, gradient (the score with its derivative) and mask that the functions with this number
// have; empty for number 0. In it "a_score", "a_key", "a_query" and "a_head" have the operations and loads done so
// often.
Members cost_report(int number);

}  // namespace flashtile::functions

// turn.h: tasks that must add to the same memory in a fixed order take turns. A task waits only for tasks that were
// claimed before it, so somebody always makes progress.
#pragma once

#include <cstdint>

namespace flashtile::cpu {

// Returns once *turn has come to `mine`. It spins for a short time, then yields, or sleeps where there are fewer CPUs
// than threads.
void wait_for_turn(std::uint32_t* turn, std::uint32_t mine);
void pass_turn(std::uint32_t* turn, std::uint32_t next);

}  // namespace flashtile::cpu

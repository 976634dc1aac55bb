// sequence_shards.h: the checks of diagonals, origins_i and origins_j, with which each sequence is a shard of its own.
#pragma once

#include "api/checks/inputs.h"

namespace flashtile::api {

// Their form, with batch known, and that nothing else says the same. They lie where `like` does.
void check_sequence_shards(const TensorArgument& like, CallUnderCheck& c);

// Their entries, with all sizes known. Where they lie in device memory, only if check_values is set.
void check_sequence_shard_values(const CallUnderCheck& c);

}  // namespace flashtile::api

// first_layer.h: leaves real attention input on disk, for `flashtile attend` and for looking at.
#pragma once

#include <filesystem>

#include "model.h"

namespace minilm {

// Writes q, k, v and out of the batch's longest sentence, each (1, seqlen, heads, head_dim) in fp32.
void write_longest(const std::filesystem::path& file, const Encoder& encoder, const Batch& batch,
                   const Attention& attention);

}  // namespace minilm

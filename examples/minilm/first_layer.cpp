#include "first_layer.h"

#include <algorithm>

#include "io/safetensors.h"

namespace minilm {

void write_longest(const std::filesystem::path& file, const Encoder& encoder, const Batch& batch,
                   const Attention& attention) {
    // The first pair of starts that lie batch.longest apart.
    const auto start = std::ranges::adjacent_find(
        batch.starts, [&](std::int64_t begin, std::int64_t end) { return end - begin == batch.longest; });
    const auto array = [&](const std::vector<float>& values) {
        return flashtile::io::Array{.dtype = flashtile::io::DType::fp32,
                                    .shape = {1, batch.longest, Encoder::heads, encoder.head_dim()},
                                    .data = values.data() + *start * encoder.hidden()};
    };
    flashtile::io::write_safetensors(file, {{"q", array(attention.q)},
                                            {"k", array(attention.k)},
                                            {"v", array(attention.v)},
                                            {"out", array(attention.out)}});
}

}  // namespace minilm

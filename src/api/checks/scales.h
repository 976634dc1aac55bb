// scales.h: the checks of what e4m3 elements are multiplied by: q_scale, k_scale and v_scale with scale_block.
#pragma once

#include <initializer_list>

#include "api/checks/inputs.h"
#include "api/checks/readable_lengths.h"

namespace flashtile::api {

// The tensor that scales are of.
struct ScaledRows {
    DType dtype;
    std::int64_t batch;        // sequences
    std::int64_t scale_heads;  // of a sequence, where a scale is a head's; 0: any divisor of `heads`
    std::int64_t heads;
    std::int64_t outer;  // sequences, pages or rows of a cache, each of which has blocks of its own; not if packed
    std::int64_t rows;   // that each of these has
    bool packed;
};

struct CheckedScales {
    ScaleKind kind = ScaleKind::none;
    Scales scales;
};

// scale_block, which must be 0 where no tensor of these could have blocks.
std::int64_t check_scale_block(std::int32_t block, std::initializer_list<const TensorArgument*> scales);

// The scales may be absent; of tensors that are not e4m3 they must be. They lie where `like` does.
CheckedScales check_scales(const TensorArgument& scale, std::int64_t block, const ScaledRows& of,
                           const TensorArgument& like);

// That there are enough scales for a packed batch's blocks.
void check_packed_blocks(const char* name, const Scales& scales, const ReadableLengths& cu_seqlens, std::int64_t batch,
                         std::int64_t block);

// Of flashtile_inputs, whose sizes have been checked.
void check_input_scales(CallUnderCheck& c);

}  // namespace flashtile::api

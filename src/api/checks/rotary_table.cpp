// rotary_table.cpp: see rotary_table.h.
#include "api/checks/rotary_table.h"

#include "api/checks/refuse.h"

namespace flashtile::api {

void check_rotary_table(const TensorArgument& cos, const TensorArgument& sin, const TensorArgument& like,
                        std::int64_t head_dim, std::int64_t begin) {
    for (const TensorArgument* table : {&cos, &sin}) {
        table->require();
        table->check_form();
        table->check_rank(2, "(positions, angles)");
        table->check_innermost();
        table->check_device(like);
    }
    cos.check_float();
    sin.check_dtype(cos.dtype(), ", that of rotary_cos");
    sin.check_shape({cos.shape(0), cos.shape(1)}, "rotary_cos's shape");
    if (begin < 0 || begin >= head_dim) refuse("rotary_begin", begin, text("0 to ", head_dim - 1));
    const std::int64_t most = (head_dim - begin) / 2;
    if (cos.shape(1) < 1 || cos.shape(1) > most)
        refuse("rotary_cos.shape", shape_text(*cos),
               text("1 to ", most, " angles, half of the columns from rotary_begin on"));
    if (cos.shape(0) < 1) refuse("rotary_cos.shape", shape_text(*cos), "at least one position");
}

}  // namespace flashtile::api

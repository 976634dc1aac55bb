// dlpack.h: views of DLPack tensors.
#pragma once

#include "flashtile/flashtile.h"

namespace flashtile::api {

// `dl_tensor` is a const DLTensor*. Throws Error for a type or rank that flashtile has no view of.
flashtile_tensor from_dlpack(const void* dl_tensor);

}  // namespace flashtile::api

// tensor_maps.cpp: describing tensors to TMA, as strictly as the driver does.
#include <cstring>

#include "emulator/driver/exports.h"
#include "emulator/driver/tma.h"

using namespace flashtile::gpu;

EMULATED cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, std::uint32_t dimensions, void* data,
                                const std::uint64_t* shape, const std::uint64_t* strides, const std::uint32_t* box,
                                const std::uint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    const auto refuse = [](const std::string& why) {
        return emulator::failed(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled: " + why);
    };
    emulator::MapFields fields{};
    fields.data = static_cast<unsigned char*>(data);
    fields.dimensions = dimensions;
    fields.element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2;
    fields.swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << swizzle;
    if (dimensions < 1 || dimensions > 5) return refuse(std::to_string(dimensions) + " dimensions");
    if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0) return refuse("an address that is no multiple of 16");
    for (unsigned n = 0; n < dimensions; ++n) {
        if (box[n] < 1 || box[n] > 256) return refuse("a box of " + std::to_string(box[n]));
        if (shape[n] < 1 || shape[n] > std::uint64_t{1} << 32) return refuse("a size of " + std::to_string(shape[n]));
        fields.shape[n] = shape[n];
        fields.box[n] = box[n];
        if (n + 1 == dimensions) continue;
        if (strides[n] % 16 != 0 || strides[n] >= std::uint64_t{1} << 40)
            return refuse("a stride of " + std::to_string(strides[n]));
        fields.strides[n] = strides[n];
    }
    if (fields.swizzle_bytes != 0 && box[0] * fields.element_bytes > fields.swizzle_bytes)
        return refuse("a box that is wider than the swizzle");
    if (box[0] * fields.element_bytes % 16 != 0) return refuse("a box whose rows are no multiple of 16 bytes");
    std::memcpy(map, &fields, sizeof fields);
    return CUDA_SUCCESS;
}

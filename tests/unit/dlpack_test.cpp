// dlpack_test.cpp: views of DLPack tensors, whose layout is restated here from the DLPack specification.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <vector>

namespace flashtile::unit {
namespace {

struct DLDevice {
    std::int32_t device_type;
    std::int32_t device_id;
};
struct DLDataType {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};
struct DLTensor {
    void* data;
    DLDevice device;
    std::int32_t ndim;
    DLDataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};

struct Owner {
    std::array<float, 64> data{};
    std::array<std::int64_t, 4> shape{1, 2, 3, 4};
    std::array<std::int64_t, 4> strides{40, 20, 6, 1};
    DLTensor tensor{data.data(), {1, 0}, 4, {2, 32, 1}, shape.data(), strides.data(), 8};
};

TEST(Dlpack, ShapeStridesAndOffset) {
    Owner owner;
    const flashtile_tensor raw = view(owner.tensor).raw();
    EXPECT_EQ(raw.data, owner.data.data() + 2);
    EXPECT_EQ(raw.dtype, FLASHTILE_FP32);
    EXPECT_EQ(raw.device_type, FLASHTILE_CPU);
    EXPECT_EQ(raw.rank, 4);
    for (std::size_t n = 0; n < 4; ++n) {
        EXPECT_EQ(raw.shape[n], owner.shape[n]);
        EXPECT_EQ(raw.stride[n], owner.strides[n]);
    }
}

TEST(Dlpack, AbsentStridesAreRowMajor) {
    Owner owner;
    owner.tensor.strides = nullptr;
    const flashtile_tensor raw = view(owner.tensor).raw();
    const std::int64_t expected[] = {24, 12, 4, 1};
    for (int n = 0; n < 4; ++n) EXPECT_EQ(raw.stride[n], expected[n]);
}

TEST(Dlpack, Types) {
    const std::pair<DLDataType, std::int32_t> types[] = {
        {{2, 32, 1}, FLASHTILE_FP32}, {{2, 16, 1}, FLASHTILE_FP16}, {{10, 8, 1}, FLASHTILE_FP8_E4M3},
        {{4, 16, 1}, FLASHTILE_BF16}, {{6, 8, 1}, FLASHTILE_BOOL},  {{0, 32, 1}, FLASHTILE_INT32},
        {{0, 64, 1}, FLASHTILE_INT64}};
    for (const auto& [type, expected] : types) {
        Owner owner;
        owner.tensor.dtype = type;
        EXPECT_EQ(view(owner.tensor).raw().dtype, expected);
    }
}

TEST(Dlpack, RefusesWhatIsNoView) {
    flashtile_tensor raw{};
    raw.rank = 77;
    EXPECT_EQ(flashtile_from_dlpack(nullptr, &raw), FLASHTILE_INVALID_ARGUMENT);
    const auto refused = [&](auto spoil, const char* named) {
        Owner owner;
        spoil(owner.tensor);
        EXPECT_EQ(flashtile_from_dlpack(&owner.tensor, &raw), FLASHTILE_INVALID_ARGUMENT);
        EXPECT_NE(std::string(flashtile_last_error()).find(named), std::string::npos) << flashtile_last_error();
    };
    refused([](DLTensor& t) { t.dtype = {2, 64, 1}; }, "64");
    refused([](DLTensor& t) { t.dtype = {2, 32, 4}; }, "4 lanes");
    refused([](DLTensor& t) { t.ndim = 7; }, "7");
    refused([](DLTensor& t) { t.shape = nullptr; }, "dl_tensor.shape is NULL");
    refused([](DLTensor& t) { t.ndim = -1; }, "-1");
    EXPECT_EQ(raw.rank, 77);
    Owner owner;
    EXPECT_EQ(flashtile_from_dlpack(&owner.tensor, nullptr), FLASHTILE_INVALID_ARGUMENT);
}

TEST(Dlpack, Attends) {
    Owner q, k, v, out;
    v.data.fill(3.0f);
    forward({}, view(q.tensor), view(k.tensor), view(v.tensor), view(out.tensor));
    EXPECT_EQ(out.data[2], 3.0f);
    EXPECT_EQ(out.data[0], 0.0f);  // before the offset
}

}  // namespace
}  // namespace flashtile::unit

// attend_inputs.cpp: see attend_inputs.h.
#include "attend_inputs.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>

#include "attention_options.h"
#include "io/convert.h"

namespace flashtile::cli {
namespace {

// An array's dimensions as (batch, seqlen, heads, last), with its strides; those that it lacks have size 1.
struct Rows {
    std::array<std::int64_t, 4> shape;
    std::array<std::int64_t, 4> strides;
};

Rows rows_of(const std::vector<std::int64_t>& shape, Layout layout) {
    std::array<std::int64_t, 4> full{1, 1, 1, 1}, strides{};  // in the file's own order
    const std::size_t rank = shape.size();
    const bool heads_first = layout == Layout::bhsd;
    const std::size_t rows = heads_first ? 2 : 1, heads = heads_first ? 1 : 2;
    full[3] = shape[rank - 1];
    if (rank == 2) {
        full[rows] = shape[0];
    } else {
        for (std::size_t n = 0; n + 1 < rank; ++n) full[4 - rank + n] = shape[n];
    }
    std::int64_t stride = 1;
    for (std::size_t n = 4; n-- > 0; stride *= full[n]) strides[n] = stride;
    return {{full[0], full[rows], full[heads], full[3]}, {strides[0], strides[rows], strides[heads], strides[3]}};
}

}  // namespace

flashtile::dtype to_flashtile(io::DType dtype) {
    switch (dtype) {
        case io::DType::fp32:
            return fp32;
        case io::DType::fp16:
            return fp16;
        case io::DType::bf16:
            return bf16;
        case io::DType::e4m3:
            return fp8_e4m3;
        case io::DType::boolean:
        case io::DType::uint8:
            return boolean;
        case io::DType::int32:
            return dtype::int32;
        case io::DType::int64:
            return dtype::int64;
        case io::DType::fp64:
            break;
    }
    throw std::logic_error("the library computes in no fp64");
}

io::DType to_io(flashtile::dtype dtype) {
    if (dtype == fp16) return io::DType::fp16;
    return dtype == bf16 ? io::DType::bf16 : io::DType::fp32;
}

AttendInput::AttendInput(const std::string& flag, const std::string& file)
    : flag_(flag), file_(file), wanted_(file_.array().dtype) {}

void AttendInput::want(io::DType dtype) {
    wanted_ = dtype;
}

void AttendInput::want_copy(void* memory) {
    changes_ = true;
    place_ = memory;
}

bool AttendInput::copied() const {
    // After a .safetensors header of odd length the values are not aligned to their type's size.
    return changes_ || wanted_ != dtype() ||
           reinterpret_cast<std::uintptr_t>(file_.array().data) % io::size_of(wanted_) != 0;
}

std::size_t AttendInput::wanted_bytes() const {
    return file_.array().elements() * io::size_of(wanted_);
}

std::size_t AttendInput::memory() const {
    return wanted_bytes();
}

void AttendInput::reserve() {
    if (!copied() || place_ != nullptr) return;
    copy_ = std::make_unique_for_overwrite<std::byte[]>(wanted_bytes());
    place_ = copy_.get();
}

void AttendInput::fill() {
    if (place_ != nullptr) io::convert(dtype(), file_.array().data, wanted_, place_, file_.array().elements());
}

flashtile::tensor AttendInput::view() const {
    return flashtile::view(data(), to_flashtile(wanted_), shape());
}

flashtile::tensor AttendInput::view(Layout layout, bool packed) const {
    return rows_view(data(), to_flashtile(wanted_), shape(), layout, packed);
}

std::optional<AttendInput> open_optional(const char* flag, const std::string& file) {
    if (file.empty()) return std::nullopt;
    return std::make_optional<AttendInput>(flag, file);
}

void check_floating(const AttendInput& input, bool or_e4m3) {
    if (io::is_floating(input.dtype()) || (or_e4m3 && input.dtype() == io::DType::e4m3)) return;
    throw std::invalid_argument(fmt::format("{} holds {}, allowed is fp64, fp32, fp16{}", input.title(),
                                            io::name(input.dtype()), or_e4m3 ? ", bf16 or e4m3" : " or bf16"));
}

void check_ranks(const AttendInput& q, const std::vector<const AttendInput*>& others, bool cache, bool packed) {
    std::vector<const AttendInput*> inputs = {&q};
    inputs.insert(inputs.end(), others.begin(), others.end());
    for (const AttendInput* input : inputs) {
        const auto shape = io::to_string(input->shape());
        check_floating(*input, /*or_e4m3=*/true);
        const bool cached = cache && input != &q;
        if (packed && !cached && input->shape().size() != 3)
            throw std::invalid_argument(fmt::format(
                "{} has shape {}, allowed is (s of all sequences, h, d) beside --cu-seqlens-q", input->title(), shape));
        if (cached && input->shape().size() != 4)
            throw std::invalid_argument(fmt::format(
                "{} has shape {}, allowed is (rows, s, h, d) or (pages, page size, h, d)", input->title(), shape));
        if (input->shape().size() < 2 || input->shape().size() > 4)
            throw std::invalid_argument(
                fmt::format("{} has shape {}, allowed is (s, d), (s, h, d) or (b, s, h, d)", input->title(), shape));
        if (!cached && input->shape().size() != q.shape().size())
            throw std::invalid_argument(fmt::format("{} has shape {}, allowed is as many dimensions as --q, {}",
                                                    input->title(), shape, io::to_string(q.shape())));
    }
}

io::DType compute_dtype(const AttendInput& q, const std::vector<const AttendInput*>& others,
                        const std::string& wanted) {
    if (!wanted.empty()) return to_io(parse_dtype(wanted));
    const auto own = [](const AttendInput& input) {
        return input.dtype() == io::DType::fp64 ? io::DType::fp32 : input.dtype();
    };
    for (const AttendInput* input : others)
        if (own(*input) != own(q))
            throw std::invalid_argument(fmt::format("{} holds {} and --q {}: say with --dtype which to compute in",
                                                    input->title(), io::name(input->dtype()), io::name(q.dtype())));
    return own(q);
}

io::DType dtype_beside_e4m3(const AttendInput& q, const AttendInput& k, const AttendInput* v,
                            const std::string& wanted) {
    for (const AttendInput* input : {&k, v})
        if (input != nullptr && input->dtype() != io::DType::e4m3)
            throw std::invalid_argument(
                fmt::format("{} holds {}, allowed is e4m3: keys and values both are, or neither, and q never alone",
                            input->title(), io::name(input->dtype())));
    if (q.dtype() == io::DType::e4m3) return wanted.empty() ? io::DType::bf16 : to_io(parse_dtype(wanted));
    const io::DType compute = wanted.empty() ? q.dtype() : to_io(parse_dtype(wanted));
    if (compute != io::DType::fp16 && compute != io::DType::bf16)
        throw std::invalid_argument(
            fmt::format("{} is to be {}, allowed beside keys in e4m3 is fp16 or bf16, which --dtype may say, or e4m3",
                        q.title(), io::name(compute)));
    return compute;
}

flashtile::tensor rows_view(const void* data, flashtile::dtype dtype, const std::vector<std::int64_t>& shape,
                            Layout layout, bool packed) {
    const Rows rows = rows_of(shape, layout);
    const std::size_t first = packed ? 1 : 0;
    return flashtile::view(data, dtype, std::span(rows.shape).subspan(first), std::span(rows.strides).subspan(first));
}

std::vector<std::int64_t> lse_shape(const std::vector<std::int64_t>& out_shape, Layout layout) {
    const Rows rows = rows_of(out_shape, layout);
    const std::vector<std::int64_t> full = {rows.shape[0], rows.shape[2], rows.shape[1]};
    return {full.end() - static_cast<std::ptrdiff_t>(out_shape.size() - 1), full.end()};
}

}  // namespace flashtile::cli

// attend_inputs.h: arrays from files as the library's tensors: which dimension is which, and which type to compute in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/input_array.h"

namespace flashtile::cli {

enum class Layout { bshd, bhsd };

flashtile::dtype to_flashtile(io::DType dtype);
io::DType to_io(flashtile::dtype dtype);

// An array that stays in its file, unless its type (or, rarely, its place in the file) asks for a converted copy.
class AttendInput {
public:
    AttendInput(const std::string& flag, const std::string& file);

    const std::string& flag() const { return flag_; }
    std::string title() const { return flag_ + " (" + file() + ")"; }
    const std::string& file() const { return file_.file(); }
    io::DType dtype() const { return file_.array().dtype; }
    const std::vector<std::int64_t>& shape() const { return file_.array().shape; }

    // Says which type is wanted; a copy's memory is taken by reserve() and filled by fill().
    void want(io::DType dtype);
    // Its values will be changed: says that a copy is wanted, in `memory` unless that is nullptr.
    void want_copy(void* memory);
    io::DType wanted() const { return wanted_; }
    std::size_t memory() const;  // bytes of what will be read over and over: the copy, or else the file's
    void reserve();
    void fill();

    flashtile::tensor view() const;  // of the array as it is
    // (batch, seqlen, heads, head_dim) of an array of rank 2 to 4: (s, d), (s, h, d) or (b, s, h, d), or with heads
    // before rows. Packed: the same without batch, of an array of rank 3.
    flashtile::tensor view(Layout layout, bool packed = false) const;

private:
    const void* data() const { return place_ != nullptr ? place_ : file_.array().data; }
    bool copied() const;
    std::size_t wanted_bytes() const;

    std::string flag_;
    io::InputArray file_;
    io::DType wanted_;
    bool changes_ = false;
    std::unique_ptr<std::byte[]> copy_;
    void* place_ = nullptr;  // of the copy
};

// Nothing without a file's name.
std::optional<AttendInput> open_optional(const char* flag, const std::string& file);

void check_floating(const AttendInput& input, bool or_e4m3 = false);  // throws std::invalid_argument

// Throws std::invalid_argument unless q, and `others`, k and v, are arrays of numbers, which may be e4m3, of one rank
// from 2 to 4; those of a cache have rank 4 whatever that of q. Packed queries have rank 3.
void check_ranks(const AttendInput& q, const std::vector<const AttendInput*>& others, bool cache, bool packed);

// The type that all are computed in, if `wanted` is empty: theirs, where fp64 counts as fp32.
io::DType compute_dtype(const AttendInput& q, const std::vector<const AttendInput*>& others, const std::string& wanted);

// The same where k, and v if it is not nullptr, are e4m3, of what is not; of out alone, if q is e4m3, too: bf16 if
// `wanted` is empty.
io::DType dtype_beside_e4m3(const AttendInput& q, const AttendInput& k, const AttendInput* v,
                            const std::string& wanted);

// A view (batch, seqlen, heads, last) of an array of this layout and shape. Packed: see AttendInput::view.
flashtile::tensor rows_view(const void* data, flashtile::dtype dtype, const std::vector<std::int64_t>& shape,
                            Layout layout, bool packed);

// Shape of lse beside an output of this layout and shape, without the dimensions that q lacks: (s), (h, s), (b, h, s).
std::vector<std::int64_t> lse_shape(const std::vector<std::int64_t>& out_shape, Layout layout);

}  // namespace flashtile::cli

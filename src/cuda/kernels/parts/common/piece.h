// piece.h: neighbouring elements of a row that one instruction loads or stores; several, where they are more than 16
// bytes.
#pragma once

namespace flashtile {

template <class Scalar, int kCount>
struct alignas(sizeof(Scalar) * kCount < 16 ? sizeof(Scalar) * kCount : 16) Piece {
    Scalar x[kCount];
};

}  // namespace flashtile

// tile_softmax.h: P = e^(S - m) of one block in small parts, for the vector units to work on while the tile unit
// multiplies: forward.h calls step() between the instructions of its products.
#pragma once

#include "cpu/tile_product.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class TileSoftmax {
public:
    // `keys` rows of S^T, a multiple of kUnit, become P = 2^(factor * s - m) in pairs at `p`. `steps`: about how often
    // step() will be called.
    void start(const float* s, uint32_t* p, int64_t keys, float factor, const Vec (&m)[2], int64_t steps) {
        s_ = s;
        p_ = p;
        factor_ = factor;
        for (int half = 0; half < 2; ++half) {
            m_[half] = m[half];
            sum_[half] = left_out_[half] = Vec{};
        }
        next_ = 0;
        end_ = keys / kUnit * 2;
        steps_ = steps;
        owed_ = 0;
    }

    // As much as keeps all steps alike.
    void step() {
        for (owed_ += end_; owed_ >= steps_; owed_ -= steps_)
            if (next_ < end_) unit();
    }

    // All rows before `key` have been read: they may be written to.
    void pass(int64_t key) {
        while (next_ < end_ && next_ / 2 * kUnit < key) unit();
    }

    // What is left; returns rowsum(P).
    Vec finish(int half) {
        while (next_ < end_) unit();
        return sum_[half] + left_out_[half];
    }

    static constexpr int64_t kUnit = 8;  // keys, of one vector of queries

private:
    static constexpr int64_t kRow = Math::kParts * kPanel;  // words from one pair of keys to the next

    // l is a sum of up to millions of terms that may all be alike and then round the same way: eight at a time, and
    // these with what each addition leaves out (Fast2Sum).
    [[gnu::always_inline]] void unit() {
        const int64_t j = next_ / 2 * kUnit;
        const int half = next_ % 2;
        const float* s = s_ + j * kPanel + half * kLanes;
        uint32_t* p = p_ + j / 2 * kRow + half * kLanes;
        const Vec m = m_[half];
        Vec l{};
        FLASHTILE_UNROLL
        for (int64_t n = 0; n < kUnit; n += 2) {
            const Vec even = exp2(load(s + n * kPanel) * factor_ - m);
            const Vec odd = exp2(load(s + (n + 1) * kPanel) * factor_ - m);
            l += even;
            l += odd;
            Math::store_pair(p + n / 2 * kRow, even, odd);
        }
        const Vec before = sum_[half];
        sum_[half] = before + l;
        left_out_[half] += l - (sum_[half] - before);
        ++next_;
    }

    const float* s_ = nullptr;
    uint32_t* p_ = nullptr;
    float factor_ = 0.0f;
    Vec m_[2], sum_[2], left_out_[2];
    int64_t next_ = 0, end_ = 0, steps_ = 1, owed_ = 0;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile

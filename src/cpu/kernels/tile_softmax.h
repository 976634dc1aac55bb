// tile_softmax.h: P = e^(S - m) of one block, computed in small parts by the vector units while the tile unit
// multiplies: tile_pipeline.h calls step() after each product of tiles. The vector units have time for sixteen
// operations during one product, so each operation that a probability takes counts.
#pragma once

#include "cpu/kernels/tile_product.h"

namespace flashtile {
inline namespace FLASHTILE_TARGET {

template <class Math>
class TileSoftmax {
public:
    // `keys` rows of S^T, a multiple of kGroup, become P = 2^(factor * s - m) in pairs at `p`. `steps`: about how often
    // step() will be called for each half of the queries.
    [[gnu::always_inline]] void start(const float* s, uint32_t* p, int64_t keys, float factor, const float* m,
                                      int64_t steps) {
        s_ = s;
        p_ = p;
        factor_ = broadcast(factor);
        end_ = keys;
        steps_ = steps * kUnit;
        m0_ = load(m);
        m1_ = load(m + kLanes);
        sum0_ = sum1_ = total0_ = total1_ = Vec{};
        next0_ = next1_ = 0;
        owed0_ = owed1_ = 0;
    }

    // Computes this step's part: the work is spread evenly over the steps.
    template <int kHalf>
    [[gnu::always_inline]] void step(Half<kHalf>) {
        int64_t& owed = kHalf == 0 ? owed0_ : owed1_;
        const int64_t& next = kHalf == 0 ? next0_ : next1_;
        for (owed += end_; owed >= steps_ && next < end_; owed -= steps_) unit<kHalf>();
    }

    // Makes sure that all rows before `key` have been read, so that they may be written to.
    [[gnu::always_inline]] void pass(int64_t key) {
        if (key > end_) key = end_;
        while (next0_ < key) unit<0>();
        while (next1_ < key) unit<1>();
    }

    // Computes what is left, and gives rowsum(P).
    [[gnu::always_inline]] void finish(Vec (&sum)[2]) {
        pass(end_);
        sum[0] = total0_;
        sum[1] = total1_;
    }

private:
    static constexpr int64_t kRow = Math::kParts * kPanel;  // words from one pair of keys to the next
    static constexpr int64_t kUnit = 4;                     // keys, of one vector of queries
    static constexpr int64_t kGroup = Math::kStep;          // keys

    // l is a sum of up to millions of terms that may all be alike and then round the same way: units, groups of these
    // and blocks are summed each by themselves. Units and groups start at multiples of their size.
    template <int kHalf>
    [[gnu::always_inline]] void unit() {
        int64_t& next = kHalf == 0 ? next0_ : next1_;
        Vec& sum = kHalf == 0 ? sum0_ : sum1_;
        const Vec m = kHalf == 0 ? m0_ : m1_;
        const float* s = s_ + next * kPanel + kHalf * kLanes;
        uint32_t* p = p_ + next * (kRow / 2) + kHalf * kLanes;
        Vec l{};
        FLASHTILE_UNROLL
        for (int64_t n = 0; n < kUnit; n += 2) {
            const Vec even = exponential_(load(s + n * kPanel) * factor_ - m);
            const Vec odd = exponential_(load(s + (n + 1) * kPanel) * factor_ - m);
            l = n == 0 ? even + odd : l + (even + odd);
            Math::store_pair(p + n / 2 * kRow, even, odd, words_);
        }
        sum += l;
        next += kUnit;
        if (next % kGroup == 0) {
            Vec& total = kHalf == 0 ? total0_ : total1_;
            total += sum;
            sum = Vec{};
        }
    }

    Exp2InRegisters exponential_;
    typename Math::Words words_{kept(typename Math::Words{}.rounding), kept(typename Math::Words{}.upper_bytes)};
    const float* s_ = nullptr;
    uint32_t* p_ = nullptr;
    Vec factor_, m0_, m1_, sum0_, sum1_, total0_, total1_;
    int64_t next0_ = 0, next1_ = 0, end_ = 0, steps_ = 1, owed0_ = 0, owed1_ = 0;
};

}  // namespace FLASHTILE_TARGET
}  // namespace flashtile

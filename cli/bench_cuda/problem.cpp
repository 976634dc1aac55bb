// problem.cpp: see problem.h.
#include "bench_cuda/problem.h"

#include <algorithm>

namespace flashtile::cli::bench_cuda {
namespace {

using gpu_resources::Buffer;

constexpr std::byte kPoison{0xFF};  // a NaN in every floating-point type

}  // namespace

const char* name_of(Pass pass) {
    return pass == Pass::forward ? "forward" : "backward";
}

double flops(const Shape& s, Pass pass) {
    const double all =
        4.0 * static_cast<double>(s.seqlen_q * s.seqlen_k) * static_cast<double>(s.head_dim * s.heads * s.batch);
    return all * (s.causal ? 0.5 : 1.0) * (pass == Pass::backward ? 2.5 : 1.0);
}

Problem::Problem(const Shape& shape, dtype type)
    : shape_(shape),
      type_(type),
      q_(random(shape.seqlen_q, 1)),
      k_(random(shape.seqlen_k, 2)),
      v_(random(shape.seqlen_k, 3)),
      out_(output(shape.seqlen_q)),
      lse_(static_cast<std::size_t>(shape.batch * shape.heads * shape.seqlen_q * 4)),
      dout_(random(shape.seqlen_q, 4)),
      dq_(output(shape.seqlen_q)),
      dk_(output(shape.seqlen_k)),
      dv_(output(shape.seqlen_k)),
      operands_{.q = q_.data(),
                .k = k_.data(),
                .v = v_.data(),
                .out = out_.data(),
                .lse = lse_.data(),
                .dout = dout_.data(),
                .dq = dq_.data(),
                .dk = dk_.data(),
                .dv = dv_.data()} {}

Results Problem::results(Attention& attention, Pass pass) {
    out_.fill(kPoison);
    attention.forward(operands_, stream_);
    stream_.synchronize();
    Results results;
    if (pass == Pass::forward) {
        results.out = pieces(out_);
        return results;
    }
    for (Buffer* gradient : {&dq_, &dk_, &dv_}) gradient->fill(kPoison);
    attention.backward(operands_, stream_);
    stream_.synchronize();
    results.dq = pieces(dq_);
    results.dk = pieces(dk_);
    results.dv = pieces(dv_);
    return results;
}

double Problem::sample(Attention& attention, Pass pass, int runs) {
    before_.record(stream_);
    for (int n = 0; n < runs; ++n) {
        if (pass == Pass::forward)
            attention.forward(operands_, stream_);
        else
            attention.backward(operands_, stream_);
    }
    after_.record(stream_);
    after_.synchronize();
    return static_cast<double>(after_.milliseconds_since(before_)) / runs;
}

Buffer Problem::random(std::int64_t seqlen, std::uint64_t seed) const {
    const Numbers numbers = random_numbers(type_, count(seqlen), seed);
    Buffer buffer(numbers.bytes());
    buffer.upload({static_cast<const std::byte*>(numbers.data()), numbers.bytes()});
    return buffer;
}

Buffer Problem::output(std::int64_t seqlen) const {
    return Buffer(static_cast<std::size_t>(count(seqlen) * 2));
}

std::vector<float> Problem::pieces(const Buffer& from) const {
    constexpr std::size_t kPieces = 16, kPiece = 64 * 1024;
    const std::size_t piece = std::min(kPiece, from.size() / kPieces / 2 * 2);
    std::vector<float> all;
    for (std::size_t n = 0; n < kPieces; ++n) {
        const std::size_t first = (from.size() - piece) / 2 * n / (kPieces - 1) * 2;
        const Numbers numbers(type_, static_cast<std::int64_t>(piece / 2));
        from.download({static_cast<std::byte*>(numbers.data()), piece}, first);
        const std::vector<float> values = numbers.as_floats();
        all.insert(all.end(), values.begin(), values.end());
    }
    return all;
}

}  // namespace flashtile::cli::bench_cuda

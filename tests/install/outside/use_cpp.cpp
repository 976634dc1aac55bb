// The C++ interface from outside, forward and backward: with k = 0 every score is 0, so each query gets the mean of v,
// each key's dv is the mean of dout over the queries, and dq is 0. Returns 0 if that is what came out.
#include <cmath>
#include <cstdio>
#include <flashtile/flashtile.hpp>
#include <vector>

namespace ft = flashtile;

namespace {

constexpr int seqlen = 6, head_dim = 4, size = seqlen * head_dim;

bool near_mean_of(const std::vector<float>& got, const std::vector<float>& rows) {
    for (int c = 0; c < head_dim; ++c) {
        float mean = 0;
        for (int i = 0; i < seqlen; ++i) mean += rows[i * head_dim + c] / seqlen;
        for (int i = 0; i < seqlen; ++i)
            if (!(std::fabs(got[i * head_dim + c] - mean) < 1e-5f)) return false;
    }
    return true;
}

int run() {
    std::vector<float> q(size), k(size, 0.0f), v(size), out(size), lse(seqlen);
    std::vector<float> dout(size), dq(size, 1.0f), dk(size), dv(size);
    for (int n = 0; n < size; ++n) {
        q[n] = 0.5f * n;
        v[n] = static_cast<float>(n * n % 11);
        dout[n] = static_cast<float>(n % 5 - 2);
    }
    const auto rows = [](std::vector<float>& x) { return ft::view(x.data(), ft::fp32, {1, seqlen, 1, head_dim}); };
    const auto tlse = ft::view(lse.data(), ft::fp32, {1, 1, seqlen});

    ft::forward({}, rows(q), rows(k), rows(v), rows(out), tlse);
    if (!near_mean_of(out, v)) return std::fputs("forward is wrong\n", stderr), 1;

    ft::backward({}, rows(q), rows(k), rows(v), rows(out), tlse, rows(dout), rows(dq), rows(dk), rows(dv));
    if (!near_mean_of(dv, dout)) return std::fputs("dv is wrong\n", stderr), 1;
    for (float x : dq)
        if (x != 0) return std::fputs("dq is not zero\n", stderr), 1;

    try {
        ft::forward({.dropout = 1.5}, rows(q), rows(k), rows(v), rows(out));
    } catch (const ft::error& e) {
        std::printf("C++: flashtile %s; refuses as it should: %s\n", ft::version(), e.what());
        return e.code() == ft::status::invalid_argument ? 0 : 1;
    }
    return std::fputs("dropout 1.5 was not refused\n", stderr), 1;
}

}  // namespace

int main() {
    try {
        return run();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}

// job.h: one small call forward and one backward, as a host program makes them, through nothing but the C++ interface.
// Two jobs of one seed have the same bits, wherever, whenever and beside whatever they run.
#pragma once

#include <flashtile/flashtile.hpp>
#include <random>
#include <vector>

namespace flashtile::host {

struct Job {
    std::int64_t batch = 1, seqlen, heads = 4, d = 32;
    std::vector<float> q, k, v, dout, out, lse, dq, dk, dv;

    Job(unsigned seed, std::int64_t length) : seqlen(length) {
        std::minstd_rand source(seed);
        std::normal_distribution<float> normal;
        for (std::vector<float>* input : {&q, &k, &v, &dout}) {
            input->resize(static_cast<std::size_t>(batch * seqlen * heads * d));
            for (float& x : *input) x = normal(source);
        }
        for (std::vector<float>* output : {&out, &dq, &dk, &dv}) output->assign(q.size(), -1.0f);
        lse.assign(static_cast<std::size_t>(batch * heads * seqlen), -1.0f);
    }

    Job& run(const options& o) {
        const auto rows = [&](std::vector<float>& x) { return view(x.data(), fp32, {batch, seqlen, heads, d}); };
        const tensor lse_view = view(lse.data(), fp32, {batch, heads, seqlen});
        forward(o, rows(q), rows(k), rows(v), rows(out), lse_view);
        backward(o, rows(q), rows(k), rows(v), rows(out), lse_view, rows(dout), rows(dq), rows(dk), rows(dv));
        return *this;
    }

    bool operator==(const Job&) const = default;
};

}  // namespace flashtile::host

// ring.cpp: attention over several devices, without a framework. A rank is a thread that has a share of the queries and
// keys, and a Ring passes messages between neighbours, as MPI or NCCL would. Keys and values travel once around the
// ring. Each rank attends to the shard that it has at the moment, and merges that with what it had (forward); or it
// adds to dk and dv of the shard, which travel with it (backward). A shard is the same problem shifted: `diagonal` and
// `origin` say where it lies, and so causal masks and dropout are those of the whole problem.
//
// The program compares the result with that of one call on everything, and fails where they differ.
#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <flashtile/flashtile.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace ft = flashtile;

constexpr std::int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kHeadDim = 32;
constexpr std::int64_t kStarts[] = {0, 100, 137, 290, 401};  // of the ranks' rows: shares need not be equal
constexpr int kRanks = 4;

struct Matrix {  // (batch, rows, heads, kHeadDim)
    std::int64_t rows = 0, heads = 0;
    std::vector<float> values{};

    Matrix() = default;
    Matrix(std::int64_t row_count, std::int64_t head_count)
        : rows(row_count),
          heads(head_count),
          values(static_cast<std::size_t>(kBatch * row_count * head_count * kHeadDim)) {}

    float* row(std::int64_t b, std::int64_t i) { return values.data() + (b * rows + i) * heads * kHeadDim; }
    ft::tensor view() { return ft::view(values.data(), ft::fp32, {kBatch, rows, heads, kHeadDim}); }
    Matrix part(std::int64_t first, std::int64_t end) {
        Matrix part(end - first, heads);
        for (std::int64_t b = 0; b < kBatch; ++b)
            std::copy(row(b, first), row(b, first) + (end - first) * heads * kHeadDim, part.row(b, 0));
        return part;
    }
    void add(const Matrix& other) {
        for (std::size_t n = 0; n < values.size(); ++n) values[n] += other.values[n];
    }
};

struct Lse {  // (batch, kHeads, rows)
    std::int64_t rows = 0;
    std::vector<float> values{};

    ft::tensor view() { return ft::view(values.data(), ft::fp32, {kBatch, kHeads, rows}); }
};

// What travels. Backward's dk and dv go with the keys that they are of.
struct Shard {
    int of = 0;  // the rank whose rows these are
    Matrix k{}, v{}, dk{}, dv{};
};

// Each rank has a place that its neighbour puts the next shard in.
class Ring {
public:
    Shard pass_on(int rank, Shard shard) {
        std::unique_lock lock(mutex_);
        const int next = (rank + 1) % kRanks;
        changed_.wait(lock, [&] { return !waiting_.contains(next); });
        waiting_[next] = std::move(shard);
        changed_.notify_all();
        changed_.wait(lock, [&] { return waiting_.contains(rank); });
        Shard received = std::move(waiting_[rank]);
        waiting_.erase(rank);
        changed_.notify_all();
        return received;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<int, Shard> waiting_;
};

ft::options whole_problem() {
    return {.causal = ft::top_left, .dropout = 0.2, .seed = 7, .threads = 1};
}

// Queries from i0 on against keys from j0 on.
ft::options shard_options(std::int64_t i0, std::int64_t j0) {
    ft::options o = whole_problem();
    o.diagonal = i0 - j0;
    o.origin = {.i = i0, .j = j0};
    return o;
}

struct Rank {
    int number = 0;
    Matrix q{}, k{}, v{}, dout{}, out{}, dq{}, dk{}, dv{};
    Lse lse{};

    std::int64_t first_row() const { return kStarts[number]; }

    // No query of this rank sees a key of a later one.
    bool sees(const Shard& shard) const { return shard.of <= number; }

    void forward(Ring& ring) {
        // Part 0 is what has been merged so far, part 1 is new.
        const std::size_t size = q.values.size(), rows = static_cast<std::size_t>(kBatch * kHeads * q.rows);
        std::vector<float> outs(2 * size), lses(2 * rows, -std::numeric_limits<float>::infinity());
        const auto out_of = [&](std::size_t n) {
            return ft::view(outs.data() + n * size, ft::fp32, {kBatch, q.rows, kHeads, kHeadDim});
        };
        const auto lse_of = [&](std::size_t n) {
            return ft::view(lses.data() + n * rows, ft::fp32, {kBatch, kHeads, q.rows});
        };
        const ft::tensor both_outs = ft::view(outs.data(), ft::fp32, {2, kBatch, q.rows, kHeads, kHeadDim});
        const ft::tensor both_lses = ft::view(lses.data(), ft::fp32, {2, kBatch, kHeads, q.rows});
        Shard shard{.of = number, .k = k, .v = v};
        for (int step = 0; step < kRanks; ++step) {
            if (step > 0) shard = ring.pass_on(number, std::move(shard));
            if (!sees(shard)) continue;
            ft::forward(shard_options(first_row(), kStarts[shard.of]), q.view(), shard.k.view(), shard.v.view(),
                        out_of(1), lse_of(1));
            ft::merge({.threads = 1}, both_outs, both_lses, out_of(0), lse_of(0));
        }
        out = q;
        std::copy_n(outs.begin(), size, out.values.begin());
        lse = {q.rows, {lses.begin(), lses.begin() + static_cast<std::ptrdiff_t>(rows)}};
    }

    // With out and lse of the whole row each shard's dk and dv are those of its keys, and dq is a sum over shards.
    void backward(Ring& ring) {
        dq = Matrix(q.rows, kHeads);
        Shard shard{.of = number, .k = k, .v = v, .dk = Matrix(k.rows, kKvHeads), .dv = Matrix(k.rows, kKvHeads)};
        for (int step = 0; step < kRanks; ++step) {
            if (step > 0) shard = ring.pass_on(number, std::move(shard));
            if (!sees(shard)) continue;
            Matrix part_dq = q, part_dk = shard.k, part_dv = shard.v;
            ft::backward(shard_options(first_row(), kStarts[shard.of]), q.view(), shard.k.view(), shard.v.view(),
                         {.out = out.view(),
                          .lse = lse.view(),
                          .dout = dout.view(),
                          .dq = part_dq.view(),
                          .dk = part_dk.view(),
                          .dv = part_dv.view()});
            dq.add(part_dq);
            shard.dk.add(part_dk);
            shard.dv.add(part_dv);
        }
        shard = ring.pass_on(number, std::move(shard));  // home again
        dk = std::move(shard.dk);
        dv = std::move(shard.dv);
    }
};

template <class Work>
void on_all(std::vector<Rank>& ranks, Work work) {
    Ring ring;
    std::vector<std::thread> threads;
    for (Rank& rank : ranks) threads.emplace_back([&] { work(rank, ring); });
    for (std::thread& thread : threads) thread.join();
}

Matrix random_matrix(std::int64_t heads, std::mt19937& random) {
    Matrix m(kStarts[kRanks], heads);
    std::normal_distribution<float> normal;
    for (float& x : m.values) x = normal(random);
    return m;
}

// The largest difference between the ranks' rows and those of the whole.
float difference(std::vector<Rank>& ranks, Matrix Rank::*of_rank, Matrix& whole) {
    float most = 0.0f;
    for (Rank& rank : ranks) {
        const Matrix expected = whole.part(kStarts[rank.number], kStarts[rank.number + 1]);
        for (std::size_t n = 0; n < expected.values.size(); ++n)
            most = std::max(most, std::abs((rank.*of_rank).values[n] - expected.values[n]));
    }
    return most;
}

}  // namespace

int main() {
    std::mt19937 random(1);
    Rank whole{.q = random_matrix(kHeads, random),
               .k = random_matrix(kKvHeads, random),
               .v = random_matrix(kKvHeads, random),
               .dout = random_matrix(kHeads, random)};
    std::vector<Rank> ranks;
    for (int n = 0; n < kRanks; ++n) {
        const auto part = [&](Matrix& m) { return m.part(kStarts[n], kStarts[n + 1]); };
        ranks.push_back(
            {.number = n, .q = part(whole.q), .k = part(whole.k), .v = part(whole.v), .dout = part(whole.dout)});
    }
    on_all(ranks, [](Rank& rank, Ring& ring) { rank.forward(ring); });
    on_all(ranks, [](Rank& rank, Ring& ring) { rank.backward(ring); });

    whole.out = whole.dq = whole.q;
    whole.dk = whole.k;
    whole.dv = whole.v;
    whole.lse = {whole.q.rows, std::vector<float>(static_cast<std::size_t>(kBatch * kHeads * whole.q.rows))};
    ft::forward(whole_problem(), whole.q.view(), whole.k.view(), whole.v.view(), whole.out.view(), whole.lse.view());
    ft::backward(whole_problem(), whole.q.view(), whole.k.view(), whole.v.view(),
                 {.out = whole.out.view(),
                  .lse = whole.lse.view(),
                  .dout = whole.dout.view(),
                  .dq = whole.dq.view(),
                  .dk = whole.dk.view(),
                  .dv = whole.dv.view()});

    bool same = true;
    for (const auto& [name, member] : {std::pair("out", &Rank::out), std::pair("dq", &Rank::dq),
                                       std::pair("dk", &Rank::dk), std::pair("dv", &Rank::dv)}) {
        const float most = difference(ranks, member, whole.*member);
        std::printf("%-3s differs from that of one call by at most %.1e\n", name, static_cast<double>(most));
        same = same && most < 2e-5f;
    }
    return same ? 0 : 1;
}

// method.h: a way to compute attention that the benchmark can time and whose result it can compare.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "baselines/masking.h"
#include "bench/inputs.h"
#include "bench/point.h"
#include "block_pattern.h"

namespace flashtile::cli::bench {

class Method {
public:
    Method() = default;
    Method(const Method&) = delete;
    Method& operator=(const Method&) = delete;
    virtual ~Method() = default;

    virtual std::string name() const = 0;
    virtual std::string isa(const Point& point) const = 0;

    // "" where the method can be timed at the point, else why not.
    virtual std::string why_not(const Point& point) const = 0;

    // Makes ready for run(): allocates, and for the backward pass alone computes what forward leaves for it. `inputs`
    // must outlive release().
    virtual void prepare(const Point& point, const Inputs& inputs) = 0;
    // Runs the point's pass `count` times and returns the seconds that it took.
    virtual double run(int count) = 0;
    virtual Results results() = 0;
    virtual void release() = 0;
};

// A method that runs in this process.
class LocalMethod : public Method {
public:
    double run(int count) override {
        const auto start = std::chrono::steady_clock::now();
        for (int n = 0; n < count; ++n) {
            if (point_.pass != Pass::backward) forward();
            if (has_backward(point_.pass)) backward();
        }
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }

protected:
    virtual void forward() = 0;
    virtual void backward() = 0;

    Point point_;  // set by prepare()
};

// Of the blocks that are seen, where `seen`, which must outlive it, says which.
std::unique_ptr<Method> make_flashtile(flashtile::isa isa, const BlockPattern* seen = nullptr);
// Standard attention on OpenBLAS, in fp32.
std::unique_ptr<Method> make_standard();
// The papers' other algorithms (src/baselines), in fp32: flash1, flash2, rabe_staats.
std::unique_ptr<Method> make_other(const std::string& name);
std::vector<std::string> other_method_names();
// Forward of flash1 or flash2 with these blocks; its name is "flash1 64x128".
std::unique_ptr<Method> make_with_blocks(const std::string& name, baselines::Tile tile);
// Block-sparse FlashAttention (Algorithm 5 of its paper), of the pattern's blocks; its name is "flash1".
std::unique_ptr<Method> make_block_sparse(const BlockPattern& seen);

// Results of the standard baseline where it may be too large to be timed: P is kept for one head at a time.
Results standard_results(const Point& point, const Inputs& inputs);

// Bytes of memory that a method may fill: three fifths of what is free.
double memory_to_use();

}  // namespace flashtile::cli::bench

// grid.h: a launch at work: thread blocks in the order of their numbers, one at a time (or those of a cluster) unless
// they wait for each other.
// All CUDA threads run on the host thread that launches, in turns: a thread runs until it waits for another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/driver/block.h"
#include "emulator/driver/fiber.h"

namespace emulator {

// A kernel as it was loaded.
struct Kernel {
    void (*call)(void* const* parameters) = nullptr;
    const Thread** current = nullptr;
    unsigned parameter_bytes = 0;
    unsigned cluster_blocks = 1;
    int most_shared_bytes = 48 * 1024;
};

struct LaunchShape {
    Dim blocks, threads;
    unsigned shared_bytes;
};

class Grid {
public:
    // Runs all of it. Returns "" or what went wrong.
    std::string run(const Kernel& kernel, const LaunchShape& shape, void* const* parameters);

    // The functions below are for CUDA threads.
    Lane& lane() const { return *current_; }
    Block& block() const { return *current_->block; }
    [[noreturn]] void fail(const std::string& what);
    // The calling thread cannot go on until make_ready() is called for it.
    void wait(Wait what);
    // It can, but another one may go first.
    void pause();
    void rest();
    // Something other than waiting has happened.
    void progress() { ++progress_; }
    std::uint64_t events() const { return progress_; }
    unsigned random(unsigned end);  // below `end`; 0 without a seed
    bool seeded() const { return seed_ != 0; }

    // For the handler of faults: which stack to go on with. Null where no CUDA thread runs.
    void* leave(const std::string& why);
    const Stacks& stacks() const { return stacks_; }

private:
    static void body(void* lane);
    void begin(Block& block, std::uint64_t number);
    void end_lane(Lane& lane);
    void go_on();  // with any lane, or the launching thread's own stack
    Lane* next(Block& block);
    bool run_until_stuck(Block& block);  // returns whether it has ended
    void enter(Lane& lane, void** from);

    const Kernel* kernel_ = nullptr;
    LaunchShape shape_{};
    void* const* parameters_ = nullptr;
    Stacks stacks_;
    std::vector<unsigned char*> shared_;  // by slot: the end of its memory
    Lane* current_ = nullptr;
    bool on_stack_ = false;  // a CUDA thread's stack is in use
    void* host_ = nullptr;   // the launching thread's own stack
    std::string failure_;
    std::uint64_t progress_ = 0, seed_ = 0, state_ = 0;
    std::size_t resident_ = 1;
};

// The launch at work; there is one at a time.
Grid& grid();

// What kernels call.
const Runtime& runtime();

}  // namespace emulator

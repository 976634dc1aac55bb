// states.cpp: what the threads of a block wait for, in words: see block.h.
#include <map>

#include "emulator/driver/block.h"

namespace emulator {
namespace {

std::string state(const Lane& lane) {
    if (lane.done) return "have ended";
    switch (lane.wait) {
        case Wait::none:
            return "run";
        case Wait::start:
            return "have not begun";
        case Wait::warp:
            return std::string("wait for others of their warp at ") + lane.at;
        case Wait::syncthreads:
            return "wait at __syncthreads";
        case Wait::barrier:
            return "wait at named barrier " + std::to_string(lane.barrier) + " (" +
                   std::to_string(lane.block->barriers[lane.barrier].arrived) + " of " +
                   std::to_string(lane.block->barriers[lane.barrier].threads) + " have come)";
        case Wait::mbarrier:
            return "wait for parity " + std::to_string(lane.parity) + " of the mbarrier at shared address " +
                   std::to_string(lane.barrier);
        case Wait::cluster:
            return "wait at the cluster's barrier (" + std::to_string(lane.block->cluster->arrived) + " have come)";
        case Wait::rest:
            return "sleep, or look at a word in memory";
    }
    return "";
}

// "0-31, 64"
std::string ranges(const std::vector<unsigned>& numbers) {
    std::string text;
    for (std::size_t n = 0; n < numbers.size();) {
        std::size_t last = n;
        while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
        text.append(text.empty() ? "" : ", ").append(std::to_string(numbers[n]));
        if (last > n) text.append("-").append(std::to_string(numbers[last]));
        n = last + 1;
    }
    return text;
}

}  // namespace

std::string states(const Block& block) {
    std::map<std::string, std::vector<unsigned>> threads;
    for (const Lane& lane : block.lanes) threads[state(lane)].push_back(lane.facts.thread.x);
    std::string text = "thread block " + std::to_string(block.lanes.front().facts.block.x) + ":";
    for (const auto& [what, numbers] : threads)
        text.append("\n  threads ").append(ranges(numbers)).append(" ").append(what);
    return text;
}

}  // namespace emulator

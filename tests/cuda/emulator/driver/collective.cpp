// collective.cpp: see collective.h.
#include "emulator/driver/collective.h"

#include <algorithm>
#include <bit>

#include "emulator/driver/grid.h"

namespace emulator {
namespace {

Gathering& gathering_of(Warp& warp, unsigned mask) {
    for (Gathering& gathering : warp.gatherings)
        if (gathering.mask == mask) return gathering;
    warp.gatherings.emplace_back();
    warp.gatherings.back().mask = mask;
    return warp.gatherings.back();
}

bool complete(const Warp& warp, const Gathering& gathering) {
    return gathering.arrived != 0 && ((gathering.arrived | warp.exited) & gathering.mask) == gathering.mask;
}

// Lets all lanes go on but those in `own`.
void perform(Warp& warp, Gathering& gathering, unsigned own) {
    gathering.kind->perform(gathering);
    for (unsigned lanes = gathering.arrived & ~own; lanes != 0; lanes &= lanes - 1)
        warp.block->make_ready(warp.lanes[std::countr_zero(lanes)]);
    gathering.arrived = 0;
}

}  // namespace

void gather(const Collective& kind, unsigned mask, void* operands) {
    Lane& lane = grid().lane();
    Warp& warp = *lane.warp;
    const unsigned own = 1u << lane.number;
    grid().progress();
    if ((mask & own) == 0) grid().fail(std::string("is not in its own mask at ") + kind.name);
    Gathering& gathering = gathering_of(warp, mask);
    if (gathering.arrived == 0) gathering.kind = &kind;
    if (gathering.kind != &kind)
        grid().fail(std::string("comes to ") + kind.name + ", where other lanes of its warp wait at " +
                    gathering.kind->name);
    gathering.operands[lane.number] = operands;
    gathering.arrived |= own;
    if (complete(warp, gathering)) {
        perform(warp, gathering, own);
        grid().pause();
    } else {
        lane.at = kind.name;
        grid().wait(Wait::warp);
    }
}

void complete_without(Warp& warp) {
    for (Gathering& gathering : warp.gatherings)
        if (complete(warp, gathering)) perform(warp, gathering, 0);
}

}  // namespace emulator

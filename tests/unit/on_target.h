// on_target.h: a test that runs on every instruction set and on CUDA; those that this machine lacks are reported as
// skipped.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "conformance/target.h"
#include "unit/run.h"

namespace flashtile::unit {

class OnTarget : public testing::TestWithParam<conformance::Target> {
protected:
    void SetUp() override {
        if (const std::string reason = why_not(GetParam()); !reason.empty()) GTEST_SKIP() << reason;
    }

    static device where() { return GetParam().where; }
    static isa which() { return GetParam().which; }

    template <class Test>
    static void each_type(Test test) {
        for (const dtype type : kTypes) {
            SCOPED_TRACE("dtype " + std::to_string(static_cast<int>(type)));
            test(type);
        }
    }

    static conformance::GuardedTensor fresh(dtype type, std::vector<std::int64_t> shape) {
        return {type, std::move(shape), {}, conformance::Guard::nan_bands, where()};
    }
};

inline std::vector<conformance::Target> cpu_targets() {
    return {std::begin(kIsas), std::end(kIsas)};
}

inline std::vector<conformance::Target> all_targets() {
    std::vector<conformance::Target> result = cpu_targets();
    result.push_back(conformance::cuda_target());
    return result;
}

inline std::string target_name(const testing::TestParamInfo<conformance::Target>& info) {
    return name(info.param);
}

}  // namespace flashtile::unit

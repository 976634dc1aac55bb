// prefix_test.cpp: Hopper's forward loads what sequences share once for all of them, and not once for each. An emulated
// device counts what TMA loads; a GPU does not say.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

#include "conformance/case.h"
#include "conformance/judge.h"
#include "device/on_gpu.h"

namespace flashtile::device_tests {
namespace {

using conformance::Case;

class Prefix : public OnGpu {
protected:
    using Count = std::uint64_t();

    // Null where the driver is no emulated one.
    static Count* counter() {
        const char* const driver = std::getenv("FLASHTILE_CUDA_DRIVER");
        void* const library = driver != nullptr ? dlopen(driver, RTLD_NOW | RTLD_NOLOAD) : nullptr;
        if (library == nullptr) return nullptr;
        auto* const count = reinterpret_cast<Count*>(dlsym(library, "emulated_loads"));
        dlclose(library);  // the library of the test has it open
        return count;
    }

    static std::uint64_t loads_of(const Case& c, Count* count) {
        const std::uint64_t before = count();
        const conformance::Verdict verdict = conformance::judge(c, conformance::cuda_target());
        EXPECT_TRUE(verdict.ok()) << verdict.to_string();
        EXPECT_EQ(verdict.ran, "cuda forward_sm90");
        return count() - before;
    }
};

// Ten sequences of 128 keys of their own behind 512 that they share: 1792 keys rather than 6400.
TEST_F(Prefix, IsLoadedOnce) {
    Count* const count = counter();
    if (count == nullptr || !on_hopper()) GTEST_SKIP() << "no emulated Hopper";
    Case c;
    c.name = "prefix";
    c.guard = conformance::Guard::page_before;
    c.batch = 10;
    c.seqlen_q = 1;
    c.seqlen_k = 5 * 128;
    c.heads = 8;
    c.kv_heads = 2;
    c.head_dim = c.head_dim_v = 64;
    c.type = bf16;
    c.causal = true;
    c.cache = {.present = true, .page_size = 64};
    const std::uint64_t unstated = loads_of(c, count);
    c.cache.groups = {0, 10};
    c.cache.prefixes = {4 * 128};
    const std::uint64_t stated = loads_of(c, count);
    EXPECT_LT(2 * stated, unstated);  // which counts Q, too
    EXPECT_GT(stated, 2U * 2 * 1792 / 64) << "boxes of K and V, for two heads";
}

}  // namespace
}  // namespace flashtile::device_tests

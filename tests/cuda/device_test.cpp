// device_test.cpp: devices and contexts, on the fake driver.
#include "cuda/device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "core/error.h"

namespace flashtile::gpu {
namespace {

struct DeviceTest : testing::Test {
    // The driver is opened once in a process, and nothing else here opens it.
    static void SetUpTestSuite() { ::setenv("FLASHTILE_CUDA_DRIVER", FAKE_DRIVER, 1); }

    static CUcontext current() {
        CUcontext context = nullptr;
        driver().cuCtxGetCurrent(&context);
        return context;
    }
};

TEST_F(DeviceTest, FactsAreTheAttributes) {
    ASSERT_EQ(device_count(), 2);
    const DeviceFacts expected{.name = "Fake 1",
                               .architecture = 80,
                               .multiprocessors = 108,
                               .shared_memory_per_block = 166912,
                               .shared_memory_per_multiprocessor = 167936,
                               .l2_bytes = 41943040};
    EXPECT_EQ(facts_of(1), expected);
    EXPECT_EQ(device(1).facts(), expected);
}

// The CUDA programming guide's table of compute capabilities, and what cudaDeviceProp says of an A100.
TEST_F(DeviceTest, KnownDevicesAreAsPublished) {
    const auto known = known_devices();
    const auto find = [&](const std::string& name) {
        for (const DeviceFacts& facts : known)
            if (facts.name == name) return facts;
        return DeviceFacts{};
    };
    EXPECT_EQ(find("A100-80"), (DeviceFacts{"A100-80", 80, 108, 166912, 167936, 41943040}));
    EXPECT_EQ(find("RTX 4090"), (DeviceFacts{"RTX 4090", 89, 128, 101376, 102400, 75497472}));
    EXPECT_EQ(find("H200"), (DeviceFacts{"H200", 90, 132, 232448, 233472, 62914560}));
}

TEST_F(DeviceTest, ThePrimaryContextIsRetainedOnceHoweverManyAsk) {
    std::vector<const Device*> seen(16);
    {
        std::vector<std::jthread> threads;
        for (const Device*& each : seen) threads.emplace_back([&each] { each = &device(0); });
    }
    for (const Device* each : seen) EXPECT_EQ(each, &device(0));
    EXPECT_EQ(device(0).ordinal(), 0);
    EXPECT_NE(device(0).context(), device(1).context());
}

TEST_F(DeviceTest, AnOrdinalThatIsNotThereIsNamed) {
    for (const int ordinal : {-1, 2}) try {
            device(ordinal);
            FAIL() << "no error for " << ordinal;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), FLASHTILE_INVALID_ARGUMENT);
            EXPECT_TRUE(std::string(error.what()).starts_with("device_id is " + std::to_string(ordinal) + ", "));
        }
}

TEST_F(DeviceTest, AScopeMakesItsContextCurrentAndRestoresWhatWas) {
    ASSERT_EQ(current(), nullptr);
    {
        const ContextScope scope(device(0));
        EXPECT_EQ(current(), device(0).context());
        {
            const ContextScope same(device(0));
            EXPECT_EQ(current(), device(0).context());
        }
        EXPECT_EQ(current(), device(0).context());
        {
            const ContextScope other(device(1));
            EXPECT_EQ(current(), device(1).context());
        }
        EXPECT_EQ(current(), device(0).context());
    }
    EXPECT_EQ(current(), nullptr);
}

TEST_F(DeviceTest, AFailureNamesWhatWasDoneAndTheDriversReason) {
    const auto status = [](CUresult result) {
        try {
            driver().check(result, "doing it");
        } catch (const Error& error) {
            EXPECT_EQ(std::string(error.what()),
                      "doing it: FAKE_ERROR (" + std::to_string(result) + "), the fake driver's reason");
            return error.status();
        }
        return FLASHTILE_OK;
    };
    EXPECT_EQ(status(CUDA_SUCCESS), FLASHTILE_OK);
    EXPECT_EQ(status(CUDA_ERROR_OUT_OF_MEMORY), FLASHTILE_OUT_OF_MEMORY);
    EXPECT_EQ(status(CUDA_ERROR_INVALID_VALUE), FLASHTILE_DEVICE_ERROR);
}

}  // namespace
}  // namespace flashtile::gpu

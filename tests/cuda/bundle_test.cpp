// bundle_test.cpp: a bundle gives back what was put in, or says what is wrong with it; it never gives anything else.
#include "cuda/jit/bundle.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/error.h"
#include "flashtile/version.h"
#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

const std::vector<BundledKernel> kernels = {
    {std::string(64, 'a'), "sm_80", "flashtile::KernelConfig{.head_dim = 64}", std::string("first\0image", 11)},
    {std::string(64, 'b'), "sm_90a", "flashtile::KernelConfig{.head_dim = 128}", std::string(3000, 'x')},
    {std::string(64, 'c'), "sm_80", "flashtile::KernelConfig{}", ""},
};

struct BundleTest : testing::Test {
    TemporaryFolder folder;
    std::string path = folder / "kernels.ftb";

    void SetUp() override { write_bundle(path, kernels); }

    // The status of opening the file and asking for each kernel; whatever is answered must be right.
    flashtile_status status() const {
        try {
            const Bundle bundle(path);
            for (const BundledKernel& kernel : kernels)
                EXPECT_EQ(bundle.find(kernel.key).value_or(kernel.image), kernel.image);
        } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
            return error.status();
        }
        return FLASHTILE_OK;
    }
};

TEST_F(BundleTest, GivesBackWhatWasPutIn) {
    const Bundle bundle(path);
    for (const BundledKernel& kernel : kernels) EXPECT_EQ(bundle.find(kernel.key), kernel.image);
    EXPECT_EQ(bundle.find(std::string(64, 'd')), std::nullopt);
    EXPECT_EQ(bundle.kernels(), 3u);
    EXPECT_EQ(bundle.targets(), (std::vector<std::string>{"sm_80", "sm_90a"}));
}

TEST_F(BundleTest, IsRefusedHoweverItIsCutShort) {
    const std::string whole = read_file(path);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 1000 ? 1 : 97) {
        write_file(path, whole.substr(0, bytes));
        ASSERT_EQ(status(), FLASHTILE_INVALID_ARGUMENT) << bytes;
    }
}

TEST_F(BundleTest, IsRefusedForAnyFlippedBit) {
    const std::string whole = read_file(path);
    const std::size_t images = whole.find("first"), configs = whole.find(kernels[0].config);
    for (std::size_t n = 0; n < whole.size(); n += n < 1000 ? 1 : 97) {
        std::string damaged = whole;
        damaged[n] ^= 1 << n % 8;
        write_file(path, damaged);
        ASSERT_EQ(status(), n < images    ? FLASHTILE_INVALID_ARGUMENT
                            : n < configs ? FLASHTILE_DEVICE_ERROR
                                          : FLASHTILE_OK)
            << n;
    }
}

// Kernels as they are: of two that differ in a few instructions, the second is kept as what differs.
TEST_F(BundleTest, AlikeImagesAreKeptAsTheirDifferences) {
    std::vector<BundledKernel> alike;
    std::string image(20000, '\0');
    std::uint32_t noise = 1;
    for (char& byte : image) byte = static_cast<char>((noise = noise * 1664525 + 1013904223) >> 24);
    for (int n = 0; n < 40; ++n) {
        image[static_cast<std::size_t>(400 * n + 5)] ^= 1;
        alike.push_back({std::to_string(n) + std::string(60, 'k'), "sm_80", ".n = " + std::to_string(n), image});
    }
    write_bundle(path, alike);
    EXPECT_LT(std::filesystem::file_size(path), 3 * image.size())
        << "some of them for each kernel, or more than a second whole one, where bases would lie too deep";
    const Bundle bundle(path);
    EXPECT_EQ(bundle.damaged(), 0u);
    for (const BundledKernel& kernel : alike) EXPECT_EQ(bundle.find(kernel.key), kernel.image);

    // A lost bit damages those that are made from it, and nothing that is given is wrong.
    std::string damaged = read_file(path);
    damaged[damaged.find('\n', damaged.find(alike.back().key)) + 1 + image.size() / 2] ^= 1;
    write_file(path, damaged);
    EXPECT_GE(Bundle(path).damaged(), 2u);
    EXPECT_THROW(static_cast<void>(Bundle(path).find(alike[0].key)), Error);
}

TEST_F(BundleTest, OfAnotherVersionIsRefused) {
    std::string other = read_file(path);
    other.replace(other.find(FLASHTILE_VERSION_STRING), std::string(FLASHTILE_VERSION_STRING).size(), "0.0.9");
    write_file(path, other);
    EXPECT_EQ(status(), FLASHTILE_INVALID_ARGUMENT);
    try {
        const Bundle bundle(path);
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("is of version 0.0.9, allowed is"), std::string::npos) << error.what();
    }
}

TEST_F(BundleTest, StaysAsItWasOpenedThoughItsFileIsReplaced) {
    const Bundle bundle(path);
    write_bundle(path, {});
    EXPECT_EQ(bundle.find(kernels[1].key), kernels[1].image);
    EXPECT_EQ(Bundle(path).kernels(), 0u);
}

// Sparse, it takes no room on the disk, and its index would take all memory.
TEST_F(BundleTest, AnIndexOfATebibyteIsRefused) {
    constexpr std::uintmax_t kBytes = std::uintmax_t{1} << 40;
    write_file(path, "flashtile bundle 3 " FLASHTILE_VERSION_STRING " " + std::to_string(kBytes) + " " +
                         std::to_string(kBytes) + " " + std::string(64, '0') + "\n");
    std::filesystem::resize_file(path, std::filesystem::file_size(path) + 2 * kBytes);
    EXPECT_EQ(status(), FLASHTILE_INVALID_ARGUMENT);
}

TEST_F(BundleTest, MayBeReadByWhomTheOlderFileMight) {
    ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
    write_bundle(path, kernels);
    struct stat written {};
    ASSERT_EQ(::stat(path.c_str(), &written), 0);
    EXPECT_EQ(written.st_mode & 0777, 0600u);
}

TEST_F(BundleTest, WhatIsNoFileIsRefused) {
    EXPECT_THROW(Bundle(folder / "none.ftb"), Error);
    EXPECT_THROW(Bundle(folder.path()), Error);
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_THROW(Bundle(folder / "pipe"), Error);  // and does not wait for a writer
    EXPECT_THROW(write_bundle(folder / "no" / "folder.ftb", kernels), Error);
}

}  // namespace
}  // namespace flashtile::gpu

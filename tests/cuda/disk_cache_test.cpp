// disk_cache_test.cpp: what the cache makes of every kind of damage. A miss is the right answer to all of it.
#include "cuda/jit/disk_cache.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "temporary_folder.h"

namespace flashtile::gpu {
namespace {

namespace fs = std::filesystem;

const std::string key(64, 'a');
const std::string image = "machine code\0with a zero and a line\n of text" + std::string(5000, '\x7f');

struct DiskCacheTest : testing::Test {
    TemporaryFolder folder;
    fs::path place = folder / "new" / "flashtile";
    fs::path entry = place / key;

    // A cache of its own for every question, as in a process of its own.
    std::optional<std::string> load() const { return DiskCache(place).load(key); }
    bool store() const { return DiskCache(place).store(key, image); }
    std::size_t files() const {
        return static_cast<std::size_t>(std::distance(fs::directory_iterator(place), fs::directory_iterator()));
    }
};

TEST_F(DiskCacheTest, ReturnsWhatWasStoredAndKeepsItPrivate) {
    EXPECT_EQ(load(), std::nullopt);
    EXPECT_FALSE(fs::exists(place)) << "a look-up made the folder";
    ASSERT_TRUE(store());
    EXPECT_EQ(load(), image);
    EXPECT_EQ(DiskCache(place).load(std::string(64, 'b')), std::nullopt);
    struct stat status {};
    ASSERT_EQ(::stat(place.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
    ASSERT_EQ(::stat(entry.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
    EXPECT_EQ(files(), 1u) << "a temporary file was left";
}

TEST_F(DiskCacheTest, AnyTruncationIsAMissAndIsRepaired) {
    ASSERT_TRUE(store());
    const std::string whole = read_file(entry);
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += bytes < 200 ? 1 : 97) {
        fs::resize_file(entry, bytes);
        ASSERT_EQ(load(), std::nullopt) << bytes;
        write_file(entry, whole);
    }
    fs::resize_file(entry, 100);
    ASSERT_TRUE(store());
    EXPECT_EQ(load(), image);
}

// Sparse, it takes no room on the disk, and would take all memory.
TEST_F(DiskCacheTest, AnEntryOfATebibyteIsAMiss) {
    ASSERT_TRUE(store());
    fs::resize_file(entry, std::uintmax_t{1} << 40);
    EXPECT_EQ(load(), std::nullopt);
}

TEST_F(DiskCacheTest, AnyFlippedBitIsAMiss) {
    ASSERT_TRUE(store());
    const std::string whole = read_file(entry);
    for (std::size_t n = 0; n < whole.size(); n += n < 200 ? 1 : 97) {
        std::string damaged = whole;
        damaged[n] ^= 1 << n % 8;
        write_file(entry, damaged);
        ASSERT_EQ(load(), std::nullopt) << n;
    }
    write_file(entry, whole + "more");
    EXPECT_EQ(load(), std::nullopt);
}

TEST_F(DiskCacheTest, AnEntryUnderAnotherNameIsAMiss) {
    ASSERT_TRUE(store());
    fs::rename(entry, place / std::string(64, 'b'));
    EXPECT_EQ(DiskCache(place).load(std::string(64, 'b')), std::nullopt);
}

TEST_F(DiskCacheTest, WhatOthersMayWriteIsNotTrusted) {
    ASSERT_TRUE(store());
    for (const mode_t mode : {0620, 0602}) {
        ::chmod(entry.c_str(), mode);
        EXPECT_EQ(load(), std::nullopt) << mode;
    }
    ::chmod(entry.c_str(), 0644);  // to read is harmless
    EXPECT_EQ(load(), image);
    for (const mode_t mode : {0770, 0707}) {
        ::chmod(place.c_str(), mode);
        EXPECT_EQ(load(), std::nullopt) << mode;
        EXPECT_FALSE(store()) << mode;
        EXPECT_EQ(DiskCache(place).why_not(), "may be written by others");
    }
}

TEST_F(DiskCacheTest, WhatAnotherUserOwnsIsNotTrusted) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
    ASSERT_TRUE(store());
    ASSERT_EQ(::chown(entry.c_str(), 65534, 65534), 0);
    EXPECT_EQ(load(), std::nullopt);
    ASSERT_TRUE(store());  // and is replaced
    EXPECT_EQ(load(), image);
    ASSERT_EQ(::chown(place.c_str(), 65534, 65534), 0);
    EXPECT_EQ(load(), std::nullopt);
    EXPECT_FALSE(store());
    EXPECT_EQ(DiskCache(place).why_not(), "belongs to another user, 65534");
}

TEST_F(DiskCacheTest, LinksFoldersAndPipesAreMisses) {
    ASSERT_TRUE(store());
    fs::rename(entry, place / "elsewhere");
    fs::create_symlink(place / "elsewhere", entry);
    EXPECT_EQ(load(), std::nullopt);
    fs::remove(entry);
    fs::create_directory(entry);
    EXPECT_EQ(load(), std::nullopt);
    fs::remove(entry);
    ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);
    EXPECT_EQ(load(), std::nullopt);
}

TEST_F(DiskCacheTest, APlaceThatCannotBeMadeIsReported) {
    write_file(folder / "new", "a file where a folder should be");
    EXPECT_FALSE(store());
    EXPECT_EQ(DiskCache(place).why_not(), "Not a directory");
    EXPECT_FALSE(DiskCache("").store(key, image));
    EXPECT_NE(DiskCache("").why_not(), "");
}

// Runs body in a child and returns how that ended.
template <class Body>
int in_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

TEST_F(DiskCacheTest, AFolderThatMayNotBeWrittenIsReported) {
    fs::create_directories(place);
    ::chmod(place.c_str(), 0500);
    for (fs::path above = place; above != folder.path().parent_path(); above = above.parent_path())
        ASSERT_EQ(::geteuid() == 0 ? ::chown(above.c_str(), 65534, 65534) : 0, 0);
    const int status = in_child([&] {
        if (::geteuid() == 0 && ::setuid(65534) != 0) return 10;  // nothing is forbidden to root
        if (store()) return 11;
        return DiskCache(place).why_not() == "Permission denied" ? 0 : 12;
    });
    EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

// The limit's signal would end the process.
TEST_F(DiskCacheTest, ALimitOnFileSizesIsAFullDiskAndNoSignal) {
    const int status = in_child([&] {
        const rlimit limit{1000, 1000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        return store() ? 1 : 0;
    });
    EXPECT_EQ(status, 0) << "signal " << (WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    EXPECT_EQ(load(), std::nullopt);
    EXPECT_EQ(files(), 0u);
}

TEST_F(DiskCacheTest, AFullDiskLeavesNothingBehind) {
    fs::create_directories(place);
    if (::mount("none", place.c_str(), "tmpfs", 0, "size=4096,mode=0700") != 0) GTEST_SKIP() << "tmpfs needs root";
    EXPECT_FALSE(store());  // more than a page
    EXPECT_EQ(files(), 0u);
    EXPECT_TRUE(DiskCache(place).store(key, "small"));
    EXPECT_EQ(load(), "small");
    ::umount(place.c_str());
}

std::size_t temporary_files(const fs::path& place) {
    std::size_t count = 0;
    std::error_code error;
    for (const auto& file : fs::directory_iterator(place, error)) count += file.path().extension() == ".part";
    return count;
}

// A process that stores an entry which takes long enough to be met while it is written.
class SlowWriter {
public:
    SlowWriter(const fs::path& place, const std::string& name) {
        child_ = ::fork();
        if (child_ == 0) ::_exit(DiskCache(place).store(name, large()) ? 0 : 1);
        while (temporary_files(place) == 0) std::this_thread::yield();
    }
    void kill() const { ::kill(child_, SIGKILL); }
    int wait() const {
        int status = 0;
        ::waitpid(child_, &status, 0);
        return status;
    }
    static std::string large() { return std::string(100'000'000, 'x'); }

private:
    pid_t child_;
};

TEST_F(DiskCacheTest, AKilledWriterLeavesNoEntryAndIsCleanedUpAfter) {
    const SlowWriter writer(place, key);
    writer.kill();
    ASSERT_TRUE(WIFSIGNALED(writer.wait())) << "the writer was through before it could be killed";
    EXPECT_EQ(temporary_files(place), 1u);
    EXPECT_EQ(load(), std::nullopt);
    ASSERT_TRUE(store());
    EXPECT_EQ(load(), image);
    EXPECT_EQ(files(), 1u);
}

TEST_F(DiskCacheTest, ALivingWriterIsNotCleanedUp) {
    const std::string other(64, 'b');
    const SlowWriter writer(place, other);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));  // from the file's making to its lock
    ASSERT_TRUE(store());
    EXPECT_EQ(writer.wait(), 0);
    EXPECT_EQ(DiskCache(place).load(other), SlowWriter::large());
    EXPECT_EQ(files(), 2u);
}

// A cache that holds three entries of this test and not four; entries that were used at the times given.
struct DiskCacheLimit : DiskCacheTest {
    static constexpr std::uint64_t kLimit = 3 * 6000;

    static std::string name(char letter) { return std::string(64, letter); }
    bool store(char letter) const { return DiskCache(place, kLimit).store(name(letter), image); }
    bool has(char letter) const { return fs::exists(place / name(letter)); }
    void used(char letter, int seconds_ago) const {
        fs::last_write_time(place / name(letter), fs::file_time_type::clock::now() - std::chrono::seconds(seconds_ago));
    }
};

TEST_F(DiskCacheLimit, WhatWasNotUsedForLongestGoes) {
    for (const char letter : {'a', 'b', 'c'}) ASSERT_TRUE(store(letter));
    used('a', 20), used('b', 30), used('c', 10);
    ASSERT_TRUE(store('d'));
    EXPECT_TRUE(has('a') && has('c') && has('d'));
    EXPECT_FALSE(has('b'));
    EXPECT_EQ(DiskCache(place).load(name('b')), std::nullopt);
    EXPECT_EQ(DiskCache(place).load(name('a')), image);
}

TEST_F(DiskCacheLimit, ALookUpIsAUse) {
    for (const char letter : {'a', 'b', 'c'}) ASSERT_TRUE(store(letter));
    used('a', 30), used('b', 20), used('c', 10);
    ASSERT_EQ(DiskCache(place).load(name('a')), image);
    ASSERT_TRUE(store('d'));
    EXPECT_TRUE(has('a') && has('c') && has('d'));
    EXPECT_FALSE(has('b'));
}

TEST_F(DiskCacheLimit, TheNewestStaysHoweverOldItsTimeLooks) {
    for (const char letter : {'a', 'b', 'c'}) ASSERT_TRUE(store(letter));
    for (const char letter : {'a', 'b', 'c'}) used(letter, -3600);  // another machine's clock
    ASSERT_TRUE(store('d'));
    EXPECT_TRUE(has('d'));
    EXPECT_EQ(files(), 3u);
}

TEST_F(DiskCacheLimit, WhatIsNoEntryNeitherCountsNorGoes) {
    for (const char letter : {'a', 'b'}) ASSERT_TRUE(store(letter));
    write_file(place / "choices", std::string(100'000, 'x'));
    ASSERT_TRUE(store('c'));
    EXPECT_TRUE(has('a') && has('b') && has('c') && fs::exists(place / "choices"));
    const DiskCache::Size size = DiskCache(place).size();
    EXPECT_EQ(size.kernels, 3u);
    EXPECT_EQ(size.bytes, 3 * fs::file_size(place / name('a')));
}

TEST_F(DiskCacheLimit, AnImageAboveTheLimitIsNotKept) {
    EXPECT_FALSE(DiskCache(place, 5000).store(key, image));
    EXPECT_FALSE(DiskCache(place, 0).store(key, "x"));
    EXPECT_FALSE(fs::exists(place));
}

// Each keeps less than all of them store, so that every process removes what others write, read or remove as well.
TEST_F(DiskCacheLimit, ProcessesMayRace) {
    constexpr int kProcesses = 6;
    std::vector<pid_t> running;
    for (int process = 0; process < kProcesses; ++process) {
        const pid_t child = ::fork();
        if (child == 0) {
            DiskCache cache(place, kLimit);
            for (int n = 0; n < 60; ++n) {
                const char letter = "0123456789abcdef"[(7 * n + process) % 16];
                if (!cache.store(name(letter), image)) ::_exit(1);
                const std::optional<std::string> found = cache.load(name("0123456789abcdef"[(3 * n) % 16]));
                if (found && *found != image) ::_exit(2);
            }
            ::_exit(0);
        }
        running.push_back(child);
    }
    for (const pid_t child : running) {
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << WEXITSTATUS(status);
    }
    ASSERT_TRUE(store('a'));
    EXPECT_LE(files(), 3u) << "more than the limit, or a temporary file";
}

TEST(CacheLimit, FollowsTheEnvironment) {
    const auto limit = [](const char* text) {
        const Environment set("FLASHTILE_CACHE_MIB", text);
        return cache_limit();
    };
    EXPECT_EQ(limit(""), 536870912u);
    EXPECT_EQ(limit("3"), 3145728u);
    EXPECT_EQ(limit("0"), 0u);
    EXPECT_EQ(limit("64M"), 536870912u);
    EXPECT_EQ(limit("-1"), 536870912u);
    EXPECT_EQ(limit("18446744073709551615"), 18446744073708503040u);  // 2^64 - 2^20: no wrap to something small
}

TEST(CacheFolder, FollowsTheEnvironment) {
    const Environment home("HOME", "/home/somebody"), caches("XDG_CACHE_HOME", "/caches"),
        wish("FLASHTILE_CACHE", "/w");
    EXPECT_EQ(cache_folder(), "/w");
    const Environment no_wish("FLASHTILE_CACHE", "");
    EXPECT_EQ(cache_folder(), "/caches/flashtile");
    const Environment relative("XDG_CACHE_HOME", "caches");  // which XDG has us ignore
    EXPECT_EQ(cache_folder(), "/home/somebody/.cache/flashtile");
    const Environment no_home("HOME", "");
    EXPECT_EQ(cache_folder(), "");
}

}  // namespace
}  // namespace flashtile::gpu

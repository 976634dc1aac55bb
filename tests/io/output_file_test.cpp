// output_file_test.cpp: an output is whole or not there at all, and what had its name before stays until it is whole.
#include "io/output_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstring>
#include <list>

#include "cli/temporary_folder.h"
#include "io/npy.h"
#include "io/output_array.h"
#include "io/safetensors.h"
#include "other_user.h"
#include "raw_file.h"

namespace flashtile::tests {
namespace {

namespace fs = std::filesystem;
using io::DType;
using Names = std::set<std::string>;

// No file may grow past `bytes`, as on a disk that is full after them.
class FileLimit {
public:
    explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    FileLimit(const FileLimit&) = delete;
    FileLimit& operator=(const FileLimit&) = delete;
    ~FileLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }

private:
    rlimit before_{};
    void (*handler_)(int);
};

template <class Write>
void expect_refused(Write write, const std::string& message) {
    try {
        write();
        ADD_FAILURE() << "accepted, not refused with: " << message;
    } catch (const io::FileError& error) {
        EXPECT_EQ(error.what(), message);
    }
}

// Each way in which a file comes to be written.
struct Writer {
    const char* name;
    std::string file;
    void (*write)(const std::string& path);
    std::size_t bytes;
};

const std::array<float, 4> values = {1.0f, 2.0f, 3.0f, 4.0f};

const std::vector<Writer> writers = {
    {"npy", "a.npy",
     [](const std::string& path) {
         io::write_npy(path, {DType::fp32, {4}, values.data()});
     },
     144},
    {"safetensors", "a.safetensors",
     [](const std::string& path) {
         io::write_safetensors(path, {{"q", {DType::fp32, {4}, values.data()}}});
     },
     80},
    {"output_array", "a.npy",
     [](const std::string& path) {
         io::OutputArray output(path, "q", DType::fp32, {4});
         std::memcpy(output.data(), values.data(), sizeof values);
         output.flush();
         output.commit();
     },
     144},
    {"output_array_safetensors", "a.safetensors",
     [](const std::string& path) {
         io::OutputArray output(path, "q", DType::fp32, {4});
         std::memcpy(output.data(), values.data(), sizeof values);
         output.flush();
         output.commit();
     },
     80},
};

void PrintTo(const Writer& writer, std::ostream* stream) {
    *stream << writer.name;
}

class Written : public testing::TestWithParam<Writer> {
protected:
    void write_it() const { GetParam().write(path_); }

    TemporaryFolder folder_;
    std::string path_ = folder_.file(GetParam().file);
};

TEST_P(Written, IsWhole) {
    write_it();
    EXPECT_EQ(folder_.names(), Names{GetParam().file});
    const std::string file = content(path_);
    ASSERT_EQ(file.size(), GetParam().bytes);
    EXPECT_EQ(file.substr(file.size() - sizeof values), bytes_of(values));
}

TEST_P(Written, ReplacesWhatWasThere) {
    write(path_, "old");
    write_it();
    EXPECT_EQ(folder_.names(), Names{GetParam().file});
    EXPECT_TRUE(content(path_).ends_with(bytes_of(values)));
}

TEST_P(Written, MayBeReadByWhomTheOlderFileMight) {
    const auto mode = [&] {
        struct stat status {};
        EXPECT_EQ(::stat(path_.c_str(), &status), 0);
        return status.st_mode & 0777;
    };
    for (const mode_t before : {0600u, 0640u, 0666u}) {
        write(path_, "old");
        ASSERT_EQ(::chmod(path_.c_str(), before), 0);
        write_it();
        EXPECT_EQ(mode(), before);
    }
}

// No room even for the first byte, or for all but the last.
TEST_P(Written, LeavesNothingOnAFullDisk) {
    for (const std::size_t room : {std::size_t{0}, GetParam().bytes - 1}) {
        {
            const FileLimit limit(room);
            expect_refused([&] { write_it(); },
                           path_ + ": no room for " + std::to_string(GetParam().bytes) + " bytes: File too large");
        }
        EXPECT_EQ(folder_.names(), Names{});
    }
    const FileLimit limit(GetParam().bytes);  // and then there is
    write_it();
}

TEST_P(Written, KeepsTheOlderFileOnAFullDisk) {
    write(path_, "old");
    {
        const FileLimit limit(GetParam().bytes - 1);
        EXPECT_THROW(write_it(), io::FileError);
    }
    EXPECT_EQ(content(path_), "old");
    EXPECT_EQ(folder_.names(), Names{GetParam().file});
}

TEST_P(Written, LeavesNothingWhereNothingMayBeWritten) {
    write(path_, "old");
    fs::permissions(path_, fs::perms{0666});
    fs::permissions(folder_.file(""), fs::perms{0555});
    {
        const OtherUser nobody;
        if (!nobody) GTEST_SKIP() << "root cannot become another user here";
        expect_refused([&] { write_it(); }, path_ + ": cannot be written in its folder: Permission denied");
    }
    fs::permissions(folder_.file(""), fs::perms{0755});
    EXPECT_EQ(content(path_), "old");
    EXPECT_EQ(folder_.names(), Names{GetParam().file});
}

TEST_P(Written, ToNoFolder) {
    path_ = folder_.file("nowhere/" + GetParam().file);
    expect_refused([&] { write_it(); }, path_ + ": cannot be written in its folder: No such file or directory");
    EXPECT_EQ(folder_.names(), Names{});
}

TEST_P(Written, OverNoFolderOrDevice) {
    fs::create_directory(path_);
    expect_refused([&] { write_it(); }, path_ + ": exists and is not a regular file");
    fs::remove(path_);
    fs::create_symlink("/dev/full", path_);
    expect_refused([&] { write_it(); }, path_ + ": exists and is not a regular file");
    EXPECT_TRUE(fs::is_symlink(path_));
    fs::remove(path_);
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    expect_refused([&] { write_it(); }, path_ + ": exists and is not a regular file");
    EXPECT_EQ(folder_.names(), Names{GetParam().file});
}

// The link stays; the file that it leads to is replaced, or made.
TEST_P(Written, ThroughALink) {
    fs::create_directory(folder_.file("far"));
    const std::string far = folder_.file("far/" + GetParam().file);
    fs::create_symlink(fs::path("far") / GetParam().file, path_);
    for (const bool dangling : {false, true}) {
        SCOPED_TRACE(dangling);
        fs::remove(far);
        if (!dangling) write(far, "old");
        write_it();
        EXPECT_TRUE(fs::is_symlink(path_));
        ASSERT_TRUE(fs::exists(far));
        EXPECT_TRUE(content(far).ends_with(bytes_of(values)));
    }
}

TEST_P(Written, NotThroughALinkToItself) {
    fs::create_symlink(GetParam().file, path_);
    expect_refused([&] { write_it(); }, path_ + ": Too many levels of symbolic links");
    EXPECT_EQ(folder_.names(), Names{GetParam().file});
}

INSTANTIATE_TEST_SUITE_P(By, Written, testing::ValuesIn(writers),
                         [](const auto& test) { return std::string(test.param.name); });

class OutputFile : public testing::Test {
protected:
    TemporaryFolder folder_;
    const std::string path_ = folder_.file("a.bin");
};

TEST_F(OutputFile, IsNotThereBeforeItIsCommitted) {
    write(path_, "old");
    {
        io::OutputFile file(path_, 3);
        std::memcpy(file.bytes().data(), "new", 3);
        EXPECT_EQ(content(path_), "old");
        file.flush();
        EXPECT_EQ(content(path_), "old");
        EXPECT_EQ(folder_.names().size(), 2U);
        file.commit();
        EXPECT_EQ(content(path_), "new");
        EXPECT_EQ(folder_.names(), Names{"a.bin"});
    }
    EXPECT_EQ(content(path_), "new");
}

TEST_F(OutputFile, IsGoneIfItIsNotCommitted) {
    write(path_, "old");
    try {
        io::OutputFile file(path_, 3);
        std::memcpy(file.bytes().data(), "new", 3);
        file.flush();
        throw std::runtime_error("the work failed");
    } catch (const std::runtime_error&) {
    }
    EXPECT_EQ(content(path_), "old");
    EXPECT_EQ(folder_.names(), Names{"a.bin"});
}

TEST_F(OutputFile, OfNoBytes) {
    io::OutputFile file(path_, 0);
    EXPECT_TRUE(file.bytes().empty());
    file.flush();
    file.commit();
    EXPECT_EQ(content(path_), "");
}

TEST_F(OutputFile, TooLargeForAnyDisk) {
    expect_refused([&] { io::OutputFile(path_, std::size_t{1} << 62); },
                   path_ + ": no room for 4611686018427387904 bytes: File too large");
    EXPECT_EQ(folder_.names(), Names{});
}

// A folder takes the name while the work goes on.
TEST_F(OutputFile, ThatCannotGetItsName) {
    {
        io::OutputFile file(path_, 3);
        fs::create_directory(path_);
        expect_refused([&] { file.commit(); }, path_ + ": cannot be given its name: Is a directory");
    }
    EXPECT_EQ(folder_.names(), Names{"a.bin"});
    EXPECT_TRUE(fs::is_directory(path_));
}

TEST_F(OutputFile, AsManyAtOnceAsCanBeRemoved) {
    std::list<io::OutputFile> files;
    for (int n = 0; n < 16; ++n) files.emplace_back(folder_.file(std::to_string(n)), 1);
    EXPECT_THROW(files.emplace_back(folder_.file("16"), 1), io::FileError);
    EXPECT_EQ(folder_.names().size(), 16U);
    files.clear();
    EXPECT_EQ(folder_.names(), Names{});
    io::OutputFile(path_, 1).commit();  // the places are free again
    EXPECT_EQ(folder_.names(), Names{"a.bin"});
}

TEST(OutputFormat, FollowsTheName) {
    io::check_output_format("a.npy", DType::fp32);
    io::check_output_format("a.safetensors", DType::bf16);
    expect_refused([] { io::check_output_format("a.npy", DType::bf16); },
                   "a.npy: NumPy has no bf16: write a .safetensors file, or use fp32");
    for (const std::string name : {"a.bin", "a", "", "npy", "a.npy.gz"})
        expect_refused([&] { io::check_output_format(name, DType::fp32); },
                       name + ": allowed is a name that ends in .npy or .safetensors");
}

TEST_F(OutputFile, HoldsItsValuesAtMultiplesOf64) {
    for (const char* name : {"a.npy", "a.safetensors"})
        for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{}, {3}, {1000, 1, 1, 1, 1, 7}}) {
            io::OutputArray array(folder_.file(name), "a longer name", DType::fp16, shape);
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(array.data()) % 64, 0U);
        }
    EXPECT_EQ(folder_.names(), Names{});
}

}  // namespace
}  // namespace flashtile::tests

// input_array_test.cpp: files by name, FILE or FILE:TENSOR, and what stands where a file should.
#include "io/input_array.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "cli/temporary_folder.h"
#include "other_user.h"
#include "raw_file.h"

namespace flashtile::tests {
namespace {

namespace fs = std::filesystem;

class InputArray : public testing::Test {
protected:
    InputArray() {
        write(folder_.file("a.npy"), npy_file(1, npy_header("<f4", "(1,)"), bytes_of(1.0f)));
        write(folder_.file("one.safetensors"),
              safetensors_file(header_of({entry("q", "F32", "[1]", 0, 4)}), bytes_of(2.0f)));
        write(folder_.file("two.safetensors"),
              safetensors_file(header_of({entry("layer.0:k", "F32", "[1]", 0, 4), entry("v", "F32", "[1]", 4, 8)}),
                               bytes_of(3.0f, 4.0f)));
    }

    float value(const std::string& name) const {
        const io::InputArray input(folder_.file(name));
        float value = 0.0f;
        std::memcpy(&value, input.array().data, sizeof value);  // at any address
        return value;
    }

    // The message names the file, and not the tensor that was asked for, which starts with a colon.
    void expect_refused(const std::string& file, const std::string& message, const std::string& tensor = "") const {
        const std::string path = folder_.file(file);
        try {
            io::InputArray array(path + tensor);
            ADD_FAILURE() << path << tensor << " was accepted, not refused with: " << message;
        } catch (const io::FileError& error) {
            EXPECT_EQ(error.what(), path + ": " + message);
        }
    }

    TemporaryFolder folder_;
};

TEST_F(InputArray, OfEitherFormat) {
    EXPECT_EQ(value("a.npy"), 1.0f);
    EXPECT_EQ(value("one.safetensors:q"), 2.0f);
    EXPECT_EQ(value("one.safetensors"), 2.0f);
    EXPECT_EQ(value("two.safetensors:layer.0:k"), 3.0f);
    EXPECT_EQ(value("two.safetensors:v"), 4.0f);
    EXPECT_EQ(io::InputArray(folder_.file("two.safetensors:v")).file(), folder_.file("two.safetensors"));
}

TEST_F(InputArray, WhoseFilesNameHasColons) {
    fs::copy(folder_.file("a.npy"), folder_.file("12:30.npy:b.npy"));
    EXPECT_EQ(value("12:30.npy:b.npy"), 1.0f);
}

TEST_F(InputArray, OfATensorThatIsNotThere) {
    expect_refused("two.safetensors", R"(there is no tensor "w"; there is "layer.0:k", "v")", ":w");
    expect_refused("two.safetensors", R"(there is no tensor ""; there is "layer.0:k", "v")");
    expect_refused("one.safetensors", R"(there is no tensor "\u001b[2J"; there is "q")", ":\x1b[2J");
    write(folder_.file("none.safetensors"), safetensors_file("{}", ""));
    expect_refused("none.safetensors", R"(there is no tensor ""; there is none)");
    expect_refused("a.npy:q", "a .npy file has no named tensors");
}

TEST_F(InputArray, OfATensorThatIsNotThereAmongMany) {
    std::vector<std::string> entries;
    std::string listed;
    for (int n = 10; n < 40; ++n) {
        const std::string name = std::to_string(n);
        entries.push_back(entry(name, "U8", "[0]", 0, 0));
        if (n < 30) listed.append("\"").append(name).append("\", ");
    }
    write(folder_.file("many.safetensors"), safetensors_file(header_of(entries), ""));
    expect_refused("many.safetensors", "there is no tensor \"x\"; there is " + listed + "and 10 more", ":x");
}

TEST_F(InputArray, OfAnotherFormat) {
    for (const char* name : {"weights.pt", "a", "", "a.npz", "a.NPY"})
        expect_refused(name, "allowed is a .npy file, a .safetensors file, or FILE.safetensors:TENSOR");
    write(folder_.file("false.npy"), content(folder_.file("one.safetensors")));
    expect_refused("false.npy", "not a .npy file (it does not start with \\x93NUMPY)");
}

TEST_F(InputArray, OfWhatIsNoFile) {
    const std::string missing = "cannot be opened: No such file or directory";
    const std::string irregular = "not a regular file, so it cannot be mapped";
    for (const char* format : {".npy", ".safetensors"}) {
        const auto name = [&](const char* stem) { return std::string(stem).append(format); };
        expect_refused(name("missing"), missing);
        fs::create_directory(folder_.file(name("folder")));
        expect_refused(name("folder"), irregular);
        ASSERT_EQ(::mkfifo(folder_.file(name("pipe")).c_str(), 0600), 0);  // nobody writes to it, nobody waits
        expect_refused(name("pipe"), irregular);
        fs::create_symlink("/dev/zero", folder_.file(name("device")));
        expect_refused(name("device"), irregular);
        fs::create_symlink("nowhere", folder_.file(name("link")));
        expect_refused(name("link"), missing);
        expect_refused(name("a.npy/inside"), "cannot be opened: Not a directory");
    }
    write(folder_.file("empty.npy"), "");
    expect_refused("empty.npy", "not a .npy file (it does not start with \\x93NUMPY)");
    write(folder_.file("empty.safetensors"), "");
    expect_refused("empty.safetensors", "truncated .safetensors: 0 bytes hold no header");
}

TEST_F(InputArray, OfAFileThatMayNotBeRead) {
    fs::permissions(folder_.file(""), fs::perms{0755});
    for (const char* name : {"a.npy", "one.safetensors"}) fs::permissions(folder_.file(name), fs::perms::none);
    const OtherUser nobody;
    if (!nobody) GTEST_SKIP() << "root cannot become another user here";
    for (const char* name : {"a.npy", "one.safetensors"}) expect_refused(name, "cannot be opened: Permission denied");
}

}  // namespace
}  // namespace flashtile::tests

// compile_variants.cpp: compiles the stated list of variants with NVRTC, on no GPU, and reads what ptxas says of each.
//
//   flashtile_compile_variants EXPLAINED.txt [--hashes=FILE] [--only=REGEX] [ARCHITECTURE ...]
//
// An architecture is sm_80 and the like; without one, all are compiled.
// A line for each variant; fails where one does not compile, spills registers or draws a warning, unless EXPLAINED.txt
// says why and how much.
//
// --hashes writes a line for each variant to FILE, sorted: the SHA-256 of its machine code, then its name. A change
// that should leave the machine code alone is checked so: write the file before and after, then `diff` the two. Kernels
// can be read from a tree without a build (FLASHTILE_KERNEL_SOURCES=src). --only takes the variants whose names, as
// they are printed here, a regular expression matches somewhere.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/jit/compile.h"
#include "cuda/jit/compiler_report.h"
#include "cuda/jit/config_fields.h"
#include "cuda/jit/render.h"
#include "cuda/kernel_names.h"
#include "cuda/plan/describe.h"
#include "cuda/variants/explained.h"
#include "cuda/variants/machine_code.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {
namespace {

Explained read_explained(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(path + " cannot be read");
    return Explained(file);
}

// "sm_80 backward fp16 d=256 dv=256 64x64 tile, 8 warps: packed dropout"
std::string describe(const Variant& variant) {
    gpu::Launch kernel;
    kernel.config = variant.config;
    const KernelConfig& c = variant.config;
    std::string text = gpu::target_name(variant.architecture) + ' ' + gpu::describe(kernel);
    text.erase(std::min(text.find(", 0 bytes of shared memory"), text.size()));
    text += ", " + std::to_string(c.vector_bytes) + "-byte loads:";
    gpu::visit_members([&](const char* name, auto member, gpu::FieldGroup group) {
        if (group != gpu::FieldGroup::option && group != gpu::FieldGroup::manner) return;
        if (c.*member != KernelConfig{}.*member) text += std::string(" ") + name;
    });
    if (c.kernel == Kernel::merge) text += std::string(" to ") + gpu::name_of(c.out_element);
    return text;
}

class Compilation {
public:
    // All of the list: then every explanation must have excused something. `hash`: find the machine code's hashes.
    Compilation(std::vector<Variant> variants, bool all, const std::string& explained, bool hash)
        : variants_(std::move(variants)), all_(all), explained_(read_explained(explained)), hash_(hash) {}

    // "HASH NAME"; of different variants that have the same name, in the order of their hashes.
    void write_hashes(const std::string& path) const {
        std::ofstream file(path);
        for (const auto& [name, hash] : hashes_) file << hash << ' ' << name << '\n';
        if (!file.flush()) throw std::runtime_error(path + " cannot be written");
    }

    int run() {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> threads;
        for (unsigned n = 0; n < std::max(1U, std::thread::hardware_concurrency()); ++n)
            threads.emplace_back([this] {
                for (std::size_t next = next_++; next < variants_.size(); next = next_++) compile(variants_[next]);
            });
        for (std::thread& thread : threads) thread.join();
        if (all_)
            for (const std::string& line : explained_.unused()) fail("EXCUSES NOTHING: " + line);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        std::printf("%zu variants in %.0f s, %d failed, %d explained\n", variants_.size(), taken.count(),
                    failed_.load(), excused_.load());
        return failed_ == 0 ? 0 : 1;
    }

private:
    void compile(const Variant& variant) {
        const std::string name = describe(variant);
        try {
            const gpu::Compiled compiled = gpu::compile(variant.config, variant.architecture, true);
            if (hash_) note_hash(name, machine_code_hash(compiled.image));
            const gpu::CompilerReport report = gpu::read_report(compiled.log);
            char found[100];
            std::snprintf(found, sizeof found, "%3d registers, %d bytes of stack, %d spilled  ", report.registers,
                          report.stack_bytes, report.spill_bytes);
            std::string text = found + name;
            for (const std::string& warning : report.warnings) text += "\n    " + warning;
            if (report.clean())
                say("ok         " + text);
            else if (excuse(name, report))
                say("explained  " + text);
            else
                fail("FAILED     " + text);
        } catch (const std::exception& e) {
            fail("FAILED     " + name + '\n' + e.what());
        }
    }

    bool excuse(const std::string& name, const gpu::CompilerReport& report) {
        const std::lock_guard lock(one_at_a_time_);
        const bool found = explained_.excuses(name, report);
        if (found) ++excused_;
        return found;
    }

    void note_hash(const std::string& name, const std::string& hash) {
        const std::lock_guard lock(one_at_a_time_);
        hashes_.emplace(name, hash);
    }

    void fail(const std::string& text) {
        ++failed_;
        say(text);
    }

    void say(const std::string& text) {
        const std::lock_guard lock(one_at_a_time_);
        std::puts(text.c_str());
        std::fflush(stdout);
    }

    std::vector<Variant> variants_;
    bool all_;
    Explained explained_;
    bool hash_;
    std::multiset<std::pair<std::string, std::string>> hashes_;  // name, hash
    std::mutex one_at_a_time_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<int> failed_ = 0, excused_ = 0;
};

int run(int argc, char** argv) {
    std::string explained, hashes, only;
    std::set<std::string> architectures;
    for (int n = 1; n < argc; ++n) {
        const std::string word = argv[n];
        if (word.starts_with("--hashes="))
            hashes = word.substr(9);
        else if (word.starts_with("--only="))
            only = word.substr(7);
        else if (word.starts_with("--"))
            throw std::runtime_error("unknown option " + word + "; allowed: --hashes=FILE, --only=REGEX");
        else if (explained.empty())
            explained = word;
        else
            architectures.insert(word);
    }
    if (explained.empty())
        throw std::runtime_error(
            "usage: flashtile_compile_variants EXPLAINED.txt [--hashes=FILE] [--only=REGEX] [sm_80 ...]");
    const std::regex wanted(only);
    std::vector<Variant> chosen;
    const std::vector<Variant> list = all_variants();
    for (const Variant& variant : list)
        if ((architectures.empty() || architectures.contains(gpu::target_name(variant.architecture))) &&
            std::regex_search(describe(variant), wanted))
            chosen.push_back(variant);
    if (chosen.empty()) throw std::runtime_error("no variant is of these architectures and names");
    std::printf("NVRTC %s\n", gpu::nvrtc().path().c_str());
    const bool all = chosen.size() == list.size();
    Compilation compilation(std::move(chosen), all, explained, !hashes.empty());
    const int status = compilation.run();
    if (!hashes.empty()) compilation.write_hashes(hashes);
    return status;
}

}  // namespace
}  // namespace flashtile::variants

int main(int argc, char** argv) {
    try {
        return flashtile::variants::run(argc, argv);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "flashtile_compile_variants: %s\n", e.what());
        return 2;
    }
}

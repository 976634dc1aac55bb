// compile_variants.cpp: compiles the stated list of variants with NVRTC, on no GPU, and reads what ptxas says of each.
//
//   flashtile_compile_variants EXPLAINED.txt [ARCHITECTURE ...]     sm_80 ..., default all
//
// A line for each variant; fails where one does not compile, spills registers or draws a warning, unless EXPLAINED.txt
// says why and how much.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cuda/jit/compile.h"
#include "cuda/jit/compiler_report.h"
#include "cuda/jit/render.h"
#include "cuda/plan/describe.h"
#include "cuda/variants/explained.h"
#include "cuda/variants/variants.h"

namespace flashtile::variants {
namespace {

Explained read_explained(const char* path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error(std::string(path) + " cannot be read");
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
    const std::pair<bool, const char*> options[] = {{c.lse, " lse"},
                                                    {c.band && !c.window, " band"},
                                                    {c.window, " window"},
                                                    {c.packed, " packed"},
                                                    {c.seqused, " seqused"},
                                                    {c.softcap, " softcap"},
                                                    {c.alibi, " alibi"},
                                                    {c.mask, " mask"},
                                                    {c.bias != BiasElement::none, " bias"},
                                                    {c.dropout, " dropout"},
                                                    {c.deterministic, " deterministic"},
                                                    {c.lazy_rescale, " lazy_rescale"},
                                                    {c.exact_max, " exact_max"}};
    for (const auto& [on, name] : options)
        if (on) text += name;
    return text;
}

class Compilation {
public:
    Compilation(std::vector<Variant> variants, const char* explained)
        : variants_(std::move(variants)), explained_(read_explained(explained)) {}

    int run() {
        const auto start = std::chrono::steady_clock::now();
        std::vector<std::thread> threads;
        for (unsigned n = 0; n < std::max(1U, std::thread::hardware_concurrency()); ++n)
            threads.emplace_back([this] {
                for (std::size_t next = next_++; next < variants_.size(); next = next_++) compile(variants_[next]);
            });
        for (std::thread& thread : threads) thread.join();
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
            const gpu::CompilerReport report =
                gpu::read_report(gpu::compile(variant.config, variant.architecture, true).log);
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
    Explained explained_;
    std::mutex one_at_a_time_;
    std::atomic<std::size_t> next_ = 0;
    std::atomic<int> failed_ = 0, excused_ = 0;
};

int run(int argc, char** argv) {
    if (argc < 2) throw std::runtime_error("usage: flashtile_compile_variants EXPLAINED.txt [sm_80 ...]");
    const std::set<std::string> wanted(argv + 2, argv + argc);
    std::vector<Variant> chosen;
    for (const Variant& variant : all_variants())
        if (wanted.empty() || wanted.contains(gpu::target_name(variant.architecture))) chosen.push_back(variant);
    if (chosen.empty()) throw std::runtime_error("no variant is of these architectures");
    std::printf("NVRTC %s\n", gpu::nvrtc().path().c_str());
    return Compilation(std::move(chosen), argv[1]).run();
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

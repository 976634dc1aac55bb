// nvrtc.cpp: see nvrtc.h. The declarations of NVRTC's functions follow its public documentation.
#include "cuda/jit/nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/per_process.h"

namespace flashtile::gpu {

namespace fs = std::filesystem;

struct Nvrtc::Functions {
    using Handle = void*;  // nvrtcProgram
    int (*nvrtcVersion)(int* major, int* minor);
    int (*nvrtcGetNumSupportedArchs)(int* count);
    int (*nvrtcGetSupportedArchs)(int* architectures);
    const char* (*nvrtcGetErrorString)(int result);
    int (*nvrtcCreateProgram)(Handle*, const char* text, const char* name, int headers, const char* const* texts,
                              const char* const* names);
    int (*nvrtcDestroyProgram)(Handle*);
    int (*nvrtcCompileProgram)(Handle, int count, const char* const* options);
    int (*nvrtcGetCUBINSize)(Handle, std::size_t*);
    int (*nvrtcGetCUBIN)(Handle, char*);
    int (*nvrtcGetPTXSize)(Handle, std::size_t*);
    int (*nvrtcGetPTX)(Handle, char*);
    int (*nvrtcGetProgramLogSize)(Handle, std::size_t*);
    int (*nvrtcGetProgramLog)(Handle, char*);

    // The first function that is missing, or "".
    std::string resolve(void* library) {
        std::string missing;
        const auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
            if (function == nullptr && missing.empty()) missing = name;
        };
        find(nvrtcVersion, "nvrtcVersion");
        find(nvrtcGetNumSupportedArchs, "nvrtcGetNumSupportedArchs");
        find(nvrtcGetSupportedArchs, "nvrtcGetSupportedArchs");
        find(nvrtcGetErrorString, "nvrtcGetErrorString");
        find(nvrtcCreateProgram, "nvrtcCreateProgram");
        find(nvrtcDestroyProgram, "nvrtcDestroyProgram");
        find(nvrtcCompileProgram, "nvrtcCompileProgram");
        find(nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
        find(nvrtcGetCUBIN, "nvrtcGetCUBIN");
        find(nvrtcGetPTXSize, "nvrtcGetPTXSize");
        find(nvrtcGetPTX, "nvrtcGetPTX");
        find(nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
        find(nvrtcGetProgramLog, "nvrtcGetProgramLog");
        return missing;
    }
};

// The one search of this process and what came of it.
struct NvrtcOpening {
    Nvrtc nvrtc;
    Nvrtc::Functions functions{};
    NvrtcPlaces places = nvrtc_places();
    std::string why_not;

    NvrtcOpening() {
        std::string refused;
        for (const std::string& path : places.found) {
            const std::string reason = open(path);
            if (reason.empty()) return;
            // A bare name that the loader does not know is no news; a file that does not open is.
            if (path.find('/') != std::string::npos) refused.append("; ").append(path).append(": ").append(reason);
        }
        why_not =
            "no NVRTC, which compiles the CUDA kernels. Install it with `pip install nvidia-cuda-nvrtc` (CUDA 13) "
            "or `pip install nvidia-cuda-nvrtc-cu12`, name its file in FLASHTILE_NVRTC, or load a bundle of "
            "compiled kernels (FLASHTILE_BUNDLE). Looked in ";
        why_not += places.looked.size() == 1
                       ? places.looked.front()
                       : std::to_string(places.looked.size()) + " places, which `flashtile info` lists";
        why_not += refused;
    }

private:
    // "" where it worked, else the reason.
    std::string open(const std::string& path) {
        void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) {
            const char* reason = ::dlerror();
            return reason != nullptr ? reason : "cannot be opened";
        }
        std::string reason = functions.resolve(library);
        if (!reason.empty()) {
            ::dlclose(library);
            return "lacks " + reason;
        }
        int major = 0, minor = 0, count = 0;
        functions.nvrtcVersion(&major, &minor);
        if (major < 12) {
            ::dlclose(library);
            return "is NVRTC " + std::to_string(major) + "." + std::to_string(minor) +
                   "; the kernels are C++20, which NVRTC knows since 12.0";
        }
        functions.nvrtcGetNumSupportedArchs(&count);
        nvrtc.architectures_.resize(static_cast<std::size_t>(count));
        functions.nvrtcGetSupportedArchs(nvrtc.architectures_.data());
        std::ranges::sort(nvrtc.architectures_);
        nvrtc.version_ = 1000 * major + 10 * minor;
        nvrtc.functions_ = &functions;
        Dl_info info{};
        nvrtc.path_ = ::dladdr(reinterpret_cast<void*>(functions.nvrtcVersion), &info) != 0 && info.dli_fname != nullptr
                          ? info.dli_fname
                          : path;
        // NVRTC opens its second file by name and its own RPATH, which is lost where a sanitizer stands in for dlopen.
        // What is there already is found by name.
        const fs::path folder = fs::path(nvrtc.path_).parent_path();
        const std::string builtins = "libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
        ::dlopen((folder / builtins).c_str(), RTLD_NOW | RTLD_LOCAL);
        return "";
    }
};

namespace {

constinit PerProcess<NvrtcOpening> opening;

}  // namespace

int Nvrtc::nearest(int architecture) const {
    int best = 0;
    for (const int known : architectures_)
        if (known <= architecture) best = known;
    return best;
}

Nvrtc::Result Nvrtc::compile(const Program& program) const {
    const Functions& f = *functions_;
    std::vector<const char*> names, texts, options;
    for (const SourceFile& header : program.headers) {
        names.push_back(header.name.c_str());
        texts.push_back(header.text.c_str());
    }
    for (const std::string& option : program.options) options.push_back(option.c_str());

    Functions::Handle handle = nullptr;
    Result result;
    const auto done = [&](int code, const char* what) {
        if (code != 0) result.log += std::string(what) + ": " + f.nvrtcGetErrorString(code) + "\n";
        return code == 0;
    };
    if (!done(f.nvrtcCreateProgram(&handle, program.main.text.c_str(), program.main.name.c_str(),
                                   static_cast<int>(names.size()), texts.data(), names.data()),
              "nvrtcCreateProgram"))
        return result;
    const auto destroy = [&](void**) { f.nvrtcDestroyProgram(&handle); };
    const std::unique_ptr<Functions::Handle, decltype(destroy)> owner(&handle, destroy);

    const bool compiled =
        done(f.nvrtcCompileProgram(handle, static_cast<int>(options.size()), options.data()), "nvrtcCompileProgram");
    std::size_t size = 0;
    if (f.nvrtcGetProgramLogSize(handle, &size) == 0 && size > 1) {
        std::string log(size, '\0');
        f.nvrtcGetProgramLog(handle, log.data());
        result.log += log.c_str();  // up to its closing zero
    }
    if (!compiled) return result;
    result.ok = program.ptx ? done(f.nvrtcGetPTXSize(handle, &size), "nvrtcGetPTXSize")
                            : done(f.nvrtcGetCUBINSize(handle, &size), "nvrtcGetCUBINSize");
    if (!result.ok) return result;
    result.image.resize(size);
    result.ok = program.ptx ? done(f.nvrtcGetPTX(handle, result.image.data()), "nvrtcGetPTX")
                            : done(f.nvrtcGetCUBIN(handle, result.image.data()), "nvrtcGetCUBIN");
    return result;
}

const Nvrtc& nvrtc() {
    if (!opening.get().why_not.empty()) throw Error(FLASHTILE_UNSUPPORTED, opening.get().why_not);
    return opening.get().nvrtc;
}

std::string why_no_nvrtc() {
    return opening.get().why_not;
}

const std::vector<std::string>& nvrtc_looked() {
    return opening.get().places.looked;
}

}  // namespace flashtile::gpu

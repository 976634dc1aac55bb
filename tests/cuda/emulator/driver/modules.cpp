// modules.cpp: loads what the emulated NVRTC made, and runs it.
#include "emulator/driver/modules.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

#include "emulator/driver/exports.h"
#include "emulator/driver/faults.h"
#include "emulator/image.h"

using namespace flashtile::gpu;

namespace {

struct Module {
    void* library = nullptr;
    emulator::Kernel kernel;
};

// Opens a shared object that lies in memory; returns what the loader says against it. The loader takes a path that it
// has open for the library that it knows, so no two libraries may have the same one, as files of memory would whose
// descriptors are closed.
std::string open(std::string_view object, Module& module) {
    std::string path = (std::filesystem::temp_directory_path() / "flashtile-kernel-XXXXXX").string();
    const int file = ::mkstemp(path.data());
    if (file < 0) return "cannot make the file " + path;
    const bool written = ::write(file, object.data(), object.size()) == static_cast<ssize_t>(object.size());
    ::close(file);
    module.library = written ? ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
    const std::string reason = !written                    ? "cannot write the file " + path
                               : module.library == nullptr ? ::dlerror()
                                                           : "";
    ::unlink(path.c_str());
    return reason;
}

}  // namespace

CUresult emulator::run(const Kernel& kernel, const LaunchShape& shape, void* const* parameters) {
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const FaultsCaught caught;
    const std::string why = grid().run(kernel, shape, parameters);
    return why.empty() ? CUDA_SUCCESS : failed(kLaunchFailed, why);
}

EMULATED cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
    const std::string_view object = emulator::object_of(image);
    if (object.empty()) return emulator::failed(CUDA_ERROR_INVALID_IMAGE, "no image of the emulated NVRTC, or damaged");
    auto fresh = std::make_unique<Module>();
    if (const std::string why = open(object, *fresh); !why.empty())
        return emulator::failed(CUDA_ERROR_INVALID_IMAGE, why);
    const auto bind = reinterpret_cast<const emulator::Thread** (*)(const emulator::Runtime*)>(
        ::dlsym(fresh->library, "emulator_bind"));
    if (bind == nullptr) return emulator::failed(CUDA_ERROR_INVALID_IMAGE, "the image has no emulator_bind");
    fresh->kernel.current = bind(&emulator::runtime());
    *module = reinterpret_cast<CUmodule>(fresh.release());
    return CUDA_SUCCESS;
}
EMULATED cuModuleLoadData(CUmodule* module, const void* image) {
    return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
EMULATED cuModuleUnload(CUmodule handle) {
    const std::unique_ptr<Module> module(reinterpret_cast<Module*>(handle));
    ::dlclose(module->library);
    return CUDA_SUCCESS;
}
EMULATED cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
    auto& module = *reinterpret_cast<Module*>(handle);
    module.kernel.call = reinterpret_cast<void (*)(void* const*)>(
        ::dlsym(module.library, (std::string("emulator_call_") + name).c_str()));
    *function = reinterpret_cast<CUfunction>(&module.kernel);
    const auto* bytes = static_cast<const unsigned*>(
        ::dlsym(module.library, (std::string("emulator_parameter_bytes_") + name).c_str()));
    const auto* cluster =
        static_cast<const unsigned*>(::dlsym(module.library, (std::string("emulator_cluster_blocks_") + name).c_str()));
    if (module.kernel.call == nullptr || bytes == nullptr || cluster == nullptr) return CUDA_ERROR_NOT_FOUND;
    module.kernel.parameter_bytes = *bytes;
    module.kernel.cluster_blocks = *cluster;
    return CUDA_SUCCESS;
}
EMULATED cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    if (which == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        reinterpret_cast<emulator::Kernel*>(function)->most_shared_bytes = value;
    return CUDA_SUCCESS;
}

// page_end.cpp: see page_end.h.
#include "page_end.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

namespace flashtile::tests {

PageEnd::PageEnd(std::string_view bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t usable = (bytes.size() + page - 1) / page * page;
    void* memory = ::mmap(nullptr, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory");
    memory_ = {static_cast<std::byte*>(memory), usable + page};
    if (::mprotect(memory_.data() + usable, page, PROT_NONE) != 0) throw std::runtime_error("no guard page");
    bytes_ = memory_.subspan(usable - bytes.size(), bytes.size());
    std::memcpy(memory_.data() + usable - bytes.size(), bytes.data(), bytes.size());
}

PageEnd::~PageEnd() {
    ::munmap(memory_.data(), memory_.size());
}

}  // namespace flashtile::tests

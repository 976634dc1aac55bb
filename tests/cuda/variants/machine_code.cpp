// machine_code.cpp: see machine_code.h.
#include "cuda/variants/machine_code.h"

#include <elf.h>

#include <cstring>
#include <stdexcept>
#include <string_view>

#include "cuda/jit/sha256.h"

namespace flashtile::variants {
namespace {

class Elf {
public:
    explicit Elf(std::string_view bytes) : bytes_(bytes), header_(at<Elf64_Ehdr>(0)) {
        if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_ident[EI_CLASS] != ELFCLASS64)
            throw std::runtime_error("the compiled kernel is no 64-bit ELF file");
    }

    std::size_t sections() const { return header_.e_shnum; }
    Elf64_Shdr section(std::size_t n) const { return at<Elf64_Shdr>(header_.e_shoff + n * sizeof(Elf64_Shdr)); }
    std::string_view name(const Elf64_Shdr& header) const {
        const std::string_view names = bytes(section(header_.e_shstrndx)).substr(header.sh_name);
        return names.substr(0, names.find('\0'));
    }
    std::string_view bytes(const Elf64_Shdr& header) const { return part(header.sh_offset, header.sh_size); }

private:
    std::string_view part(std::size_t from, std::size_t size) const {
        if (from > bytes_.size() || size > bytes_.size() - from)
            throw std::runtime_error("the compiled kernel's ELF file is cut short");
        return bytes_.substr(from, size);
    }
    template <class T>
    T at(std::size_t from) const {
        T value;
        std::memcpy(&value, part(from, sizeof value).data(), sizeof value);
        return value;
    }

    std::string_view bytes_;
    Elf64_Ehdr header_;
};

}  // namespace

std::string machine_code_hash(const std::string& cubin) {
    const Elf elf(cubin);
    gpu::Sha256 sum;
    bool found = false;
    for (std::size_t n = 1; n < elf.sections(); ++n) {
        const Elf64_Shdr section = elf.section(n);
        const std::string_view name = elf.name(section);
        // Each section's size goes in too, so that no two lists of sections run together into the same bytes.
        const std::string size = std::to_string(section.sh_size);
        if (name.starts_with(".text.")) {
            found = true;
            // sh_info: the registers in the highest byte, above the number of a symbol. sh_flags: barriers.
            sum.add("code " + size + ", " + std::to_string(section.sh_info >> 24) + " registers, flags " +
                    std::to_string(section.sh_flags) + ":");
            sum.add(elf.bytes(section));
        } else if (name.starts_with(".nv.constant") && !name.starts_with(".nv.constant4")) {
            // Bank 4 has the addresses of all global constants, used or not, which vary with what a file includes.
            sum.add("constants " + size + ":");
            sum.add(elf.bytes(section));
        } else if (name.starts_with(".nv.shared.")) {
            sum.add("shared memory " + size + ":");
        }
    }
    if (!found) throw std::runtime_error("the compiled kernel has no section of machine code");
    return sum.finish();
}

}  // namespace flashtile::variants

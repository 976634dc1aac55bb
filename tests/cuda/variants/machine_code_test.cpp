// machine_code_test.cpp: two cubins have the same fingerprint if and only if they run alike.
#include "cuda/variants/machine_code.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace flashtile::variants {
namespace {

struct Section {
    std::string name, bytes;
    unsigned info = 0;
};

template <class T>
std::string as_bytes(const T& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// An ELF file of these sections: its header, their bytes, their names, then the table of sections.
std::string elf(std::vector<Section> sections) {
    sections.insert(sections.begin(), {"", ""});
    sections.push_back({".shstrtab", ""});
    std::string names;
    std::vector<unsigned> name_at;
    for (const Section& section : sections) {
        name_at.push_back(static_cast<unsigned>(names.size()));
        names += section.name + '\0';
    }
    sections.back().bytes = names;
    std::string body, table;
    for (std::size_t n = 0; n < sections.size(); ++n) {
        Elf64_Shdr header{};
        header.sh_name = name_at[n];
        header.sh_offset = sizeof(Elf64_Ehdr) + body.size();
        header.sh_size = sections[n].bytes.size();
        header.sh_info = sections[n].info;
        table += as_bytes(header);
        body += sections[n].bytes;
    }
    Elf64_Ehdr header{};
    std::copy_n(ELFMAG, SELFMAG, header.e_ident);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_shoff = sizeof header + body.size();
    header.e_shnum = static_cast<Elf64_Half>(sections.size());
    header.e_shstrndx = static_cast<Elf64_Half>(sections.size() - 1);
    return as_bytes(header) + body + table;
}

const Section kCode{".text.kernel", "instructions", 32u << 24 | 7};

TEST(MachineCode, NamesSymbolsAndLinesDoNotCount) {
    const std::string hash = machine_code_hash(elf({kCode}));
    EXPECT_EQ(hash.size(), 64U);
    EXPECT_EQ(hash, machine_code_hash(elf({{".text.another_name", "instructions", 32u << 24 | 8}})));
    EXPECT_EQ(hash, machine_code_hash(elf({{".debug_line", "lines"}, kCode, {".symtab", "symbols"}})));
    EXPECT_EQ(hash, machine_code_hash(elf({kCode, {".nv.constant4", "addresses of unused constants"}})));
}

TEST(MachineCode, WhatRunsCounts) {
    const std::string hash = machine_code_hash(elf({kCode}));
    EXPECT_NE(hash, machine_code_hash(elf({{".text.kernel", "instructionz", 32u << 24 | 7}})));
    EXPECT_NE(hash, machine_code_hash(elf({{".text.kernel", "instructions", 40u << 24 | 7}})));
    EXPECT_NE(hash, machine_code_hash(elf({kCode, {".nv.constant0.kernel", "constants"}})));
    EXPECT_NE(hash, machine_code_hash(elf({kCode, {".nv.shared.kernel", "16 bytes"}})));
}

TEST(MachineCode, RefusesWhatIsNoCubin) {
    EXPECT_THROW(machine_code_hash(".version 8.0\n.target sm_80\n, which is PTX and long enough for a header........"),
                 std::runtime_error);
    EXPECT_THROW(machine_code_hash(elf({{".symtab", "symbols"}})), std::runtime_error);
    const std::string whole = elf({kCode});
    EXPECT_THROW(machine_code_hash(whole.substr(0, whole.size() - 1)), std::runtime_error);
}

}  // namespace
}  // namespace flashtile::variants

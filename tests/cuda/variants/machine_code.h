// machine_code.h: a fingerprint of a cubin's machine code, so that two versions of the kernels can be compared. It
// covers what runs: instructions, how many registers and barriers they use, constants, and how much static shared
// memory there is. It leaves out names, symbols, line information and the table of global constants' addresses.
#pragma once

#include <string>

namespace flashtile::variants {

// SHA-256 in hexadecimal. Throws if `cubin` is no 64-bit ELF file with machine code in it.
std::string machine_code_hash(const std::string& cubin);

}  // namespace flashtile::variants

# Toolchain file: Debian's cross compiler for AArch64, and qemu-user to run what it makes. Libraries of the build machine
# are never looked at, so GoogleTest comes from its sources (googletest-from-source). Headers alone serve any machine: of
# packages that are no more, or are used so (fmt, in the wheel), Debian's CMake files are named.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
foreach(package nlohmann_json CLI11 fmt)
  file(GLOB folder /usr/share/cmake/${package} /usr/lib/*/cmake/${package})
  set(${package}_DIR "${folder}")
endforeach()

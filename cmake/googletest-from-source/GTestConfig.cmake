# find_package(GTest) for a machine that Debian ships no GoogleTest library for: with GTest_DIR set to this folder the
# package's own sources (libgtest-dev installs them) are compiled as part of the build.
if(NOT TARGET GTest::gtest)
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
endif()

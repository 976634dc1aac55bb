# Turns the kernel sources into a C++ file that defines flashtile::gpu::embedded_sources(), or another function of that
# namespace, a table of each file's name as it is included and its text.
#   cmake -DROOT=src -DOUTPUT=embedded_sources.cpp [-DFUNCTION=embedded_sources] -P embed_sources.cmake -- FILE...
if(NOT FUNCTION)
  set(FUNCTION embedded_sources)
endif()
set(entries "")
set(after_dashes OFF)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(n RANGE ${last})
  set(argument "${CMAKE_ARGV${n}}")
  if(after_dashes)
    file(RELATIVE_PATH name "${ROOT}" "${argument}")
    file(READ "${argument}" text)
    string(FIND "${text}" ")flashtile\"" ends_early)
    if(NOT ends_early EQUAL -1)
      message(FATAL_ERROR "${argument} holds the mark that ends a raw string here")
    endif()
    string(APPEND entries "    {\"${name}\", R\"flashtile(${text})flashtile\"sv},\n")
  elseif(argument STREQUAL "--")
    set(after_dashes ON)
  endif()
endforeach()
file(
  WRITE "${OUTPUT}"
  "// Made by cmake/embed_sources.cmake.\n#include \"cuda/jit/kernel_sources.h\"\n\n"
  "namespace flashtile::gpu {\nnamespace {\n\n"
  # sv knows the length, which a compiler would else count character by character, and clang only to a million
  "using namespace std::string_view_literals;\n\n"
  "constexpr EmbeddedSource sources[] = {\n${entries}};\n\n}  // namespace\n\n"
  "std::span<const EmbeddedSource> ${FUNCTION}() {\n    return sources;\n}\n\n}  // namespace flashtile::gpu\n")

# flashtile_precompile(TARGET HEADER...): where FLASHTILE_PRECOMPILED_HEADERS asks for it, the target's files get these headers
# already parsed, which takes a quarter of the time off a file of the command line and half off a test. CI's builds beside
# the release do so (CMakePresets.json); the release build does not, and so finds an #include that is missing.
option(FLASHTILE_PRECOMPILED_HEADERS "Parse the large headers of other libraries once a target" OFF)
function(flashtile_precompile target)
  if(FLASHTILE_PRECOMPILED_HEADERS)
    target_precompile_headers(${target} PRIVATE ${ARGN})
    # A time in it would keep a compiler cache from finding what was compiled with it.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
endfunction()

# `make package`: Debian packages of what `cmake --install` lays down: libflashtile0, the library; libflashtile-dev, what
# programs are built with; flashtile, the command line. Man pages and shell completion come from the command's --help.
find_program(HELP2MAN help2man REQUIRED)
find_program(GZIP gzip REQUIRED)

set(packaged ${PROJECT_BINARY_DIR}/packaged)
set(pages "")
foreach(name flashtile flashtile-info flashtile-attend flashtile-verify flashtile-bench flashtile-io flashtile-tune flashtile-compile)
  string(REGEX REPLACE "^flashtile-?" "" command ${name})
  set(page ${packaged}/${name}.1.gz)
  add_custom_command(
    OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${packaged}
    COMMAND ${PROJECT_SOURCE_DIR}/tools/write_man_page $<TARGET_FILE:flashtile_cli> "${page}" ${command}
    DEPENDS flashtile_cli ${PROJECT_SOURCE_DIR}/tools/write_man_page
    VERBATIM)
  list(APPEND pages ${page})
endforeach()
# Debian's changelog of each package points to ours.
set(debian_changelog ${packaged}/changelog.Debian.gz)
add_custom_command(
  OUTPUT ${debian_changelog} ${packaged}/changelog.gz
  COMMAND ${CMAKE_COMMAND} -E make_directory ${packaged}
  COMMAND ${PROJECT_SOURCE_DIR}/packaging/write_changelogs ${PROJECT_VERSION} ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${packaged}
  DEPENDS ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/packaging/write_changelogs
  VERBATIM)
add_custom_target(flashtile_packaged ALL DEPENDS ${pages} ${debian_changelog})

foreach(package libflashtile0 libflashtile-dev flashtile)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/copyright ${debian_changelog} ${packaged}/changelog.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${package})
  string(TOUPPER ${package} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
endforeach()
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT flashtile)
install(FILES ${PROJECT_SOURCE_DIR}/packaging/bash-completion RENAME flashtile
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT flashtile)

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL libflashtile0 libflashtile-dev flashtile)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
                                                WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "flashtile's authors <flashtile@localhost.localdomain>")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY >=)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_LIBFLASHTILE0_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBFLASHTILE-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_FLASHTILE_PACKAGE_SECTION science)
set(CPACK_DEBIAN_LIBFLASHTILE0_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/triggers)
set(about "${PROJECT_DESCRIPTION}.\nFlashAttention-2, forward and backward, without a framework.")
set(CPACK_COMPONENT_LIBFLASHTILE0_DESCRIPTION "exact attention in linear memory, the shared library\n${about}\nCUDA kernels are compiled at run time, where there is a GPU.")
set(CPACK_COMPONENT_LIBFLASHTILE-DEV_DESCRIPTION "exact attention in linear memory, for building programs\n${about}\nHeaders, and what CMake and pkg-config find the library by.")
set(CPACK_COMPONENT_FLASHTILE_DESCRIPTION "exact attention in linear memory, the command line\n${about}\nAttention on .npy and .safetensors files, plans, checks and measurements.")
set(CPACK_COMPONENT_LIBFLASHTILE-DEV_DEPENDS libflashtile0)
include(CPack)

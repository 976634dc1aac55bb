# What `cmake --install` lays down: the library, its headers (with the generated version.h), the command line, and the
# files through which find_package and pkg-config find them. A shared and a static build may be installed into one
# prefix: each exports into a file of its own, and flashtile-config.cmake picks. Components are the Debian packages
# (packages.cmake).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

get_target_property(flashtile_type flashtile TYPE)
if(flashtile_type STREQUAL "STATIC_LIBRARY")
  set(flashtile_kind static)
else()
  set(flashtile_kind shared)
endif()
set(flashtile_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flashtile)

install(
  TARGETS flashtile
  EXPORT flashtile-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libflashtile0 NAMELINK_COMPONENT libflashtile-dev
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libflashtile-dev
  INCLUDES
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/flashtile ${PROJECT_BINARY_DIR}/include/flashtile
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libflashtile-dev FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT flashtile-targets NAMESPACE flashtile:: FILE flashtile-${flashtile_kind}-targets.cmake
        DESTINATION ${flashtile_package_dir} COMPONENT libflashtile-dev)

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/flashtile-config.cmake.in
                              ${PROJECT_BINARY_DIR}/flashtile-config.cmake INSTALL_DESTINATION ${flashtile_package_dir})
# Before 1.0 a minor version may break: 0.1 asks for 0.1.x.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/flashtile-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flashtile-config.cmake ${PROJECT_BINARY_DIR}/flashtile-config-version.cmake
        DESTINATION ${flashtile_package_dir} COMPONENT libflashtile-dev)

# The prefix is worked out from where the .pc file lies, so that an installed tree may be moved.
file(RELATIVE_PATH flashtile_pc_to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/flashtile.pc.in ${PROJECT_BINARY_DIR}/flashtile.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/flashtile.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libflashtile-dev)

if(TARGET flashtile_cli)
  file(RELATIVE_PATH flashtile_bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(flashtile_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${flashtile_bin_to_lib}")
  install(TARGETS flashtile_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT flashtile)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

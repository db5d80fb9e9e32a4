# `cmake --install`: the library, the command line, headers, a CMake package, a pkg-config file and an empty
# plugin folder.
include(CMakePackageConfigHelpers)
set(HALYARD_PLUGIN_DIR ${CMAKE_INSTALL_LIBDIR}/halyard)
set(HALYARD_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/halyard)

add_library(halyard_headers INTERFACE)
target_include_directories(halyard_headers INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(halyard_headers PROPERTIES EXPORT_NAME headers)

install(TARGETS halyard halyard_headers EXPORT halyardTargets)
if(TARGET halyard_cli)
  install(TARGETS halyard_cli)
endif()
install(DIRECTORY include/halyard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY DESTINATION ${HALYARD_PLUGIN_DIR})
# For whoever brings up a chip with the installed library alone.
install(FILES docs/tutorial-plugin.md docs/ops.md docs/semantics.md docs/graphs.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY examples/plugin DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

install(EXPORT halyardTargets NAMESPACE halyard:: DESTINATION ${HALYARD_PACKAGE_DIR})
configure_package_config_file(cmake/halyardConfig.cmake.in ${PROJECT_BINARY_DIR}/generated/halyardConfig.cmake
  INSTALL_DESTINATION ${HALYARD_PACKAGE_DIR} PATH_VARS CMAKE_INSTALL_INCLUDEDIR HALYARD_PLUGIN_DIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/halyardConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/halyardConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/halyardConfigVersion.cmake DESTINATION ${HALYARD_PACKAGE_DIR})

# Knows the prefix by where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH HALYARD_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(cmake/halyard.pc.in ${PROJECT_BINARY_DIR}/generated/halyard.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/halyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Man pages and shell completion, written by the program itself where it can be run.
if(TARGET halyard_cli AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
  set(pages ${PROJECT_BINARY_DIR}/share)
  file(MAKE_DIRECTORY ${pages})
  add_custom_command(OUTPUT ${pages}/man1/halyard.1 ${pages}/halyard.bash ${pages}/_halyard
    COMMAND halyard_cli help --man ${pages}/man1
    COMMAND halyard_cli completion bash > ${pages}/halyard.bash
    COMMAND halyard_cli completion zsh > ${pages}/_halyard
    DEPENDS halyard_cli VERBATIM)
  add_custom_target(halyard_pages ALL DEPENDS ${pages}/man1/halyard.1)
  install(DIRECTORY ${pages}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(FILES ${pages}/halyard.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME halyard)
  install(FILES ${pages}/_halyard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
endif()

# What `cmake --install` lays down: the library and its headers, the command, and the two ways to find them
# (find_package(banyan CONFIG) and pkg-config). tests/project/consume.cmake installs and uses both.
include(CMakePackageConfigHelpers)

# The installed command finds the library beside it, wherever the prefix is moved to.
file(RELATIVE_PATH bin_to_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
set_target_properties(banyan_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")

install(TARGETS banyan EXPORT banyan-targets)
install(TARGETS banyan_cli)
install(DIRECTORY include/banyan DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/banyan)
install(EXPORT banyan-targets NAMESPACE banyan:: DESTINATION ${package_dir})
configure_package_config_file(cmake/banyanConfig.cmake.in ${CMAKE_BINARY_DIR}/banyanConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
# Before 1.0 each minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/banyanConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/banyanConfig.cmake ${CMAKE_BINARY_DIR}/banyanConfigVersion.cmake
        DESTINATION ${package_dir})

file(RELATIVE_PATH pc_to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
string(REGEX REPLACE "/$" "" pc_to_prefix "${pc_to_prefix}")
configure_file(cmake/banyan.pc.in ${CMAKE_BINARY_DIR}/banyan.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/banyan.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

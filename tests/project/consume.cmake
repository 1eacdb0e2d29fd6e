# Installs the build into a fresh prefix and uses it as a stranger would: find_package, pkg-config, the command.
#   cmake -D BUILD_DIR=… -D SOURCE_DIR=… -D WORK_DIR=… -D CXX=… -D CXX_FLAGS=… -D GENERATOR=… -P consume.cmake
file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY COMMAND_ECHO STDERR)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
file(GLOB_RECURSE package_config ${prefix}/*/banyan.pc)
cmake_path(GET package_config PARENT_PATH pkg_config_dir)
file(STRINGS ${package_config} leaked REGEX "${SOURCE_DIR}|${BUILD_DIR}")
if(leaked)
  message(FATAL_ERROR "banyan.pc names the source or build folder: ${leaked}")
endif()

# Moved after installing: nothing installed may remember where it was.
file(RENAME ${prefix} ${WORK_DIR}/moved)
string(REPLACE ${prefix} ${WORK_DIR}/moved pkg_config_dir ${pkg_config_dir})
set(prefix ${WORK_DIR}/moved)

set(common -G ${GENERATOR} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -D CMAKE_CXX_COMPILER=${CXX}
           "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}")
run(${CMAKE_COMMAND} ${common} -B ${WORK_DIR}/by_find_package -D CMAKE_PREFIX_PATH=${prefix}
    -D HEADER_DIR=${prefix}/include)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/by_find_package)
run(${WORK_DIR}/by_find_package/consumer)

set(ENV{PKG_CONFIG_PATH} ${pkg_config_dir})
run(${CMAKE_COMMAND} ${common} -B ${WORK_DIR}/by_pkg_config -D BY_PKG_CONFIG=ON)
run(${CMAKE_COMMAND} --build ${WORK_DIR}/by_pkg_config)
run(${WORK_DIR}/by_pkg_config/consumer)

run(${prefix}/bin/banyan --help)

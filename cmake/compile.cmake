# How the project's own sources are compiled. A target takes it by linking halyard_compile; nothing here reaches a
# project that includes this one.
option(HALYARD_WERROR "Treat warnings as errors; for those who work on the project" OFF)
option(HALYARD_FUZZER "Build the fuzz targets for libFuzzer (needs clang)" OFF)
set(HALYARD_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

add_library(halyard_compile INTERFACE)
target_compile_definitions(halyard_compile INTERFACE _GNU_SOURCE)
target_compile_options(halyard_compile INTERFACE -Wall -Wextra)
if(HALYARD_WERROR)
  target_compile_options(halyard_compile INTERFACE -Werror)
endif()
# Clang has no "GCC ivdep", and does without.
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  target_compile_options(halyard_compile INTERFACE -Wno-unknown-pragmas)
endif()

# For scripts/coverage.py. Threads count together, and a test that forks counts too.
option(HALYARD_COVERAGE "Count the lines that run, for gcov" OFF)
if(HALYARD_COVERAGE)
  target_compile_options(halyard_compile INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(halyard_compile INTERFACE --coverage)
endif()

# Sanitizers go into everything that is linked, the NPU's library too.
set(HALYARD_INSTRUMENT)
if(HALYARD_FUZZER)
  set(HALYARD_SANITIZE address,undefined)
  list(APPEND HALYARD_INSTRUMENT -fsanitize=fuzzer-no-link)
endif()
if(HALYARD_SANITIZE)
  list(APPEND HALYARD_INSTRUMENT -fsanitize=${HALYARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(halyard_compile INTERFACE -fsanitize=${HALYARD_SANITIZE})
endif()
target_compile_options(halyard_compile INTERFACE ${HALYARD_INSTRUMENT})

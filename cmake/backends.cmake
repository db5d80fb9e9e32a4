# Which backends and providers are compiled in. Their names come from include/halyard/known_backends.def.
#
# USE_<BACKEND>=ON|OFF, any number of them. A backend has its sources in src/backends/<name>/ and a query function
# hy__backend_<name>; it binds vendor libraries at run time, so that every backend that exists can be in every build.
# BUILD_<BACKEND> and HALYARD_BACKEND=<name>, the older names, are taken as USE_<BACKEND>.
#
# USE_<PROVIDER>=AUTO|ON|OFF. AUTO: in wherever its backend is; ON: an error where it is not; OFF: left out, and
# `halyard info` says so. A backend lists its providers as HY_IF_<PROVIDER>(&table), from use_providers.h.
set(HALYARD_KNOWN_NAMES ${PROJECT_SOURCE_DIR}/include/halyard/known_backends.def)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${HALYARD_KNOWN_NAMES})
file(STRINGS ${HALYARD_KNOWN_NAMES} HALYARD_KNOWN_BACKENDS REGEX "^HY_KNOWN_BACKEND\\(")
list(TRANSFORM HALYARD_KNOWN_BACKENDS REPLACE "^HY_KNOWN_BACKEND\\(([a-z0-9_]+),.*" "\\1")
file(STRINGS ${HALYARD_KNOWN_NAMES} HALYARD_KNOWN_PROVIDERS REGEX "^HY_KNOWN_(PROVIDER|PLANNER)\\(")
list(TRANSFORM HALYARD_KNOWN_PROVIDERS REPLACE "^HY_KNOWN_[A-Z]+\\(([a-z0-9_]+), *[0-9]+, *([a-z0-9_]+)[,)].*" "\\1:\\2")

set(HALYARD_BACKEND "" CACHE STRING "One backend to compile in, besides the cpu; USE_<NAME> can choose several")
if(HALYARD_BACKEND)
  string(TOLOWER "${HALYARD_BACKEND}" choice)
  if(NOT choice IN_LIST HALYARD_KNOWN_BACKENDS)
    list(JOIN HALYARD_KNOWN_BACKENDS ", " names)
    message(FATAL_ERROR "HALYARD_BACKEND=${HALYARD_BACKEND}: there is no such backend; the names are ${names}.")
  endif()
  string(TOUPPER "${choice}" choice)
  set(USE_${choice} ON CACHE BOOL "Compile the ${choice} backend in" FORCE)
endif()

set(HALYARD_BUILTIN_BACKENDS)
foreach(name ${HALYARD_KNOWN_BACKENDS})
  set(exists OFF)
  if(EXISTS ${PROJECT_SOURCE_DIR}/src/backends/${name}/backend.c)
    set(exists ON)
    list(APPEND HALYARD_EXISTING_BACKENDS ${name})
  endif()
  string(TOUPPER ${name} upper)
  if(DEFINED BUILD_${upper})
    set(USE_${upper} ${BUILD_${upper}} CACHE BOOL "Compile the ${name} backend in" FORCE)
  endif()
  option(USE_${upper} "Compile the ${name} backend in" ${exists})
endforeach()
list(JOIN HALYARD_EXISTING_BACKENDS ", " existing)
foreach(name ${HALYARD_KNOWN_BACKENDS})
  string(TOUPPER ${name} upper)
  if(NOT USE_${upper})
    continue()
  endif()
  if(NOT name IN_LIST HALYARD_EXISTING_BACKENDS)
    message(FATAL_ERROR "USE_${upper}=ON: this version has no source for the ${name} backend "
                        "(src/backends/${name}); it has ${existing}.")
  endif()
  list(APPEND HALYARD_BUILTIN_BACKENDS ${name})
endforeach()
if(NOT USE_CPU)
  message(FATAL_ERROR "USE_CPU=OFF: the cpu backend is what everything falls back to; it is always compiled in.")
endif()

# The list that src/core/known_backends.c includes.
list(TRANSFORM HALYARD_BUILTIN_BACKENDS REPLACE "(.+)" "HY_BUILTIN(\\1)" OUTPUT_VARIABLE rows)
list(JOIN rows "\n" rows)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/builtin_backends.def CONTENT "${rows}\n")

# Providers: the list of those left out for src/core/known_backends.c, and a macro for each in use_providers.h.
set(rows "")
set(macros "")
foreach(row ${HALYARD_KNOWN_PROVIDERS})
  string(REPLACE ":" ";" row ${row})
  list(GET row 0 name)
  list(GET row 1 backend)
  string(TOUPPER ${name} upper)
  set(USE_${upper} AUTO CACHE STRING "The provider ${name} of the ${backend} backend: AUTO, ON or OFF")
  set_property(CACHE USE_${upper} PROPERTY STRINGS AUTO ON OFF)
  set(body "")
  if(NOT USE_${upper} STREQUAL "AUTO" AND NOT USE_${upper})
    string(APPEND rows "HY_LEFT_OUT(${name})\n")
  else()
    set(body "__VA_ARGS__,")
    if(NOT USE_${upper} STREQUAL "AUTO" AND NOT backend IN_LIST HALYARD_BUILTIN_BACKENDS)
      string(TOUPPER ${backend} owner)
      message(FATAL_ERROR "USE_${upper}=ON: ${name} is a provider of the ${backend} backend, which this build does not "
                          "have (USE_${owner}=OFF).")
    endif()
  endif()
  string(APPEND macros "#define HY_IF_${upper}(...) ${body}\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/left_out_providers.def CONTENT "${rows}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/use_providers.h CONTENT
  "// Written by cmake/backends.cmake from USE_<PROVIDER>.\n${macros}")

# The SDK of the ECHO NPU is ours and small: it is linked in. Its model of the Verilog needs Verilator and C++, so
# that it comes only when asked for.
set(HALYARD_BACKEND_LIBRARIES)
if(USE_ECHO)
  option(ECHO_NPU_TESTS "Build the tests of the NPU (needs cmocka)" OFF)
  option(ECHO_NPU_RTLMODEL "Compile the Verilog into the library of the rtlmodel, where Verilator is found" OFF)
  option(ECHO_NPU_WERROR "Treat warnings in the NPU as errors" ${HALYARD_WERROR})
  set(ECHO_NPU_INSTRUMENT ${HALYARD_INSTRUMENT})
  add_subdirectory(npu EXCLUDE_FROM_ALL)
  list(APPEND HALYARD_BACKEND_LIBRARIES echo_npu)
endif()

# Which backends are compiled in: USE_<NAME>, any number of them. A backend has its sources in
# src/backends/<name>/ and a query function hy__backend_<name>; it binds vendor libraries at run time, so
# that every backend that exists can be in every build. HALYARD_BACKEND=<name>, the older single choice,
# is taken as USE_<NAME>=ON.
set(HALYARD_KNOWN_BACKENDS cpu cuda hip hygon ascend cambricon echo mps nki)
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

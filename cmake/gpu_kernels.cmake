# GPU kernels: plain texts in src/backends/gpu/kernels, embedded into the library and compiled by the vendor's run-time
# compiler on the user's machine. The build needs no GPU toolkit.
set(HALYARD_GPU_KERNELS ${PROJECT_SOURCE_DIR}/src/backends/gpu/kernels)
file(GLOB kernel_files CONFIGURE_DEPENDS ${HALYARD_GPU_KERNELS}/*.cu)
set(rows "")
foreach(file ${kernel_files})
  get_filename_component(name ${file} NAME_WE)
  string(APPEND rows "HY_GPU_KERNEL(${name})\n")
endforeach()
file(GLOB kernel_headers CONFIGURE_DEPENDS ${HALYARD_GPU_KERNELS}/*.cuh ${HALYARD_GPU_KERNELS}/*.h)
foreach(file ${kernel_headers})
  get_filename_component(name ${file} NAME_WE)
  get_filename_component(full ${file} NAME)
  if(NOT name MATCHES "^(shared|common)$")  # those stand before every source
    string(APPEND rows "HY_GPU_HEADER(${name}, \"${full}\")\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/gpu_kernels.def CONTENT "${rows}")
set_source_files_properties(src/backends/gpu/sources.c PROPERTIES
  OBJECT_DEPENDS "${kernel_files};${kernel_headers}"
  COMPILE_DEFINITIONS "HALYARD_GPU_KERNELS=\"${HALYARD_GPU_KERNELS}\"")

# Cubins ahead of time: `cmake --build ... --target gpu-cubins`, where nvcc is found. They lie beside the library, in
# lib/halyard/kernels, are installed with it, and spare the first start the compiler. They take minutes of a small
# machine, so that a build makes them only with HALYARD_GPU_CUBINS=ON.
set(HALYARD_GPU_CUBIN_TARGETS sm_80 sm_90a CACHE STRING "What gpu-cubins compiles for")
find_program(HALYARD_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
option(HALYARD_GPU_CUBINS "Make the target gpu-cubins part of every build" OFF)
if(HALYARD_GPU_CUBINS AND NOT HALYARD_NVCC)
  message(FATAL_ERROR "HALYARD_GPU_CUBINS=ON: no nvcc was found; add its folder to PATH, or set CUDA_HOME.")
endif()
if(HALYARD_BUILD_TESTS)
  add_executable(gpu_cubins scripts/gpu_cubins.c)
else()
  add_executable(gpu_cubins EXCLUDE_FROM_ALL scripts/gpu_cubins.c)
endif()
target_link_libraries(gpu_cubins PRIVATE halyard_objects)
if(HALYARD_NVCC)
  set(cubins ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/halyard/kernels)
  list(JOIN HALYARD_GPU_CUBIN_TARGETS "," targets)
  if(HALYARD_GPU_CUBINS)
    set(in_all ALL)
  endif()
  add_custom_target(gpu-cubins ${in_all}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${cubins}
    COMMAND gpu_cubins ${HALYARD_NVCC} ${cubins} ${targets}
    COMMENT "Compiling GPU kernels with ${HALYARD_NVCC}" USES_TERMINAL VERBATIM)
  install(DIRECTORY ${cubins} DESTINATION ${CMAKE_INSTALL_LIBDIR}/halyard OPTIONAL)
endif()

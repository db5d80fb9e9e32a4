# GPU kernels: plain texts in src/backends/gpu/kernels, embedded into the library and compiled by the vendor's run-time
# compiler on the user's machine. The build needs no GPU toolkit.
set(HALYARD_GPU_KERNELS ${CMAKE_SOURCE_DIR}/src/backends/gpu/kernels)
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
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/gpu_kernels.def CONTENT "${rows}")
set_source_files_properties(src/backends/gpu/sources.c PROPERTIES
  OBJECT_DEPENDS "${kernel_files};${kernel_headers}"
  COMPILE_DEFINITIONS "HALYARD_GPU_KERNELS=\"${HALYARD_GPU_KERNELS}\"")

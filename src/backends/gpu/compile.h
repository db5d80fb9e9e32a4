// Kernel sources as text, and their compilation to a device's machine code.
#ifndef HALYARD_BACKENDS_GPU_COMPILE_H_
#define HALYARD_BACKENDS_GPU_COMPILE_H_

#include "backends/gpu/gpu.h"

// The text of kernels/<file>.cu, NULL for a name that is none; and what precedes every one of them.
const char* hy__gpu_source(const char* file);
#define HY__GPU_PRELUDES 3
const char* hy__gpu_prelude(int part);
const char* hy__gpu_source_name(int index);  // NULL at the end

// The headers that kernel sources may include, by name; NULL ends both lists.
extern const char* const hy__gpu_header_names[];
extern const char* const hy__gpu_header_texts[];

// What the compiler is given for a file. To be freed; NULL where there is no memory.
char* hy__gpu_whole_source(const char* file);

// Machine code for the device, from the cache folder or from the compiler, which then fills the
// cache. To be freed. `fresh` compiles even where the cache has it.
hy_status hy__gpu_compile(hy__gpu_device* device, const char* file, const char* options, bool fresh,
                          void** image);

#endif  // HALYARD_BACKENDS_GPU_COMPILE_H_

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

// What the file of an image is called that `compiler` made of a source for a target.
void hy__gpu_image_name(const char* file, const char* options, const char* arch,
                        const char* compiler, char* name, size_t size);

// The folder halyard/<name> beside the library; false where there is none.
bool hy__gpu_shipped_folder(const char* name, char* folder, size_t size);
// A file's content, to be freed; NULL where it cannot be read.
void* hy__gpu_read_image(const char* path);

// Machine code for the device: a cubin that came with the library, or one of the cache folder, or
// from the compiler, which then fills the cache. To be freed. `fresh` compiles in any case.
hy_status hy__gpu_compile(hy__gpu_device* device, const char* file, const char* options, bool fresh,
                          void** image);
// Whether that needs no compiler.
bool hy__gpu_is_compiled(hy__gpu_device* device, const char* file, const char* options);

// Starts to compile what will be wanted soon, in a thread; nothing where it need not be compiled.
void hy__gpu_compile_ahead(hy__gpu_device* device, const char* file, const char* options);
// What such a thread has compiled, waiting for it where it has begun. NULL: compile it yourself.
void* hy__gpu_compiled_ahead(hy__gpu_device* device, const char* file, const char* options);

#endif  // HALYARD_BACKENDS_GPU_COMPILE_H_

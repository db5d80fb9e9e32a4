// Runtime compilation: kernels from source, in the language of the device's backend (CUDA for
// NVRTC, for example), launched on streams like any other work.
//
// All of it is HY_UNSUPPORTED on a backend without a compiler. Modules may be used from any thread.
#ifndef HALYARD_COMPILE_H_
#define HALYARD_COMPILE_H_

#include "halyard/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_module hy_module;
typedef struct hy_kernel hy_kernel;

// Compiles and loads. `flags` are the compiler's own, separated by spaces, and may be NULL; those
// of hy_compile_flags come before them. If the source does not compile it is HY_INVALID_ARGUMENT,
// and the message is the compiler's log.
HY_API hy_status hy_compile(hy_device* device, const char* source, const char* flags,
                            hy_module** module);
// What every source on this device is compiled with, the language first: "cuda
// --gpu-architecture=sm_90a". Truncated if `size` is too small.
HY_API hy_status hy_compile_flags(hy_device* device, char* text, size_t size);
// A kernel by its name in the source; lives as long as the module.
HY_API hy_status hy_module_kernel(hy_module* module, const char* name, hy_kernel** kernel);
// Waits for the device, so that no kernel of it runs; NULL is fine. Graphs that launch its kernels
// are destroyed before.
HY_API void hy_module_destroy(hy_module* module);

// Enqueues a kernel. The arguments are copied.
HY_API hy_status hy_kernel_launch(hy_stream* stream, hy_kernel* kernel, const hy_launch* launch);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_COMPILE_H_

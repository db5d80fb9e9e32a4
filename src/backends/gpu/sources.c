// Kernel sources embedded as text: the build writes kernels.def, a row for each file of kernels/.
#include <string.h>

#include "backends/gpu/compile.h"

#if defined(__APPLE__)
#define SECTION ".const_data\n"
#define SYMBOL(name) "_" name
#else
#define SECTION ".section .rodata\n"
#define SYMBOL(name) name
#endif
// HALYARD_GPU_KERNELS is the folder of the sources.
#define EMBED(symbol, file)                                                   \
  __asm__(SECTION SYMBOL(symbol) ":\n.incbin \"" HALYARD_GPU_KERNELS "/" file \
                                 "\"\n.byte 0\n.text\n")

EMBED("hy__gpu_text_shared", "shared.h");
EMBED("hy__gpu_text_common", "common.cuh");
extern const char hy__gpu_text_shared[], hy__gpu_text_common[];
#define HY_GPU_KERNEL(name)                         \
  EMBED("hy__gpu_text_kernel_" #name, #name ".cu"); \
  extern const char hy__gpu_text_kernel_##name[];
#define HY_GPU_HEADER(name, file)            \
  EMBED("hy__gpu_text_header_" #name, file); \
  extern const char hy__gpu_text_header_##name[];
#include "gpu_kernels.def"
#undef HY_GPU_KERNEL
#undef HY_GPU_HEADER

static const struct {
  const char *name, *text;
} sources[] = {
#define HY_GPU_KERNEL(name) {#name, hy__gpu_text_kernel_##name},
#define HY_GPU_HEADER(name, file)
#include "gpu_kernels.def"
#undef HY_GPU_KERNEL
#undef HY_GPU_HEADER
};

#define HY_GPU_KERNEL(name)
#define HY_GPU_HEADER(name, file) file,
const char* const hy__gpu_header_names[] = {
#include "gpu_kernels.def"
    NULL};
#undef HY_GPU_HEADER
#define HY_GPU_HEADER(name, file) hy__gpu_text_header_##name,
const char* const hy__gpu_header_texts[] = {
#include "gpu_kernels.def"
    NULL};
#undef HY_GPU_HEADER
#undef HY_GPU_KERNEL

#define COUNT ((int)(sizeof sources / sizeof sources[0]))

const char* hy__gpu_source(const char* file) {
  for (int i = 0; i < COUNT; i++)
    if (!strcmp(sources[i].name, file)) return sources[i].text;
  return NULL;
}

const char* hy__gpu_source_name(int index) {
  return index >= 0 && index < COUNT ? sources[index].name : NULL;
}

// The numbers of the ops, for kernels that serve several.
static const char op_numbers[] =
    "enum {\n"
#define HY_IN(name)
#define HY_IN_OPT(name)
#define HY_IN_LIST(name)
#define HY_OUT(name)
#define HY_OUT_OPT(name)
#define HY_OP(id, name, ...) "  OP_" #name " = " #id ",\n"
#include "halyard/ops.def"
    "};\n";

const char* hy__gpu_prelude(int part) {
  return part == 0 ? op_numbers : part == 1 ? hy__gpu_text_shared : hy__gpu_text_common;
}

// echo_ops.h - what the files of operations share.
#ifndef ECHO_OPS_H
#define ECHO_OPS_H

#include "echo_runtime.h"

// out = fn(a, b) over n floats; b may be NULL for functions of one operand or with SRC2_IMM.
echoNpuError echo__elementwise(const char* name, uint32_t fn, uint32_t flags, float* out,
                               const float* a, const float* b, float alpha, float beta, size_t n,
                               echoNpuStream stream);

#endif  // ECHO_OPS_H

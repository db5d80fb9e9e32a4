// A kernel family of the cpu beside the reference, as checkasm does it: at every level of
// instructions, with one thread and three, into memory that is marked before.
#ifndef HALYARD_TESTS_SUPPORT_EVERY_LEVEL_H_
#define HALYARD_TESTS_SUPPORT_EVERY_LEVEL_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/runtime/thread_pool.h"
#include "ops/internal.h"
#include "support/close.h"
#include "support/isa_levels.h"
#include "unit/reference_call.h"

// An output in the hands of the reference, of one thread and of three.
typedef struct output_copies {
  int64_t first, last;  // bytes that the view can touch
  unsigned char *want, *got[2];
} output_copies;

enum { UNWRITTEN = 0xff };  // all bits set is NaN in every floating type

static inline void* aim(const output_copies* copies, unsigned char* memory) {
  return memory - copies->first;
}

// NULL, or how the results of one level differ, in words.
static inline const char* compare_outputs(const hy_call* call, const output_copies* copies,
                                          tolerance bf16, tolerance others) {
  static char words[200];
  for (int o = 0; o < call->n_out; o++) {
    const output_copies* c = &copies[o];
    hy_tensor want = call->out[o], got = want;
    if (want.dtype == HY_NONE) continue;
    size_t bytes = (size_t)(c->last - c->first), size = hy_dtype_size(want.dtype);
    want.data = aim(c, c->want);
    got.data = aim(c, c->got[0]);
    if (memcmp(c->got[0], c->got[1], bytes) != 0) {
      snprintf(words, sizeof words, "output %d differs between one thread and three", o);
      return words;
    }
    int64_t i = first_far(&got, &want, want.dtype == HY_BF16 ? bf16 : others);
    if (i >= 0) {
      int64_t at = offset_of(&want, i) * (int64_t)size;
      snprintf(words, sizeof words, "element %lld of output %d is %.9g and should be %.9g",
               (long long)i, o, value_of((char*)got.data + at, want.dtype),
               value_of((char*)want.data + at, want.dtype));
      return words;
    }
    // What is between the elements is as it was: with the reference's elements, all is the same.
    for (i = 0; i < hy_tensor_numel(&want); i++) {
      int64_t at = offset_of(&want, i) * (int64_t)size;
      memcpy((char*)got.data + at, (char*)want.data + at, size);
    }
    if (memcmp(c->got[0], c->want, bytes) != 0) {
      snprintf(words, sizeof words, "output %d is written between its elements", o);
      return words;
    }
  }
  return NULL;
}

// NULL, or why the family does not do as the reference does.
static inline const char* disagreement(const hy__cpu_family* family, hy_call call, tolerance bf16,
                                       tolerance others) {
  static char words[400];
  const char* problem = NULL;
  output_copies copies[HY_MAX_OUTPUTS] = {{0}};
  hy_tensor out[HY_MAX_OUTPUTS];
  memcpy(out, call.out, (size_t)call.n_out * sizeof *out);
  call.out = out;
  for (int o = 0; o < call.n_out; o++) {
    output_copies* c = &copies[o];
    if (out[o].dtype == HY_NONE) continue;
    hy_tensor_extent(&out[o], &c->first, &c->last);
    size_t bytes = (size_t)(c->last - c->first);
    c->want = malloc(bytes);
    c->got[0] = malloc(bytes);
    c->got[1] = malloc(bytes);
    assert_true(c->want && c->got[0] && c->got[1]);
    memset(c->want, UNWRITTEN, bytes);
    out[o].data = aim(c, c->want);
  }
  if (hy__reference(&call) != HY_OK) problem = hy_last_error();
  if (!problem && family->supports(&call) != HY_SUPPORT_YES) problem = "not supported";
  int threads = hy__pool_threads();
  for (isa_level level = ISA_SCALAR; level < ISA_LEVELS && !problem; level++) {
    for (int several = 0; several < 2 && !problem; several++) {
      hy__pool_set_threads(several ? 3 : 1);
      for (int o = 0; o < call.n_out; o++) {
        if (out[o].dtype == HY_NONE) continue;
        memset(copies[o].got[several], UNWRITTEN, (size_t)(copies[o].last - copies[o].first));
        out[o].data = aim(&copies[o], copies[o].got[several]);
      }
      if ((family->run)(kernels_up_to(level), &call) != HY_OK) problem = hy_last_error();
    }
    if (!problem) problem = compare_outputs(&call, copies, bf16, others);
    if (problem) {
      snprintf(words, sizeof words, "%s: %.300s", hy__isa_name(isa_up_to(level)), problem);
      problem = words;
    }
  }
  hy__pool_set_threads(threads);
  for (int o = 0; o < call.n_out; o++) {
    free(copies[o].want);
    free(copies[o].got[0]);
    free(copies[o].got[1]);
  }
  return problem;
}

// Outputs of bf16 are held to `bf16`, others to `others`.
static inline void agree(const hy__cpu_family* family, hy_call call, tolerance bf16,
                         tolerance others, const char* what) {
  const char* problem = disagreement(family, call, bf16, others);
  if (problem) fail_msg("%s, %s", what, problem);
}

#endif  // HALYARD_TESTS_SUPPORT_EVERY_LEVEL_H_

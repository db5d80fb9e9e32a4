// echo_ucode.h - the microcode of the vector unit, as data. See docs/isa.md, sections 6 and 7.
#ifndef ECHO_UCODE_H
#define ECHO_UCODE_H

#include <stdint.h>

#define ECHO_UCODE_MAX_PASSES 3

typedef struct echo_ucode_pass {
  const uint32_t* lane;  // lane program, run for every column
  uint16_t lane_len;
  const uint32_t* post;  // post program, run once after the reduction
  uint16_t post_len;
  uint8_t load;    // ECHO_NPU_LOAD_*
  uint8_t reduce;  // ECHO_NPU_REDUCE_*
  uint8_t store;   // ECHO_NPU_STORE_*, last pass only
} echo_ucode_pass;

typedef struct echo_ucode_function {
  uint8_t id;  // ECHO_NPU_FN_*
  uint8_t passes;
  const char* name;
  echo_ucode_pass pass[ECHO_UCODE_MAX_PASSES];
} echo_ucode_function;

extern const uint32_t echo_ucode_constants[];
extern const int echo_ucode_constant_count;
extern const echo_ucode_function echo_ucode_functions[];
extern const int echo_ucode_function_count;

// The function with this id, or NULL.
const echo_ucode_function* echo_ucode_find(uint32_t id);

static inline int echo_ucode_loads_y(const echo_ucode_function* f) {
  return (f->pass[0].load | f->pass[f->passes - 1].load) & 2;
}
static inline int echo_ucode_is_paired(const echo_ucode_function* f) {
  return (f->pass[0].load & 12) != 0;
}
static inline int echo_ucode_is_reduction(const echo_ucode_function* f) {
  return (f->pass[f->passes - 1].store & 4) != 0;
}

#endif  // ECHO_UCODE_H

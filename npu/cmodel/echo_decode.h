// echo_decode.h - from packet to checked command (docs/isa.md sections 2, 3 and 9).
#ifndef ECHO_DECODE_H
#define ECHO_DECODE_H

#include "echo_npu_hw.h"
#include "echo_ram.h"
#include "echo_ucode.h"

typedef struct echo_fault {
  uint32_t code;  // ECHO_NPU_FAULT_*; 0 is none
  uint64_t addr;
} echo_fault;

enum { ECHO_SRC1, ECHO_SRC2, ECHO_DST, ECHO_OPERANDS };

typedef struct echo_operand {
  int used;
  uint64_t addr;
  uint64_t bytes;  // extent in memory
  uint32_t size;   // of an element, and the alignment of addr
} echo_operand;

typedef struct echo_command {
  uint32_t opcode;
  uint32_t flags;
  int type1, type2, type_dst;
  const echo_ucode_function* fn;
  uint32_t p[8];
  echo_operand op[ECHO_OPERANDS];
} echo_command;

static inline uint32_t echo_type_size(int type) {
  return type == ECHO_NPU_BF16 ? 2 : type == ECHO_NPU_I8 ? 1 : 4;
}

// Checks 1 to 7: everything that does not depend on addresses.
echo_fault echo_decode(const echo_npu_packet* packet, int after_repeat, echo_command* out);

// Checks 8 and 9 for one iteration, whose addresses are in command->op.
echo_fault echo_check_addresses(const echo_command* command, const echo_area* areas);

// Does the destination touch bytes of a source other than exactly in place? The values are then
// unpredictable; the model keeps to one thread so that they are at least always the same.
int echo_overlaps(const echo_command* command);

#endif  // ECHO_DECODE_H

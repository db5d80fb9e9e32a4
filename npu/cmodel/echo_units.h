// echo_units.h - the three execution units of the model. Operands are host pointers into the
// simulated RAM, already checked.
#ifndef ECHO_UNITS_H
#define ECHO_UNITS_H

#include "echo_decode.h"
#include "echo_pool.h"

typedef struct echo_context {
  const echo_kernels* kernels;
  echo_scratch* scratch;  // of the thread that runs the device
} echo_context;

// `at` holds the address of each operand in host memory, NULL where unused.
void echo_matmul(const echo_context* x, const echo_command* c, void* const at[ECHO_OPERANDS]);
void echo_vector(const echo_context* x, const echo_command* c, void* const at[ECHO_OPERANDS]);
// May fault on an index; the fault address is relative to the index operand's own address.
echo_fault echo_copy(const echo_context* x, const echo_command* c, void* const at[ECHO_OPERANDS]);

#endif  // ECHO_UNITS_H

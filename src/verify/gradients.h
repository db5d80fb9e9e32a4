// Gradients of a case by the tape, on any device.
#ifndef HALYARD_VERIFY_GRADIENTS_H_
#define HALYARD_VERIFY_GRADIENTS_H_

#include "verify/case.h"

// What the tape gave for each input: contiguous, on the host, in the input's shape and type; NULL
// where an input has no gradient.
typedef struct hy__gradients {
  int n;
  void* of[HY_MAX_INPUTS];
} hy__gradients;

// Whether the case has gradients to compare: it is valid, its op differentiable, its first output
// and at least one input floating, and its values finite.
bool hy__case_has_gradients(const hy__case* c);
// Floating, and not one of those for which the op's rule defines no gradient.
bool hy__input_has_gradient(const hy__case* c, int input);
// Runs the case on the stream's device and backward from its first output. Element k of the
// output's gradient is ((37 k + 11) mod 17 - 8) / 8, which every type holds exactly. Inputs are
// copied contiguous. The caller frees what was given, after a failure too.
hy_status hy__case_gradients(const hy__case* c, hy_stream* stream, hy__gradients* gradients);
void hy__gradients_free(hy__gradients* gradients);

#endif  // HALYARD_VERIFY_GRADIENTS_H_

// The line that shows how a training goes: redrawn in place on a terminal, else a plain line now
// and then. Goes to standard error.
#ifndef HALYARD_CLI_PROGRESS_H_
#define HALYARD_CLI_PROGRESS_H_

#include <stdbool.h>
#include <stdint.h>

#include "halyard/halyard.h"

typedef struct progress {
  const char* title;
  hy_device* device;
  int64_t first, last, tokens;  // steps: already done at the start, in all; tokens of a step
  double started, shown;
  bool terminal, quiet;
} progress;

// `quiet` shows nothing, but rates are still computed.
progress progress_begin(const char* title, hy_device* device, int64_t first, int64_t last,
                        int64_t tokens, bool quiet);
void progress_step(progress* p, int64_t step, double loss);
void progress_end(progress* p);
double progress_rate(const progress* p, int64_t step);  // tokens a second since the start
uint64_t progress_memory(const progress* p);            // the peak of the device's memory

// "3:07"
const char* progress_time(double seconds, char* text, int size);
// "1.2 GB"
const char* progress_bytes(uint64_t bytes, char* text, int size);

#endif  // HALYARD_CLI_PROGRESS_H_

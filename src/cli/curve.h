// Loss curves, on the terminal and as SVG.
#ifndef HALYARD_CLI_CURVE_H_
#define HALYARD_CLI_CURVE_H_

#include <stdio.h>

#include "halyard/status.h"

typedef struct curve {
  const char* title;
  const double* values;
  int count;
} curve;

// The curve in dots of the Braille alphabet, which every UTF-8 terminal has, with its scale.
void curve_print(FILE* file, const curve* c);
// One picture of several curves, written beside and renamed.
hy_status curve_save_svg(const char* path, const char* title, const curve* curves, int count);

#endif  // HALYARD_CLI_CURVE_H_

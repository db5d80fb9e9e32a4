// The fallback report of this process, whole: what a device left to the cpu, how often and why.
#ifndef HALYARD_CLI_FALLBACK_TABLE_H_
#define HALYARD_CLI_FALLBACK_TABLE_H_

#include <stdio.h>

#include "base/json_write.h"

void cli_print_fallbacks(FILE* file);
void cli_write_fallbacks(json_writer* j,
                         const char* key);  // an array, empty where nothing fell back

#endif  // HALYARD_CLI_FALLBACK_TABLE_H_

// gen_vh - write the Verilog view of echo_npu_hw.h: each `#define NAME integer` becomes a `define.
// Usage: gen_vh echo_npu_hw.h echo_npu_defs.vh
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void emit(FILE* out, const char* name, uint64_t value) {
  int width = value > UINT32_MAX ? 64 : 32;
  fprintf(out, "`define %s %d'h%" PRIx64 "\n", name, width, value);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: gen_vh header.h defs.vh\n");
    return 2;
  }
  FILE* in = fopen(argv[1], "r");
  if (!in) {
    perror(argv[1]);
    return 1;
  }
  FILE* out = fopen(argv[2], "w");
  if (!out) {
    perror(argv[2]);
    fclose(in);
    return 1;
  }
  fprintf(out, "// Generated from echo_npu_hw.h by gen_vh; do not edit.\n");
  fprintf(out, "`ifndef ECHO_NPU_DEFS_VH\n`define ECHO_NPU_DEFS_VH\n");
  char line[256], name[128], text[64];
  while (fgets(line, sizeof line, in)) {
    if (sscanf(line, "#define %127s %63s", name, text) != 2 || !isdigit((unsigned char)text[0]))
      continue;
    char* end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end) {
      fprintf(stderr, "gen_vh: %s is not a plain integer: %s\n", name, text);
      fclose(in);
      fclose(out);
      return 1;
    }
    emit(out, name, value);
  }
  fprintf(out, "`endif\n");
  fclose(in);
  return fclose(out) ? 1 : 0;
}

// gen_ucode_vh - write the microcode of the vector unit as Verilog ROM functions.
// Usage: gen_ucode_vh echo_npu_ucode.vh
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "echo_npu_hw.h"
#include "echo_ucode.h"

#define MAX_WORDS 1024

static uint32_t words[MAX_WORDS];
static int word_count;

// Appends a program unless the same words are already there; returns its entry or -1.
static int place(const uint32_t* program, int length) {
  for (int at = 0; length && at + length <= word_count; ++at)
    if (!memcmp(words + at, program, sizeof *program * (size_t)length)) return at;
  if (word_count + length > MAX_WORDS) return -1;
  int at = word_count;
  for (int i = 0; i < length; ++i) words[word_count++] = program[i];
  return length ? at : 0;
}

static void begin(FILE* out, const char* name, int width, const char* arg, int arg_width) {
  fprintf(out, "function [%d:0] %s(input [%d:0] %s);\n  case (%s)\n", width - 1, name,
          arg_width - 1, arg, arg);
}

static void end(FILE* out, const char* name) {
  fprintf(out, "    default: %s = 0;\n  endcase\nendfunction\n\n", name);
}

int main(int argc, char** argv) {
  FILE* out = argc == 2 ? fopen(argv[1], "w") : NULL;
  if (!out) {
    fprintf(stderr, "usage: gen_ucode_vh ucode.vh\n");
    return 2;
  }
  fprintf(out, "// Generated from ucode/echo_ucode.c by gen_ucode_vh; do not edit.\n\n");

  int first[256], passes = 0, full = 0;
  begin(out, "echo_ucode_pass", 64, "p", 8);
  for (int i = 0; i < echo_ucode_function_count; ++i) {
    const echo_ucode_function* f = &echo_ucode_functions[i];
    first[i] = passes;
    for (int j = 0; j < f->passes; ++j) {
      const echo_ucode_pass* p = &f->pass[j];
      int lane = place(p->lane, p->lane_len), post = place(p->post, p->post_len);
      full |= lane < 0 || post < 0;
      uint64_t word = (uint64_t)lane << ECHO_NPU_PASS_ENTRY_LSB |
                      (uint64_t)p->lane_len << ECHO_NPU_PASS_LENGTH_LSB |
                      (uint64_t)post << ECHO_NPU_PASS_POST_LSB |
                      (uint64_t)p->post_len << ECHO_NPU_PASS_POST_LENGTH_LSB |
                      (uint64_t)p->load << ECHO_NPU_PASS_LOAD_LSB |
                      (uint64_t)p->reduce << ECHO_NPU_PASS_REDUCE_LSB |
                      (uint64_t)p->store << ECHO_NPU_PASS_STORE_LSB |
                      (uint64_t)(j == f->passes - 1) << ECHO_NPU_PASS_LAST_LSB;
      fprintf(out, "    8'd%d: echo_ucode_pass = 64'h%016" PRIx64 ";  // %s\n", passes++, word,
              f->name);
    }
  }
  end(out, "echo_ucode_pass");

  // {valid, first pass}
  begin(out, "echo_ucode_function", 9, "f", 8);
  for (int i = 0; i < echo_ucode_function_count; ++i)
    fprintf(out, "    8'h%02x: echo_ucode_function = {1'b1, 8'd%d};  // %s\n",
            echo_ucode_functions[i].id, first[i], echo_ucode_functions[i].name);
  end(out, "echo_ucode_function");

  begin(out, "echo_ucode_const", 32, "k", 7);
  for (int i = 0; i < echo_ucode_constant_count; ++i)
    fprintf(out, "    7'd%d: echo_ucode_const = 32'h%08" PRIx32 ";\n", i, echo_ucode_constants[i]);
  end(out, "echo_ucode_const");

  begin(out, "echo_ucode_word", 32, "pc", 10);
  for (int i = 0; i < word_count; ++i)
    fprintf(out, "    10'd%d: echo_ucode_word = 32'h%08" PRIx32 ";\n", i, words[i]);
  end(out, "echo_ucode_word");

  if (fclose(out) || full) {
    fprintf(stderr, "gen_ucode_vh: microcode ROM is full or the file could not be written\n");
    return 1;
  }
  return 0;
}

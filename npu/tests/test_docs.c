// test_docs.c - the tables of docs/isa.md say what include/echo_npu_hw.h defines: every opcode,
// fault, register, vector function and micro-operation is there, with its number.
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char header[65536], manual[131072];

static void slurp(const char* path, char* text, size_t size) {
  FILE* f = fopen(path, "r");
  if (!f) fail_msg("%s cannot be read", path);
  size_t n = fread(text, 1, size - 1, f);
  fclose(f);
  assert_true(n > 0 && n < size - 1);
  text[n] = 0;
}

// Does the manual have these words, with no letter or digit on either side?
static int said(const char* words) {
  const size_t n = strlen(words);
  for (const char* at = manual; (at = strstr(at, words)); ++at)
    if ((at == manual || !(isalnum((unsigned char)at[-1]) || at[-1] == '_')) &&
        !(isalnum((unsigned char)at[n]) || at[n] == '_'))
      return 1;
  return 0;
}

// Calls `check` for every "#define ECHO_NPU_<group>NAME NUMBER" of the header.
static int each(const char* group, void (*check)(const char* name, unsigned long value)) {
  char prefix[64];
  int count = 0;
  snprintf(prefix, sizeof prefix, "#define ECHO_NPU_%s", group);
  for (const char* at = header; (at = strstr(at, prefix)); ++at) {
    char name[48], number[32];
    if (sscanf(at + strlen(prefix), "%47s %31s", name, number) != 2) continue;
    check(name, strtoul(number, NULL, 0));
    ++count;
  }
  return count;
}

static void expect(const char* words) {
  if (!said(words)) fail_msg("isa.md does not say '%s'", words);
}

static void check_opcode(const char* name, unsigned long value) {
  char words[96];
  snprintf(words, sizeof words, "0x%02lx %s", value, name);
  expect(words);
}

static void check_fault(const char* name, unsigned long value) {
  char words[96];
  snprintf(words, sizeof words, "%s %lu", name, value);
  if (value) expect(words);
}

static void check_register(const char* name, unsigned long value) {
  char words[96];
  const size_t n = strlen(name);
  if (strcmp(name, "BASE") == 0 || strcmp(name, "BYTES") == 0) return;  // of the register file
  if (n > 3 && strcmp(name + n - 3, "_HI") == 0) return;  // in the row of its low half
  snprintf(words, sizeof words, "| 0x%03lx | %s", value, name);
  expect(words);
}

static void check_function(const char* name, unsigned long value) {
  (void)value;
  expect(name);
}

static void check_counter(const char* name, unsigned long value) {
  char words[96];
  snprintf(words, sizeof words, "%lu %s", value, name);
  expect(words);
}

static void the_manual_has_what_the_header_defines(void** state) {
  (void)state;
  slurp(ECHO_NPU_SOURCE "/include/echo_npu_hw.h", header, sizeof header);
  slurp(ECHO_NPU_SOURCE "/docs/isa.md", manual, sizeof manual);
  // Lines of prose are broken anywhere.
  for (char* c = manual; *c; ++c)
    if (*c == '\n') *c = ' ';
  assert_true(each("OP_", check_opcode) >= 11);
  assert_true(each("FAULT_", check_fault) >= 16);
  assert_true(each("REG_", check_register) >= 18);
  assert_true(each("FN_", check_function) >= 40);
  assert_true(each("COUNTER_", check_counter) >= 10);
  assert_false(said("0x09 MATMUL"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_manual_has_what_the_header_defines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

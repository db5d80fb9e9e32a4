// Changes to a good file, as the input says: what a parser meets once its first checks pass.
#ifndef HALYARD_TESTS_FUZZ_EDIT_H_
#define HALYARD_TESTS_FUZZ_EDIT_H_

#include <string.h>

#include "fuzz/fuzz.h"

// Puts `with` in place of `old` bytes at `at`, where it fits.
static inline void fuzz_splice(uint8_t* bytes, size_t* length, size_t capacity, size_t at,
                               size_t old, const void* with, size_t size) {
  if (at > *length || *length - old + size > capacity || old > *length - at) return;
  memmove(bytes + at + size, bytes + at + old, *length - at - old);
  memcpy(bytes + at, with, size);
  *length = *length - old + size;
}

// The place of a change: half of them are in the front, where headers are.
static inline size_t fuzz_place(fuzz_input* in, size_t length) {
  size_t at = (size_t)fuzz_bits(in, 2);
  return length == 0 ? 0 : at % (at & 1 && length > 512 ? 512 : length);
}

// Puts a value from a list behind the nth colon.
static inline void fuzz_replace_value(fuzz_input* in, uint8_t* bytes, size_t* length,
                                      size_t capacity) {
  static const char* const values[] = {
      "0",
      "-1",
      "1",
      "2",
      "9223372036854775807",
      "1e308",
      "-1e400",
      "null",
      "true",
      "[]",
      "{}",
      "\"\"",
      "1.5",
      "65536",
      "\"F16\"",
      "\"float16\"",
      "2147483648",
      "\"qwen3\"",
      "\"llama\"",
      "[0]",
      "[0,4]",
      "\"F64\"",
      "[4,0]",
      "\"I8\"",
      "[0,2,4]",
      "[1,1,1,1,1,1,1,1,1]",
      "false",
      "1e-9",
  };
  size_t start = 0;
  for (int n = fuzz_byte(in) % 64; n >= 0; n--) {
    const uint8_t* colon = memchr(bytes + start, ':', *length - start);
    if (!colon) break;
    start = (size_t)(colon - bytes) + 1;
  }
  size_t old = 0;
  int depth = 0;
  for (; start + old < *length; old++) {
    uint8_t c = bytes[start + old];
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
  }
  const char* value = values[fuzz_byte(in) % (sizeof values / sizeof values[0])];
  fuzz_splice(bytes, length, capacity, start, old, value, strlen(value));
}

static inline void fuzz_edit_once(fuzz_input* in, uint8_t* bytes, size_t* length, size_t capacity) {
  uint8_t some[16];
  uint8_t kind = fuzz_byte(in);
  if (kind % 8 < 3) {
    fuzz_replace_value(in, bytes, length, capacity);
    return;
  }
  size_t at = fuzz_place(in, *length), size = fuzz_byte(in) % sizeof some;
  for (size_t i = 0; i < size; i++) some[i] = fuzz_byte(in);
  size_t left = *length - at, old = size < left ? size : left;
  switch (kind % 8) {
    case 3: fuzz_splice(bytes, length, capacity, at, old, some, size); break;
    case 4: fuzz_splice(bytes, length, capacity, at, 0, some, size); break;
    case 5: fuzz_splice(bytes, length, capacity, at, old, some, 0); break;
    case 6: *length = at; break;
    case 7: {  // a piece from elsewhere
      size_t from = fuzz_place(in, *length), n = *length - from < size ? *length - from : size;
      memcpy(some, bytes + from, n);
      fuzz_splice(bytes, length, capacity, at, old, some, n);
      break;
    }
  }
}

static inline void fuzz_edit(fuzz_input* in, uint8_t* bytes, size_t* length, size_t capacity) {
  for (int n = fuzz_byte(in) % 6; n >= 0; n--) fuzz_edit_once(in, bytes, length, capacity);
}

#endif  // HALYARD_TESTS_FUZZ_EDIT_H_

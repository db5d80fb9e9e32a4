// Test vendors: the arguments of an entry point as an array, from the row of a table that declares
// it. A row's arguments are "T self, N dim": a letter for the kind, which is a typedef, and the
// vendor's name. For each letter the includer defines CAPTURE_<letter> as POINTER, INTEGER or REAL.
#ifndef HALYARD_TESTS_VENDORS_CAPTURE_H_
#define HALYARD_TESTS_VENDORS_CAPTURE_H_

#include <stdint.h>

// One argument as it was passed.
typedef struct argument {
  char kind;
  const void* pointer;
  int64_t integer;
  double real;
} argument;

// FOR_EACH(macro, a, b, c) is macro(a) macro(b) macro(c), up to 64 of them.
#define EXPAND(...) EXPAND16(EXPAND16(EXPAND16(EXPAND16(__VA_ARGS__))))
#define EXPAND16(...) EXPAND4(EXPAND4(EXPAND4(EXPAND4(__VA_ARGS__))))
#define EXPAND4(...) EXPAND1(EXPAND1(EXPAND1(EXPAND1(__VA_ARGS__))))
#define EXPAND1(...) __VA_ARGS__
#define EMPTY()
#define FOR_EACH(macro, ...) EXPAND(STEP(macro, __VA_ARGS__))
#define STEP(macro, first, ...) macro(first) __VA_OPT__(AGAIN EMPTY()()(macro, __VA_ARGS__))
#define AGAIN() STEP
#define BARE(...) __VA_ARGS__

// CAPTURE(T self) is {'T', self, 0, 0},
#define CAPTURE(argument) \
  CAPTURE_##argument      \
  }                       \
  ,
#define POINTER(k) \
  {                \
    .kind = k, .pointer =
#define INTEGER(k) \
  {                \
    .kind = k, .integer = (int64_t)
#define REAL(k) \
  {             \
    .kind = k, .real = (double)

#endif  // HALYARD_TESTS_VENDORS_CAPTURE_H_

// Test vendors: mutation of the caller. Two arguments of one of the library's functions change
// places before it looks at them, as if its caller had mixed them up.
#ifndef HALYARD_TESTS_VENDORS_MUTATION_H_
#define HALYARD_TESTS_VENDORS_MUTATION_H_

#include "capture.h"
#include "vendor.h"

// For tests, one thread at a time. The i-th function of the library's table, and the reference's
// op, HY_OP_NONE where it is none of them; NULL past the last. Written by the library.
VENDOR_API const char* mutation_function(int i, int* op);
// Looks at calls of the function from now on. `types`: letters of kinds that are one type in C.
VENDOR_API void mutation_watch(const char* name, const char* types);
// How many there were, and the i-th pair of arguments of one type that were not the same in all of
// them; false past the last.
VENDOR_API long mutation_calls(void);
VENDOR_API bool mutation_pair(int i, int* a, int* b);
// Those two change places in all calls from now on; NULL: nothing does.
VENDOR_API void mutation_swap(const char* name, int a, int b);

// For the library, at the entry of each function; `same` compares what two arguments of one type
// hold.
void mutation_apply(const char* name, argument* args, int n,
                    bool (*same)(const argument* a, const argument* b));

#endif  // HALYARD_TESTS_VENDORS_MUTATION_H_

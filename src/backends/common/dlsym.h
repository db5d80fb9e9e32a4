// Binding another library's functions at run time.
//
// A library's functions are one list, LIST(X) with X(type, name, arguments) for each; from it come
// the struct of pointers and the table that fills it.
#ifndef HALYARD_COMMON_DLSYM_H_
#define HALYARD_COMMON_DLSYM_H_

#include <stddef.h>

#include "halyard/plugin.h"

typedef struct hy__symbol {
  const char* name;
  size_t offset;
} hy__symbol;

#define HY__AS_POINTER(type, name, arguments) type(*name) arguments;

// Opens the first of the libraries that is there: in the folder that the environment variable
// names and nowhere else, or, where it is not set, on the system's paths and in `folders`.
hy_status hy__dlsym_open(const char* names, const char* variable, const char* folders,
                         hy_probe* report, void** library);
// Fills the pointers at `functions` and raises the report's stage to SYMBOLS; or fails, naming what
// is not there.
hy_status hy__dlsym_bind(void* library, const hy__symbol* symbols, int count, void* functions,
                         hy_probe* report);
// Whether this process was forked from one that had bound a library. The threads of an OpenMP
// runtime are gone then, and who uses it waits for them for ever.
bool hy__dlsym_forked(void);
// One function that may be missing.
void* hy__dlsym_optional(void* library, const char* name);

#endif  // HALYARD_COMMON_DLSYM_H_

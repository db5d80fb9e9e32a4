// The library's own use of malloc, with fault injection in front of it.
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void* hy__malloc(size_t bytes) {
  if (hy__fault(HY_FAULT_HOST_ALLOCATION)) return NULL;
  return malloc(bytes ? bytes : 1);
}

void* hy__calloc(size_t count, size_t size) {
  if (hy__fault(HY_FAULT_HOST_ALLOCATION)) return NULL;
  return count && size ? calloc(count, size) : calloc(1, 1);
}

void* hy__realloc(void* p, size_t bytes) {
  if (hy__fault(HY_FAULT_HOST_ALLOCATION)) return NULL;
  return realloc(p, bytes ? bytes : 1);
}

char* hy__strdup(const char* text) {
  size_t bytes = strlen(text) + 1;
  char* copy = hy__malloc(bytes);
  return copy ? memcpy(copy, text, bytes) : NULL;
}

void hy__mfree(void* p) {
  free(p);
}

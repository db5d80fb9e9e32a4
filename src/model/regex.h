// Regular expressions over UTF-8 by PCRE2, loaded at run time (libpcre2-8.so.0).
#ifndef HALYARD_MODEL_REGEX_H_
#define HALYARD_MODEL_REGEX_H_

#include <stdbool.h>
#include <stddef.h>

#include "halyard/status.h"

typedef struct hy__regex hy__regex;

// HY_FORMAT where the pattern is none. A compiled pattern may be used by several threads at once.
hy_status hy__regex_compile(const char* pattern, size_t length, hy__regex** regex);
void hy__regex_free(hy__regex* regex);  // NULL is fine

// A search through one text.
typedef struct hy__search {
  const hy__regex* regex;
  void* data;
  const char* text;
  size_t length, at;
} hy__search;
// HY_UNAVAILABLE where PCRE2 is not here: patterns are then taken unseen, and none can be used.
hy_status hy__search_begin(const hy__regex* regex, const char* text, size_t length,
                           hy__search* search);
// The next match that is not empty. *found is false at the end. HY_FORMAT where the pattern takes
// too long on this text.
hy_status hy__search_next(hy__search* search, size_t* first, size_t* last, bool* found);
void hy__search_end(hy__search* search);

#endif  // HALYARD_MODEL_REGEX_H_

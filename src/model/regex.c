// Regular expressions: PCRE2, bound at run time.
#include "model/regex.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#include "base/memory.h"

// What is used of PCRE2's interface, which has not changed since 10.20.
enum {
  NO_UTF_CHECK = 0x40000000,
  UTF = 0x00080000,
  UCP = 0x00020000,
  NOT_EMPTY = 0x00000004,
  JIT_COMPLETE = 1,
  NO_MATCH = -1
};

#define SYMBOLS(X)                                                                     \
  X(void*, compile, (const uint8_t*, size_t, uint32_t, int*, size_t*, void*))          \
  X(void, code_free, (void*))                                                          \
  X(int, jit_compile, (void*, uint32_t))                                               \
  X(void*, match_data_create_from_pattern, (const void*, void*))                       \
  X(void, match_data_free, (void*))                                                    \
  X(int, match, (const void*, const uint8_t*, size_t, size_t, uint32_t, void*, void*)) \
  X(size_t*, get_ovector_pointer, (void*))                                             \
  X(int, get_error_message, (int, uint8_t*, size_t))

static struct {
#define AS_POINTER(result, name, parameters) result(*name) parameters;
  SYMBOLS(AS_POINTER)
#undef AS_POINTER
  hy_status status;
  char reason[256];
} pcre2;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
  pcre2.status = HY_UNAVAILABLE;
  void* library = dlopen("libpcre2-8.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(pcre2.reason, sizeof pcre2.reason, "tokenizers need PCRE2: %s; install libpcre2-8-0",
             dlerror());
    return;
  }
#define AS_LOAD(result, name, parameters)                                       \
  *(void**)&pcre2.name = dlsym(library, "pcre2_" #name "_8");                   \
  if (!pcre2.name) {                                                            \
    snprintf(pcre2.reason, sizeof pcre2.reason,                                 \
             "libpcre2-8.so.0 lacks pcre2_" #name "_8; a newer one is needed"); \
    return;                                                                     \
  }
  SYMBOLS(AS_LOAD)
#undef AS_LOAD
  pcre2.status = HY_OK;
}

struct hy__regex {
  void* code;  // NULL where PCRE2 is not here
};

hy_status hy__regex_compile(const char* pattern, size_t length, hy__regex** out) {
  *out = NULL;
  pthread_once(&once, load);
  hy__regex* regex = hy__calloc(1, sizeof *regex);
  if (!regex) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a pattern");
  *out = regex;
  if (pcre2.status != HY_OK) return HY_OK;
  int error;
  size_t offset;
  regex->code = pcre2.compile((const uint8_t*)pattern, length, UTF | UCP, &error, &offset, NULL);
  if (!regex->code) {
    uint8_t text[128] = "";
    pcre2.get_error_message(error, text, sizeof text);
    hy__mfree(regex);
    *out = NULL;
    return hy_fail(HY_FORMAT, "the pattern '%.80s' fails at %zu: %s", pattern, offset,
                   (const char*)text);
  }
  pcre2.jit_compile(regex->code, JIT_COMPLETE);  // slower without, not wrong
  return HY_OK;
}

void hy__regex_free(hy__regex* regex) {
  if (!regex) return;
  if (regex->code) pcre2.code_free(regex->code);
  hy__mfree(regex);
}

hy_status hy__search_begin(const hy__regex* regex, const char* text, size_t length,
                           hy__search* search) {
  *search = (hy__search){.regex = regex, .text = text, .length = length};
  if (!regex->code) return hy_fail(pcre2.status, "%s", pcre2.reason);
  search->data = pcre2.match_data_create_from_pattern(regex->code, NULL);
  return search->data ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no memory to search a text");
}

hy_status hy__search_next(hy__search* s, size_t* first, size_t* last, bool* found) {
  *found = false;
  if (s->at >= s->length) return HY_OK;
  int code = pcre2.match(s->regex->code, (const uint8_t*)s->text, s->length, s->at,
                         NO_UTF_CHECK | NOT_EMPTY, s->data, NULL);
  if (code == NO_MATCH) return HY_OK;
  if (code < 0) {
    uint8_t text[128] = "";
    pcre2.get_error_message(code, text, sizeof text);
    return hy_fail(HY_FORMAT, "the tokenizer's pattern fails on this text: %s", (const char*)text);
  }
  const size_t* range = pcre2.get_ovector_pointer(s->data);
  *first = range[0];
  *last = s->at = range[1];
  *found = true;
  return HY_OK;
}

void hy__search_end(hy__search* search) {
  if (search->data) pcre2.match_data_free(search->data);
  search->data = NULL;
}

// Enumerators from a C header: a scan for the enums of an installed cnnl.h, whose values are not
// public everywhere. Not a parser of C: comments are skipped, and in the braces behind the word
// "enum" a name is followed by "= number", or by nothing and is one more than the last.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cambricon/cambricon.h"

static const struct {
  const char* name;
  size_t offset;
} names[] = {
#define CNNL_ENUM(name, value) {#name, offsetof(hy__cnnl_enumerators, name)},
#define CNNL_ENUM_UNKNOWN(name) {#name, offsetof(hy__cnnl_enumerators, name)},
#include "backends/cambricon/enumerators.def"
};

static void set(const char* name, size_t length, int value) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strlen(names[i].name) == length && strncmp(names[i].name, name, length) == 0)
      memcpy((char*)&hy__cnnl_enum + names[i].offset, &value, sizeof value);
}

static const char* skip_space(const char* p) {
  for (;;) {
    while (isspace((unsigned char)*p)) p++;
    const char* end = NULL;
    if (p[0] == '/' && p[1] == '*') end = strstr(p + 2, "*/");
    if (p[0] == '/' && p[1] == '/') end = strchr(p, '\n');
    if (!end) return p;
    p = end + (*end == '*' ? 2 : 1);
  }
}

static bool is_word(char c) {
  return isalnum((unsigned char)c) || c == '_';
}

static size_t word_length(const char* p) {
  size_t n = 0;
  while (is_word(p[n])) n++;
  return n;
}

// What stands in the braces of one enum; where it ends.
static const char* read_enum(const char* p) {
  int value = -1;
  for (p = skip_space(p); *p && *p != '}'; p = skip_space(p)) {
    size_t length = word_length(p);
    if (length == 0) {
      p++;
      continue;
    }
    const char* name = p;
    p = skip_space(p + length);
    value++;
    if (*p == '=') {
      char* end;
      p = skip_space(p + 1);
      value = (int)strtol(p, &end, 0);
      p = end > p ? end : p + 1;
    }
    set(name, length, value);
    while (*p && *p != ',' && *p != '}') p = skip_space(p + 1);
  }
  return p;
}

static void read_enums(const char* p) {
  for (p = skip_space(p); *p; p = skip_space(p)) {
    size_t length = word_length(p);
    if (length == 0) {
      p++;
      continue;
    }
    bool is_enum = length == 4 && strncmp(p, "enum", 4) == 0;
    p = skip_space(p + length);
    if (!is_enum) continue;
    p = skip_space(p + word_length(p));  // its name, if it has one
    if (*p == '{') p = read_enum(p + 1);
  }
}

hy_status hy__cambricon_read_header(const char* path) {
  FILE* file = fopen(path, "re");
  if (!file) return hy__backend_host->fail(HY_UNAVAILABLE, "cambricon: there is no %s", path);
  enum { MOST = 64 << 20 };
  size_t size = 0, room = 1 << 20;
  char* text = malloc(room);
  while (text && size < MOST) {
    size_t got = fread(text + size, 1, room - size - 1, file);
    size += got;
    if (got == 0) break;
    if (room - size < 2) {
      char* more = realloc(text, room *= 2);
      if (!more) free(text);
      text = more;
    }
  }
  fclose(file);
  if (!text) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "cambricon: no host memory");
  text[size] = 0;
  read_enums(text);
  free(text);
  return HY_OK;
}

// CUDA_VISIBLE_DEVICES and its kin, for backends whose vendor library does not read them itself.
#include <stdlib.h>
#include <string.h>

#include "core/registry.h"

static hy_status parse(const char* variable, const char* value, int count, int* map, int* n) {
  const char* at = value;
  for (;;) {
    at += strspn(at, " \t");
    if (!strncmp(at, "-1", 2) && !at[2 + strspn(at + 2, " \t")]) return HY_OK;
    if (!strncmp(at, "-1", 2) && at[2 + strspn(at + 2, " \t")] == ',') return HY_OK;
    size_t digits = strspn(at, "0123456789");
    if (digits == 0 || digits > 6)
      return hy_fail(HY_INVALID_ARGUMENT,
                     "%s is \"%s\"; it takes device numbers between commas, such as 0,1", variable,
                     value);
    int index = atoi(at);
    at += digits;
    at += strspn(at, " \t");
    if (*at && *at != ',')
      return hy_fail(HY_INVALID_ARGUMENT,
                     "%s is \"%s\"; it takes device numbers between commas, such as 0,1", variable,
                     value);
    if (index >= count)
      return hy_fail(HY_INVALID_ARGUMENT, "%s is \"%s\", but there is no device %d: there %s %d",
                     variable, value, index, count == 1 ? "is" : "are", count);
    for (int i = 0; i < *n; i++)
      if (map[i] == index)
        return hy_fail(HY_INVALID_ARGUMENT, "%s is \"%s\", which names device %d twice", variable,
                       value, index);
    map[(*n)++] = index;
    if (!*at++) return HY_OK;
  }
}

hy_status hy__visible_devices(const char* variables, int count, int* map, int* n_visible) {
  *n_visible = 0;
  char name[64];
  while (*variables) {
    variables += strspn(variables, " ");
    size_t length = strcspn(variables, " ");
    if (length == 0) break;
    if (length >= sizeof name)
      return hy_fail(HY_INVALID_ARGUMENT, "visible_devices: the variable's name is too long");
    memcpy(name, variables, length);
    name[length] = 0;
    variables += length;
    // An empty value means something, unlike elsewhere.
    const char* value = getenv(name);
    if (!value) continue;
    if (!value[strspn(value, " \t")]) return HY_OK;
    hy_status status = parse(name, value, count, map, n_visible);
    if (status != HY_OK) *n_visible = 0;
    return status;
  }
  for (int i = 0; i < count; i++) map[i] = i;
  *n_visible = count;
  return HY_OK;
}

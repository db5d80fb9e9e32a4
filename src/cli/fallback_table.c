// The fallback report as a table and as JSON, what was called most often first.
#include "cli/fallback_table.h"

#include <stdlib.h>

#include "halyard/halyard.h"

static int by_count(const void* a, const void* b) {
  uint64_t first = ((const hy_fallback_entry*)a)->count,
           second = ((const hy_fallback_entry*)b)->count;
  return (first < second) - (first > second);
}

// The caller frees it; NULL where there is nothing.
static hy_fallback_entry* take_report(int* n) {
  *n = hy_fallback_report(NULL, 0);
  hy_fallback_entry* entries = *n ? calloc((size_t)*n, sizeof *entries) : NULL;
  if (!entries) {
    *n = 0;
    return NULL;
  }
  int now = hy_fallback_report(entries, *n);
  if (now < *n) *n = now;
  qsort(entries, (size_t)*n, sizeof *entries, by_count);
  return entries;
}

void cli_print_fallbacks(FILE* file) {
  int n;
  hy_fallback_entry* entries = take_report(&n);
  if (n == 0) fprintf(file, "nothing fell back to the cpu\n");
  if (n > 0)
    fprintf(file, "%-24s %-6s %9s %12s  %s\n", "fell back to the cpu", "type", "calls",
            "bytes moved", "why, and the first such call");
  for (int i = 0; i < n; i++) {
    const hy_fallback_entry* e = &entries[i];
    fprintf(file, "%-24s %-6s %9llu %12llu  %s: %s\n", hy_op_name(e->op), hy_dtype_name(e->dtype),
            (unsigned long long)e->count, (unsigned long long)e->bytes_staged,
            hy_support_text(e->reason), e->example);
  }
  free(entries);
}

void cli_write_fallbacks(json_writer* j, const char* key) {
  int n;
  hy_fallback_entry* entries = take_report(&n);
  json_begin_array(j, key);
  for (int i = 0; i < n; i++) {
    const hy_fallback_entry* e = &entries[i];
    json_begin_object(j, NULL);
    json_text(j, "op", hy_op_name(e->op));
    json_text(j, "dtype", hy_dtype_name(e->dtype));
    json_text(j, "device", e->device);
    json_text(j, "reason", hy_support_text(e->reason));
    json_uint(j, "calls", e->count);
    json_uint(j, "bytes", e->bytes_staged);
    json_text(j, "example", e->example);
    json_end_object(j);
  }
  json_end_array(j);
  free(entries);
}

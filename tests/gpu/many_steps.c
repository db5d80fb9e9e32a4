// A leak, looked for: very many decoding steps of a model, after which neither the device's memory
// nor the process's has grown.
//
//   many_steps MODEL [--backend cuda:0] [--steps 100000]
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "halyard/persistent.h"

enum { AT_ONCE = 100, WARM = 20 };

static void must(hy_status status, const char* what) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s: %s\n", what, hy_last_error());
  exit(2);
}

typedef struct use {
  uint64_t allocated, reserved, device_free;
  long resident;  // bytes of the process
} use;

static use used(hy_device* device) {
  use u = {0};
  uint64_t total;
  hy_memory_stats stats;
  must(hy_memory_get_stats(device, &stats), "memory");
  must(hy_memory_info(device, &u.device_free, &total), "memory");
  u.allocated = stats.allocated;
  u.reserved = stats.reserved;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%*d %ld", &u.resident) == 1) u.resident *= sysconf(_SC_PAGESIZE);
  if (file) fclose(file);
  return u;
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: many_steps MODEL [--backend cuda:0] [--steps 100000]\n");
    return 2;
  }
  hy_persistent_options options;
  long steps = 100000;
  hy_persistent_defaults(&options);
  options.backend = "cuda:0";
  options.positions = 512;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--backend")) options.backend = argv[i + 1];
    if (!strcmp(argv[i], "--steps")) steps = atol(argv[i + 1]);
  }
  hy_device* device;
  hy_persistent_kernel* kernel;
  must(hy_device_get(options.backend, &device), options.backend);
  must(hy_persistent_kernel_create(argv[1], &options, &kernel), argv[1]);
  int32_t prompt[] = {5, 6, 7, 8}, tokens[AT_ONCE], first[AT_ONCE];
  use begin = {0}, end;
  bool same = true;
  for (long round = 0; round * AT_ONCE < steps; round++) {
    must(hy_persistent_kernel_begin(kernel, prompt, 4), "begin");
    must(hy_persistent_kernel_decode(kernel, AT_ONCE, tokens), "decode");
    if (round == 0) memcpy(first, tokens, sizeof first);
    same = same && memcmp(first, tokens, sizeof first) == 0;
    if (round == WARM) begin = used(device);
  }
  end = used(device);
  hy_persistent_kernel_destroy(kernel);
  bool kept = end.allocated == begin.allocated && end.reserved == begin.reserved &&
              end.device_free + (8u << 20) >= begin.device_free &&
              end.resident <= begin.resident + (4l << 20);
  printf(
      "%s %ld steps on %s: allocated %+lld, reserved %+lld, free on the device %+lld, resident "
      "%+ld bytes; %s\n",
      kept && same ? "ok" : "FAILED", steps, options.backend,
      (long long)(end.allocated - begin.allocated), (long long)(end.reserved - begin.reserved),
      (long long)(end.device_free - begin.device_free), end.resident - begin.resident,
      same ? "tokens repeat" : "TOKENS DIFFER");
  return kept && same ? 0 : 1;
}

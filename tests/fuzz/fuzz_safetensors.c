// A small valid file with bytes changed, or noise behind a plausible header length.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "model/safetensors.h"

static const char header[] =
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}";

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t bytes[1024] = {sizeof header - 1};
  size_t length = 8 + sizeof header - 1 + 32;
  memcpy(bytes + 8, header, sizeof header - 1);
  for (size_t i = 0; i + 2 < size && i < 24; i += 3) {
    bytes[(data[i] << 8 | data[i + 1]) % length] = data[i + 2];
  }
  if (size > 0 && data[0] % 8 == 0) length = size > 1 ? data[1] % length : 0;
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, bytes, length) != (ssize_t)length) __builtin_trap();
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  hy__weights* weights;
  if (hy__weights_open_file(path, &weights) == HY_OK) {
    volatile uint8_t sum = 0;
    for (int i = 0; i < hy__weights_count(weights); i++) {
      const hy__weight* w = hy__weights_at(weights, i);
      for (size_t b = 0; b < hy_tensor_bytes(&w->tensor); b++)
        sum ^= ((const uint8_t*)w->tensor.data)[b];
      if (hy__weights_find(weights, w->name) != w) __builtin_trap();
    }
    hy__weights_close(weights);
  }
  close(fd);
  return 0;
}

// A small valid file with bytes changed or cut short, or the input itself as a header and data.
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "model/safetensors.h"

static const char header[] =
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}";

static size_t change_good(fuzz_input* in, uint8_t* bytes) {
  size_t length = 8 + sizeof header - 1 + 32;
  bytes[0] = sizeof header - 1;
  memcpy(bytes + 8, header, sizeof header - 1);
  bool cut = fuzz_byte(in) % 8 == 0;
  for (int i = 0; in->size > 2 && i < 8; i++) {
    size_t at = fuzz_bits(in, 2) % length;
    bytes[at] = fuzz_byte(in);
  }
  return cut ? fuzz_byte(in) % length : length;
}

// Two bytes of header length, then the header's text, then data.
static size_t take_input(fuzz_input* in, uint8_t* bytes, size_t capacity) {
  uint64_t header_length = fuzz_bits(in, 2);
  size_t length = in->size < capacity - 8 ? in->size : capacity - 8;
  memcpy(bytes, &header_length, 8);
  memcpy(bytes + 8, in->data, length);
  return 8 + length;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint8_t bytes[1024] = {0};
  fuzz_input in = {data, size};
  bool good = fuzz_byte(&in) % 2 == 0;
  size_t length = good ? change_good(&in, bytes) : take_input(&in, bytes, sizeof bytes);
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
    (void)sum;
    hy__weights_close(weights);
  }
  close(fd);
  return 0;
}

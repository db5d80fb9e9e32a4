// echo_ram.h - simulated device memory: sparse, so that a many-gigabyte board costs what is
// touched.
#ifndef ECHO_RAM_H
#define ECHO_RAM_H

#include <stddef.h>
#include <stdint.h>

#include "echo_npu_hw.h"

typedef struct echo_area {
  uint64_t base, limit;  // limit is the first byte after; base == limit: absent
} echo_area;

typedef struct echo_ram {
  echo_area area[ECHO_NPU_AREAS];
  uint8_t* host[ECHO_NPU_AREAS];
} echo_ram;

// Reserves the areas; 0, or -1 with nothing held. With fd >= 0 the memory is that file, shared, an
// address being an offset in it; the caller keeps the fd.
int echo_ram_create(echo_ram* ram, const echo_area* area, int fd);
void echo_ram_destroy(echo_ram* ram);

// The bytes [addr, addr + bytes) if they are inside one area of the RAM, else NULL.
void* echo_ram_at(const echo_ram* ram, uint64_t addr, uint64_t bytes);

static inline int echo_area_holds(const echo_area* a, uint64_t addr, uint64_t bytes) {
  return addr >= a->base && addr < a->limit && bytes <= a->limit - addr;
}

#endif  // ECHO_RAM_H

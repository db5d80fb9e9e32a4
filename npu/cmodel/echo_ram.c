// echo_ram.c - simulated RAM: reserved address space, of which only touched pages exist.
#define _GNU_SOURCE
#include "echo_ram.h"

#include <string.h>
#include <sys/mman.h>

int echo_ram_create(echo_ram* ram, const echo_area* area, int fd) {
  memset(ram, 0, sizeof *ram);
  for (int i = 0; i < ECHO_NPU_AREAS; ++i) {
    ram->area[i] = area[i];
    size_t bytes = area[i].limit - area[i].base;
    if (bytes == 0) continue;
    int flags = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* p =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, fd >= 0 ? (off_t)area[i].base : 0);
    if (p == MAP_FAILED) {
      echo_ram_destroy(ram);
      return -1;
    }
    ram->host[i] = p;
  }
  return 0;
}

void echo_ram_destroy(echo_ram* ram) {
  for (int i = 0; i < ECHO_NPU_AREAS; ++i)
    if (ram->host[i]) munmap(ram->host[i], ram->area[i].limit - ram->area[i].base);
  memset(ram, 0, sizeof *ram);
}

void* echo_ram_at(const echo_ram* ram, uint64_t addr, uint64_t bytes) {
  for (int i = 0; i < ECHO_NPU_AREAS; ++i)
    if (ram->host[i] && echo_area_holds(&ram->area[i], addr, bytes))
      return ram->host[i] + (addr - ram->area[i].base);
  return NULL;
}

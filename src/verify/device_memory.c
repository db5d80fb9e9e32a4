// Conformance of memory: blocks that are distinct, aligned and as large as they were asked for, as
// much of it as the device says, and an answer where there is no more.
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "verify/device_checks.h"

// Sanitizers end a process that asks for more memory than they can give; here that is a question.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZER_HOOK __attribute__((visibility("default"))) const char*
SANITIZER_HOOK __asan_default_options(void);
SANITIZER_HOOK __tsan_default_options(void);
const char* __asan_default_options(void) {
  return "allocator_may_return_null=1";
}
const char* __tsan_default_options(void) {
  return "allocator_may_return_null=1";
}
#endif

enum { BLOCKS = 12, ALIGNMENT = 64, STAMPS = 48, HOST_BYTES = 256 << 20, QUICK_BYTES = 16 << 20 };

// ---- distinct ----

static size_t block_size(int i) {
  static const size_t sizes[] = {1, 64, 100, 4096, 65537, (1 << 20) + 3};
  return sizes[i % 6];
}

typedef struct blocks {
  hy_device* device;
  hy_stream* stream;
  void* at[BLOCKS];
  unsigned char* host;
  hy__op_verdict* v;
} blocks;

static hy_status write_block(blocks* b, int i) {
  hy__fill_pattern(b->host, block_size(i), (unsigned)i);
  HY_TRY(hy_memcpy(b->stream, b->at[i], b->host, block_size(i), HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(b->stream);
}

static hy_status read_block(blocks* b, int i, const char* when) {
  memset(b->host, 0, block_size(i));
  HY_TRY(hy_memcpy(b->stream, b->host, b->at[i], block_size(i), HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_stream_sync(b->stream));
  size_t end = hy__pattern_ends(b->host, block_size(i), (unsigned)i);
  hy__judge(b->v, end == block_size(i),
            "memory_alloc: a block of %zu bytes lost its contents at byte %zu %s", block_size(i),
            end, when);
  return HY_OK;
}

static hy_status take_block(blocks* b, int i) {
  hy_status status = hy_alloc_raw(b->device, block_size(i), &b->at[i]);
  if (!hy__judge_status(b->v, status, "memory_alloc")) return status;
  uintptr_t address = (uintptr_t)b->at[i];
  hy__judge(b->v, address != 0 && address % ALIGNMENT == 0,
            "memory_alloc gave %p: addresses are not 0 and are aligned to %d bytes", b->at[i],
            ALIGNMENT);
  return HY_OK;
}

// All are written before any is read; then every other is freed and taken again, and those that
// stayed still hold what they held.
static hy_status check_distinct(blocks* b) {
  for (int i = 0; i < BLOCKS; i++) HY_TRY(take_block(b, i));
  for (int i = 0; i < BLOCKS; i++) HY_TRY(write_block(b, i));
  for (int i = 0; i < BLOCKS; i++) HY_TRY(read_block(b, i, "when others were written"));
  if (b->v->failed) return HY_OK;
  for (int i = 0; i < BLOCKS; i += 2) {
    hy_free_raw(b->device, b->at[i]);
    b->at[i] = NULL;
  }
  for (int i = 0; i < BLOCKS; i += 2) {
    HY_TRY(take_block(b, i));
    HY_TRY(write_block(b, i));
  }
  for (int i = 0; i < BLOCKS; i++) HY_TRY(read_block(b, i, "when others were freed and taken"));
  return HY_OK;
}

// ---- as large as said ----

// Where the stamps of a large block are: at 0, at every power of 2 from a page, and at its end.
static size_t stamp_at(int i, size_t bytes) {
  if (i == 0) return 0;
  size_t at = (size_t)1 << (i + 11);
  return at + 8 <= bytes ? at : bytes - 8;
}

// A block in which addresses that differ in one high bit are one place loses stamps.
static hy_status check_large(blocks* b, char* block, size_t bytes) {
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < STAMPS; i++) {
      uint64_t stamp = stamp_at(i, bytes) * 0x9e3779b97f4a7c15u + 1, got = 0;
      char* at = block + stamp_at(i, bytes);
      if (pass == 0) {
        HY_TRY(hy_memcpy(b->stream, at, &stamp, sizeof stamp, HY_COPY_HOST_TO_DEVICE));
        HY_TRY(hy_stream_sync(b->stream));
        continue;
      }
      HY_TRY(hy_memcpy(b->stream, &got, at, sizeof got, HY_COPY_DEVICE_TO_HOST));
      HY_TRY(hy_stream_sync(b->stream));
      if (!hy__judge(b->v, got == stamp,
                     "a block of %zu bytes does not keep what is written at byte %zu, with writes "
                     "at others in between",
                     bytes, stamp_at(i, bytes)))
        return HY_OK;
    }
  }
  return HY_OK;
}

// Half of what is said to be free in one block; less where it is scattered, but not much less.
static hy_status check_size(blocks* b) {
  uint64_t free_bytes = 0, total = 0;
  if (!hy__judge_status(b->v, hy_memory_info(b->device, &free_bytes, &total), "memory_info"))
    return HY_OK;
  hy__judge(b->v, total > 0 && free_bytes <= total, "memory_info says %llu bytes free of %llu",
            (unsigned long long)free_bytes, (unsigned long long)total);
  // The host's memory is no claim of the device, and taking half of it is a burden on others.
  const uint64_t most = b->v->quick ? QUICK_BYTES : HOST_BYTES;
  if (b->device->is_host && free_bytes > most) free_bytes = most;
  void* block = NULL;
  hy_status status = HY_OUT_OF_MEMORY;
  size_t bytes = 0;
  for (int part = 2; part <= 16 && status == HY_OUT_OF_MEMORY; part *= 2) {
    bytes = (size_t)(free_bytes / (uint64_t)part) / 4096 * 4096;
    if (bytes < 4096) break;
    status = hy_alloc_raw(b->device, bytes, &block);
  }
  if (bytes < 4096) return HY_OK;
  if (!hy__judge(b->v, status == HY_OK,
                 "memory_info says that %llu bytes are free, and memory_alloc has not even %zu: %s",
                 (unsigned long long)free_bytes, bytes, hy_last_error()))
    return HY_OK;
  status = check_large(b, block, bytes);
  hy_free_raw(b->device, block);
  for (int i = 0; i < 16 && status == HY_OK; i++) {
    block = NULL;
    status = hy_alloc_raw(b->device, bytes, &block);
    if (!hy__judge(b->v, status == HY_OK, "memory_free did not give a block of %zu bytes back: %s",
                   bytes, hy_last_error()))
      return HY_OK;
    hy_free_raw(b->device, block);
  }
  return status;
}

// ---- no more ----

// Quarters of what is free until there is no more, or more than was said: whoever says no says why.
static hy_status fill_device(blocks* b) {
  void* quarters[6] = {NULL};
  uint64_t free_bytes = 0, total = 0;
  hy_status status = HY_OK;
  if (b->device->is_host) return HY_OK;
  HY_TRY(hy_memory_info(b->device, &free_bytes, &total));
  for (int i = 0; i < 6 && status == HY_OK && free_bytes >= 16384; i++)
    status = hy_alloc_raw(b->device, (size_t)(free_bytes / 4), &quarters[i]);
  hy__judge(b->v, status == HY_OK || status == HY_OUT_OF_MEMORY,
            "memory_alloc when the device is full must be OUT_OF_MEMORY, not %s: %s",
            hy_status_name(status), hy_last_error());
  for (int i = 0; i < 6; i++) hy_free_raw(b->device, quarters[i]);
  return HY_OK;
}

// More than any machine has is OUT_OF_MEMORY, and the device goes on.
static hy_status check_exhausted(blocks* b) {
  static const size_t sizes[] = {(size_t)1 << 62, (size_t)1 << 52, SIZE_MAX / 2};
  for (int i = 0; i < 3; i++) {
    void* block = NULL;
    hy_status status = hy_alloc_raw(b->device, sizes[i], &block);
    hy__judge(b->v, status == HY_OUT_OF_MEMORY && hy_last_error()[0],
              "memory_alloc of %zu bytes must be OUT_OF_MEMORY with a message, not %s", sizes[i],
              hy_status_name(status));
    if (status == HY_OK) hy_free_raw(b->device, block);
  }
  HY_TRY(fill_device(b));
  HY_TRY(read_block(b, 5, "when memory ran out"));
  HY_TRY(write_block(b, 5));
  return read_block(b, 5, "after memory ran out");
}

hy_status hy__verify_memory(hy_device* device, hy__op_verdict* v) {
  blocks b = {.device = device, .v = v, .host = malloc(block_size(5))};
  hy_status status =
      b.host ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify the device's");
  if (status == HY_OK) status = hy_stream_create(device, &b.stream);
  if (status == HY_OK) status = check_distinct(&b);
  if (status == HY_OK && !v->failed) status = check_size(&b);
  if (status == HY_OK && !v->failed) status = check_exhausted(&b);
  if (status != HY_OK) {
    hy__judge(v, false, "memory: %s", hy_last_error());
    status = HY_OK;
  }
  for (int i = 0; i < BLOCKS; i++) hy_free_raw(device, b.at[i]);
  hy_stream_destroy(b.stream);
  free(b.host);
  return status;
}

// Conformance of copies and memsets: every kind, odd sizes and alignments, contents checked to both
// sides of what was asked for.
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "verify/device_checks.h"

enum { MARGIN = 256, LARGE = (17 << 20) + 5, QUICK = (1 << 18) + 5, FILLED = 0xee };

typedef struct copier {
  hy_stream* stream;
  char *from, *to;            // on the device
  unsigned char *sent, *got;  // on the host, as large
  unsigned char* pinned;      // hy_host_alloc's, as large
  size_t bytes;               // of the largest copy
  hy__op_verdict* v;
} copier;

static const char* const kind_names[] = {"host to host", "host to device", "device to host",
                                         "device to device"};

// Everything in order on the stream, one wait at the end. `got` receives the destination.
static hy_status copy_once(copier* c, hy_copy_kind kind, size_t from, size_t to, size_t bytes,
                           size_t extent, bool pinned) {
  unsigned char* host = pinned ? c->pinned : c->got;
  bool to_device = kind == HY_COPY_HOST_TO_DEVICE || kind == HY_COPY_DEVICE_TO_DEVICE;
  bool from_device = kind == HY_COPY_DEVICE_TO_HOST || kind == HY_COPY_DEVICE_TO_DEVICE;
  if (from_device)
    HY_TRY(hy_memcpy(c->stream, c->from, c->sent, from + bytes, HY_COPY_HOST_TO_DEVICE));
  memset(c->got, FILLED, extent);
  if (to_device) {
    HY_TRY(hy_memcpy(c->stream, c->to, c->got, extent, HY_COPY_HOST_TO_DEVICE));
    HY_TRY(hy_stream_sync(c->stream));  // `got` is taken over below
  } else {
    memset(host, FILLED, extent);
  }
  bool pinned_source = pinned && kind == HY_COPY_HOST_TO_DEVICE;
  if (pinned_source) memcpy(c->pinned, c->sent, from + bytes);
  const void* source = from_device     ? (const void*)(c->from + from)
                       : pinned_source ? (const void*)(c->pinned + from)
                                       : (const void*)(c->sent + from);
  void* target = to_device ? (void*)(c->to + to) : (void*)(host + to);
  HY_TRY(hy_memcpy(c->stream, target, source, bytes, kind));
  if (to_device) HY_TRY(hy_memcpy(c->stream, c->got, c->to, extent, HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_stream_sync(c->stream));
  if (!to_device && pinned) memcpy(c->got, c->pinned, extent);
  return HY_OK;
}

// What is wrong with `got`, which should be `bytes` of `want` at `to`, and FILLED around; or NULL.
static const char* mismatch(const copier* c, const unsigned char* want, size_t to, size_t bytes,
                            size_t extent) {
  if (memcmp(c->got + to, want, bytes) != 0) return "gave other bytes";
  for (size_t i = 0; i < to; i++)
    if (c->got[i] != FILLED) return "wrote before its destination";
  for (size_t i = to + bytes; i < extent; i++)
    if (c->got[i] != FILLED) return "wrote behind its destination";
  return NULL;
}

static hy_status check_copy(copier* c, hy_copy_kind kind, size_t from, size_t to, size_t bytes,
                            bool pinned) {
  size_t extent = to + bytes + MARGIN;
  hy_status status = copy_once(c, kind, from, to, bytes, extent, pinned);
  const char* wrong =
      status == HY_OK ? mismatch(c, c->sent + from, to, bytes, extent) : hy_last_error();
  hy__judge(c->v, !wrong, "a copy %s%s of %zu bytes, source at offset %zu, destination at %zu: %s",
            kind_names[kind], pinned ? " (pinned)" : "", bytes, from, to, wrong ? wrong : "");
  return status;
}

// From one place of an allocation to another: source and destination are views of it.
static hy_status check_within(copier* c, size_t from, size_t to, size_t bytes) {
  size_t extent = (from > to ? from : to) + bytes + MARGIN;
  HY_TRY(hy_memcpy(c->stream, c->to, c->sent, extent, HY_COPY_HOST_TO_DEVICE));
  HY_TRY(hy_memcpy(c->stream, c->to + to, c->to + from, bytes, HY_COPY_DEVICE_TO_DEVICE));
  HY_TRY(hy_memcpy(c->stream, c->got, c->to, extent, HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_stream_sync(c->stream));
  bool right = memcmp(c->got + to, c->sent + from, bytes) == 0 &&
               memcmp(c->got, c->sent, to) == 0 &&
               memcmp(c->got + to + bytes, c->sent + to + bytes, extent - to - bytes) == 0;
  hy__judge(c->v, right, "a copy of %zu bytes from offset %zu to %zu of one allocation", bytes,
            from, to);
  return HY_OK;
}

static hy_status check_copies(copier* c) {
  static const size_t sizes[] = {
      1,    2,    3,    4,    5,    7,     8,     9,     15,    16,
      17,   31,   33,   63,   64,   65,    127,   129,   255,   257,
      1000, 4095, 4096, 4097, 8192, 12288, 65535, 65536, 65537, (1 << 20) + 3};
  static const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 1}, {3, 5}, {64, 2}, {7, 63}, {4, 12}};
  static const hy_copy_kind kinds[] = {HY_COPY_HOST_TO_DEVICE, HY_COPY_DEVICE_TO_HOST,
                                       HY_COPY_DEVICE_TO_DEVICE, HY_COPY_HOST_TO_HOST};
  enum { N_SIZES = sizeof sizes / sizeof sizes[0], N_OFFSETS = sizeof offsets / sizeof offsets[0] };
  for (int k = 0; k < 4; k++) {
    for (int i = 0; i < N_SIZES; i++) {
      if (sizes[i] + 1024 > c->bytes) continue;
      int n_offsets = sizes[i] > 4096 ? 2 : c->v->quick ? 3 : N_OFFSETS;
      for (int o = 0; o < n_offsets; o++)
        HY_TRY(check_copy(c, kinds[k], offsets[o][0], offsets[o][1] + MARGIN, sizes[i],
                          kinds[k] != HY_COPY_DEVICE_TO_DEVICE && (i + o) % 3 == 0));
    }
    HY_TRY(check_copy(c, kinds[k], 0, MARGIN, c->bytes - 2 * MARGIN, false));
  }
  HY_TRY(check_within(c, 0, 5000, 4097));
  HY_TRY(check_within(c, 70001, 3, 65537));
  return HY_OK;
}

static hy_status check_set(copier* c, int value, size_t at, size_t bytes) {
  size_t extent = at + bytes + MARGIN;
  memset(c->got, FILLED, extent);
  memset(c->sent, value, bytes);
  HY_TRY(hy_memcpy(c->stream, c->to, c->got, extent, HY_COPY_HOST_TO_DEVICE));
  HY_TRY(hy_stream_sync(c->stream));
  hy_status status = hy_memset(c->stream, c->to + at, value, bytes);
  if (status == HY_OK) status = hy_memcpy(c->stream, c->got, c->to, extent, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(c->stream);
  const char* wrong = status == HY_OK ? mismatch(c, c->sent, at, bytes, extent) : hy_last_error();
  hy__judge(c->v, !wrong, "set to 0x%02x of %zu bytes at offset %zu: %s", (unsigned)value, bytes,
            at, wrong ? wrong : "");
  return status;
}

static hy_status check_sets(copier* c) {
  static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 255, 1001, 4096, 65537};
  static const int values[] = {0, 1, 0x7f, 0x80, 0xa5, 0xff};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    for (size_t k = 0; k < sizeof values / sizeof values[0]; k++)
      HY_TRY(check_set(c, values[k], MARGIN + (i + k) % 9, sizes[i]));
  }
  return check_set(c, 0x3c, MARGIN, c->bytes / 2);
}

hy_status hy__verify_copies(hy_device* device, hy__op_verdict* v) {
  copier c = {.v = v, .bytes = v->quick ? QUICK : LARGE};
  void *from = NULL, *to = NULL, *pinned = NULL;
  const size_t bytes = c.bytes + 2 * MARGIN;
  c.sent = malloc(bytes);
  c.got = malloc(bytes);
  hy_status status =
      c.sent && c.got ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify copies");
  if (status == HY_OK) status = hy_stream_create(device, &c.stream);
  if (status == HY_OK) status = hy_alloc_raw(device, bytes, &from);
  if (status == HY_OK) status = hy_alloc_raw(device, bytes, &to);
  if (status == HY_OK) status = hy_host_alloc(device, bytes, &pinned);
  if (status == HY_OK) {
    c.from = from;
    c.to = to;
    c.pinned = pinned;
    hy__fill_pattern(c.sent, bytes, 1);
    status = check_copies(&c);
    if (status == HY_OK) status = check_sets(&c);
    // A copy that failed has been judged; the other checks go on.
    if (status != HY_OK && v->failed > 0) status = HY_OK;
  }
  hy_stream_destroy(c.stream);
  hy_host_free(device, pinned);
  hy_free_raw(device, to);
  hy_free_raw(device, from);
  free(c.got);
  free(c.sent);
  return status;
}

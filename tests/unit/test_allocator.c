// The caching allocator: reuse, splitting, streams, limits, out of memory.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/fake.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static fake_device fake;
static hy_device* const device = &fake.device;

static void open_device(uint32_t flags, size_t capacity) {
  CHECK_OK(fake_open(&fake, "fake:0", flags, false, capacity));
}

static hy_stream* new_stream(void) {
  hy_stream* stream;
  CHECK_OK(hy_stream_create(device, &stream));
  return stream;
}

static void* take(hy_stream* stream, size_t bytes) {
  void* address;
  CHECK_OK(hy_alloc(stream, bytes, &address));
  assert_int_equal((uintptr_t)address % 64, 0);
  return address;
}

static hy_memory_stats stats(void) {
  hy_memory_stats s;
  CHECK_OK(hy_memory_get_stats(device, &s));
  return s;
}

// Everything was returned, down to the backend.
static void close_device(void) {
  assert_int_equal(stats().allocated, 0);
  CHECK_OK(hy_empty_cache(device));
  assert_int_equal(stats().reserved, 0);
  fake_close(&fake);
  assert_int_equal(fake.live_memory, 0);
  assert_int_equal(fake.live_events, 0);
  assert_int_equal(fake.live_streams, 0);
}

static void test_zero_bytes_have_addresses_of_their_own(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  void* a = take(s, 0);
  void* b = take(s, 0);
  assert_non_null(a);
  assert_ptr_not_equal(a, b);
  CHECK_OK(hy_free(device, a));
  CHECK_OK(hy_free(device, b));
  CHECK_OK(hy_free(device, NULL));
  hy_stream_destroy(s);
  close_device();
}

static void test_a_stream_reuses_its_memory_at_once(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  const size_t sizes[] = {1, 64, 1000, 4097, 100000, MIB, MIB + 1, 9 * MIB, 33 * MIB + 5};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    void* first = take(s, sizes[i]);
    fake_submit(s);
    CHECK_OK(hy_free(device, first));
    uint64_t misses = stats().backend_allocations;
    void* second = take(s, sizes[i]);
    assert_ptr_equal(first, second);
    assert_int_equal(stats().backend_allocations, misses);
    CHECK_OK(hy_free(device, second));
  }
  hy_stream_destroy(s);
  close_device();
}

static void test_little_is_wasted(void** state) {
  (void)state;
  open_device(0, 8 * GIB);
  hy_stream* s = new_stream();
  for (size_t bytes = 1; bytes < 200 * MIB; bytes += 1 + bytes / 3) {
    void* address = take(s, bytes);
    assert_true(stats().allocated >= bytes);
    assert_true(stats().allocated <= bytes + bytes / 16 + 64);
    CHECK_OK(hy_free(device, address));
  }
  hy_stream_destroy(s);
  close_device();
}

static void test_neighbours_merge(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  void* parts[32];
  for (int i = 0; i < 32; i++) parts[i] = take(s, 64 << 10);  // fills one small segment
  assert_int_equal(stats().backend_allocations, 1);
  for (int i = 0; i < 32; i += 2) CHECK_OK(hy_free(device, parts[i]));
  for (int i = 1; i < 32; i += 2) CHECK_OK(hy_free(device, parts[i]));
  void* whole[2] = {take(s, MIB), take(s, MIB)};
  assert_int_equal(stats().backend_allocations, 1);
  for (int i = 0; i < 2; i++) CHECK_OK(hy_free(device, whole[i]));
  hy_stream_destroy(s);
  close_device();
}

static void test_another_stream_waits_for_the_work(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* first = take(a, 30 * MIB);
  fake_submit(a);
  CHECK_OK(hy_free(device, first));
  void* second = take(b, 30 * MIB);
  assert_ptr_not_equal(first, second);
  CHECK_OK(hy_free(device, second));
  void* keep = take(b, 30 * MIB);
  fake_finish(a);
  void* third = take(b, 30 * MIB);
  assert_ptr_equal(first, third);
  CHECK_OK(hy_free(device, keep));
  CHECK_OK(hy_free(device, third));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  close_device();
}

static void test_a_recorded_stream_holds_memory_back(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* first = take(a, 5 * MIB);
  CHECK_OK(hy_record_stream(a, first));
  CHECK_OK(hy_record_stream(b, first));
  fake_submit(b);
  CHECK_OK(hy_free(device, first));
  assert_int_equal(fake.records, 1);
  assert_int_equal(stats().allocated, 0);
  void* second = take(a, 5 * MIB);
  assert_ptr_not_equal(first, second);
  CHECK_OK(hy_free(device, second));
  fake_finish(b);
  void* third = take(a, 5 * MIB);
  void* fourth = take(a, 5 * MIB);
  assert_true(third == first || fourth == first);
  CHECK_OK(hy_free(device, third));
  CHECK_OK(hy_free(device, fourth));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_record_stream", hy_record_stream(a, fourth));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  close_device();
}

static void test_a_record_that_fails_waits_instead(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* first = take(a, 1000);
  CHECK_OK(hy_record_stream(b, first));
  fake_submit(b);
  fake.fail_records = true;
  int before = fake.syncs;
  CHECK_OK(hy_free(device, first));
  assert_int_equal(fake.syncs, before + 1);
  fake.fail_records = false;
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  close_device();
}

static void test_a_new_stream_inherits(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* kept = take(b, 1000);
  void* first = take(a, 12 * MIB);
  CHECK_OK(hy_record_stream(b, kept));
  fake_submit(a);
  CHECK_OK(hy_free(device, first));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  hy_stream* c = new_stream();
  assert_ptr_equal(take(c, 12 * MIB), first);
  CHECK_OK(hy_free(device, first));
  CHECK_OK(hy_free(device, kept));
  hy_stream_destroy(c);
  close_device();
}

// More streams than there are bits to note them in.
static void test_many_streams(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* streams[100];
  for (int i = 0; i < 100; i++) streams[i] = new_stream();
  void* first = take(streams[0], 3000);
  for (int i = 60; i < 70; i++) CHECK_OK(hy_record_stream(streams[i], first));
  for (int i = 0; i < 100; i++) fake_submit(streams[i]);
  CHECK_OK(hy_free(device, first));
  for (int i = 60; i < 70; i++) {
    void* other = take(streams[0], 3000);
    assert_ptr_not_equal(other, first);
    CHECK_OK(hy_free(device, other));
    fake_finish(streams[i]);
  }
  for (int i = 0; i < 100; i++) hy_stream_destroy(streams[i]);
  close_device();
}

static void test_host_streams_share(void** state) {
  (void)state;
  open_device(HY_BACKEND_HOST_MEMORY, GIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* first = take(a, 5000);
  CHECK_OK(hy_record_stream(b, first));
  CHECK_OK(hy_free(device, first));
  assert_ptr_equal(take(b, 5000), first);
  CHECK_OK(hy_free(device, first));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  assert_int_equal(fake.syncs, 0);
  close_device();
}

static void test_out_of_memory_flushes_and_tries_again(void** state) {
  (void)state;
  open_device(0, 64 * MIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* cached = take(a, 40 * MIB);
  fake_submit(a);
  CHECK_OK(hy_free(device, cached));
  void* big = take(b, 60 * MIB);
  assert_int_equal(stats().retries, 1);
  assert_int_equal(stats().reserved, 60 * MIB);
  void* none = big;
  CHECK_FAILS(HY_OUT_OF_MEMORY, "fake:0 is out of memory: 5.00 MiB requested",
              hy_alloc(a, 5 * MIB, &none));
  assert_null(none);
  assert_non_null(strstr(hy_last_error(), "60.00 MiB allocated, 60.00 MiB reserved, limit none"));
  assert_non_null(strstr(hy_last_error(), "4.00 MiB free on the device of 64.00 MiB"));
  assert_int_equal(stats().out_of_memory, 1);
  // Too little is left for a usual segment, enough for the request itself.
  void* rest = take(a, 3 * MIB);
  CHECK_FAILS(HY_OUT_OF_MEMORY, "requested", hy_alloc(a, SIZE_MAX, &none));
  CHECK_OK(hy_free(device, rest));
  CHECK_OK(hy_free(device, big));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  close_device();
}

static void test_a_flush_takes_pending_memory_too(void** state) {
  (void)state;
  open_device(0, 64 * MIB);
  hy_stream *a = new_stream(), *b = new_stream();
  void* first = take(a, 50 * MIB);
  CHECK_OK(hy_record_stream(b, first));
  fake_submit(b);
  CHECK_OK(hy_free(device, first));
  void* second = take(a, 50 * MIB);
  CHECK_OK(hy_free(device, second));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  close_device();
}

static void test_limit(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  CHECK_OK(hy_memory_set_limit(device, 32 * MIB));
  void* first = take(s, 30 * MIB);
  void* second = take(s, 2 * MIB);
  void* none;
  CHECK_FAILS(HY_OUT_OF_MEMORY, "limit 32.00 MiB", hy_alloc(s, 64, &none));
  assert_non_null(strstr(hy_last_error(), "raise HALYARD_MEMORY_LIMIT"));
  CHECK_OK(hy_memory_set_limit(device, 0));
  void* third = take(s, 64);
  CHECK_OK(hy_free(device, first));
  CHECK_OK(hy_free(device, second));
  CHECK_OK(hy_free(device, third));
  hy_stream_destroy(s);
  close_device();
}

static void test_limit_from_the_environment(void** state) {
  (void)state;
  static const struct {
    const char* text;
    uint64_t limit;
  } good[] = {{"", 0},
              {"1048576", 1u << 20},
              {"2G", 2ull << 30},
              {"3k", 3 << 10},
              {"other=1M,fake:0=7M", 7 << 20},
              {"fake=5M", 5 << 20},
              {"9M,fake:1=1M", 9 << 20},
              {"9M,fake=0", 0},
              {"fak=1M", 0}};
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    setenv("HALYARD_MEMORY_LIMIT", good[i].text, 1);
    open_device(0, GIB);
    assert_int_equal(stats().limit, good[i].limit);
    close_device();
  }
  static const char* const bad[] = {
      "many", "2GB", "-1", "fake=", "=", "1,,2", "99999999999T", "1M ,"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    setenv("HALYARD_MEMORY_LIMIT", bad[i], 1);
    CHECK_FAILS(HY_INVALID_ARGUMENT, "HALYARD_MEMORY_LIMIT",
                fake_open(&fake, "fake:0", 0, false, GIB));
  }
  unsetenv("HALYARD_MEMORY_LIMIT");
}

static void test_wrong_frees_are_refused(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  char* block = take(s, 1000);
  char local;
  void *raw, *pinned;
  CHECK_OK(hy_alloc_raw(device, 100, &raw));
  CHECK_OK(hy_host_alloc(device, 100, &pinned));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not the beginning", hy_free(device, block + 64));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "is in no memory", hy_free(device, &local));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_free_raw", hy_free(device, raw));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_host_free", hy_free(device, pinned));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device is NULL", hy_free(NULL, block));
  CHECK_OK(hy_free(device, block));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "freed before", hy_free(device, block));
  hy_free_raw(device, &local);
  hy_host_free(device, &local);
  hy_free_raw(device, raw);
  hy_host_free(device, pinned);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "stream is NULL", hy_alloc(NULL, 1, &raw));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "address is NULL", hy_alloc(s, 1, NULL));
  hy_stream_destroy(s);
  close_device();
}

static void test_misaligned_memory_is_refused(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  fake.misalign = 8;
  void* none;
  CHECK_FAILS(HY_DEVICE_FAILED, "not an address aligned to 64", hy_alloc(s, 10, &none));
  fake.misalign = 0;
  hy_stream_destroy(s);
  close_device();
}

static void test_statistics(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  void* a = take(s, 1024);
  void* b = take(s, 3 * MIB);
  assert_int_equal(stats().allocated, 1024 + 3 * MIB);
  assert_int_equal(stats().reserved, 22 * MIB);
  assert_int_equal(stats().backend_allocations, 2);
  CHECK_OK(hy_free(device, b));
  assert_int_equal(stats().allocated, 1024);
  assert_int_equal(stats().allocated_peak, 1024 + 3 * MIB);
  CHECK_OK(hy_empty_cache(device));
  assert_int_equal(stats().reserved, 2 * MIB);
  assert_int_equal(stats().reserved_peak, 22 * MIB);
  CHECK_OK(hy_memory_reset_peak(device));
  assert_int_equal(stats().allocated_peak, 1024);
  assert_int_equal(stats().reserved_peak, 2 * MIB);
  CHECK_OK(hy_free(device, a));
  assert_int_equal(stats().allocations, 2);
  assert_int_equal(stats().frees, 2);
  uint64_t free_bytes, total_bytes;
  CHECK_OK(hy_memory_info(device, &free_bytes, &total_bytes));
  assert_int_equal(total_bytes, GIB);
  assert_int_equal(free_bytes, GIB - 2 * MIB);
  hy_stream_destroy(s);
  close_device();
}

static void test_closing_returns_what_is_still_in_use(void** state) {
  (void)state;
  CHECK_OK(fake_open(&fake, "fake:0", 0, true, GIB));
  hy_stream *a = new_stream(), *b = new_stream();
  void* leaked = take(a, 100);
  void* pending = take(a, 100);
  CHECK_OK(hy_record_stream(b, pending));
  fake_submit(b);
  CHECK_OK(hy_free(device, pending));
  CHECK_OK(hy_alloc_raw(device, 100, &leaked));
  CHECK_OK(hy_host_alloc(device, 100, &leaked));
  hy_stream_destroy(a);
  hy_stream_destroy(b);
  fake_close(&fake);
  assert_int_equal(fake.live_memory, 0);
  assert_int_equal(fake.live_pinned, 0);
  assert_int_equal(fake.live_events, 0);
}

// Every failure of the library's own memory is an answer, not a crash or a leak.
static void test_host_memory_failures(void** state) {
  (void)state;
  hy_status status = HY_OUT_OF_MEMORY;
  for (int nth = 1; status != HY_OK; nth++) {
    assert_true(nth < 100);
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, nth);
    hy_stream *a = NULL, *b = NULL;
    void *first = NULL, *raw = NULL, *pinned = NULL;
    status = fake_open(&fake, "fake:0", 0, true, GIB);
    if (status != HY_OK) continue;
    status = hy_stream_create(device, &a);
    if (status == HY_OK) status = hy_stream_create(device, &b);
    if (status == HY_OK) status = hy_alloc(a, 1000, &first);
    if (status == HY_OK) status = hy_record_stream(b, first);
    if (status == HY_OK) status = hy_free(device, first);
    if (status == HY_OK) status = hy_alloc_raw(device, 100, &raw);
    if (status == HY_OK) status = hy_host_alloc(device, 100, &pinned);
    if (status != HY_OK) {
      assert_int_equal(status, HY_OUT_OF_MEMORY);
      assert_non_null(strstr(hy_last_error(), "host memory"));
    }
    hy_stream_destroy(a);
    hy_stream_destroy(b);
    fake_close(&fake);
    assert_int_equal(fake.live_memory + fake.live_pinned + fake.live_events + fake.live_streams, 0);
  }
  hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
}

static void test_injected_faults(void** state) {
  (void)state;
  open_device(0, GIB);
  hy_stream* s = new_stream();
  void* address;
  hy_inject_fault(HY_FAULT_ALLOCATION, 2);
  void* first = take(s, 10);
  CHECK_FAILS(HY_OUT_OF_MEMORY, "injected", hy_alloc(s, 10, &address));
  assert_null(address);
  void* second = take(s, 10);
  assert_int_equal(hy_fault_events(HY_FAULT_ALLOCATION), 3);
  hy_inject_fault(HY_FAULT_ALLOCATION, 1);
  CHECK_FAILS(HY_OUT_OF_MEMORY, "injected", hy_alloc_raw(device, 10, &address));
  hy_inject_fault(HY_FAULT_ALLOCATION, 1);
  CHECK_FAILS(HY_OUT_OF_MEMORY, "injected", hy_host_alloc(device, 10, &address));
  hy_inject_fault(HY_FAULT_ALLOCATION, 0);
  CHECK_OK(hy_free(device, first));
  CHECK_OK(hy_free(device, second));
  hy_stream_destroy(s);
  close_device();
}

// ---- against a model ----

enum { STREAMS = 4, LIVE = 200, FLIGHT = 4096, STEPS = 60000 };

typedef struct live_block {
  uintptr_t begin;
  size_t bytes;
  hy_stream* stream;
  uint64_t used[STREAMS];  // the last work on each stream that touches it; 0: none
} live_block;

// Memory that was freed while work on a stream still touched it.
typedef struct flight {
  uintptr_t begin;
  size_t bytes;
  int stream;
  uint64_t ticket;
} flight;

static uint64_t random_state;

static uint64_t next_random(void) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return random_state;
}

static size_t random_size(void) {
  switch (next_random() % 8) {
    case 0: return next_random() % (24 * MIB);
    case 1: return next_random() % (3 * MIB);
    case 2: return 0;
    default: return next_random() % 20000;
  }
}

static bool overlap(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// Work on a stream that touches the block.
static void touch(live_block* block, hy_stream** streams, int stream) {
  fake_submit(streams[stream]);
  block->used[stream] = ((fake_stream*)streams[stream]->handle)->submitted;
}

static void run_model(uint64_t seed, uint32_t flags, size_t capacity) {
  static live_block live[LIVE];
  static flight flights[FLIGHT];
  int n_live = 0, n_flights = 0;
  size_t requested = 0;
  uint64_t allocations = 0, refused = 0;
  random_state = seed;
  open_device(flags, capacity);
  hy_stream* streams[STREAMS];
  for (int i = 0; i < STREAMS; i++) streams[i] = new_stream();

  for (int step = 0; step < STEPS; step++) {
    int on = (int)(next_random() % STREAMS);
    if (next_random() % 16 == 0) fake_finish(streams[next_random() % STREAMS]);
    if (next_random() % 4096 == 0) CHECK_OK(hy_empty_cache(device));
    bool grow = n_live < LIVE && (n_live == 0 || next_random() % 100 < 52);
    if (grow) {
      live_block* block = &live[n_live];
      memset(block, 0, sizeof *block);
      block->bytes = random_size();
      void* address;
      hy_status status = hy_alloc(streams[on], block->bytes, &address);
      if (status == HY_OUT_OF_MEMORY) {
        refused++;
        continue;
      }
      CHECK_OK(status);
      allocations++;
      requested += block->bytes;
      block->begin = (uintptr_t)address;
      block->stream = streams[on];
      size_t extent = block->bytes ? block->bytes : 1;
      for (int i = 0; i < n_live; i++) {
        if (overlap(block->begin, extent, live[i].begin, live[i].bytes ? live[i].bytes : 1)) {
          fail_msg("seed %llu step %d: two allocations overlap", (unsigned long long)seed, step);
        }
      }
      for (int i = 0; i < n_flights; i++) {
        const fake_stream* other = streams[flights[i].stream]->handle;
        if (other->done >= flights[i].ticket) {
          flights[i--] = flights[--n_flights];
        } else if (flights[i].stream != on &&
                   overlap(block->begin, extent, flights[i].begin, flights[i].bytes)) {
          fail_msg("seed %llu step %d: memory is reused under running work",
                   (unsigned long long)seed, step);
        }
      }
      touch(block, streams, on);
      if (next_random() % 4 == 0) {
        int also = (int)(next_random() % STREAMS);
        CHECK_OK(hy_record_stream(streams[also], address));
        touch(block, streams, also);
      }
      n_live++;
    } else {
      int which = (int)(next_random() % (uint64_t)n_live);
      live_block* block = &live[which];
      for (int i = 0; i < STREAMS && !(flags & HY_BACKEND_HOST_MEMORY); i++) {
        const fake_stream* s = streams[i]->handle;
        if (block->used[i] <= s->done || n_flights == FLIGHT) continue;
        flights[n_flights++] = (flight){block->begin, block->bytes, i, block->used[i]};
      }
      CHECK_OK(hy_free(device, (void*)block->begin));
      requested -= block->bytes;
      *block = live[--n_live];
    }
    hy_memory_stats now = stats();
    assert_true(now.allocated >= requested);
    assert_true(now.allocated <= requested + requested / 16 + (size_t)n_live * (65 << 10));
    assert_true(now.reserved >= now.allocated && now.reserved <= capacity);
    assert_int_equal(now.reserved, fake.used);
    assert_int_equal(now.allocations, allocations);
    assert_int_equal(now.frees, allocations - (uint64_t)n_live);
    assert_int_equal(now.out_of_memory, refused);
  }
  while (n_live > 0) CHECK_OK(hy_free(device, (void*)live[--n_live].begin));
  for (int i = 0; i < STREAMS; i++) hy_stream_destroy(streams[i]);
  close_device();
}

static void test_model(void** state) {
  (void)state;
  run_model(1, 0, GIB);
  run_model(2, 0, 96 * MIB);  // often out of memory
  run_model(3, HY_BACKEND_HOST_MEMORY, GIB);
}

// ---- threads ----

enum { THREADS = 4, ROUNDS = 4000 };

static void* churn(void* argument) {
  hy_stream* stream = argument;
  unsigned char* held[16] = {0};
  size_t sizes[16] = {0};
  for (int i = 0; i < ROUNDS; i++) {
    int k = i * 7 % 16;
    if (held[k]) {
      if (held[k][0] != (unsigned char)k || held[k][sizes[k] - 1] != (unsigned char)k)
        return stream;
      if (hy_free(device, held[k]) != HY_OK) return stream;
    }
    sizes[k] = (size_t)(1 + i * 37 % 5000);
    void* address;
    if (hy_alloc(stream, sizes[k], &address) != HY_OK) return stream;
    held[k] = address;
    held[k][0] = held[k][sizes[k] - 1] = (unsigned char)k;
  }
  for (int k = 0; k < 16; k++) {
    if (held[k] && hy_free(device, held[k]) != HY_OK) return stream;
  }
  return NULL;
}

static void test_threads(void** state) {
  (void)state;
  open_device(HY_BACKEND_HOST_MEMORY, GIB);
  hy_stream* streams[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) streams[i] = new_stream();
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_create(&threads[i], NULL, churn, streams[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) {
    void* failed;
    pthread_join(threads[i], &failed);
    assert_null(failed);
  }
  for (int i = 0; i < THREADS; i++) hy_stream_destroy(streams[i]);
  close_device();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_zero_bytes_have_addresses_of_their_own),
      cmocka_unit_test(test_a_stream_reuses_its_memory_at_once),
      cmocka_unit_test(test_little_is_wasted),
      cmocka_unit_test(test_neighbours_merge),
      cmocka_unit_test(test_another_stream_waits_for_the_work),
      cmocka_unit_test(test_a_recorded_stream_holds_memory_back),
      cmocka_unit_test(test_a_record_that_fails_waits_instead),
      cmocka_unit_test(test_a_new_stream_inherits),
      cmocka_unit_test(test_many_streams),
      cmocka_unit_test(test_host_streams_share),
      cmocka_unit_test(test_out_of_memory_flushes_and_tries_again),
      cmocka_unit_test(test_a_flush_takes_pending_memory_too),
      cmocka_unit_test(test_limit),
      cmocka_unit_test(test_limit_from_the_environment),
      cmocka_unit_test(test_wrong_frees_are_refused),
      cmocka_unit_test(test_misaligned_memory_is_refused),
      cmocka_unit_test(test_statistics),
      cmocka_unit_test(test_closing_returns_what_is_still_in_use),
      cmocka_unit_test(test_host_memory_failures),
      cmocka_unit_test(test_injected_faults),
      cmocka_unit_test(test_model),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

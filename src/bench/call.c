// Timing calls of ops: ours and a peer's alternately, against the machine's own limits.
#include "bench/call.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"

enum {
  MAX_BUFFERS = 512,
  READ_BYTES = 256 << 20,
  READ_PIECE = 8 << 20,
  DEVICE_READ_BYTES = 512 << 20,
  DEVICE_SAMPLES = 5,
  QUEUED = 8,
  LEAST_ROUNDS = 7,
  MOST_ROUNDS = 200
};
static const double seconds_a_row = 1.0;
// Of one side, where there is another: threads of the last one look out for work for a while, and
// the first calls of the next are slowed by them.
static const double seconds_a_turn = 0.01;

static void* buffers[MAX_BUFFERS];
static int n_buffers;

// ---- floors ----

static void raise(double* most, double value) {
  if (value > *most) *most = value;
}

// Leaves the floors 0 where the device measures none.
static hy_status measure_floors(hy_stream* stream, bench_floors* floors) {
  hy_device* device = hy_stream_device(stream);
  // Short samples find the moments in which nobody else is at work; each piece was last touched a
  // whole round ago and has left the caches. A device of its own is alone, and its caches larger.
  bool host = hy_device_is_host(device);
  size_t all = host ? READ_BYTES : DEVICE_READ_BYTES, piece = host ? READ_PIECE : DEVICE_READ_BYTES;
  int samples = host ? 4 * READ_BYTES / READ_PIECE : DEVICE_SAMPLES;
  if (bench_multiply_adds(device, HY_F32) == 0) return HY_OK;
  void* memory;
  HY_TRY(hy_alloc(stream, all, &memory));
  hy_status status = hy_memset(stream, memory, 1, all);
  if (status == HY_OK) status = hy_stream_sync(stream);
  for (int i = 0; i < samples && status == HY_OK; i++) {
    raise(&floors->read, bench_read(device, (char*)memory + (size_t)i * piece % all, piece));
    raise(&floors->f32, bench_multiply_adds(device, HY_F32));
    raise(&floors->bf16, bench_multiply_adds(device, HY_BF16));
    raise(&floors->i8, bench_multiply_adds(device, HY_I8));
  }
  hy_free(device, memory);
  return status;
}

static double* peak_of(bench_floors* f, hy_dtype dtype) {
  return dtype == HY_I8 ? &f->i8 : dtype == HY_BF16 ? &f->bf16 : &f->f32;
}

double bench_least(const bench_session* session, const bench_needs* needs) {
  bench_floors f = session->floors;
  if (f.read == 0 || *peak_of(&f, needs->products) == 0) return 0;
  double compute = needs->operations / *peak_of(&f, needs->products);
  double read = needs->bytes / f.read;
  return compute > read ? compute : read;
}

// ---- the session ----

hy_status bench_begin(bench_session* session, hy_device* device) {
  *session = (bench_session){.device = device};
  hy_device *plain, *peer;
  HY_TRY(hy_stream_default(device, &session->stream));
  HY_TRY(hy_device_get(hy_device_selector(device), &plain));
  HY_TRY(hy_stream_default(plain, &session->plain));
  HY_TRY(measure_floors(session->stream, &session->floors));
  if (!bench_options.peer) return HY_OK;
  if (strcmp(bench_options.peer, "-") == 0) return HY_OK;
  HY_TRY(hy_device_get(bench_options.peer, &peer));
  return hy_stream_default(peer, &session->peer);
}

void bench_end(bench_session* session) {
  while (n_buffers > 0) hy_free(session->device, buffers[--n_buffers]);
}

static void fill(void* data, hy_dtype dtype, size_t bytes) {
  static uint32_t state = 1;
  uint16_t* halves = data;
  for (size_t i = 0; i < bytes / 2; i++) {
    state = state * 1664525 + 1013904223;
    uint32_t r = state >> 16;
    switch (dtype) {
      // Numbers between 1 and 2, of either sign.
      case HY_F32: halves[i] = (uint16_t)(i % 2 ? 0x3f80 | (r & 0x807f) : r); break;
      case HY_BF16: halves[i] = (uint16_t)(0x3f80 | (r & 0x807f)); break;
      case HY_F16: halves[i] = (uint16_t)(0x3c00 | (r & 0x83ff)); break;
      default: halves[i] = (uint16_t)(r & 0x3737); break;
    }
  }
}

hy_status bench_tensor(bench_session* session, hy_tensor* t, hy_dtype dtype, int ndim,
                       const int64_t* shape) {
  HY_TRY(hy_tensor_init(t, NULL, dtype, ndim, shape));
  if (dtype == HY_I4) t->layout = HY_LAYOUT_PACKED_I4;
  size_t bytes = hy_tensor_bytes(t);
  if (n_buffers == MAX_BUFFERS) return hy_fail(HY_INTERNAL, "bench: too many tensors");
  void* host = malloc(bytes);
  if (!host) return hy_fail(HY_OUT_OF_MEMORY, "bench: no memory for a tensor");
  fill(host, dtype, bytes);
  hy_status status = hy_alloc(session->stream, bytes, &t->data);
  if (status == HY_OK) {
    buffers[n_buffers++] = t->data;
    status = hy_memcpy(session->stream, t->data, host, bytes, HY_COPY_HOST_TO_DEVICE);
    if (status == HY_OK) status = hy_stream_sync(session->stream);
  }
  free(host);
  return status;
}

// ---- timing ----

// The mean of the next `times` calls, which are waited for together.
static hy_status time_run(hy_stream* stream, const hy_call* calls, int n, int* next, int times,
                          double* best) {
  double start = bench_now();
  for (int i = 0; i < times; i++) HY_TRY(hy_run(stream, &calls[(*next)++ % n]));
  HY_TRY(hy_stream_sync(stream));
  double taken = (bench_now() - start) / times;
  if (taken < *best) *best = taken;
  return HY_OK;
}

// A device apart works through a queue: alone, the way there and back would count with each call.
static int times_of(const bench_session* session) {
  return hy_device_is_host(session->device) ? 1 : QUEUED;
}

// A turn beside another side's: the next of the calls, for a while.
static hy_status time_turn(hy_stream* stream, const hy_call* calls, int n, int* next, int times,
                           double* best) {
  double begin = bench_now();
  for (int i = 0; i < 2 || bench_now() - begin < seconds_a_turn; i++)
    HY_TRY(time_run(stream, calls, n, next, times, best));
  return HY_OK;
}

bool bench_ask_caller(const char* name, const char* shape, const char* dtype, double* best) {
  if (!bench_options.peer || strcmp(bench_options.peer, "-") != 0) return false;
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_begin_object(&j, "turn");
  json_text(&j, "name", name);
  json_text(&j, "shape", shape);
  json_text(&j, "dtype", dtype);
  json_end_object(&j);
  json_end_object(&j);
  json_newline(&j);
  fflush(stdout);
  char line[64], *end;
  if (!fgets(line, sizeof line, stdin)) return false;
  double seconds = strtod(line, &end);
  if (end == line || !(seconds > 0)) return false;
  if (seconds < *best) *best = seconds;
  return true;
}

static bool peer_runs(bench_session* session, const hy_call* call) {
  hy_placement placement;
  hy_device* peer = hy_stream_device(session->peer);
  return peer && hy_place(peer, call, &placement) == HY_OK && placement.provider &&
         strcmp(placement.provider, hy_device_provider(peer)) == 0;
}

static hy_status time_copies(bench_session* session, bench_copies* copies) {
  hy_call call = {.op = HY_OP_copy, .n_in = 1, .n_out = 1, .in = &copies->from, .out = &copies->to};
  double best = DBL_MAX, bytes = (double)hy_tensor_bytes(&copies->from);
  HY_TRY(time_run(session->plain, &call, 1, &(int){0}, times_of(session), &best));
  if (2 * bytes / best > copies->own) copies->own = 2 * bytes / best;
  if (!hy_device_is_host(session->device)) return HY_OK;
  double rate = bench_copying(session->device, copies->to.data, copies->from.data, (size_t)bytes);
  if (rate > copies->memcpy) copies->memcpy = rate;
  return HY_OK;
}

static double as_unit(const bench_work* work, double seconds) {
  return strcmp(work->unit, "ms") == 0 ? seconds * 1e3 : work->amount / seconds / 1e9;
}

hy_status bench_calls(bench_session* session, const bench_work* work, const hy_call* calls, int n) {
  const char* dtype = hy_dtype_name(work->dtype);
  if (!bench_wanted(work->name, work->shape, dtype)) return HY_OK;
  double ours = DBL_MAX, theirs = DBL_MAX, begin = bench_now();
  bool by_caller = bench_ask_caller(work->name, work->shape, dtype, &theirs);
  bool has_peer = by_caller || peer_runs(session, &calls[0]);
  int next = 0, peers_next = n / 2;
  for (int round = 0; round < MOST_ROUNDS; round++) {
    if (round >= LEAST_ROUNDS && bench_now() - begin > seconds_a_row) break;
    if (has_peer)
      HY_TRY(time_turn(session->stream, calls, n, &next, times_of(session), &ours));
    else
      HY_TRY(time_run(session->stream, calls, n, &next, times_of(session), &ours));
    if (by_caller)
      bench_ask_caller(work->name, work->shape, dtype, &theirs);
    else if (has_peer)
      HY_TRY(time_turn(session->peer, calls, n, &peers_next, times_of(session), &theirs));
    if (work->copies) HY_TRY(time_copies(session, work->copies));
    if (session->floors.read > 0 && work->needs.operations > 0)
      raise(peak_of(&session->floors, work->needs.products),
            bench_multiply_adds(session->device, work->needs.products));
  }
  bench_row row = {.name = work->name,
                   .shape = work->shape,
                   .dtype = dtype,
                   .value = as_unit(work, ours),
                   .unit = work->unit,
                   .seconds = ours};
  if (has_peer) {
    row.peer = by_caller ? "caller" : hy_device_provider(hy_stream_device(session->peer));
    row.peer_value = as_unit(work, theirs);
    row.ratio = theirs / ours;
  }
  double least =
      work->copies ? work->amount / work->copies->own : bench_least(session, &work->needs);
  if (least > 0) {
    row.floor = as_unit(work, least);
    row.of_floor = least / ours;
  }
  if (work->copies) row.memcpy = work->copies->memcpy / 1e9;
  bench_print(&row);
  return HY_OK;
}

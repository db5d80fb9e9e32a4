// all_reduce between the ranks that mpirun started (`mpirun -n 2 halyard bench comm`), beside
// MPI_Allreduce of the same library on the same buffers. Rank 0 prints.
#include <float.h>

#include "bench/bench.h"
#include "comm/mpi.h"

enum { ROUNDS = 9 };

typedef struct measured {
  double ours, theirs;  // seconds of a call, the best round's mean
} measured;

static hy_status all_reduce_ours(hy_comm* comm, hy_stream* stream, const float* in, float* out,
                                 int count) {
  return hy_comm_all_reduce(comm, stream, in, out, count, HY_F32, HY_REDUCE_SUM);
}

static hy_status all_reduce_theirs(hy_comm* comm, hy_stream* stream, const float* in, float* out,
                                   int count) {
  (void)stream;
  const hy__mpi_comm* mpi = hy__comm_handle(comm);
  int error = hy__mpi.call->allreduce(in, out, count, mpi->comm);
  return error ? hy__mpi_error(error, "MPI_Allreduce") : HY_OK;
}

static hy_status time_round(hy_comm* comm, hy_stream* stream, bool ours, const float* in,
                            float* out, int count, int calls, double* best) {
  HY_TRY(hy_comm_barrier(comm, stream));
  double start = bench_now();
  for (int i = 0; i < calls; i++)
    HY_TRY(ours ? all_reduce_ours(comm, stream, in, out, count)
                : all_reduce_theirs(comm, stream, in, out, count));
  double taken = (bench_now() - start) / calls;
  if (taken < *best) *best = taken;
  return HY_OK;
}

static hy_status measure(hy_comm* comm, hy_stream* stream, const float* in, float* out, int count,
                         measured* m) {
  int calls = count > 100000 ? 10 : count > 10000 ? 100 : 1000;
  *m = (measured){DBL_MAX, DBL_MAX};
  for (int round = 0; round < 2 * ROUNDS; round++)
    HY_TRY(time_round(comm, stream, round % 2 == 0, in, out, count, calls,
                      round % 2 == 0 ? &m->ours : &m->theirs));
  return HY_OK;
}

static hy_status run(hy_comm* comm, hy_stream* stream) {
  static const struct {
    const char* shape;
    int count;
  } sizes[] = {
      {"4 B", 1}, {"3.5 KiB", 896}, {"64 KiB", 16384}, {"1 MiB", 1 << 18}, {"8 MiB", 1 << 21}};
  enum { MOST = 1 << 21 };
  hy_device* device = hy_comm_device(comm);
  void *in, *out;
  HY_TRY(hy_alloc(stream, MOST * sizeof(float), &in));
  HY_TRY(hy_alloc(stream, MOST * sizeof(float), &out));
  HY_TRY(hy_memset(stream, in, 0, MOST * sizeof(float)));
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    measured m;
    if (!bench_wanted("all_reduce", sizes[i].shape, "f32")) continue;
    HY_TRY(measure(comm, stream, in, out, sizes[i].count, &m));
    if (hy_comm_rank(comm) == 0)
      bench_print(&(bench_row){.name = "all_reduce",
                               .shape = sizes[i].shape,
                               .dtype = "f32",
                               .value = 1e6 * m.ours,
                               .unit = "us",
                               .peer = "MPI_Allreduce",
                               .peer_value = 1e6 * m.theirs,
                               .ratio = m.theirs / m.ours});
  }
  hy_free(device, in);
  return hy_free(device, out);
}

hy_status bench_comm(hy_device* device) {
  int rank, size;
  hy_stream* stream;
  hy_comm* comm;
  HY_TRY(hy_comm_world_rank(&rank, &size));
  if (size == 1)
    return hy_fail(HY_UNSUPPORTED,
                   "bench comm measures between ranks: mpirun -n 2 halyard bench comm");
  if (!hy_device_is_host(device))
    return hy_fail(HY_UNSUPPORTED,
                   "bench comm compares with MPI in host memory: --backend cpu, not %s",
                   hy_device_selector(device));
  HY_TRY(hy_stream_default(device, &stream));
  HY_TRY(hy_comm_world(device, &comm));
  hy_status status = run(comm, stream);
  hy_comm_destroy(comm);
  return status;
}

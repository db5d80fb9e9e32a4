// Providers of communicators: who moves the bytes. `native` is the backend's own slots of plugin.h;
// `mpi` is an MPI library, for host memory and, staged through it, for every other device.
//
// comm.c has checked the arguments of what arrives here.
#ifndef HALYARD_COMM_PROVIDER_H_
#define HALYARD_COMM_PROVIDER_H_

#include "core/internal.h"
#include "halyard/comm.h"

// The collectives of plugin.h, and messages.
typedef enum hy__comm_kind {
  HY__ALL_REDUCE = HY_COLLECTIVE_ALL_REDUCE,
  HY__ALL_GATHER = HY_COLLECTIVE_ALL_GATHER,
  HY__REDUCE_SCATTER = HY_COLLECTIVE_REDUCE_SCATTER,
  HY__BROADCAST = HY_COLLECTIVE_BROADCAST,
  HY__SEND = 4,
  HY__RECV = 5,
  HY__BARRIER = HY_COLLECTIVE_BARRIER,
} hy__comm_kind;

// One collective or message, as plain data. `recv` is the buffer of a broadcast.
typedef struct hy__comm_call {
  hy__comm_kind kind;
  hy_dtype dtype;
  hy_reduce_op op;
  int peer;  // or the root
  uint64_t count;
  const void* send;
  void* recv;
  hy_stream* stream;
} hy__comm_call;

// `handle` is the provider's own, one per communicator.
typedef struct hy__comm_provider {
  const char* name;
  hy_status (*available)(const hy_device* device);  // why not, as message
  hy_status (*unique_id)(hy_device* device, hy_comm_id* id);
  hy_status (*init_rank)(hy_device* device, int n_ranks, const hy_comm_id* id, int rank,
                         void** handle);
  void (*destroy)(hy_device* device, void* handle);
  hy_status (*abort)(hy_device* device, void* handle);
  hy_status (*async_error)(hy_device* device, void* handle, hy_async_error* error);
  hy_status (*run)(hy_device* device, void* handle, const hy__comm_call* call);
  hy_status (*group_begin)(hy_device* device);
  hy_status (*group_end)(hy_device* device);
} hy__comm_provider;

extern const hy__comm_provider hy__comm_native, hy__comm_mpi;
const hy__comm_provider* hy__comm_provider_of(const hy_device* device);

// The provider's handle, for benchmarks that compare with the library below.
void* hy__comm_handle(const hy_comm* comm);
// A communicator that the provider has already made; takes the handle over, in failure too.
hy_status hy__comm_adopt(hy_device* device, const hy__comm_provider* provider, int n_ranks,
                         int rank, void* handle, hy_comm** comm);

// Seconds that a rank is waited for: HALYARD_COMM_TIMEOUT.
hy_status hy__comm_timeout(double* seconds);
const char* hy__comm_kind_name(hy__comm_kind kind);

#endif  // HALYARD_COMM_PROVIDER_H_

// Collectives by a vendor's library (HCCL, CNCL): the communicator slots of backends over
// vendor_runtime.h. The library is loaded when a communicator is first asked for.
//
// A backend fills hy__ccl with adapters of its library's functions, names it in its hy__vendor, and
// lists the functions below in its table. i16 and others that the library does not know move as
// bytes, averages are sums divided on the stream. One rank of a communicator to a process, one to a
// device.
#ifndef HALYARD_COMMON_COLLECTIVES_H_
#define HALYARD_COMMON_COLLECTIVES_H_

#include "backends/common/dlsym.h"
#include "backends/common/vendor_runtime.h"

// What a device says of itself, for who starts ranks: they are processes.
#define HY__CCL_PROPERTY "ranks=processes\n"

// Functions give the library's error, 0 where all is well. They are called with the device current.
typedef struct hy__ccl {
  const char *name, *file;  // "HCCL", "libhccl.so"
  const char* folders;      // as open_library takes them
  const char* remedy;       // how to get it
  const hy__symbol* symbols;
  int n_symbols;
  void* functions;           // where the symbols go
  hy_status (*check)(void);  // once they are bound: whether it is new enough; NULL: always
  hy_status (*fail)(int error, const char* what);
  const hy_provider* provider;  // divides
  size_t id_bytes;
  int types[HY_DTYPE_COUNT];  // the library's numbers, by type; -1 where it has none
  uint32_t reducible;         // types
  uint32_t no_product;        // those among them whose product it does not make
  int ops[HY_REDUCE_AVG];     // the library's numbers, by reduction
  bool (*has)(const hy__vendor_device* device, hy_dtype dtype);  // the device, of those types
  int (*unique_id)(void* id);
  int (*init_rank)(void** comm, int n_ranks, void* id, int rank, int device);
  int (*destroy)(void* comm);
  int (*abort)(void* comm);        // and destroys it
  int (*async_error)(void* comm);  // what has gone wrong since, or 0
  int (*all_reduce)(const void* send, void* recv, uint64_t count, int type, int op, void* comm,
                    void* queue);
  int (*all_gather)(const void* send, void* recv, uint64_t count, int type, void* comm,
                    void* queue);
  int (*reduce_scatter)(const void* send, void* recv, uint64_t count, int type, int op, void* comm,
                        void* queue);
  int (*broadcast)(void* buffer, uint64_t count, int type, int root, void* comm, void* queue);
  int (*send)(const void* buffer, uint64_t count, int type, int peer, void* comm, void* queue);
  int (*recv)(void* buffer, uint64_t count, int type, int peer, void* comm, void* queue);
  int (*barrier)(void* comm, void* queue);  // NULL: it has none
  int (*group_begin)(void);
  int (*group_end)(void);
} hy__ccl;

hy_status hy__ccl_unique_id(void* device, hy_comm_id* id);
hy_status hy__ccl_init_rank(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                            void** comm);
void hy__ccl_destroy(void* device, void* comm);
hy_status hy__ccl_abort(void* device, void* comm);
hy_status hy__ccl_async_error(void* device, void* comm, hy_async_error* error);
hy_status hy__ccl_all_reduce(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype, hy_reduce_op op);
hy_status hy__ccl_all_gather(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype);
hy_status hy__ccl_reduce_scatter(void* device, void* comm, void* stream, const void* send,
                                 void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op);
hy_status hy__ccl_broadcast(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                            hy_dtype dtype, int32_t root);
hy_status hy__ccl_send(void* device, void* comm, void* stream, const void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer);
hy_status hy__ccl_recv(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer);
hy_status hy__ccl_barrier(void* device, void* comm, void* stream);
hy_status hy__ccl_group_begin(void* device);
hy_status hy__ccl_group_end(void* device);

// The functions above, in a backend's table.
#define HY__CCL_SLOTS                                                         \
  .comm_unique_id = hy__ccl_unique_id, .comm_init_rank = hy__ccl_init_rank,   \
  .comm_destroy = hy__ccl_destroy, .comm_abort = hy__ccl_abort,               \
  .comm_async_error = hy__ccl_async_error, .all_reduce = hy__ccl_all_reduce,  \
  .all_gather = hy__ccl_all_gather, .reduce_scatter = hy__ccl_reduce_scatter, \
  .broadcast = hy__ccl_broadcast, .send = hy__ccl_send, .recv = hy__ccl_recv, \
  .barrier = hy__ccl_barrier, .group_begin = hy__ccl_group_begin, .group_end = hy__ccl_group_end

#endif  // HALYARD_COMMON_COLLECTIVES_H_

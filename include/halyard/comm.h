// Communicators: collectives (all_reduce, all_gather, reduce_scatter, broadcast, barrier) and
// messages between the devices of several threads, processes or machines.
//
// One rank makes an id and sends it to the others by means of its own; each then joins with its
// rank. Every rank makes the same collectives on a communicator in the same order, with the same
// count, type and op. They are enqueued on a stream and ordered with its other work; a failure
// arrives like any asynchronous one, on the stream and by hy_comm_async_error.
//
// Who moves the bytes: the backend where it has communicators, otherwise an MPI library, which is
// loaded when first asked for. With MPI a rank is a process that mpirun started, calls finish
// before they return, and memory that the host cannot reach is staged through memory that it can.
//
// A communicator is used by one thread at a time, but for hy_comm_abort and hy_comm_async_error.
// What is not destroyed before is aborted by hy_shutdown.
#ifndef HALYARD_COMM_H_
#define HALYARD_COMM_H_

#include "halyard/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_comm hy_comm;

// Whether the device has communicators; if not, hy_last_error says what is missing.
HY_API bool hy_comm_supported(const hy_device* device);
// Whether its own backend moves the bytes, not MPI. Loads nothing.
HY_API bool hy_comm_is_native(const hy_device* device);

// Which process of how many this is, as its launcher says: HALYARD_RANK and HALYARD_WORLD_SIZE, or
// what mpirun of Open MPI or of MPICH sets; 0 of 1 without a launcher. Starts nothing. Under
// torchrun, whose store is PyTorch's, an error unless HALYARD_COMM_FILE names a file for the id.
HY_API hy_status hy_comm_world_rank(int* rank, int* size);
// Which of the processes of this machine this is, for choosing a device: HALYARD_LOCAL_RANK, or
// what mpirun, srun or torchrun set; where they set nothing, the rank among all.
HY_API hy_status hy_comm_local_rank(int* rank);
// The first available of several names as for hy_device_get_first, or the default for NULL; a name
// without an index is the backend's device of the local rank, going round where there are fewer: so
// ranks of one machine have each its own.
HY_API hy_status hy_comm_world_device(const char* selectors, hy_device** device);
// Joins a communicator of all the launcher's processes, each with its rank. All of them call it.
// The id is exchanged by MPI or, where HALYARD_COMM_FILE names one, by a file. Without a launcher a
// communicator of one rank, which needs no library.
HY_API hy_status hy_comm_world(hy_device* device, hy_comm** comm);

// On one rank; the bytes are valid on every rank of the same backend until all have joined.
HY_API hy_status hy_comm_unique_id(hy_device* device, hy_comm_id* id);
// Joins as `rank` of 0 to n_ranks - 1 and waits for the other ranks; a rank that does not come is
// an error after the backend's time limit.
HY_API hy_status hy_comm_init_rank(hy_device* device, int n_ranks, const hy_comm_id* id, int rank,
                                   hy_comm** comm);
// Waits for its work, or after an abort for its end; NULL is fine.
HY_API void hy_comm_destroy(hy_comm* comm);
HY_API int hy_comm_rank(const hy_comm* comm);
HY_API int hy_comm_size(const hy_comm* comm);
HY_API hy_device* hy_comm_device(const hy_comm* comm);
HY_API const char* hy_comm_provider(const hy_comm* comm);  // "mpi", or the backend's name

// Makes what is under way end with an error soon, on this rank at least. From any thread; only
// hy_comm_async_error and hy_comm_destroy may follow.
HY_API hy_status hy_comm_abort(hy_comm* comm);
// HY_OK, or the first failure since it was made, with its message. From any thread; does not wait.
HY_API hy_status hy_comm_async_error(hy_comm* comm);

// Collectives on a stream that captures become nodes of its graph (graph.h) and are made by its
// launches; messages are refused there.
//
// Buffers are contiguous memory of the communicator's device, `count` is in elements. Reductions
// take floating-point and integer types, HY_REDUCE_AVG floating-point ones; what only moves takes
// every type of whole bytes. Buffers are the same where "in place" says so, or do not overlap.

//
// By MPI, a reduction goes through the ranks in order, ((r0 + r1) + r2) + ..., in the type itself;
// f16 and bf16 in f32, rounded once. An average is that sum divided by the number of ranks. So
// results repeat, are the same on all ranks, and equal a serial sum.

// recv[i] = the reduction of every rank's send[i]. In place: send == recv.
HY_API hy_status hy_comm_all_reduce(hy_comm* comm, hy_stream* stream, const void* send, void* recv,
                                    int64_t count, hy_dtype dtype, hy_reduce_op op);
// recv holds size * count elements: every rank's `count`, by rank. In place: send is the rank's own
// part of recv.
HY_API hy_status hy_comm_all_gather(hy_comm* comm, hy_stream* stream, const void* send, void* recv,
                                    int64_t count, hy_dtype dtype);
// send holds size * count elements; recv gets the reduction of part `rank`. In place: recv is the
// rank's own part of send.
HY_API hy_status hy_comm_reduce_scatter(hy_comm* comm, hy_stream* stream, const void* send,
                                        void* recv, int64_t count, hy_dtype dtype, hy_reduce_op op);
// Rank `root`'s elements go to all.
HY_API hy_status hy_comm_broadcast(hy_comm* comm, hy_stream* stream, void* buffer, int64_t count,
                                   hy_dtype dtype, int root);
// A send and the receive that meets it agree in count and type; between two ranks they meet in the
// order they were made. A send may wait for its receive.
HY_API hy_status hy_comm_send(hy_comm* comm, hy_stream* stream, const void* buffer, int64_t count,
                              hy_dtype dtype, int peer);
HY_API hy_status hy_comm_recv(hy_comm* comm, hy_stream* stream, void* buffer, int64_t count,
                              hy_dtype dtype, int peer);
// Work behind it on the stream begins when every rank's stream has come here.
HY_API hy_status hy_comm_barrier(hy_comm* comm, hy_stream* stream);

HY_API const char* hy_collective_name(hy_collective_kind kind);  // "all_reduce"

// What the calling thread starts on this device between the two proceeds together when the group
// ends, so that messages in any order, such as two ranks that send to one another, do not wait for
// one another. May be nested.
HY_API hy_status hy_comm_group_begin(hy_device* device);
HY_API hy_status hy_comm_group_end(hy_device* device);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_COMM_H_

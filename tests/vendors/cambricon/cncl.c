// libcncl.so for tests: CNCL. Signatures and enumerators are those of cncl.h in CNCL 1.25, and so
// are its rules: a clique id serves once in a process, a rank is one of the clique.
#include <stdlib.h>
#include <string.h>

#include "cambricon.h"
#include "ranks.h"

enum {
  CNCL_RET_SUCCESS = 0x0,
  CNCL_RET_ERR_UNSUPPORTED = 0x11,
  CNCL_RET_ERR_NULL_POINTER = 0x21,
  CNCL_RET_ERR_INIT = 0x51,
  CNCL_RET_ERR_REINIT = 0x71,
  CNCL_RET_ERR_SYS_MALLOC = 0x12,
  CNCL_RET_ERR_MLU_RUNTIME = 0x03,
  CNCL_RET_ASYNC_ERROR = 0x16,
  CNCL_RET_ERR_ARGUMENTS = 0x07,
};
struct cnclCliqueId {
  char data[128];
  uint64_t hash;
};

const int ranks_broken_code = 632003;  // a lost device

// cnclDataType_t: half and floats from 0x10, integers from 0x20, unsigned ones from 0x30.
static hy_dtype dtype_of(int type) {
  switch (type) {
    case 0x10: return HY_F16;
    case 0x11: return HY_BF16;
    case 0x12: return HY_F32;
    case 0x20: return HY_I8;
    case 0x21: return HY_I16;
    case 0x22: return HY_I32;
    case 0x23: return HY_I64;
    case 0x30: return HY_U8;
    default: return HY_NONE;
  }
}

// cnclReduceOp_t, by its values.
static const hy_reduce_op reductions[] = {HY_REDUCE_SUM, HY_REDUCE_PROD, HY_REDUCE_MAX,
                                          HY_REDUCE_MIN};

VENDOR_API int cnclGetLibVersion(int* major, int* minor, int* patch) {
  ENTER(cnclGetLibVersion);
  *major = 1;
  *minor = 25;
  *patch = 0;
  return CNCL_RET_SUCCESS;
}

VENDOR_API const char* cnclGetErrorStr(int ret) {
  return ret == CNCL_RET_ERR_ARGUMENTS ? "arguments are illegal" : "told by the test library";
}

// ---- communicators ----

VENDOR_API int cnclGetCliqueId(struct cnclCliqueId* clique_id) {
  ENTER(cnclGetCliqueId);
  ranks_make_id(clique_id->data, sizeof clique_id->data);
  clique_id->hash = 0;
  for (size_t i = 0; i < sizeof clique_id->data; i++)
    clique_id->hash = clique_id->hash * 31 + (unsigned char)clique_id->data[i];
  return CNCL_RET_SUCCESS;
}

static bool used_before(uint64_t hash) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static uint64_t used[4096];
  static int n;
  pthread_mutex_lock(&mutex);
  bool found = false;
  for (int i = 0; i < n; i++) found |= used[i] == hash;
  if (!found && n < 4096) used[n++] = hash;
  pthread_mutex_unlock(&mutex);
  return found;
}

VENDOR_API int cnclInitComms(void** comms, int num_comm, const int* dev_list, const int* rank_list,
                             int nrank, struct cnclCliqueId* clique_id) {
  ENTER(cnclInitComms);
  DEMAND(comms && dev_list && rank_list && clique_id, CNCL_RET_ERR_NULL_POINTER,
         "cnclInitComms: an argument is NULL");
  DEMAND(num_comm == 1, CNCL_RET_ERR_UNSUPPORTED, "cnclInitComms: %d communicators at once",
         num_comm);
  DEMAND(rank_list[0] >= 0 && rank_list[0] < nrank, CNCL_RET_ERR_ARGUMENTS,
         "cnclInitComms: rank %d of %d", rank_list[0], nrank);
  DEMAND(dev_list[0] == cambricon_device("cnclInitComms"), CNCL_RET_ERR_ARGUMENTS,
         "cnclInitComms: device %d is not the current one", dev_list[0]);
  DEMAND(!used_before(clique_id->hash), CNCL_RET_ERR_REINIT,
         "cnclInitComms: a clique id serves once in a process");
  ranks_comm* c = calloc(1, sizeof *c);
  if (!c) return CNCL_RET_ERR_SYS_MALLOC;
  hy_status status =
      ranks_join(c, dev_list[0], nrank, rank_list[0], clique_id->data, sizeof clique_id->data);
  if (status != HY_OK) {
    free(c);
    return status == HY_INVALID_ARGUMENT ? CNCL_RET_ERR_ARGUMENTS : CNCL_RET_ERR_INIT;
  }
  vendor_born(c, "comm");
  comms[0] = c;
  return CNCL_RET_SUCCESS;
}

VENDOR_API int cnclFreeComm(void* comm) {
  ENTER(cnclFreeComm);
  DEMAND(vendor_dies(comm, "comm"), CNCL_RET_ERR_ARGUMENTS, "cnclFreeComm: %p is none, or no more",
         comm);
  ranks_leave(comm);
  free(comm);
  return CNCL_RET_SUCCESS;
}

VENDOR_API int cnclAbortComm(void* comm) {
  ENTER(cnclAbortComm);
  DEMAND(vendor_dies(comm, "comm"), CNCL_RET_ERR_ARGUMENTS, "cnclAbortComm: %p is none, or no more",
         comm);
  guarded_comm_abort(NULL, ((ranks_comm*)comm)->rank);
  ranks_leave(comm);
  free(comm);
  return CNCL_RET_SUCCESS;
}

VENDOR_API int cnclGetCommAsyncError(void* comm) {
  ENTER(cnclGetCommAsyncError);
  DEMAND(vendor_alive(comm, "comm"), CNCL_RET_ERR_ARGUMENTS,
         "cnclGetCommAsyncError: %p is no communicator", comm);
  hy_async_error error;
  return guarded_comm_async_error(NULL, ((ranks_comm*)comm)->rank, &error) == HY_OK
             ? CNCL_RET_SUCCESS
             : CNCL_RET_ASYNC_ERROR;
}

// ---- collectives ----

static int check(const char* call, const ranks_comm* c, const void* queue) {
  DEMAND(vendor_alive(c, "comm"), CNCL_RET_ERR_ARGUMENTS, "%s: %p is no communicator", call,
         (const void*)c);
  if (cambricon_device(call) < 0 || !cambricon_queue_fits(call, queue))
    return CNCL_RET_ERR_MLU_RUNTIME;
  DEMAND(vendor_queue_device(queue) == c->device, CNCL_RET_ERR_ARGUMENTS,
         "%s: the communicator is of device %d, the queue of %d", call, c->device,
         vendor_queue_device(queue));
  DEMAND(!vendor_queue_is_capturing(queue), CNCL_RET_ERR_UNSUPPORTED, "%s: the queue is captured",
         call);
  return CNCL_RET_SUCCESS;
}

static int check_data(const char* call, const ranks_comm* c, const void* at, size_t count,
                      size_t parts, int type) {
  hy_dtype dtype = dtype_of(type);
  DEMAND(dtype != HY_NONE, CNCL_RET_ERR_UNSUPPORTED, "%s: data type %#x", call, (unsigned)type);
  DEMAND(dtype != HY_BF16 || cambricon_has_bf16(), CNCL_RET_ERR_UNSUPPORTED,
         "%s: this device has no bf16", call);
  DEMAND(count > 0, CNCL_RET_ERR_ARGUMENTS, "%s of nothing", call);
  DEMAND(vendor_memory_reach(c->device, at, count * parts * hy_dtype_size(dtype)),
         CNCL_RET_ERR_ARGUMENTS, "%s: %p has no %zu times %zu elements of type %#x", call, at,
         parts, count, (unsigned)type);
  return CNCL_RET_SUCCESS;
}

#define RULE(expression)                         \
  do {                                           \
    int code_ = (expression);                    \
    if (code_ != CNCL_RET_SUCCESS) return code_; \
  } while (0)

#define COMM(name)                           \
  ENTER(name);                               \
  ranks_comm* c = comm;                      \
  RULE(check(#name, c, queue));              \
  void* on = ranks_device(c->device);        \
  size_t n_ranks = (size_t)c->rank->n_ranks; \
  (void)n_ranks

#define DATA(name, at, count, parts) RULE(check_data(#name, c, at, count, parts, data_type))

static int result(hy_status status) {
  return status == HY_OK ? CNCL_RET_SUCCESS : CNCL_RET_ERR_MLU_RUNTIME;
}

VENDOR_API int cnclAllReduce(const void* send_buffer, void* recv_buffer, size_t count,
                             int data_type, int reduce_op, void* comm, void* queue) {
  COMM(cnclAllReduce);
  DATA(cnclAllReduce, send_buffer, count, 1);
  DATA(cnclAllReduce, recv_buffer, count, 1);
  DEMAND(reduce_op >= 0 && reduce_op <= 3, CNCL_RET_ERR_ARGUMENTS, "cnclAllReduce: reduction %d",
         reduce_op);
  return result(guarded_all_reduce(on, c->rank, queue, send_buffer, recv_buffer, count,
                                   dtype_of(data_type), reductions[reduce_op]));
}

VENDOR_API int cnclAllGather(const void* send_buffer, void* recv_buffer, size_t count,
                             int data_type, void* comm, void* queue) {
  COMM(cnclAllGather);
  DATA(cnclAllGather, send_buffer, count, 1);
  DATA(cnclAllGather, recv_buffer, count, n_ranks);
  return result(
      guarded_all_gather(on, c->rank, queue, send_buffer, recv_buffer, count, dtype_of(data_type)));
}

VENDOR_API int cnclReduceScatter(const void* send_buffer, void* recv_buffer, size_t count,
                                 int data_type, int reduce_op, void* comm, void* queue) {
  COMM(cnclReduceScatter);
  DATA(cnclReduceScatter, send_buffer, count, n_ranks);
  DATA(cnclReduceScatter, recv_buffer, count, 1);
  DEMAND(reduce_op >= 0 && reduce_op <= 3, CNCL_RET_ERR_ARGUMENTS,
         "cnclReduceScatter: reduction %d", reduce_op);
  return result(guarded_reduce_scatter(on, c->rank, queue, send_buffer, recv_buffer, count,
                                       dtype_of(data_type), reductions[reduce_op]));
}

VENDOR_API int cnclBroadcast(const void* send_buffer, void* recv_buffer, size_t count,
                             int data_type, int root, void* comm, void* queue) {
  COMM(cnclBroadcast);
  DATA(cnclBroadcast, recv_buffer, count, 1);
  DEMAND(send_buffer == recv_buffer, CNCL_RET_ERR_UNSUPPORTED,
         "cnclBroadcast: this library does it in place");
  DEMAND(root >= 0 && (size_t)root < n_ranks, CNCL_RET_ERR_ARGUMENTS, "cnclBroadcast: root %d",
         root);
  return result(
      guarded_broadcast(on, c->rank, queue, recv_buffer, count, dtype_of(data_type), root));
}

VENDOR_API int cnclSend(void* buffer, size_t count, int data_type, int dest, void* comm,
                        void* queue) {
  COMM(cnclSend);
  DATA(cnclSend, buffer, count, 1);
  DEMAND(dest >= 0 && (size_t)dest < n_ranks && dest != c->rank->rank, CNCL_RET_ERR_ARGUMENTS,
         "cnclSend: rank %d", dest);
  return result(guarded_send(on, c->rank, queue, buffer, count, dtype_of(data_type), dest));
}

VENDOR_API int cnclRecv(void* buffer, size_t count, int data_type, int source, void* comm,
                        void* queue) {
  COMM(cnclRecv);
  DATA(cnclRecv, buffer, count, 1);
  DEMAND(source >= 0 && (size_t)source < n_ranks && source != c->rank->rank, CNCL_RET_ERR_ARGUMENTS,
         "cnclRecv: rank %d", source);
  return result(guarded_recv(on, c->rank, queue, buffer, count, dtype_of(data_type), source));
}

static _Thread_local int depth;

VENDOR_API int cnclGroupStart(void) {
  ENTER(cnclGroupStart);
  depth++;
  guarded_group_begin(NULL);
  return CNCL_RET_SUCCESS;
}

// A group that fails is over.
VENDOR_API int cnclGroupEnd(void) {
  int injected = vendor_enter("cnclGroupEnd");
  DEMAND(depth > 0, CNCL_RET_ERR_ARGUMENTS, "cnclGroupEnd without cnclGroupStart");
  depth--;
  int ended = result(guarded_group_end(NULL));
  return injected ? injected : ended;
}

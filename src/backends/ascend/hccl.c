// HCCL, the collectives of Ascend NPUs, for common/collectives.c. Messages of a group become one
// HcclBatchSendRecv for each communicator and stream. HCCL has no abort: a communicator that is
// given up is destroyed, and the others wait for it by HCCL's own time limits.
#include <stdlib.h>

#include "backends/ascend/ascend.h"
#include "backends/common/collectives.h"

typedef struct hccl_api {
#define HY_HCCL(type, name, arguments) type(*name) arguments;
#include "backends/ascend/hccl.def"
} hccl_api;
static hccl_api hccl;

static const hy__symbol symbols[] = {
#define HY_HCCL(type, name, arguments) {#name, offsetof(hccl_api, name)},
#include "backends/ascend/hccl.def"
};

// hccl/hccl_types.h
enum { E_PARA = 1, E_MEMORY = 3, E_NOT_SUPPORT = 5 };  // HcclResult
enum { ROOT_INFO_BYTES = 4108 };
enum { SUM = 0, PROD = 1, MAX = 2, MIN = 3 };  // HcclReduceOp
typedef struct send_recv_item {
  int kind;
  void* buffer;
  uint64_t count;
  int type;
  uint32_t peer;
} send_recv_item;
enum { ITEM_SEND = 0, ITEM_RECV = 1 };

_Static_assert(ROOT_INFO_BYTES <= HY_COMM_ID_BYTES, "an id holds it");

static hy_status fail(int error, const char* what) {
  const char* said = hccl.HcclGetErrorString(error);
  hy_status status = error == E_MEMORY        ? HY_OUT_OF_MEMORY
                     : error == E_NOT_SUPPORT ? HY_UNSUPPORTED
                     : error == E_PARA        ? HY_INVALID_ARGUMENT
                                              : HY_DEVICE_FAILED;
  return hy__backend_host->fail(status, "ascend: %s: HCCL: %.200s (%d)", what,
                                said ? said : "no message", error);
}

// ---- joining and leaving ----

static int unique_id(void* id) {
  return hccl.HcclGetRootInfo(id);
}
static int init_rank(void** comm, int n_ranks, void* id, int rank, int device) {
  (void)device;  // the current one
  return hccl.HcclCommInitRootInfo((uint32_t)n_ranks, id, (uint32_t)rank, comm);
}
static int destroy(void* comm) {
  return hccl.HcclCommDestroy(comm);
}
static int async_error(void* comm) {
  int found = 0, error = hccl.HcclGetCommAsyncError(comm, &found);
  return error ? error : found;
}

// ---- groups ----

static _Thread_local struct {
  int depth, n, capacity;
  struct grouped {
    void *comm, *queue;  // NULL: it has been sent
    send_recv_item item;
  } * list;
} group;

static int message(void* comm, void* queue, send_recv_item item) {
  if (group.depth == 0)
    return item.kind == ITEM_SEND
               ? hccl.HcclSend(item.buffer, item.count, item.type, item.peer, comm, queue)
               : hccl.HcclRecv(item.buffer, item.count, item.type, item.peer, comm, queue);
  if (group.n == group.capacity) {
    int capacity = group.capacity ? 2 * group.capacity : 16;
    struct grouped* list = realloc(group.list, (size_t)capacity * sizeof *list);
    if (!list) return E_MEMORY;
    group.list = list;
    group.capacity = capacity;
  }
  group.list[group.n++] = (struct grouped){comm, queue, item};
  return 0;
}

static int group_begin(void) {
  group.depth++;
  return 0;
}

// Those of one communicator on one stream together, in their order.
static int send_batch(int first, send_recv_item* items) {
  void *comm = group.list[first].comm, *queue = group.list[first].queue;
  uint32_t n = 0;
  for (int i = first; i < group.n; i++) {
    if (group.list[i].comm != comm || group.list[i].queue != queue) continue;
    items[n++] = group.list[i].item;
    group.list[i].comm = NULL;
  }
  return hccl.HcclBatchSendRecv(items, n, comm, queue);
}

static int group_end(void) {
  if (--group.depth > 0 || group.n == 0) return 0;
  send_recv_item* items = malloc((size_t)group.n * sizeof *items);
  int error = items ? 0 : E_MEMORY;
  for (int i = 0; i < group.n && !error; i++)
    if (group.list[i].comm) error = send_batch(i, items);
  free(items);
  free(group.list);
  group.list = NULL;
  group.n = group.capacity = 0;
  return error;
}

// ---- collectives ----

static int all_reduce(const void* send, void* recv, uint64_t count, int type, int op, void* comm,
                      void* queue) {
  return hccl.HcclAllReduce((void*)send, recv, count, type, op, comm, queue);
}
static int all_gather(const void* send, void* recv, uint64_t count, int type, void* comm,
                      void* queue) {
  return hccl.HcclAllGather((void*)send, recv, count, type, comm, queue);
}
static int reduce_scatter(const void* send, void* recv, uint64_t count, int type, int op,
                          void* comm, void* queue) {
  return hccl.HcclReduceScatter((void*)send, recv, count, type, op, comm, queue);
}
static int broadcast(void* buffer, uint64_t count, int type, int root, void* comm, void* queue) {
  return hccl.HcclBroadcast(buffer, count, type, (uint32_t)root, comm, queue);
}
static int send(const void* buffer, uint64_t count, int type, int peer, void* comm, void* queue) {
  return message(comm, queue,
                 (send_recv_item){ITEM_SEND, (void*)buffer, count, type, (uint32_t)peer});
}
static int recv(void* buffer, uint64_t count, int type, int peer, void* comm, void* queue) {
  return message(comm, queue, (send_recv_item){ITEM_RECV, buffer, count, type, (uint32_t)peer});
}
static int barrier(void* comm, void* queue) {
  return hccl.HcclBarrier(comm, queue);
}

const hy__ccl hy__ascend_ccl = {
    .name = "HCCL",
    .file = "libhccl.so",
    .folders = HY__CANN_FOLDERS,
    .remedy = "it comes with CANN",
    .symbols = symbols,
    .n_symbols = sizeof symbols / sizeof symbols[0],
    .functions = &hccl,
    .fail = fail,
    .provider = &hy__ascend_provider,
    .types = {[HY_NONE] = -1,
              [HY_F32] = 4,
              [HY_F16] = 3,
              [HY_BF16] = 11,
              [HY_F64] = 10,
              [HY_I8] = 0,
              [HY_U8] = 7,
              [HY_I16] = 1,
              [HY_I32] = 2,
              [HY_I64] = 5,
              [HY_BOOL] = -1,
              [HY_I4] = -1,
              [HY_F8E4M3] = -1,
              [HY_F8E5M2] = -1},
    .reducible = HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_BF16) |
                 HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_I16) | HY_DTYPE_BIT(HY_I32) |
                 HY_DTYPE_BIT(HY_I64),
    .no_product = HY_DTYPE_BIT(HY_BF16) | HY_DTYPE_BIT(HY_I16),
    .ops = {[HY_REDUCE_SUM] = SUM,
            [HY_REDUCE_PROD] = PROD,
            [HY_REDUCE_MIN] = MIN,
            [HY_REDUCE_MAX] = MAX},
    .unique_id = unique_id,
    .init_rank = init_rank,
    .destroy = destroy,
    .abort = destroy,
    .async_error = async_error,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .barrier = barrier,
    .group_begin = group_begin,
    .group_end = group_end,
};

// libhccl.so for tests: HCCL. Signatures and enumerators are those of hccl/hccl.h and
// hccl/hccl_types.h in CANN 8.1.RC1. The types that functions take are those of the public
// documents of CANN 9.1 (hccl/docs: HcclAllReduce, HcclReduceScatter) for Atlas A2 and newer.
#include <stdlib.h>
#include <string.h>

#include "ascend.h"
#include "ranks.h"

enum {
  HCCL_SUCCESS = 0,
  HCCL_E_PARA = 1,
  HCCL_E_PTR = 2,
  HCCL_E_MEMORY = 3,
  HCCL_E_NOT_SUPPORT = 5,
  HCCL_E_TIMEOUT = 9,
  HCCL_E_RUNTIME = 15,
  HCCL_E_REMOTE = 21,
};
enum { HCCL_ROOT_INFO_BYTES = 4108 };
typedef struct HcclRootInfo {
  char internal[HCCL_ROOT_INFO_BYTES];
} HcclRootInfo;

typedef struct HcclSendRecvItem {
  int sendRecvType;
  void* buf;
  uint64_t count;
  int dataType;
  uint32_t remoteRank;
} HcclSendRecvItem;
enum { HCCL_SEND = 0, HCCL_RECV = 1 };

const int ranks_broken_code = ACL_ERROR_RT_AICORE_EXCEPTION;

// HcclDataType, by its values.
static const struct {
  hy_dtype dtype;
  bool reduces;
} types[] = {
    [0] = {HY_I8, true},  [1] = {HY_I16, true},   [2] = {HY_I32, true},
    [3] = {HY_F16, true}, [4] = {HY_F32, true},   [5] = {HY_I64, true},
    [7] = {HY_U8, false}, [10] = {HY_F64, false}, [11] = {HY_BF16, true},
};

// HcclReduceOp, by its values.
static const hy_reduce_op reductions[] = {HY_REDUCE_SUM, HY_REDUCE_PROD, HY_REDUCE_MAX,
                                          HY_REDUCE_MIN};

VENDOR_API const char* HcclGetErrorString(int code) {
  return code == HCCL_E_PARA     ? "parameter error"
         : code == HCCL_E_MEMORY ? "memory error"
         : code == HCCL_E_REMOTE ? "error cqe"
                                 : "told by the test library";
}

// ---- communicators ----

VENDOR_API int HcclGetRootInfo(HcclRootInfo* rootInfo) {
  ENTER(HcclGetRootInfo);
  if (ascend_device("HcclGetRootInfo") < 0) return HCCL_E_RUNTIME;
  ranks_make_id(rootInfo->internal, sizeof rootInfo->internal);
  return HCCL_SUCCESS;
}

VENDOR_API int HcclCommInitRootInfo(uint32_t nRanks, const HcclRootInfo* rootInfo, uint32_t rank,
                                    void** comm) {
  ENTER(HcclCommInitRootInfo);
  int device = ascend_device("HcclCommInitRootInfo");
  if (device < 0) return HCCL_E_RUNTIME;
  DEMAND(rootInfo && comm, HCCL_E_PTR, "HcclCommInitRootInfo: an argument is NULL");
  DEMAND(nRanks > 0 && rank < nRanks, HCCL_E_PARA, "HcclCommInitRootInfo: rank %u of %u", rank,
         nRanks);
  ranks_comm* c = calloc(1, sizeof *c);
  if (!c) return HCCL_E_MEMORY;
  hy_status status =
      ranks_join(c, device, (int)nRanks, (int)rank, rootInfo->internal, sizeof rootInfo->internal);
  if (status != HY_OK) {
    free(c);
    return status == HY_INVALID_ARGUMENT ? HCCL_E_PARA : HCCL_E_TIMEOUT;
  }
  vendor_born(c, "comm");
  *comm = c;
  return HCCL_SUCCESS;
}

// What is still under way ends with an error, on every rank.
VENDOR_API int HcclCommDestroy(void* comm) {
  ENTER(HcclCommDestroy);
  DEMAND(vendor_dies(comm, "comm"), HCCL_E_PARA, "HcclCommDestroy: %p is none, or no more", comm);
  ranks_comm* c = comm;
  if (ranks_are_working(c)) guarded_comm_abort(NULL, c->rank);
  ranks_leave(c);
  free(c);
  return HCCL_SUCCESS;
}

VENDOR_API int HcclGetCommAsyncError(void* comm, int* asyncError) {
  ENTER(HcclGetCommAsyncError);
  DEMAND(vendor_alive(comm, "comm"), HCCL_E_PARA, "HcclGetCommAsyncError: %p is no communicator",
         comm);
  hy_async_error error;
  *asyncError = guarded_comm_async_error(NULL, ((ranks_comm*)comm)->rank, &error) == HY_OK
                    ? HCCL_SUCCESS
                    : HCCL_E_REMOTE;
  return HCCL_SUCCESS;
}

// ---- collectives ----

// The rules that all have in common; HCCL_SUCCESS where they are kept.
static int check(const char* call, const ranks_comm* c, const void* stream) {
  DEMAND(vendor_alive(c, "comm"), HCCL_E_PARA, "%s: %p is no communicator", call, (const void*)c);
  if (ascend_device(call) < 0 || !ascend_stream_fits(call, stream)) return HCCL_E_RUNTIME;
  DEMAND(vendor_queue_device(stream) == c->device, HCCL_E_PARA,
         "%s: the communicator is of device %d, the stream of %d", call, c->device,
         vendor_queue_device(stream));
  DEMAND(!vendor_queue_is_capturing(stream), HCCL_E_NOT_SUPPORT, "%s: the stream is captured",
         call);
  return HCCL_SUCCESS;
}

static int check_data(const char* call, const ranks_comm* c, const void* at, uint64_t count,
                      uint64_t parts, int type, bool reduces) {
  const int n = (int)(sizeof types / sizeof types[0]);
  DEMAND(type >= 0 && type < n && types[type].dtype != HY_NONE, HCCL_E_PARA, "%s: data type %d",
         call, type);
  DEMAND(!reduces || types[type].reduces, HCCL_E_NOT_SUPPORT, "%s does not reduce data type %d",
         call, type);
  DEMAND(types[type].dtype != HY_BF16 || ascend_has_bf16(), HCCL_E_NOT_SUPPORT,
         "%s: this chip has no bf16", call);
  DEMAND(count > 0, HCCL_E_PARA, "%s of nothing", call);
  DEMAND(vendor_memory_reach(c->device, at, count * parts * hy_dtype_size(types[type].dtype)),
         HCCL_E_PARA, "%s: %p has no %llu times %llu elements of type %d", call, at,
         (unsigned long long)parts, (unsigned long long)count, type);
  return HCCL_SUCCESS;
}

#define RULE(expression)                     \
  do {                                       \
    int code_ = (expression);                \
    if (code_ != HCCL_SUCCESS) return code_; \
  } while (0)

#define COMM(name)                               \
  ENTER(name);                                   \
  ranks_comm* c = comm;                          \
  RULE(check(#name, c, stream));                 \
  void* on = ranks_device(c->device);            \
  uint64_t n_ranks = (uint64_t)c->rank->n_ranks; \
  (void)n_ranks

#define DATA(name, at, count, parts, reduces) \
  RULE(check_data(#name, c, at, count, parts, dataType, reduces))

static int check_reduction(const char* call, int type, int op) {
  enum { PROD = 1 };
  DEMAND(op >= 0 && op <= 3, HCCL_E_PARA, "%s: reduction %d", call, op);
  DEMAND(op != PROD || (types[type].dtype != HY_I16 && types[type].dtype != HY_BF16),
         HCCL_E_NOT_SUPPORT, "%s makes no product of data type %d", call, type);
  return HCCL_SUCCESS;
}

static int result(hy_status status) {
  return status == HY_OK ? HCCL_SUCCESS : HCCL_E_RUNTIME;
}

VENDOR_API int HcclAllReduce(void* sendBuf, void* recvBuf, uint64_t count, int dataType, int op,
                             void* comm, void* stream) {
  COMM(HcclAllReduce);
  DATA(HcclAllReduce, sendBuf, count, 1, true);
  DATA(HcclAllReduce, recvBuf, count, 1, true);
  RULE(check_reduction("HcclAllReduce", dataType, op));
  return result(guarded_all_reduce(on, c->rank, stream, sendBuf, recvBuf, count,
                                   types[dataType].dtype, reductions[op]));
}

VENDOR_API int HcclAllGather(void* sendBuf, void* recvBuf, uint64_t sendCount, int dataType,
                             void* comm, void* stream) {
  COMM(HcclAllGather);
  DATA(HcclAllGather, sendBuf, sendCount, 1, false);
  DATA(HcclAllGather, recvBuf, sendCount, n_ranks, false);
  return result(
      guarded_all_gather(on, c->rank, stream, sendBuf, recvBuf, sendCount, types[dataType].dtype));
}

VENDOR_API int HcclReduceScatter(void* sendBuf, void* recvBuf, uint64_t recvCount, int dataType,
                                 int op, void* comm, void* stream) {
  COMM(HcclReduceScatter);
  DATA(HcclReduceScatter, sendBuf, recvCount, n_ranks, true);
  DATA(HcclReduceScatter, recvBuf, recvCount, 1, true);
  RULE(check_reduction("HcclReduceScatter", dataType, op));
  return result(guarded_reduce_scatter(on, c->rank, stream, sendBuf, recvBuf, recvCount,
                                       types[dataType].dtype, reductions[op]));
}

VENDOR_API int HcclBroadcast(void* buf, uint64_t count, int dataType, uint32_t root, void* comm,
                             void* stream) {
  COMM(HcclBroadcast);
  DATA(HcclBroadcast, buf, count, 1, false);
  DEMAND(root < n_ranks, HCCL_E_PARA, "HcclBroadcast: root %u", root);
  return result(
      guarded_broadcast(on, c->rank, stream, buf, count, types[dataType].dtype, (int32_t)root));
}

VENDOR_API int HcclSend(void* sendBuf, uint64_t count, int dataType, uint32_t destRank, void* comm,
                        void* stream) {
  COMM(HcclSend);
  DATA(HcclSend, sendBuf, count, 1, false);
  DEMAND(destRank < n_ranks && (int)destRank != c->rank->rank, HCCL_E_PARA, "HcclSend: rank %u",
         destRank);
  return result(
      guarded_send(on, c->rank, stream, sendBuf, count, types[dataType].dtype, (int32_t)destRank));
}

VENDOR_API int HcclRecv(void* recvBuf, uint64_t count, int dataType, uint32_t srcRank, void* comm,
                        void* stream) {
  COMM(HcclRecv);
  DATA(HcclRecv, recvBuf, count, 1, false);
  DEMAND(srcRank < n_ranks && (int)srcRank != c->rank->rank, HCCL_E_PARA, "HcclRecv: rank %u",
         srcRank);
  return result(
      guarded_recv(on, c->rank, stream, recvBuf, count, types[dataType].dtype, (int32_t)srcRank));
}

VENDOR_API int HcclBatchSendRecv(HcclSendRecvItem* sendRecvInfo, uint32_t itemNum, void* comm,
                                 void* stream) {
  COMM(HcclBatchSendRecv);
  DEMAND(itemNum > 0, HCCL_E_PARA, "HcclBatchSendRecv of nothing");
  guarded_group_begin(on);
  int code = HCCL_SUCCESS;
  for (uint32_t i = 0; i < itemNum && code == HCCL_SUCCESS; i++) {
    const HcclSendRecvItem* item = &sendRecvInfo[i];
    if (item->sendRecvType == HCCL_SEND)
      code = HcclSend(item->buf, item->count, item->dataType, item->remoteRank, comm, stream);
    else
      code = HcclRecv(item->buf, item->count, item->dataType, item->remoteRank, comm, stream);
  }
  hy_status ended = guarded_group_end(on);
  return code == HCCL_SUCCESS ? result(ended) : code;
}

VENDOR_API int HcclBarrier(void* comm, void* stream) {
  COMM(HcclBarrier);
  return result(guarded_barrier(on, c->rank, stream));
}

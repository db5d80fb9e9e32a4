// CNCL, the collectives of Cambricon MLUs, for common/collectives.c. A clique id serves once in a
// process, and all ranks of a clique are to leave together.
#include "backends/cambricon/cambricon.h"
#include "backends/common/collectives.h"

typedef struct cncl_api {
#define HY_CNCL(type, name, arguments) type(*name) arguments;
#include "backends/cambricon/cncl.def"
} cncl_api;
static cncl_api cncl;

static const hy__symbol symbols[] = {
#define HY_CNCL(type, name, arguments) {#name, offsetof(cncl_api, name)},
#include "backends/cambricon/cncl.def"
};

// cncl.h
enum {  // cnclResult_t
  ERR_UNSUPPORTED = 0x11,
  ERR_SYS_MALLOC = 0x12,
  ERR_CNRT_MALLOC = 0x33,
  ASYNC_IN_PROGRESS = 0x06,
  ERR_ARGUMENTS = 0x07,
  ERR_MLU_ALLOCATE = 0x08,
};
enum { SUM = 0, PROD = 1, MAX = 2, MIN = 3 };  // cnclReduceOp_t
typedef struct clique_id {
  char data[128];
  uint64_t hash;
} clique_id;

_Static_assert(sizeof(clique_id) <= HY_COMM_ID_BYTES, "an id holds it");

static hy_status fail(int error, const char* what) {
  const char* said = cncl.cnclGetErrorStr(error);
  bool memory = error == ERR_SYS_MALLOC || error == ERR_CNRT_MALLOC || error == ERR_MLU_ALLOCATE;
  hy_status status = memory                     ? HY_OUT_OF_MEMORY
                     : error == ERR_UNSUPPORTED ? HY_UNSUPPORTED
                     : error == ERR_ARGUMENTS   ? HY_INVALID_ARGUMENT
                                                : HY_DEVICE_FAILED;
  return hy__backend_host->fail(status, "cambricon: %s: CNCL: %.200s (%#x)", what,
                                said ? said : "no message", (unsigned)error);
}

static hy_status check(void) {
  int version[3] = {0};
  int error = cncl.cnclGetLibVersion(&version[0], &version[1], &version[2]);
  if (error) return fail(error, "asking CNCL for its version");
  hy__backend_host->log(2, "cambricon: CNCL %d.%d.%d", version[0], version[1], version[2]);
  return HY_OK;
}

// ---- joining and leaving ----

static int unique_id(void* id) {
  return cncl.cnclGetCliqueId(id);
}
static int init_rank(void** comm, int n_ranks, void* id, int rank, int device) {
  return cncl.cnclInitComms(comm, 1, &device, &rank, n_ranks, id);
}
static int destroy(void* comm) {
  return cncl.cnclFreeComm(comm);
}
static int abort_comm(void* comm) {
  return cncl.cnclAbortComm(comm);
}
static int async_error(void* comm) {
  int found = cncl.cnclGetCommAsyncError(comm);
  return found == ASYNC_IN_PROGRESS ? 0 : found;
}

// ---- collectives ----

static int all_reduce(const void* send, void* recv, uint64_t count, int type, int op, void* comm,
                      void* queue) {
  return cncl.cnclAllReduce(send, recv, count, type, op, comm, queue);
}
static int all_gather(const void* send, void* recv, uint64_t count, int type, void* comm,
                      void* queue) {
  return cncl.cnclAllGather(send, recv, count, type, comm, queue);
}
static int reduce_scatter(const void* send, void* recv, uint64_t count, int type, int op,
                          void* comm, void* queue) {
  return cncl.cnclReduceScatter(send, recv, count, type, op, comm, queue);
}
static int broadcast(void* buffer, uint64_t count, int type, int root, void* comm, void* queue) {
  return cncl.cnclBroadcast(buffer, buffer, count, type, root, comm, queue);
}
static int send(const void* buffer, uint64_t count, int type, int peer, void* comm, void* queue) {
  return cncl.cnclSend((void*)buffer, count, type, peer, comm, queue);
}
static int recv(void* buffer, uint64_t count, int type, int peer, void* comm, void* queue) {
  return cncl.cnclRecv(buffer, count, type, peer, comm, queue);
}
static int group_begin(void) {
  return cncl.cnclGroupStart();
}
static int group_end(void) {
  return cncl.cnclGroupEnd();
}

const hy__ccl hy__cambricon_ccl = {
    .name = "CNCL",
    .file = "libcncl.so",
    .folders = HY__NEUWARE_FOLDERS,
    .remedy = "it comes with Neuware",
    .symbols = symbols,
    .n_symbols = sizeof symbols / sizeof symbols[0],
    .functions = &cncl,
    .check = check,
    .fail = fail,
    .provider = &hy__cambricon_provider,
    .types = {[HY_NONE] = -1,
              [HY_F32] = 0x12,
              [HY_F16] = 0x10,
              [HY_BF16] = 0x11,
              [HY_F64] = -1,
              [HY_I8] = 0x20,
              [HY_U8] = 0x30,
              [HY_I16] = 0x21,
              [HY_I32] = 0x22,
              [HY_I64] = 0x23,
              [HY_BOOL] = -1,
              [HY_I4] = -1,
              [HY_F8E4M3] = -1,
              [HY_F8E5M2] = -1},
    .reducible = HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_BF16) |
                 HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_U8) | HY_DTYPE_BIT(HY_I16) |
                 HY_DTYPE_BIT(HY_I32) | HY_DTYPE_BIT(HY_I64),
    .ops = {[HY_REDUCE_SUM] = SUM,
            [HY_REDUCE_PROD] = PROD,
            [HY_REDUCE_MIN] = MIN,
            [HY_REDUCE_MAX] = MAX},
    .unique_id = unique_id,
    .init_rank = init_rank,
    .destroy = destroy,
    .abort = abort_comm,
    .async_error = async_error,
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .broadcast = broadcast,
    .send = send,
    .recv = recv,
    .group_begin = group_begin,
    .group_end = group_end,
};

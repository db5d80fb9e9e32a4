// Mutation of the cambricon backend, and misuse of the test library on purpose: swapped arguments,
// a workspace left out, descriptors unset, set twice or dead, another thread's device. Each must be
// seen.
#include <dlfcn.h>

#include "../common/test_backend.h"

static void *runtime, *ops;

static int set_up(void** state) {
  (void)state;
  if (test_backend_open("cambricon", CAMBRICON_HOME "/lib64/libcnrt.so")) return 1;
  runtime = dlopen(CAMBRICON_HOME "/lib64/libcnrt.so", RTLD_NOW | RTLD_NOLOAD);
  ops = dlopen(CAMBRICON_HOME "/lib64/libcnnl.so", RTLD_NOW | RTLD_NOLOAD);
  return runtime && ops ? 0 : 1;
}

// ---- swapped arguments ----

static void swapped_arguments_are_seen(void** state) {
  (void)state;
  // The last: its workspace, and the statistics that nobody reads.
  static const char* const commuting[] = {"Maximum 1 3", "Minimum 1 3",         "BitCompute_v2 2 4",
                                          "Addcmul 4 6", "RmsNormForward 7 12", NULL};
  test_backend_swaps(&(test_mutation){
      .library = ops, .types = "DO PSVCQWU X IE B F ZY A L M", .commuting = commuting});
}

// ---- handles, descriptors and workspaces, by hand ----

typedef struct desc desc;

static struct {
  int (*set_device)(int);
  int (*malloc)(void**, size_t);
  int (*free)(void*);
  int (*create_queue)(void**);
  int (*destroy_queue)(void*);
  int (*sync)(void*);
  int (*create)(void**);
  int (*destroy)(void*);
  int (*set_queue)(void*, void*);
  int (*create_tensor)(desc**);
  int (*destroy_tensor)(desc*);
  int (*set_tensor)(desc*, int, int, int, const int64_t*, const int64_t*);
  int (*plan)(void*, desc*, desc*, desc*, size_t*);
  int (*div)(void*, int, desc*, const void*, desc*, const void*, void*, size_t, desc*, void*);
  int (*abs)(void*, desc*, const void*, desc*, void*);
  void *memory, *queue, *handle, *workspace;
  size_t bytes;
  desc* t;
} cn;

enum { ARRAY = 4, FLOAT = 2, HALF = 1, PRECISE = 1 };
static const int64_t size = 4, one = 1;

static int bind(void** state) {
  (void)state;
  *(void**)&cn.set_device = test_symbol(runtime, "cnrtSetDevice");
  *(void**)&cn.malloc = test_symbol(runtime, "cnrtMalloc");
  *(void**)&cn.free = test_symbol(runtime, "cnrtFree");
  *(void**)&cn.create_queue = test_symbol(runtime, "cnrtQueueCreate");
  *(void**)&cn.destroy_queue = test_symbol(runtime, "cnrtQueueDestroy");
  *(void**)&cn.sync = test_symbol(runtime, "cnrtQueueSync");
  *(void**)&cn.create = test_symbol(ops, "cnnlCreate");
  *(void**)&cn.destroy = test_symbol(ops, "cnnlDestroy");
  *(void**)&cn.set_queue = test_symbol(ops, "cnnlSetQueue");
  *(void**)&cn.create_tensor = test_symbol(ops, "cnnlCreateTensorDescriptor");
  *(void**)&cn.destroy_tensor = test_symbol(ops, "cnnlDestroyTensorDescriptor");
  *(void**)&cn.set_tensor = test_symbol(ops, "cnnlSetTensorDescriptorEx_v2");
  *(void**)&cn.plan = test_symbol(ops, "cnnlGetDivWorkspaceSize");
  *(void**)&cn.div = test_symbol(ops, "cnnlDiv_v2");
  *(void**)&cn.abs = test_symbol(ops, "cnnlAbs");
  assert_int_equal(cn.set_device(0), 0);
  assert_int_equal(cn.malloc(&cn.memory, 64), 0);
  assert_int_equal(cn.create_queue(&cn.queue), 0);
  assert_int_equal(cn.create(&cn.handle), 0);
  assert_int_equal(cn.create_tensor(&cn.t), 0);
  return 0;
}

#define REFUSED(call, what)   \
  do {                        \
    assert_true((call) != 0); \
    test_misused(what);       \
  } while (0)

static void descriptors_are_set_once_and_before_use(void** state) {
  (void)state;
  REFUSED(cn.abs(cn.handle, cn.t, cn.memory, cn.t, cn.memory), "has no queue");
  assert_int_equal(cn.set_queue(cn.handle, cn.queue), 0);
  REFUSED(cn.abs(cn.handle, cn.t, cn.memory, cn.t, cn.memory), "was not set");
  assert_int_equal(cn.set_tensor(cn.t, ARRAY, FLOAT, 1, &size, &one), 0);
  REFUSED(cn.set_tensor(cn.t, ARRAY, FLOAT, 1, &size, &one), "set already");
  assert_int_equal(cn.abs(cn.handle, cn.t, cn.memory, cn.t, cn.memory), 0);
  desc* wide;
  const int64_t stride = 2;
  assert_int_equal(cn.create_tensor(&wide), 0);
  assert_int_equal(cn.set_tensor(wide, ARRAY, FLOAT, 1, &size, &stride), 0);
  REFUSED(cn.abs(cn.handle, wide, cn.memory, cn.t, cn.memory), "not contiguous");
  assert_int_equal(cn.destroy_tensor(wide), 0);
  REFUSED(cn.destroy_tensor(wide), "is no tensor descriptor");
  REFUSED(cn.abs(cn.handle, wide, cn.memory, cn.t, cn.memory), "is no tensor descriptor");
  REFUSED(cn.abs(cn.handle, cn.t, &size, cn.t, cn.memory), "reaches beyond its memory");
  REFUSED(cn.abs(cn.handle, cn.t, (char*)cn.memory + 52, cn.t, cn.memory),
          "reaches beyond its memory");
}

static int divide(void* workspace, size_t bytes) {
  return cn.div(cn.handle, PRECISE, cn.t, cn.memory, cn.t, cn.memory, workspace, bytes, cn.t,
                cn.memory);
}

static void a_workspace_left_out_is_seen(void** state) {
  (void)state;
  void* small;
  assert_int_equal(cn.plan(cn.handle, cn.t, cn.t, cn.t, &cn.bytes), 0);
  assert_true(cn.bytes > 1);
  REFUSED(divide(NULL, 0), "was given");
  REFUSED(divide(NULL, cn.bytes), "the workspace is not");
  assert_int_equal(cn.malloc(&small, cn.bytes / 2), 0);
  REFUSED(divide(small, cn.bytes), "the workspace is not");
  assert_int_equal(cn.free(small), 0);
  assert_int_equal(cn.malloc(&cn.workspace, cn.bytes), 0);
  assert_int_equal(divide(cn.workspace, cn.bytes), 0);
  assert_int_equal(cn.sync(cn.queue), 0);
}

// ---- CNCL ----

static void collectives_misused_are_seen(void** state) {
  (void)state;
  enum { SUM = 0, FP32 = 0x12, NO_TYPE = 0x13 };
  void* library = dlopen(CAMBRICON_HOME "/lib64/libcncl.so", RTLD_NOW);
  assert_non_null(library);
  struct {
    char data[128];
    uint64_t hash;
  } id;
  int (*clique)(void*), (*init)(void**, int, const int*, const int*, int, void*), (*release)(void*);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, void*), (*group_end)(void);
  *(void**)&clique = test_symbol(library, "cnclGetCliqueId");
  *(void**)&init = test_symbol(library, "cnclInitComms");
  *(void**)&release = test_symbol(library, "cnclFreeComm");
  *(void**)&all_reduce = test_symbol(library, "cnclAllReduce");
  *(void**)&group_end = test_symbol(library, "cnclGroupEnd");
  const int zero = 0, wrong = 1;
  void *comm = NULL, *m = cn.memory, *q = cn.queue;
  assert_int_equal(clique(&id), 0);
  REFUSED(init(&comm, 1, &zero, &wrong, 1, &id), "rank 1 of 1");
  REFUSED(init(&comm, 1, &wrong, &zero, 1, &id), "is not the current one");
  assert_int_equal(init(&comm, 1, &zero, &zero, 1, &id), 0);
  REFUSED(init(&comm, 1, &zero, &zero, 1, &id), "once in a process");
  assert_int_equal(all_reduce(m, m, 16, FP32, SUM, comm, q), 0);
  REFUSED(all_reduce(m, m, 17, FP32, SUM, comm, q), "has no 1 times 17 elements");
  REFUSED(all_reduce(m, m, 0, FP32, SUM, comm, q), "of nothing");
  REFUSED(all_reduce(m, m, 4, NO_TYPE, SUM, comm, q), "data type 0x13");
  REFUSED(all_reduce(m, m, 4, SUM, FP32, comm, q), "data type 0");  // type and reduction swapped
  REFUSED(all_reduce(m, m, 4, FP32, 4, comm, q), "reduction 4");
  REFUSED(all_reduce(m, m, 4, FP32, SUM, q, comm), "is no communicator");
  REFUSED(group_end(), "without cnclGroupStart");
  assert_int_equal(cn.sync(q), 0);
  assert_int_equal(release(comm), 0);
  REFUSED(all_reduce(m, m, 4, FP32, SUM, comm, q), "is no communicator");
  REFUSED(release(comm), "no more");
}

static void* allocates(void* unused) {
  (void)unused;
  void* memory;
  return cn.malloc(&memory, 64) ? cn.queue : NULL;
}

static void* launches(void* unused) {
  (void)unused;
  return cn.abs(cn.handle, cn.t, cn.memory, cn.t, cn.memory) ? cn.queue : NULL;
}

static void another_threads_device_is_seen(void** state) {
  (void)state;
  void* (*const attempts[])(void*) = {allocates, launches};
  test_backend_elsewhere(attempts, 2, "no device is current");
}

static void dead_handles_are_seen(void** state) {
  (void)state;
  assert_int_equal(cn.free(cn.workspace), 0);
  REFUSED(divide(cn.workspace, cn.bytes), "the workspace is not");
  assert_int_equal(cn.free(cn.memory), 0);
  REFUSED(cn.free(cn.memory), "free already");
  assert_int_equal(cn.destroy_queue(cn.queue), 0);
  REFUSED(cn.abs(cn.handle, cn.t, cn.memory, cn.t, cn.memory), "");
  REFUSED(cn.sync(cn.queue), "is no queue");
  assert_int_equal(cn.destroy_tensor(cn.t), 0);
  assert_int_equal(cn.destroy(cn.handle), 0);
  REFUSED(cn.destroy(cn.handle), "is no handle");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(swapped_arguments_are_seen),
      cmocka_unit_test_setup(descriptors_are_set_once_and_before_use, bind),
      cmocka_unit_test(a_workspace_left_out_is_seen),
      cmocka_unit_test(collectives_misused_are_seen),
      cmocka_unit_test(another_threads_device_is_seen),
      cmocka_unit_test(dead_handles_are_seen),
  };
  return cmocka_run_group_tests(tests, set_up, test_backend_close);
}

// Mutation of the ascend backend, and misuse of the test library on purpose: swapped arguments, a
// workspace left out, an executor used twice, another thread's context. Each must be seen.
#include <dlfcn.h>

#include "../common/test_backend.h"
#include "fused.h"

static void *runtime, *meta, *ops;

static int set_up(void** state) {
  (void)state;
  if (test_backend_open("ascend", ASCEND_HOME "/lib64/libascendcl.so")) return 1;
  runtime = dlopen(ASCEND_HOME "/lib64/libascendcl.so", RTLD_NOW | RTLD_NOLOAD);
  meta = dlopen(ASCEND_HOME "/lib64/libnnopbase.so", RTLD_NOW | RTLD_NOLOAD);
  ops = dlopen(ASCEND_HOME "/lib64/libopapi.so", RTLD_NOW | RTLD_NOLOAD);
  return runtime && meta && ops ? 0 : 1;
}

// ---- swapped arguments ----

static bool attention(void) {
  return fused_attention(HY_CAUSAL_TOP_LEFT);
}
static bool attention_backward(void) {
  return fused_attention_backward(HY_CAUSAL_TOP_LEFT);
}
static bool paged_attention(void) {
  return fused_paged_attention(128, 64, (const int64_t[]){20, 1, 1}, (const int64_t[]){37, 16, 40});
}
static bool quantised_product(void) {
  return fused_quantised_product(HY_F16, HY_I8, 2);
}

static void swapped_arguments_are_seen(void** state) {
  (void)state;
  static const char* const commuting[] = {"Mul 0 1",
                                          "Maximum 0 1",
                                          "Minimum 0 1",
                                          "BitwiseAndTensor 0 1",
                                          "BitwiseOrTensor 0 1",
                                          "BitwiseXorTensor 0 1",
                                          "EqTensor 0 1",
                                          "NeTensor 0 1",
                                          "LogicalAnd 0 1",
                                          "LogicalOr 0 1",
                                          "LogicalXor 0 1",
                                          "Adds 1 2",
                                          "Subs 1 2",
                                          "Addcmul 1 2",
                                          NULL};  // self + alpha * other

  static const char* const fused[] = {"FlashAttentionScore", "FlashAttentionScoreGrad",
                                      "FusedInferAttentionScoreV3", "WeightQuantBatchMatmulV2",
                                      NULL};
  static bool (*const run[])(void) = {attention, attention_backward, paged_attention,
                                      quantised_product};
  test_backend_swaps(&(test_mutation){.library = ops,
                                      .types = "TO SZ AP N U IK C Y D F X L M",
                                      .commuting = commuting,
                                      .other_names = fused,
                                      .other = run});
}

// ---- the two phases ----

typedef struct executor executor;

static struct {
  int (*set_device)(int32_t);
  int (*malloc)(void**, size_t, int);
  int (*free)(void*);
  int (*create_stream)(void**, uint32_t, uint32_t);
  int (*destroy_stream)(void*);
  int (*sync)(void*);
  void* (*tensor)(const int64_t*, uint64_t, int, const int64_t*, int64_t, int, const int64_t*,
                  uint64_t, void*);
  int (*destroy_tensor)(const void*);
  int (*plan)(const void*, const void*, uint64_t*, executor**);
  int (*run)(void*, uint64_t, executor*, void*);
  void *memory, *stream, *workspace;
} acl;

// Exp asks for a workspace in the test library.
static void bind(void) {
  *(void**)&acl.set_device = test_symbol(runtime, "aclrtSetDevice");
  *(void**)&acl.malloc = test_symbol(runtime, "aclrtMalloc");
  *(void**)&acl.free = test_symbol(runtime, "aclrtFree");
  *(void**)&acl.create_stream = test_symbol(runtime, "aclrtCreateStreamWithConfig");
  *(void**)&acl.destroy_stream = test_symbol(runtime, "aclrtDestroyStream");
  *(void**)&acl.sync = test_symbol(runtime, "aclrtSynchronizeStream");
  *(void**)&acl.tensor = test_symbol(meta, "aclCreateTensor");
  *(void**)&acl.destroy_tensor = test_symbol(meta, "aclDestroyTensor");
  *(void**)&acl.plan = test_symbol(ops, "aclnnExpGetWorkspaceSize");
  *(void**)&acl.run = test_symbol(ops, "aclnnExp");
  assert_int_equal(acl.set_device(0), 0);
  assert_int_equal(acl.malloc(&acl.memory, 64, 0), 0);
  assert_int_equal(acl.create_stream(&acl.stream, 0, 0), 0);
}

static uint64_t plan(executor** e) {
  const int64_t size = 4, one = 1;
  uint64_t bytes = 0;
  void* t = acl.tensor(&size, 1, 0, &one, 0, 2, &size, 1, acl.memory);
  assert_non_null(t);
  assert_int_equal(acl.plan(t, t, &bytes, e), 0);
  acl.destroy_tensor(t);
  return bytes;
}

static void a_workspace_left_out_is_seen(void** state) {
  (void)state;
  executor* e;
  uint64_t bytes = plan(&e);
  assert_true(bytes > 0);
  assert_true(acl.run(NULL, 0, e, acl.stream) != 0);
  test_misused("was given");
  assert_true(acl.run(NULL, bytes, e, acl.stream) != 0);
  test_misused("the workspace is not");
  void* small;
  assert_int_equal(acl.malloc(&small, bytes / 2, 0), 0);
  assert_true(acl.run(small, bytes, e, acl.stream) != 0);
  test_misused("the workspace is not");
  acl.free(small);
}

static void an_executor_is_used_once(void** state) {
  (void)state;
  executor* e;
  uint64_t bytes = plan(&e);
  void* workspace;
  assert_int_equal(acl.malloc(&workspace, bytes, 0), 0);
  assert_int_equal(acl.run(workspace, bytes, e, acl.stream), 0);
  assert_true(acl.run(workspace, bytes, e, acl.stream) != 0);
  test_misused("used already");
  assert_int_equal(acl.sync(acl.stream), 0);
  acl.free(workspace);
}

// ---- FRACTAL_NZ ----

static void a_wrong_storage_is_seen(void** state) {
  (void)state;
  enum { FLOAT = 0, FLOAT16 = 1, FRACTAL_NZ = 29 };
  const int64_t shape[] = {32, 64}, plain[] = {64, 1}, swapped[] = {1, 32}, other[] = {128, 2};
  const int64_t right[] = {4, 2, 16, 16}, wrong[] = {2, 4, 16, 16};
  void* t = acl.tensor(shape, 2, FLOAT16, plain, 0, FRACTAL_NZ, right, 4, acl.memory);
  assert_non_null(t);
  assert_int_equal(acl.destroy_tensor(t), 0);
  t = acl.tensor(shape, 2, FLOAT16, swapped, 0, FRACTAL_NZ, wrong, 4, acl.memory);
  assert_non_null(t);  // the transpose of [64, 32]
  assert_int_equal(acl.destroy_tensor(t), 0);
  assert_null(acl.tensor(shape, 2, FLOAT16, plain, 0, FRACTAL_NZ, wrong, 4, acl.memory));
  test_misused("no FRACTAL_NZ storage");
  assert_null(acl.tensor(shape, 2, FLOAT16, plain, 0, FRACTAL_NZ, shape, 2, acl.memory));
  test_misused("no FRACTAL_NZ storage");
  assert_null(acl.tensor(shape, 2, FLOAT16, other, 0, FRACTAL_NZ, right, 4, acl.memory));
  test_misused("aclCreateTensor");
  assert_null(acl.tensor(shape, 2, FLOAT, plain, 0, FRACTAL_NZ, right, 4, acl.memory));
  test_misused("no FRACTAL_NZ storage");
}

// ---- HCCL ----

static void collectives_misused_are_seen(void** state) {
  (void)state;
  enum { SUM = 0, PROD = 1, FP32 = 4, UINT8 = 7, NONE = 6, BFP16 = 11 };
  void* library = dlopen(ASCEND_HOME "/lib64/libhccl.so", RTLD_NOW);
  assert_non_null(library);
  int (*root_info)(void*), (*init)(uint32_t, const void*, uint32_t, void**), (*destroy)(void*);
  int (*all_reduce)(void*, void*, uint64_t, int, int, void*, void*);
  int (*broadcast)(void*, uint64_t, int, uint32_t, void*, void*);
  *(void**)&root_info = test_symbol(library, "HcclGetRootInfo");
  *(void**)&init = test_symbol(library, "HcclCommInitRootInfo");
  *(void**)&destroy = test_symbol(library, "HcclCommDestroy");
  *(void**)&all_reduce = test_symbol(library, "HcclAllReduce");
  *(void**)&broadcast = test_symbol(library, "HcclBroadcast");
  char id[4108];
  void *comm = NULL, *m = acl.memory, *s = acl.stream;
  assert_int_equal(root_info(id), 0);
  assert_true(init(1, id, 1, &comm) != 0);
  test_misused("rank 1 of 1");
  id[0] ^= 1;
  assert_true(init(1, id, 0, &comm) != 0);  // no misuse: what was sent has not come
  id[0] ^= 1;
  assert_int_equal(init(1, id, 0, &comm), 0);
  assert_int_equal(all_reduce(m, m, 16, FP32, SUM, comm, s), 0);
  assert_true(all_reduce(m, m, 17, FP32, SUM, comm, s) != 0);
  test_misused("has no 1 times 17 elements");
  assert_true(all_reduce(m, m, 0, FP32, SUM, comm, s) != 0);
  test_misused("of nothing");
  assert_true(all_reduce(m, m, 4, UINT8, SUM, comm, s) != 0);
  test_misused("does not reduce data type 7");
  assert_true(all_reduce(m, m, 4, BFP16, PROD, comm, s) != 0);
  test_misused("makes no product of data type 11");
  assert_true(all_reduce(m, m, 4, NONE, SUM, comm, s) != 0);
  test_misused("data type 6");
  assert_true(all_reduce(m, m, 4, FP32, 4, comm, s) != 0);
  test_misused("reduction 4");
  assert_true(all_reduce(m, m, 4, SUM, FP32, comm, s) != 0);  // type and reduction swapped
  test_misused("reduction 4");
  assert_true(all_reduce(m, m, 4, FP32, SUM, s, comm) != 0);  // communicator and stream swapped
  test_misused("is no communicator");
  assert_true(broadcast(m, 4, FP32, 1, comm, s) != 0);
  test_misused("root 1");
  assert_int_equal(acl.sync(s), 0);
  assert_int_equal(destroy(comm), 0);
  assert_true(all_reduce(m, m, 4, FP32, SUM, comm, s) != 0);
  test_misused("is no communicator");
  assert_true(destroy(comm) != 0);
  test_misused("no more");
}

static void* without_context(void* unused) {
  (void)unused;
  void* memory;
  return acl.malloc(&memory, 64, 0) ? acl.stream : NULL;
}

static void* with_foreign_stream(void* unused) {
  (void)unused;
  return acl.sync(acl.stream) ? acl.stream : NULL;
}

static void another_threads_context_is_seen(void** state) {
  (void)state;
  void* (*const attempts[])(void*) = {without_context, with_foreign_stream};
  test_backend_elsewhere(attempts, 2, "no context is current");
}

static void dead_handles_are_seen(void** state) {
  (void)state;
  assert_int_equal(acl.free(acl.memory), 0);
  assert_true(acl.free(acl.memory) != 0);
  test_misused("free already");
  assert_int_equal(acl.destroy_stream(acl.stream), 0);
  assert_true(acl.sync(acl.stream) != 0);
  test_misused("is no stream");
}

static int bind_once(void** state) {
  (void)state;
  bind();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(swapped_arguments_are_seen),
      cmocka_unit_test_setup(a_workspace_left_out_is_seen, bind_once),
      cmocka_unit_test(an_executor_is_used_once),
      cmocka_unit_test(a_wrong_storage_is_seen),
      cmocka_unit_test(collectives_misused_are_seen),
      cmocka_unit_test(another_threads_context_is_seen),
      cmocka_unit_test(dead_handles_are_seen),
  };
  return cmocka_run_group_tests(tests, set_up, test_backend_close);
}

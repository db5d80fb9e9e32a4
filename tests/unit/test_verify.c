// Conformance catches what it must: each fault of a provider is reported, and an honest one passes.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/internal.h"
#include "ops/internal.h"
#include "ops/reference/walk.h"
#include "support/check.h"
#include "support/stub.h"
#include "verify/capability.h"

// ---- a backend whose only provider runs the reference, and then spoils the result ----

typedef enum fault {
  HONEST,
  WRONG_VALUE,
  SLIGHTLY_OFF,
  WRITES_BEHIND,
  WRITES_INPUT,
  SKIPS_LAST,
  REFUSES_DECLARED,
  REFUSES_LARGE,
  WRONG_THE_SECOND_TIME,
  WRONG_IN_THE_BACKWARD,  // values, then the forward and the backward of the gradients
  IGNORES_INDICES,
  FAILS
} fault;

static fault behaviour;
static unsigned calls;

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  if (behaviour == REFUSES_DECLARED) return HY_SUPPORT_NO_OP;
  if (behaviour == REFUSES_LARGE && hy_tensor_numel(&call->out[0]) > 40) return HY_SUPPORT_NO_SHAPE;
  if (call->op != HY_OP_neg && call->op != HY_OP_embedding) return HY_SUPPORT_NO_OP;
  return call->in[0].dtype == HY_F32 ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

static float* at(const hy_tensor* t, int64_t i) {
  return (float*)hy__element(t, i);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream;
  const hy_tensor *out = &call->out[0], *in = &call->in[0];
  int64_t last = hy_tensor_numel(out) - 1;
  float before = out->dtype == HY_F32 ? *at(out, last) : 0, input = *at(in, 0);
  if (behaviour == FAILS) return hy_fail(HY_DEVICE_FAILED, "the kernel fell over");
  hy_status status = hy__reference_checked(call);
  if (out->dtype != HY_F32) return status;
  switch (behaviour) {
    case WRONG_VALUE: *at(out, last) += 1; break;
    case SLIGHTLY_OFF: *at(out, last) *= 1 + 0x1p-20f; break;
    case WRITES_BEHIND:
      if (hy_tensor_is_contiguous(out)) *(at(out, 0) + last + 1) = 0;
      break;
    case WRITES_INPUT:
      if (in->data != out->data) *at(in, 0) = input + 1;
      break;
    case SKIPS_LAST: *at(out, last) = before; break;
    case WRONG_THE_SECOND_TIME: *at(out, last) += (float)(calls++ % 2); break;
    case WRONG_IN_THE_BACKWARD: *at(out, last) += (float)(calls++ % 3 == 2); break;
    case IGNORES_INDICES: return HY_OK;
    default: break;
  }
  return status;
}

static const hy_declaration declares[] = {{HY_OP_neg, HY_DTYPE_BIT(HY_F32)},
                                          {HY_OP_embedding, HY_DTYPE_BIT(HY_F32)}};
static hy_provider provider = {.size = sizeof(hy_provider),
                               .name = "suspect_kernels",
                               .version = "1",
                               .declares = declares,
                               .supports = supports,
                               .run = run};
static const hy_provider* const providers[] = {&provider};

// ---- one run ----

static hy__op_verdict first_failure;

static void keep_failure(void* context, const hy__op_verdict* verdict) {
  (void)context;
  if (verdict->failed > 0 && first_failure.failed == 0) first_failure = *verdict;
}

static hy__verify_options on_suspect(fault what, hy_op op) {
  behaviour = what;
  calls = 0;
  memset(&first_failure, 0, sizeof first_failure);
  hy__verify_options options = {.op = op, .seed = 1, .index = -1, .quick = true};
  options.on_op = keep_failure;
  CHECK_OK(hy_device_get("suspect", &options.device));
  return options;
}

static hy__verify_summary verify(const hy__verify_options* options) {
  hy__verify_summary summary;
  CHECK_OK(hy__verify(options, &summary));
  assert_int_equal(summary.cases,
                   summary.passed + summary.failed + summary.refused + summary.unsupported);
  return summary;
}

static int register_declaring(int n) {
  provider.n_declares = n;
  stub_reset();
  stub.dtypes = 0;  // says nothing about types
  hy_backend backend = stub_backend("suspect");
  backend.providers = providers;
  backend.n_providers = 1;
  return hy_register_backend(&backend) == HY_OK ? 0 : -1;
}

static int setup(void** state) {
  (void)state;
  return register_declaring(2);
}

static int setup_silent(void** state) {
  (void)state;
  return register_declaring(0);
}

static int teardown(void** state) {
  (void)state;
  hy_fallback_clear();
  hy_shutdown();
  return 0;
}

// ---- tests ----

static void an_honest_backend_passes(void** state) {
  (void)state;
  hy__verify_options options = on_suspect(HONEST, HY_OP_neg);
  hy__verify_summary summary = verify(&options);
  assert_true(hy__verify_passed(&summary));
  assert_true(summary.passed > 0 && summary.refused > 0);
  assert_true(summary.unsupported > 0);  // the types beside f32 fall back
  assert_int_equal(summary.declared, 2);
}

static void faults_are_reported(void** state) {
  (void)state;
  static const struct {
    fault what;
    hy_op op;
    const char* says;
  } expected[] = {
      {WRONG_VALUE, HY_OP_neg, "should be"},
      {SLIGHTLY_OFF, HY_OP_neg, "should be"},
      {WRITES_BEHIND, HY_OP_neg, "behind the output"},
      {WRITES_INPUT, HY_OP_neg, "inside the input"},
      {SKIPS_LAST, HY_OP_neg, "should be"},
      {REFUSES_DECLARED, HY_OP_neg, "declares neg for f32"},
      {REFUSES_LARGE, HY_OP_neg, "declares neg for f32"},
      {IGNORES_INDICES, HY_OP_embedding, "must be refused with INDEX"},
      {FAILS, HY_OP_neg, "the kernel fell over"},
  };
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    hy__verify_options options = on_suspect(expected[i].what, expected[i].op);
    hy__verify_summary summary = verify(&options);
    assert_false(hy__verify_passed(&summary));
    if (!strstr(first_failure.failure, expected[i].says))
      fail_msg("fault %d: '%s' does not say '%s'", (int)expected[i].what, first_failure.failure,
               expected[i].says);
  }
}

static void the_smallest_case_is_shown_and_repeats(void** state) {
  (void)state;
  hy__verify_options options = on_suspect(WRONG_VALUE, HY_OP_neg);
  verify(&options);
  assert_int_equal(first_failure.first.limit, 1);
  assert_true(first_failure.first.simple);
  assert_non_null(strstr(first_failure.call, "neg(f32["));
  char command[300];
  hy__verify_command(&options, &first_failure.first, command, sizeof command);
  assert_non_null(strstr(command, "halyard verify --backend suspect:0 --op neg --seed 1 --case "));
  assert_non_null(strstr(command, "--quick --size 1 --simple"));
  options.index = first_failure.first.index;
  options.limit = first_failure.first.limit;
  options.simple = true;
  hy__verify_summary again = verify(&options);
  assert_int_equal(again.cases, 1);
  assert_int_equal(again.failed, 1);
}

static void other_bits_the_second_time_are_seen(void** state) {
  (void)state;
  hy__verify_options options = on_suspect(WRONG_THE_SECOND_TIME, HY_OP_neg);
  options.mode = HY__VERIFY_DETERMINISM;
  hy__verify_summary summary = verify(&options);
  assert_true(summary.failed > 0);
  assert_non_null(strstr(first_failure.failure, "other bits"));
  options = on_suspect(HONEST, HY_OP_neg);
  options.mode = HY__VERIFY_DETERMINISM;
  summary = verify(&options);
  assert_true(hy__verify_passed(&summary));
}

static void gradients_are_compared(void** state) {
  (void)state;
  hy__verify_options options = on_suspect(HONEST, HY_OP_neg);
  options.mode = HY__VERIFY_GRADIENTS;
  hy__verify_summary summary = verify(&options);
  assert_true(hy__verify_passed(&summary));
  options = on_suspect(WRONG_IN_THE_BACKWARD, HY_OP_neg);
  options.mode = HY__VERIFY_GRADIENTS;
  summary = verify(&options);
  assert_non_null(strstr(first_failure.failure, "the gradient of input 0"));
}

static void a_backend_that_declares_nothing_fails(void** state) {
  (void)state;
  hy__verify_options options = on_suspect(REFUSES_DECLARED, HY_OP_neg);
  hy__verify_summary summary = verify(&options);
  if (summary.failed > 0) fail_msg("%s in %s", first_failure.failure, first_failure.call);
  assert_true(summary.declares_nothing);
  assert_false(hy__verify_passed(&summary));
}

// ---- capabilities ----

static void claims_are_held_against_calls(void** state) {
  (void)state;
  static const struct {
    uint32_t claim;
    const char* says;  // NULL: it holds
  } expected[] = {
      {0, NULL},
      {HY_CAP_FP32, "claims fp32, which stands for mm with f32 as input 0: no provider declares"},
      {HY_CAP_NCCL, "claims nccl, which stands for communicators"},
      {1u << 30, "0x40000000, which is no capability"},
  };
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    stub.capabilities = expected[i].claim;
    hy__verify_options options = on_suspect(HONEST, HY_OP_NONE);
    options.quick = true;
    hy__verify_summary summary = verify(&options);
    stub.capabilities = 0;
    assert_int_equal(hy__verify_passed(&summary), !expected[i].says);
    assert_int_equal(summary.ops, hy_op_count());
    if (!expected[i].says) continue;
    assert_int_equal(summary.failed, 1);
    assert_string_equal(first_failure.name, "capabilities");
    if (!strstr(first_failure.failure, expected[i].says)) fail_msg("%s", first_failure.failure);
  }
}

// Every bit has rows or is one of the collectives', and holds only with all of them.
static void every_capability_has_rows(void** state) {
  (void)state;
  static const uint32_t bits[] = {
#define HY_AS_BIT(name, bit, key) HY_CAP_##name,
      HY_CAPABILITY_MAP(HY_AS_BIT)
#undef HY_AS_BIT
  };
  hy_device* device;
  CHECK_OK(hy_device_get("suspect", &device));
  for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
    stub.capabilities = bits[i];
    for (int lacking = -1; lacking < 3; lacking++) {
      hy__capability_record record;
      memset(&record, 0, sizeof record);
      for (int k = 0; k < HY__CAPABILITY_ROWS; k++) {
        record.declared[k] = lacking != 0;
        record.passed[k] = lacking != 1;
        record.failed[k] = lacking == 2;
      }
      record.communicators = lacking < 0;
      hy__op_verdict verdict = {0};
      CHECK_OK(hy__capability_judge(&record, device, &verdict));
      assert_int_equal(verdict.cases, 1);
      if (verdict.failed != (lacking >= 0)) fail_msg("0x%x, %d", bits[i], lacking);
    }
  }
  stub.capabilities = 0;
}

// ---- communicators ----

static hy_backend honest;  // the guarded device's table
static bool forgets_a_rank, swaps_ranks, loses_last;

static hy_status bad_all_reduce(void* device, void* comm, void* stream, const void* send,
                                void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  if (forgets_a_rank && op == HY_REDUCE_AVG) op = HY_REDUCE_SUM;
  return honest.all_reduce(device, comm, stream, send, recv, count - (loses_last && count > 300),
                           dtype, op);
}

static hy_status bad_broadcast(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                               hy_dtype dtype, int32_t root) {
  return honest.broadcast(device, comm, stream, buffer, count, dtype, swaps_ranks ? 0 : root);
}

static void faults_of_communicators_are_reported(void** state) {
  (void)state;
  hy_backend_query query;
  void* plugin = dlopen(HALYARD_GUARDED_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  assert_non_null(plugin);
  void* symbol = dlsym(plugin, "halyard_backend_query");
  memcpy(&query, &symbol, sizeof query);
  const hy_backend* table;
  CHECK_OK(query(HY_ABI_VERSION, hy__host(), &table));
  honest = *table;
  hy_backend spoiled = honest;
  spoiled.name = "spoiled";
  spoiled.all_reduce = bad_all_reduce;
  spoiled.broadcast = bad_broadcast;
  CHECK_OK(hy_register_backend(&spoiled));
  hy_device* device;
  CHECK_OK(hy_device_get("spoiled", &device));
  bool* const faults[] = {NULL, &forgets_a_rank, &swaps_ranks, &loses_last};
  static const char* const says[] = {NULL, "all_reduce, average of", "broadcast of", "all_reduce"};
  for (int i = 0; i < 4; i++) {
    if (faults[i]) *faults[i] = true;
    hy__op_verdict verdict = {0};
    CHECK_OK(hy__verify_communicators(device, &verdict));
    if (faults[i]) *faults[i] = false;
    assert_int_equal(verdict.failed > 0, i > 0);
    assert_int_equal(verdict.cases, verdict.passed + verdict.failed + verdict.unsupported);
    if (i && !strstr(verdict.failure, says[i])) fail_msg("fault %d: %s", i, verdict.failure);
  }
}

static void cases_do_not_change(void** state) {
  (void)state;
  hy__case *a, *b;
  CHECK_OK(hy__case_create(&a));
  CHECK_OK(hy__case_create(&b));
  for (int i = 0; i < hy_op_count(); i++) {
    for (int index = 0; index < hy__case_count(hy_op_at(i)->op); index += 7) {
      hy__case_key key = {.op = hy_op_at(i)->op, .seed = 3, .index = index, .quick = true};
      hy_status status = hy__case_make(a, &key);
      assert_int_equal(status, hy__case_make(b, &key));
      if (status == HY_NOT_FOUND) continue;
      assert_int_equal(status, HY_OK);
      assert_int_equal(a->used, b->used);
      assert_memory_equal(a->image, b->image, a->used);
    }
  }
  hy__case_destroy(a);
  hy__case_destroy(b);
}

static void reports_are_written(void** state) {
  (void)state;
  char path[] = "/tmp/halyard-junit-XXXXXX", text[4096] = "", table[4096] = "";
  int descriptor = mkstemp(path);
  assert_true(descriptor >= 0);
  close(descriptor);
  hy__verify_options options = on_suspect(WRONG_VALUE, HY_OP_neg);
  FILE* to_table = fmemopen(table, sizeof table, "w");
  hy__report_options look = {.table = to_table, .junit = path};
  hy__report* report;
  CHECK_OK(hy__report_create(&look, &options, &report));
  options.on_op = hy__report_op;
  options.context = report;
  hy__verify_summary summary = verify(&options);
  CHECK_OK(hy__report_finish(report, &summary, to_table));
  hy__report_destroy(report);
  fclose(to_table);
  assert_non_null(strstr(table, "FAILED: out["));
  assert_non_null(strstr(table, "repeat: halyard verify --backend suspect:0"));
  assert_non_null(strstr(table, "{\"backend\":\"suspect\",\"device\":\"suspect:0\",\"seed\":1,"));
  FILE* file = fopen(path, "r");
  assert_non_null(file);
  assert_true(fread(text, 1, sizeof text - 1, file) > 0);
  fclose(file);
  remove(path);
  assert_non_null(strstr(text, "<testsuite name=\"halyard verify suspect:0\" tests=\"1\""));
  assert_non_null(strstr(text, "<failure message="));
  look.junit = "/nonexistent/report.xml";
  CHECK_FAILS(HY_IO, "/nonexistent/report.xml", hy__report_create(&look, &options, &report));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(an_honest_backend_passes, setup, teardown),
      cmocka_unit_test_setup_teardown(faults_are_reported, setup, teardown),
      cmocka_unit_test_setup_teardown(the_smallest_case_is_shown_and_repeats, setup, teardown),
      cmocka_unit_test_setup_teardown(other_bits_the_second_time_are_seen, setup, teardown),
      cmocka_unit_test_setup_teardown(gradients_are_compared, setup, teardown),
      cmocka_unit_test_setup_teardown(a_backend_that_declares_nothing_fails, setup_silent,
                                      teardown),
      cmocka_unit_test_setup_teardown(claims_are_held_against_calls, setup, teardown),
      cmocka_unit_test_setup_teardown(every_capability_has_rows, setup, teardown),
      cmocka_unit_test_setup_teardown(faults_of_communicators_are_reported, setup, teardown),
      cmocka_unit_test_setup_teardown(cases_do_not_change, setup, teardown),
      cmocka_unit_test_setup_teardown(reports_are_written, setup, teardown),
  };
  setenv("HALYARD_LOG", "0", 1);
  return cmocka_run_group_tests_name("verify", tests, NULL, NULL);
}

// Every public function with nothing where something is needed: an error, never a crash.
#include "halyard/halyard.h"
#include "halyard/model.h"
#include "support/check.h"

#define REFUSES(call) assert_int_equal(call, HY_INVALID_ARGUMENT)

static hy_device* device;
static hy_stream* stream;

static int set_up(void** state) {
  (void)state;
  return hy_device_get("cpu", &device) || hy_stream_create(device, &stream);
}

static int tear_down(void** state) {
  (void)state;
  hy_stream_destroy(stream);
  hy_shutdown();
  return 0;
}

static void devices(void** state) {
  (void)state;
  hy_device_info info;
  double rate;
  int n;
  REFUSES(hy_device_get("cpu", NULL));
  REFUSES(hy_device_get_by_type(HY_BACKEND_TYPE_cuda, 0, NULL));
  REFUSES(hy_device_get_first("cpu", NULL));
  REFUSES(hy_current_device(NULL));
  assert_string_equal(hy_device_backend(NULL), "");
  assert_int_equal(hy_device_index(NULL), -1);
  assert_string_equal(hy_device_selector(NULL), "");
  assert_null(hy_device_provider(NULL));
  assert_false(hy_device_is_host(NULL));
  REFUSES(hy_device_describe(NULL, &info));
  REFUSES(hy_device_describe(device, NULL));
  assert_false(hy_device_supports_dtype(NULL, HY_F32));
  REFUSES(hy_device_sync(NULL));
  REFUSES(hy_device_peak(NULL, HY_PEAK_COPY, HY_F32, NULL, NULL, 1, &rate));
  REFUSES(hy_device_set_threads(NULL, 1));
  REFUSES(hy_device_threads(NULL, &n));
  REFUSES(hy_device_threads(device, NULL));
  REFUSES(hy_backend_at(0, NULL));
  REFUSES(hy_backend_find(NULL, NULL));
  REFUSES(hy_backend_find("cpu", NULL));
  REFUSES(hy_backend_device_info("cpu", 0, NULL));
  REFUSES(hy_backend_device_info(NULL, 0, &info));
  REFUSES(hy_backend_provider_at("cpu", 0, NULL));
  assert_false(hy_backend_is_available(NULL));
  assert_true(hy_discover_devices(NULL, 5) > 0);
  hy_list_hardware(NULL, 5);
  assert_int_not_equal(hy_register_backend(NULL), HY_OK);
  REFUSES(hy_load_plugin(NULL));
  assert_int_equal(hy_backend_type_of(NULL), HY_BACKEND_TYPE_NONE);
}

static void streams_and_memory(void** state) {
  (void)state;
  hy_stream* s;
  hy_event* e;
  void* address;
  uint64_t bytes;
  bool possible;
  int least;
  char byte = 0;
  REFUSES(hy_stream_create(NULL, &s));
  REFUSES(hy_stream_create(device, NULL));
  REFUSES(hy_stream_create_priority(NULL, 0, &s));
  REFUSES(hy_stream_priority_range(NULL, &least, &least));
  REFUSES(hy_stream_wrap(NULL, NULL, &s));
  REFUSES(hy_stream_native(NULL, &address));
  REFUSES(hy_stream_default(NULL, &s));
  REFUSES(hy_stream_sync(NULL));
  REFUSES(hy_stream_query(NULL));
  REFUSES(hy_stream_reset(NULL));
  assert_null(hy_stream_device(NULL));
  assert_false(hy_stream_is_capturing(NULL));
  hy_stream_destroy(NULL);
  REFUSES(hy_event_create(NULL, &e));
  REFUSES(hy_event_create(device, NULL));
  REFUSES(hy_event_record(NULL, stream));
  REFUSES(hy_event_query(NULL));
  REFUSES(hy_event_sync(NULL));
  REFUSES(hy_event_elapsed(NULL, NULL, NULL));
  REFUSES(hy_stream_wait_event(stream, NULL));
  hy_event_destroy(NULL);
  REFUSES(hy_alloc(NULL, 1, &address));
  REFUSES(hy_alloc(stream, 1, NULL));
  REFUSES(hy_free(NULL, &byte));
  REFUSES(hy_record_stream(NULL, &byte));
  REFUSES(hy_alloc_raw(NULL, 1, &address));
  REFUSES(hy_host_alloc(device, 1, NULL));
  hy_free_raw(NULL, &byte);
  hy_host_free(NULL, &byte);
  assert_false(hy_host_is_pinned(NULL, &byte));
  REFUSES(hy_memory_get_stats(device, NULL));
  REFUSES(hy_memory_reset_peak(NULL));
  REFUSES(hy_memory_info(device, NULL, &bytes));
  REFUSES(hy_memory_set_limit(NULL, 1));
  REFUSES(hy_empty_cache(NULL));
  REFUSES(hy_device_of_pointer(&byte, NULL));
  REFUSES(hy_memory_export(NULL, &byte, NULL));
  REFUSES(hy_memory_import(NULL, NULL, NULL, NULL));
  REFUSES(hy_memory_close(NULL, &byte));
  REFUSES(hy_memcpy(NULL, &byte, &byte, 1, HY_COPY_DEFAULT));
  REFUSES(hy_memcpy(stream, NULL, &byte, 1, HY_COPY_DEFAULT));
  REFUSES(hy_upload(NULL, &byte, &byte, 1));
  REFUSES(hy_upload(stream, &byte, NULL, 1));
  REFUSES(hy_memset(stream, NULL, 0, 1));
  REFUSES(hy_device_peer_access(NULL, device, &possible));
  REFUSES(hy_memcpy_peer(NULL, &byte, stream, &byte, 1));
}

static void tensors_and_calls(void** state) {
  (void)state;
  hy_tensor t, out;
  hy_placement placement;
  float x[2] = {1, 2};
  char text[8];
  CHECK_OK(hy_tensor_init(&t, x, HY_F32, 1, (int64_t[]){2}));
  REFUSES(hy_tensor_init(NULL, x, HY_F32, 0, NULL));
  REFUSES(hy_tensor_init(&out, x, HY_F32, 1, NULL));
  REFUSES(hy_tensor_check(NULL));
  assert_string_equal(hy_tensor_describe(NULL, text, sizeof text), "none");
  assert_string_equal(hy_tensor_describe(&t, NULL, 5), "");
  REFUSES(hy_view(NULL, &t, 1, (int64_t[]){2}));
  REFUSES(hy_view(&out, NULL, 1, (int64_t[]){2}));
  REFUSES(hy_view(&out, &t, 1, NULL));
  REFUSES(hy_transpose(&out, NULL, 0, 0));
  REFUSES(hy_permute(&out, &t, NULL));
  REFUSES(hy_squeeze(&out, NULL, 0));
  REFUSES(hy_unsqueeze(&out, NULL, 0));
  REFUSES(hy_expand(&out, &t, 1, NULL));
  REFUSES(hy_slice(&out, NULL, 0, 0, 1, 1));
  REFUSES(hy_select(&out, NULL, 0, 0));
  REFUSES(hy_flip(&out, NULL, 0));
  REFUSES(hy_as_strided(&out, &t, 1, NULL, NULL, 0));
  hy_call call = {.op = HY_OP_neg, .n_in = 1, .n_out = 1};
  REFUSES(hy_run(NULL, &call));
  REFUSES(hy_run(stream, NULL));
  REFUSES(hy_run(stream, &call));  // no inputs behind the count
  REFUSES(hy_infer(NULL, &out));
  REFUSES(hy_infer(&call, NULL));
  REFUSES(hy_place(device, &call, &placement));
  call.in = &t;
  REFUSES(hy_place(device, &call, &placement));  // no outputs
  REFUSES(hy_place(NULL, &call, &placement));
  REFUSES(hy_place(device, &call, NULL));
  REFUSES(hy_place_op(NULL, HY_OP_neg, HY_F32, &placement));
  assert_int_equal(hy_place_op(device, HY_OP_neg, (hy_dtype)99, &placement), HY_DTYPE);
  call.op = (hy_op)100000;
  assert_int_equal(hy_place(device, &call, &placement), HY_NOT_FOUND);
  REFUSES(hy_neg(stream, &t, NULL));
  REFUSES(hy_neg(stream, NULL, &t));
  REFUSES(hy_cat(stream, &t, NULL, 2, 0));
  assert_int_not_equal(hy_fill(stream, NULL, hy_int(1)), HY_OK);
  hy_call_describe(NULL, text, sizeof text);
  assert_int_equal(hy_op_from_name(NULL), HY_OP_NONE);
  assert_int_equal(hy_dtype_from_name(NULL), HY_NONE);
  hy_fallback_report(NULL, 4);
  hy_einsum_equation(NULL);
}

static void arrays(void** state) {
  (void)state;
  hy_array *a, *out;
  hy_tape* tape;
  hy_optimizer* optimizer;
  double value;
  CHECK_OK(hy_tape_create(stream, &tape));
  CHECK_OK(hy_array_zeros(stream, &a, HY_F32, 0, NULL));
  REFUSES(hy_array_empty(NULL, &out, HY_F32, 0, NULL));
  REFUSES(hy_array_empty(stream, NULL, HY_F32, 0, NULL));
  REFUSES(hy_array_zeros(stream, &out, HY_F32, 1, NULL));
  REFUSES(hy_array_from_host(stream, &out, HY_F32, 0, NULL, NULL));
  assert_non_null(strstr(hy_last_error(), "hy_array_from_host"));
  REFUSES(hy_array_scalar(NULL, &out, HY_F32, 1));
  REFUSES(hy_array_full(stream, NULL, HY_F32, 0, NULL, hy_int(1)));
  REFUSES(hy_array_range(NULL, &out, HY_F32, 1, hy_int(1), hy_int(1)));
  REFUSES(hy_array_rand(NULL, &out, HY_F32, 0, NULL, 1, 0, 1));
  REFUSES(hy_array_randn(stream, NULL, HY_F32, 0, NULL, 1, 0, 1));
  REFUSES(hy_array_wrap(stream, &out, NULL, NULL, NULL));
  REFUSES(hy_array_to(stream, &out, NULL));
  REFUSES(hy_array_to_host(stream, NULL, &value, 4));
  REFUSES(hy_array_to_host(stream, a, NULL, 4));
  REFUSES(hy_array_to_host(NULL, a, &value, 4));
  REFUSES(hy_array_item(stream, NULL, &value));
  REFUSES(hy_array_item(stream, a, NULL));
  REFUSES(hy_arrays_save(NULL, "x", NULL, NULL, 0));
  REFUSES(hy_arrays_save(stream, NULL, NULL, NULL, 0));
  REFUSES(hy_arrays_load(stream, "x", NULL, NULL));
  assert_null(hy_array_tensor(NULL));
  assert_null(hy_array_device(NULL));
  assert_null(hy_array_grad(NULL));
  assert_false(hy_array_requires_grad(NULL));
  hy_array_touch(NULL);
  hy_array_zero_grad(NULL);
  hy_array_release(hy_array_retain(NULL));
  REFUSES(hy_array_set_requires_grad(NULL, true));
  REFUSES(hy_array_retain_grad(NULL));
  REFUSES(hy_array_set_grad(NULL, a));
  REFUSES(hy_array_detach(&out, NULL));
  REFUSES(hy_array_detach(NULL, a));
  REFUSES(hy_tape_create(NULL, NULL));
  assert_null(hy_tape_stream(NULL));
  assert_int_equal(hy_tape_size(NULL), 0);
  hy_tape_destroy(NULL);
  REFUSES(hy_backward(NULL, a, NULL));
  REFUSES(hy_backward(tape, NULL, NULL));
  REFUSES(hy_checkpoint(tape, NULL, NULL, NULL, NULL, 0, NULL, 1));
  REFUSES(hy_array_view(tape, &out, NULL, 0, NULL));
  REFUSES(hy_array_transpose(tape, NULL, a, 0, 0));
  REFUSES(hy_array_flip(tape, &out, NULL, 0));
  REFUSES(hy_array_contiguous(tape, &out, NULL));
  REFUSES(hy_array_neg(NULL, &out, a));
  REFUSES(hy_array_neg(tape, &out, NULL));
  REFUSES(hy_array_cat(tape, &out, NULL, 2, 0));
  REFUSES(hy_array_apply(tape, HY_OP_neg, &a, 1, NULL, NULL, 1));
  REFUSES(hy_array_apply_into(tape, HY_OP_neg, &a, 1, NULL, NULL, 1));
  REFUSES(hy_adamw_create(NULL, NULL, 0, NULL, &optimizer));
  REFUSES(hy_sgd_create(stream, NULL, 0, NULL, &optimizer));
  REFUSES(hy_optimizer_step(NULL));
  REFUSES(hy_optimizer_export(NULL, NULL, NULL));
  REFUSES(hy_optimizer_import(NULL, "steps", a));
  hy_optimizer_zero_grad(NULL);
  hy_optimizer_set_lr(NULL, 1);
  hy_optimizer_destroy(NULL);
  assert_true(hy_optimizer_lr(NULL) == 0);
  REFUSES(hy_clip_grad_norm(NULL, NULL, 0, 1, &value));
  hy_tape_destroy(tape);
  hy_array_release(a);
}

static void graphs_and_others(void** state) {
  (void)state;
  hy_graph* graph;
  hy_graph_node node;
  char text[8];
  REFUSES(hy_capture_begin(NULL));
  REFUSES(hy_capture_end(NULL, &graph));
  REFUSES(hy_graph_launch(NULL, stream));
  REFUSES(hy_graph_bind(NULL, NULL, 0));
  REFUSES(hy_graph_set_attrs(NULL, 0, NULL));
  REFUSES(hy_graph_node_at(NULL, 0, &node));
  assert_int_equal(hy_graph_node_count(NULL), 0);
  assert_false(hy_graph_is_native(NULL));
  assert_int_equal(hy_graph_memory(NULL), 0);
  hy_graph_describe(NULL, text, sizeof text);
  hy_graph_destroy(NULL);
  REFUSES(hy_compile(NULL, "x", NULL, NULL));
  REFUSES(hy_compile_flags(NULL, text, sizeof text));
  REFUSES(hy_module_kernel(NULL, "x", NULL));
  REFUSES(hy_kernel_launch(NULL, NULL, NULL));
  hy_module_destroy(NULL);
  assert_false(hy_comm_supported(NULL));
  assert_false(hy_comm_is_native(NULL));
  REFUSES(hy_comm_local_rank(NULL));
  REFUSES(hy_comm_world_device(NULL, NULL));
  REFUSES(hy_comm_unique_id(NULL, NULL));
  REFUSES(hy_comm_init_rank(NULL, 1, NULL, 0, NULL));
  REFUSES(hy_comm_abort(NULL));
  REFUSES(hy_comm_async_error(NULL));
  REFUSES(hy_comm_barrier(NULL, stream));
  REFUSES(hy_comm_group_begin(NULL));
  assert_int_equal(hy_comm_rank(NULL), -1);
  assert_int_equal(hy_comm_size(NULL), 0);
  assert_null(hy_comm_device(NULL));
  hy_comm_destroy(NULL);
  REFUSES(hy_trace_start(NULL));
  CHECK_OK(hy_trace_stop());
  REFUSES(hy_context_create(NULL, NULL));
  REFUSES(hy_context_generate(NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL));
  REFUSES(hy_model_generate(NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL));
  REFUSES(hy_model_generate_batch(NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL));
  REFUSES(hy_model_logits(NULL, NULL, 0, NULL));
  hy_context_destroy(NULL);
  hy_model_free(NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(devices),           cmocka_unit_test(streams_and_memory),
      cmocka_unit_test(tensors_and_calls), cmocka_unit_test(arrays),
      cmocka_unit_test(graphs_and_others),
  };
  return cmocka_run_group_tests_name("null arguments", tests, set_up, tear_down);
}

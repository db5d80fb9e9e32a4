// The plugin ABI does not move: a plugin built today is loaded by every later library of the same
// version. A field may be added at the end of a struct that leads with its size; nothing else here
// may ever change.
#include "halyard/ops.h"
#include "support/check.h"

#if defined(__LP64__)

#define AT(type, field, offset) \
  _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " has changed its size")

// In arrays or by value: not even the size may change.
SIZE(hy_tensor, 152);
SIZE(hy_scalar, 16);
SIZE(hy_dims, 72);
SIZE(hy_attrs, 128);
SIZE(hy_call, 160);
SIZE(hy_declaration, 8);
SIZE(hy_kernel_arg, 16);
SIZE(hy_comm_id, 4352);
SIZE(hy_memory_blob, 192);

AT(hy_tensor, data, 0);
AT(hy_tensor, dtype, 8);
AT(hy_tensor, layout, 12);
AT(hy_tensor, ndim, 16);
AT(hy_tensor, reserved, 20);
AT(hy_tensor, shape, 24);
AT(hy_tensor, stride, 88);

AT(hy_scalar, as, 0);
AT(hy_scalar, kind, 8);
AT(hy_scalar, reserved, 12);

AT(hy_dims, dim, 0);
AT(hy_dims, n, 64);

AT(hy_call, op, 0);
AT(hy_call, n_in, 4);
AT(hy_call, n_out, 8);
AT(hy_call, reserved, 12);
AT(hy_call, in, 16);
AT(hy_call, out, 24);
AT(hy_call, attrs, 32);

AT(hy_probe, size, 0);
AT(hy_probe, stage, 8);
AT(hy_probe, status, 12);
AT(hy_probe, library, 16);
AT(hy_probe, reason, 272);
AT(hy_probe, remedy, 784);

AT(hy_host, size, 0);
AT(hy_host, abi, 8);
AT(hy_host, fail, 16);
AT(hy_host, log, 24);
AT(hy_host, reference, 32);
AT(hy_host, op_name, 40);
AT(hy_host, last_error, 48);
AT(hy_host, open_library, 56);
AT(hy_host, visible_devices, 64);

AT(hy_device_info, size, 0);
AT(hy_device_info, name, 8);
AT(hy_device_info, compute_major, 136);
AT(hy_device_info, compute_minor, 140);
AT(hy_device_info, memory_total, 144);
AT(hy_device_info, memory_free, 152);
AT(hy_device_info, max_shared_memory, 160);
AT(hy_device_info, core_count, 168);
AT(hy_device_info, capabilities, 172);
AT(hy_device_info, dtypes, 176);
AT(hy_device_info, driver_version, 180);
AT(hy_device_info, sdk_version, 244);
AT(hy_device_info, pci, 308);
AT(hy_device_info, properties, 324);

AT(hy_declaration, op, 0);
AT(hy_declaration, dtypes, 4);

AT(hy_provider, size, 0);
AT(hy_provider, name, 8);
AT(hy_provider, version, 16);
AT(hy_provider, probe, 24);
AT(hy_provider, declares, 32);
AT(hy_provider, n_declares, 40);
AT(hy_provider, supports, 48);
AT(hy_provider, run, 56);
AT(hy_provider, flags, 64);
AT(hy_provider, reserved, 68);
AT(hy_provider, supports_chain, 72);
AT(hy_provider, run_chain, 80);
AT(hy_provider, variants, 88);
AT(hy_provider, run_variant, 96);
AT(hy_provider, packed_bytes, 104);
AT(hy_provider, pack, 112);
AT(hy_provider, run_packed, 120);

AT(hy_async_error, status, 0);
AT(hy_async_error, op, 4);
AT(hy_async_error, message, 8);

AT(hy_kernel_arg, value, 0);
AT(hy_kernel_arg, bytes, 8);
AT(hy_kernel_arg, is_address, 12);

AT(hy_launch, size, 0);
AT(hy_launch, grid, 8);
AT(hy_launch, block, 20);
AT(hy_launch, shared_bytes, 32);
AT(hy_launch, args, 40);
AT(hy_launch, n_args, 48);
AT(hy_launch, reserved, 52);

AT(hy_graph_node, size, 0);
AT(hy_graph_node, kind, 8);
AT(hy_graph_node, value, 12);
AT(hy_graph_node, call, 16);
AT(hy_graph_node, dst, 24);
AT(hy_graph_node, src, 32);
AT(hy_graph_node, bytes, 40);
AT(hy_graph_node, kernel, 48);
AT(hy_graph_node, launch, 56);
AT(hy_graph_node, chain, 64);
AT(hy_graph_node, collective, 72);

AT(hy_collective, size, 0);
AT(hy_collective, comm, 8);
AT(hy_collective, kind, 16);
AT(hy_collective, dtype, 20);
AT(hy_collective, op, 24);
AT(hy_collective, root, 28);
AT(hy_collective, count, 32);
AT(hy_collective, send, 40);
AT(hy_collective, recv, 48);

AT(hy_backend, size, 0);
AT(hy_backend, abi, 8);
AT(hy_backend, flags, 12);
AT(hy_backend, name, 16);
AT(hy_backend, version, 24);
AT(hy_backend, description, 32);
AT(hy_backend, probe, 40);
AT(hy_backend, device_info, 48);
AT(hy_backend, device_open, 56);
AT(hy_backend, device_close, 64);
AT(hy_backend, device_sync, 72);
AT(hy_backend, memory_alloc, 80);
AT(hy_backend, memory_free, 88);
AT(hy_backend, memory_info, 96);
AT(hy_backend, host_alloc, 104);
AT(hy_backend, host_free, 112);
AT(hy_backend, copy, 120);
AT(hy_backend, set, 128);
AT(hy_backend, stream_create, 136);
AT(hy_backend, stream_destroy, 144);
AT(hy_backend, stream_sync, 152);
AT(hy_backend, stream_query, 160);
AT(hy_backend, stream_error, 168);
AT(hy_backend, event_create, 176);
AT(hy_backend, event_destroy, 184);
AT(hy_backend, event_record, 192);
AT(hy_backend, event_query, 200);
AT(hy_backend, event_sync, 208);
AT(hy_backend, event_elapsed, 216);
AT(hy_backend, stream_wait_event, 224);
AT(hy_backend, providers, 232);
AT(hy_backend, n_providers, 240);
AT(hy_backend, reserved, 244);
AT(hy_backend, capture_begin, 248);
AT(hy_backend, capture_end, 256);
AT(hy_backend, graph_launch, 264);
AT(hy_backend, graph_update, 272);
AT(hy_backend, graph_destroy, 280);
AT(hy_backend, comm_unique_id, 288);
AT(hy_backend, comm_init_rank, 296);
AT(hy_backend, comm_destroy, 304);
AT(hy_backend, comm_abort, 312);
AT(hy_backend, comm_async_error, 320);
AT(hy_backend, all_reduce, 328);
AT(hy_backend, all_gather, 336);
AT(hy_backend, reduce_scatter, 344);
AT(hy_backend, broadcast, 352);
AT(hy_backend, send, 360);
AT(hy_backend, recv, 368);
AT(hy_backend, barrier, 376);
AT(hy_backend, group_begin, 384);
AT(hy_backend, group_end, 392);
AT(hy_backend, peer_access, 400);
AT(hy_backend, copy_peer, 408);
AT(hy_backend, stream_native, 416);
AT(hy_backend, stream_wrap, 424);
AT(hy_backend, stream_priority_range, 432);
AT(hy_backend, stream_create_with_priority, 440);
AT(hy_backend, pointer_device, 448);
AT(hy_backend, memory_export, 456);
AT(hy_backend, memory_import, 464);
AT(hy_backend, memory_close, 472);
AT(hy_backend, compile, 480);
AT(hy_backend, compile_flags, 488);
AT(hy_backend, module_kernel, 496);
AT(hy_backend, kernel_launch, 504);
AT(hy_backend, module_destroy, 512);
AT(hy_backend, set_threads, 520);
AT(hy_backend, threads, 528);
AT(hy_backend, peak, 536);

#define ATTR(kind, field, offset) AT(hy_attrs_##kind, field, offset);
#include "unit/abi_attrs.def"

#endif

#define OP(number, name) _Static_assert(HY_OP_##name == (number), #name " has another number");
#include "unit/abi_ops.def"

// Numbers that plugins have compiled in.
static void enumerators_keep_their_values(void** state) {
  (void)state;
  assert_int_equal(HY_ABI_VERSION, 1);
  assert_int_equal(HY_OK, 0);
  assert_int_equal(HY_OUT_OF_MEMORY, 7);
  assert_int_equal(HY_UNAVAILABLE, 9);
  assert_int_equal(HY_UNSUPPORTED, 10);
  assert_int_equal(HY_NOT_READY, 12);
  assert_int_equal(HY_DEVICE_FAILED, 13);
  assert_int_equal(HY_ABI_MISMATCH, 16);
  assert_int_equal(HY_INTERNAL, 17);
  assert_int_equal(HY_F32, 1);
  assert_int_equal(HY_BF16, 4);
  assert_int_equal(HY_BOOL, 10);
  assert_int_equal(HY_I4, 13);
  assert_int_equal(HY_LAYOUT_SPARSE_2_4, 2);
  assert_int_equal(HY_LAYOUT_FRACTAL_NZ, 3);
  assert_int_equal(HY_STAGE_READY, 6);
  assert_int_equal(HY_CAP_FP32, 1);
  assert_int_equal(HY_CAP_FP64, 4096);
  assert_int_equal(HY_SUPPORT_NO_OP, 1);
  assert_int_equal(HY_SUPPORT_NO_HARDWARE, 6);
  assert_int_equal(HY_SUPPORT_NO_OUTPUT, 7);
  assert_int_equal(HY_WITHOUT_OPTIONAL_OUTPUTS, 0x80000000u);
  assert_int_equal(HY_FLAT_ONLY, 0x40000000u);
  assert_int_equal(HY_UNPACK_FIRST, 0x20000000u);
  assert_int_equal(HY_COPY_HOST_TO_DEVICE, 1);
  assert_int_equal(HY_COPY_DEVICE_TO_DEVICE, 3);
  assert_int_equal(HY_BACKEND_HOST_MEMORY, 1);
  assert_int_equal(HY_BACKEND_NARROW_RANGE, 4);
  assert_int_equal(HY_NODE_LAUNCH, 3);
  assert_int_equal(HY_NODE_COLLECTIVE, 5);
  assert_int_equal(HY_COLLECTIVE_BARRIER, 6);
  assert_int_equal(HY_REDUCE_SUM, 0);
  assert_int_equal(HY_REDUCE_AVG, 4);
  assert_int_equal(HY_OP_copy, 1);
  assert_int_equal(HY_OP_add, 40);
  assert_int_equal(HY_MAX_DIMS, 8);
  assert_int_equal(HY_MAX_EQUATION, 96);
}

// An op that is new has to be written down, so that its number is kept from then on.
static void every_op_is_written_down(void** state) {
  (void)state;
  static const hy_op known[] = {
#undef OP
#define OP(number, name) HY_OP_##name,
#include "unit/abi_ops.def"
  };
  int n = (int)(sizeof known / sizeof known[0]);
  for (int i = 0; i < hy_op_count(); i++) {
    bool found = false;
    for (int k = 0; k < n && !found; k++) found = known[k] == hy_op_at(i)->op;
    if (!found) fail_msg("add OP(%d, %s) to abi_ops.def", hy_op_at(i)->op, hy_op_at(i)->name);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(enumerators_keep_their_values),
                                     cmocka_unit_test(every_op_is_written_down)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}

// libcnnl.so for tests: handles, descriptors of tensors and of ops, and the search for an algorithm
// of a product. Signatures are those with which torch_mlu/csrc/aten/cnnl (2024) calls them:
// cnnlHandle.cpp, cnnlTensorDesc.cpp, cnnlOpDescriptors.cpp, cnnlAlgorithms.h,
// cnnlHeuristicResult.cpp.
#include <stdlib.h>
#include <string.h>

#include "cnnl.h"

hy_dtype cnnl_type(int dtype) {
  switch (dtype) {
    case CNNL_DTYPE_HALF: return HY_F16;
    case CNNL_DTYPE_FLOAT: return HY_F32;
    case CNNL_DTYPE_INT8: return HY_I8;
    case CNNL_DTYPE_INT32: return HY_I32;
    case CNNL_DTYPE_UINT8: return HY_U8;
    case CNNL_DTYPE_BOOL: return HY_BOOL;
    case CNNL_DTYPE_INT64: return HY_I64;
    case CNNL_DTYPE_BFLOAT16: return HY_BF16;
    default: return HY_NONE;
  }
}

static void* born(size_t bytes, const char* kind) {
  void* memory = calloc(1, bytes);
  if (!memory) abort();
  vendor_born(memory, kind);
  return memory;
}

// ---- handles ----

VENDOR_API int cnnlCreate(cnnlContext** handle) {
  ENTER(cnnlCreate);
  if (cambricon_device("cnnlCreate") < 0) return CNNL_STATUS_NOT_INITIALIZED;
  *handle = born(sizeof **handle, "handle");
  return CNNL_STATUS_SUCCESS;
}

#define ALIVE(name, thing, kind) \
  DEMAND(vendor_alive(thing, kind), CNNL_STATUS_BAD_PARAM, #name ": %p is no " kind, (void*)(thing))

VENDOR_API int cnnlDestroy(cnnlContext* handle) {
  ENTER(cnnlDestroy);
  ALIVE(cnnlDestroy, handle, "handle");
  vendor_dies(handle, "handle");
  free(handle);
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlSetQueue(cnnlContext* handle, void* queue) {
  ENTER(cnnlSetQueue);
  ALIVE(cnnlSetQueue, handle, "handle");
  if (!cambricon_queue_fits("cnnlSetQueue", queue)) return CNNL_STATUS_BAD_PARAM;
  handle->queue = queue;
  return CNNL_STATUS_SUCCESS;
}

// ---- tensors ----

VENDOR_API int cnnlCreateTensorDescriptor(cnnlTensorStruct** desc) {
  ENTER(cnnlCreateTensorDescriptor);
  *desc = born(sizeof **desc, "tensor descriptor");
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlDestroyTensorDescriptor(cnnlTensorStruct* desc) {
  ENTER(cnnlDestroyTensorDescriptor);
  ALIVE(cnnlDestroyTensorDescriptor, desc, "tensor descriptor");
  vendor_dies(desc, "tensor descriptor");
  free(desc);
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlSetTensorDescriptorEx_v2(cnnlTensorStruct* desc, int layout, int dtype,
                                            int dimNb, const int64_t* dimSize,
                                            const int64_t* dimStride) {
  ENTER(cnnlSetTensorDescriptorEx_v2);
  ALIVE(cnnlSetTensorDescriptorEx_v2, desc, "tensor descriptor");
  RULE(!desc->is_set, "cnnlSetTensorDescriptorEx_v2: set already, and not reset");
  RULE(layout == CNNL_LAYOUT_ARRAY, "cnnlSetTensorDescriptorEx_v2: layout %d", layout);
  RULE(cnnl_type(dtype) != HY_NONE, "cnnlSetTensorDescriptorEx_v2: type %d", dtype);
  RULE(cnnl_type(dtype) != HY_BF16 || cambricon_has_bf16(), "this chip has no bf16");
  RULE(dimNb >= 1 && dimNb <= 8, "cnnlSetTensorDescriptorEx_v2: %d dimensions", dimNb);
  desc->view = (hy_tensor){.dtype = cnnl_type(dtype), .ndim = dimNb};
  for (int d = 0; d < dimNb; d++) {
    RULE(dimSize[d] > 0, "cnnlSetTensorDescriptorEx_v2: a dimension of %lld",
         (long long)dimSize[d]);
    RULE(dimStride[d] >= 0, "cnnlSetTensorDescriptorEx_v2: a stride of %lld",
         (long long)dimStride[d]);
    desc->view.shape[d] = dimSize[d];
    desc->view.stride[d] = dimStride[d];
  }
  desc->is_set = true;
  return CNNL_STATUS_SUCCESS;
}

// ---- ops ----

#define DESCRIPTOR(create, destroy, kind) \
  VENDOR_API int create(op_desc** desc);  \
  int create(op_desc** desc) {            \
    ENTER(create);                        \
    *desc = born(sizeof **desc, kind);    \
    return CNNL_STATUS_SUCCESS;           \
  }                                       \
  VENDOR_API int destroy(op_desc* desc);  \
  int destroy(op_desc* desc) {            \
    ENTER(destroy);                       \
    ALIVE(destroy, desc, kind);           \
    vendor_dies(desc, kind);              \
    free(desc);                           \
    return CNNL_STATUS_SUCCESS;           \
  }

DESCRIPTOR(cnnlCreateOpTensorDescriptor, cnnlDestroyOpTensorDescriptor, "OpTensor descriptor")
DESCRIPTOR(cnnlCreateActivationDescriptor, cnnlDestroyActivationDescriptor, "Activation descriptor")
DESCRIPTOR(cnnlCreateReduceDescriptor, cnnlDestroyReduceDescriptor, "Reduce descriptor")
DESCRIPTOR(cnnlMatMulDescCreate, cnnlMatMulDescDestroy, "MatMul descriptor")
DESCRIPTOR(cnnlMatMulAlgoCreate, cnnlMatMulAlgoDestroy, "MatMul algorithm")
DESCRIPTOR(cnnlBatchMatMulAlgoCreate, cnnlBatchMatMulAlgoDestroy, "BatchMatMul algorithm")
DESCRIPTOR(cnnlCreateMatMulHeuristicResult, cnnlDestroyMatMulHeuristicResult, "heuristic result")

VENDOR_API int cnnlSetOpTensorDescriptor(op_desc* desc, int op, int comp_type, int nan_opt) {
  ENTER(cnnlSetOpTensorDescriptor);
  ALIVE(cnnlSetOpTensorDescriptor, desc, "OpTensor descriptor");
  RULE(op >= CNNL_OP_TENSOR_ADD && op <= CNNL_OP_TENSOR_MUL, "cnnlSetOpTensorDescriptor: op %d",
       op);
  RULE(comp_type == CNNL_DTYPE_FLOAT || comp_type == CNNL_DTYPE_INT32,
       "cnnlSetOpTensorDescriptor: computed in type %d", comp_type);
  RULE(nan_opt == 0 || nan_opt == 1, "cnnlSetOpTensorDescriptor: NaN %d", nan_opt);
  *desc = (op_desc){.is_set = true, .op = op, .dtype = comp_type, .nan = nan_opt};
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlSetActivationDescriptor_v6(op_desc* desc, int mode, int prefer, int nanProp,
                                              float coef, int sliced_dim, float gamma, float scale,
                                              bool is_result, bool approximate) {
  ENTER(cnnlSetActivationDescriptor_v6);
  ALIVE(cnnlSetActivationDescriptor_v6, desc, "Activation descriptor");
  RULE(prefer == CNNL_COMPUTATION_HIGH_PRECISION, "cnnlSetActivationDescriptor_v6: not precise");
  RULE(coef == 0 && sliced_dim == 0 && gamma == 0 && scale == 0 && !is_result,
       "cnnlSetActivationDescriptor_v6: mode %d takes none of these", mode);
  RULE(!approximate || mode == CNNL_ACTIVATION_GELU,
       "cnnlSetActivationDescriptor_v6: approximate is gelu's");
  *desc = (op_desc){.is_set = true, .op = mode, .nan = nanProp, .approximate = approximate};
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlSetReduceDescriptor_v2(op_desc* desc, int* axis, int axis_num, int reduce_op,
                                          int tensor_type, int nan_propagation, int tensor_indices,
                                          int indices_type, float p) {
  ENTER(cnnlSetReduceDescriptor_v2);
  ALIVE(cnnlSetReduceDescriptor_v2, desc, "Reduce descriptor");
  RULE(axis_num >= 1 && axis_num <= 8, "cnnlSetReduceDescriptor_v2: %d axes", axis_num);
  RULE(reduce_op >= CNNL_REDUCE_ADD && reduce_op <= CNNL_REDUCE_OR,
       "cnnlSetReduceDescriptor_v2: op %d", reduce_op);
  RULE(tensor_indices == CNNL_REDUCE_NO_INDICES || tensor_indices == CNNL_REDUCE_FLATTENED_INDICES,
       "cnnlSetReduceDescriptor_v2: indices %d", tensor_indices);
  RULE(tensor_indices == CNNL_REDUCE_NO_INDICES ||
           (axis_num == 1 && (reduce_op == CNNL_REDUCE_MAX || reduce_op == CNNL_REDUCE_MIN)),
       "cnnlSetReduceDescriptor_v2: indices of op %d over %d axes", reduce_op, axis_num);
  RULE(indices_type == CNNL_32BIT_INDICES, "cnnlSetReduceDescriptor_v2: indices of type %d",
       indices_type);
  RULE(p == 0, "cnnlSetReduceDescriptor_v2: p is for norms");
  *desc = (op_desc){.is_set = true,
                    .op = reduce_op,
                    .dtype = tensor_type,
                    .nan = nan_propagation,
                    .n_axes = axis_num,
                    .indices = tensor_indices};
  memcpy(desc->axes, axis, (size_t)axis_num * sizeof *axis);
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlSetMatMulDescAttr(op_desc* desc, int attr, const void* buf, size_t sizeInBytes) {
  ENTER(cnnlSetMatMulDescAttr);
  ALIVE(cnnlSetMatMulDescAttr, desc, "MatMul descriptor");
  RULE(sizeInBytes == sizeof(int32_t), "cnnlSetMatMulDescAttr: %zu bytes", sizeInBytes);
  int32_t value;
  memcpy(&value, buf, sizeof value);
  RULE(value == 0 || value == 1, "cnnlSetMatMulDescAttr: attribute %d is %d", attr, value);
  switch (attr) {
    case CNNL_MATMUL_DESC_TRANSA: desc->trans_a = value; break;
    case CNNL_MATMUL_DESC_TRANSB: desc->trans_b = value; break;
    case CNNL_MATMUL_USE_BETA: desc->use_beta = value; break;
    case CNNL_MATMUL_ALLOW_TF32: RULE(!value, "cnnlSetMatMulDescAttr: TF32 loses bits"); break;
    default: RULE(false, "cnnlSetMatMulDescAttr: attribute %d", attr);
  }
  desc->is_set = true;
  return CNNL_STATUS_SUCCESS;
}

// ---- algorithms ----

static int propose(const char* name, const cnnlContext* handle, const op_desc* matmul, int n,
                   cnnlTensorStruct* const* tensors, const void* preference, int requested,
                   op_desc** results, int* found, bool batched) {
  RULE(vendor_alive(handle, "handle"), "%s: there is no handle", name);
  RULE(vendor_alive(matmul, "MatMul descriptor") && matmul->is_set,
       "%s: the descriptor is none, or was not set", name);
  for (int i = 0; i < n; i++)
    RULE(vendor_alive(tensors[i], "tensor descriptor") && tensors[i]->is_set,
         "%s: tensor %d is none, or was not set", name, i);
  RULE(!preference && requested == 1, "%s: a preference, or more than one algorithm", name);
  RULE(vendor_alive(results[0], "heuristic result"), "%s: there is no place for the result", name);
  results[0]->proposed = true;
  results[0]->batched = batched;
  *found = 1;
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlGetMatMulAlgoHeuristic(cnnlContext* handle, op_desc* matmul_desc,
                                          cnnlTensorStruct* a_desc, cnnlTensorStruct* b_desc,
                                          cnnlTensorStruct* c_desc, cnnlTensorStruct* d_desc,
                                          void* preference, int requested_algo_count,
                                          op_desc** result_array, int* return_algo_count) {
  ENTER(cnnlGetMatMulAlgoHeuristic);
  cnnlTensorStruct* tensors[] = {a_desc, b_desc, c_desc, d_desc};
  return propose("cnnlGetMatMulAlgoHeuristic", handle, matmul_desc, 4, tensors, preference,
                 requested_algo_count, result_array, return_algo_count, false);
}

VENDOR_API int cnnlGetBatchMatMulAlgoHeuristic(cnnlContext* handle, op_desc* bmm_desc,
                                               cnnlTensorStruct* a_desc, cnnlTensorStruct* b_desc,
                                               cnnlTensorStruct* c_desc, void* preference,
                                               int requested_algo_count, op_desc** result_array,
                                               int* return_algo_count) {
  ENTER(cnnlGetBatchMatMulAlgoHeuristic);
  cnnlTensorStruct* tensors[] = {a_desc, b_desc, c_desc};
  return propose("cnnlGetBatchMatMulAlgoHeuristic", handle, bmm_desc, 3, tensors, preference,
                 requested_algo_count, result_array, return_algo_count, true);
}

static int take_result(const char* name, const op_desc* result, op_desc* algo, const char* kind,
                       bool batched, size_t* workspace_size, const char* of) {
  RULE(vendor_alive(result, "heuristic result") && result->proposed && result->batched == batched,
       "%s: the result is none, or nobody proposed it", name);
  RULE(vendor_alive(algo, kind), "%s: there is no algorithm", name);
  algo->is_set = true;
  *workspace_size = workspace_of(of);
  return CNNL_STATUS_SUCCESS;
}

VENDOR_API int cnnlGetMatMulHeuristicResult(op_desc* result, op_desc* algo,
                                            size_t* workspace_size) {
  ENTER(cnnlGetMatMulHeuristicResult);
  return take_result("cnnlGetMatMulHeuristicResult", result, algo, "MatMul algorithm", false,
                     workspace_size, "MatMul_v2");
}

VENDOR_API int cnnlGetBatchMatMulHeuristicResult(op_desc* result, op_desc* algo,
                                                 size_t* workspace_size) {
  ENTER(cnnlGetBatchMatMulHeuristicResult);
  return take_result("cnnlGetBatchMatMulHeuristicResult", result, algo, "BatchMatMul algorithm",
                     true, workspace_size, "BatchMatMulBCast_v2");
}

// Test library for Cambricon: CNNL's enumerators, in the form of the vendor's header, whose place
// this file takes: it is also include/cnnl.h of the test library's folder, where the backend reads
// it.
//
// Values with a public source have it above them. Those without one are made up, here and nowhere
// else: a backend that has them right has read this file.
#ifndef CNNL_H_
#define CNNL_H_

// cnnl-example/cnnl_core.h and mlu-ops/mlu_op.h
typedef enum {
  CNNL_LAYOUT_NCHW = 0,
  CNNL_LAYOUT_NHWC = 1,
  CNNL_LAYOUT_ARRAY = 4, /* "enum { CNNL_LAYOUT_ARRAY = 5 }" in a comment is not read */
} cnnlTensorLayout_t;
typedef enum {
  CNNL_DTYPE_INVALID = 0,
  CNNL_DTYPE_HALF = 1,
  CNNL_DTYPE_FLOAT = 2,
  CNNL_DTYPE_INT8 = 3,
  CNNL_DTYPE_INT16 = 4,
  CNNL_DTYPE_INT32 = 6,
  CNNL_DTYPE_UINT8 = 7,
  CNNL_DTYPE_BOOL = 8,
  CNNL_DTYPE_INT64 = 9,
  CNNL_DTYPE_BFLOAT16 = 17,
} cnnlDataType_t;
typedef enum { CNNL_NOT_PROPAGATE_NAN = 0, CNNL_PROPAGATE_NAN = 1 } cnnlNanPropagation_t;
typedef enum {
  CNNL_COMPUTATION_FAST = 0,
  CNNL_COMPUTATION_HIGH_PRECISION = 1,
} cnnlComputationPreference_t;
typedef enum { CNNL_POINTER_MODE_HOST = 0, CNNL_POINTER_MODE_DEVICE = 1 } cnnlPointerMode_t;
typedef enum { CNNL_LOG_E = 0, CNNL_LOG_2 = 1, CNNL_LOG_10 = 2 } cnnlLogBase_t;

// mlu-ops-proto/mlu_op_test.proto
typedef enum {
  CNNL_OP_TENSOR_ADD = 1,
  CNNL_OP_TENSOR_SUB = 2,
  CNNL_OP_TENSOR_MUL = 3,
} cnnlOpTensorDesc_t;
typedef enum {
  CNNL_REDUCE_ADD = 0,
  CNNL_REDUCE_AVG = 1,
  CNNL_REDUCE_MUL = 2,
  CNNL_REDUCE_MAX = 3,
  CNNL_REDUCE_MIN = 4,
  CNNL_REDUCE_AND = 5,
  CNNL_REDUCE_OR = 6,
} cnnlReduceOp_t;
typedef enum {
  CNNL_REDUCE_NO_INDICES = 0,
  CNNL_REDUCE_FLATTENED_INDICES = 1,
  CNNL_REDUCE_ONLY_INDICES = 2,
} cnnlReduceIndices_t;
typedef enum { CNNL_32BIT_INDICES = 0, CNNL_16BIT_INDICES = 1 } cnnlIndicesType_t;
typedef enum {
  CNNL_ACTIVATION_SIGMOID = 0,
  CNNL_ACTIVATION_RELU = 1,
  CNNL_ACTIVATION_TANH = 3,
  CNNL_ACTIVATION_GELU = 8,
  CNNL_ACTIVATION_SILU = 14,
} cnnlActivationMode_t;

// Paddle/paddle/fluid/operators/mlu/mlu_baseop.h
typedef enum {
  CNNL_LOGIC_OP_EQ = 0,
  CNNL_LOGIC_OP_NE,
  CNNL_LOGIC_OP_GT,
  CNNL_LOGIC_OP_GE,
  CNNL_LOGIC_OP_LT,
  CNNL_LOGIC_OP_LE,
  CNNL_LOGIC_OP_AND,
  CNNL_LOGIC_OP_OR,
} cnnlLogicOp_t;

// Made up.
typedef enum {
  CNNL_MATMUL_DESC_TRANSA = 71,
  CNNL_MATMUL_DESC_TRANSB,
  CNNL_MATMUL_ALLOW_TF32,
  CNNL_MATMUL_USE_BETA,
} cnnlMatMulDescAttribute_t;
typedef enum { CNNL_SOFTMAX_ACCURATE = 81, CNNL_SOFTMAX_LOG } cnnlSoftmaxAlgorithm_t;
typedef enum {
  CNNL_SOFTMAX_MODE_HIGH_DIMENSION = 91,
  CNNL_SOFTMAX_MODE_MEDIUM_DIMENSION,
  CNNL_SOFTMAX_MODE_LOW_DIMENSION,
} cnnlSoftmaxMode_t;
typedef enum {
  CNNL_CYCLE_BAND_OP = 0x65,
  CNNL_CYCLE_BOR_OP,
  CNNL_CYCLE_BXOR_OP
} cnnlBitComputeOp_t;
typedef enum {
  CNNL_CAST_FLOAT_TO_HALF = 200,
  CNNL_CAST_FLOAT_TO_BFLOAT16,
  CNNL_CAST_FLOAT_TO_INT32,
  CNNL_CAST_FLOAT_TO_BOOL,
  CNNL_CAST_HALF_TO_FLOAT,
  CNNL_CAST_HALF_TO_BOOL,
  CNNL_CAST_BFLOAT16_TO_FLOAT,
  CNNL_CAST_BFLOAT16_TO_BOOL,
  CNNL_CAST_INT32_TO_FLOAT,
  CNNL_CAST_INT32_TO_INT64,
  CNNL_CAST_INT32_TO_BOOL,
  CNNL_CAST_INT64_TO_INT32,
  CNNL_CAST_INT8_TO_FLOAT,
  CNNL_CAST_INT8_TO_INT32,
  CNNL_CAST_UINT8_TO_FLOAT,
  CNNL_CAST_UINT8_TO_INT32,
  CNNL_CAST_BOOL_TO_FLOAT,
  CNNL_CAST_BOOL_TO_INT32,
} cnnlCastDataType_t;

#endif  // CNNL_H_

// echo_npu_runtime.h - the runtime API of the ECHO NPU.
//
// Device memory is not host memory: a pointer from echoNpuMalloc names device memory and faults
// when the host follows it. Work goes to a stream, an ordered queue, and runs asynchronously; a
// stream argument of NULL is the default stream of the calling thread's current device. All
// functions may be called from any thread. They return ECHO_NPU_SUCCESS or an error;
// echoNpuGetLastErrorMessage tells more.
//
// A fault of the device (a bad packet, an address outside an allocation) ends the stream's queue:
// its pending work is dropped, further calls on the stream return ECHO_NPU_ERROR_FAULT, and
// echoNpuStreamSynchronize returns it once more and clears it. echoNpuStreamGetFault has the
// details.
#ifndef ECHO_NPU_RUNTIME_H
#define ECHO_NPU_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "echo_npu_hw.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ECHO_NPU_API __attribute__((visibility("default")))
#else
#define ECHO_NPU_API
#endif

// ---- Errors -----------------------------------------------------------------------------------

typedef enum echoNpuError {
  ECHO_NPU_SUCCESS = 0,
  ECHO_NPU_ERROR_INVALID_VALUE = 1,
  ECHO_NPU_ERROR_OUT_OF_MEMORY = 2,
  ECHO_NPU_ERROR_INVALID_DEVICE = 3,
  ECHO_NPU_ERROR_INVALID_POINTER = 4,  // not device memory, freed twice, or never allocated
  ECHO_NPU_ERROR_INVALID_HANDLE = 5,
  ECHO_NPU_ERROR_NOT_READY = 6,  // a query found work still pending
  ECHO_NPU_ERROR_FAULT = 7,      // the device reported a fault
  ECHO_NPU_ERROR_DEVICE_LOST = 8,
  ECHO_NPU_ERROR_TIMEOUT = 9,
  ECHO_NPU_ERROR_UNAVAILABLE = 10,  // the backend asked for is not built or has no device
  ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY = 11
} echoNpuError;

ECHO_NPU_API const char* echoNpuGetErrorName(echoNpuError error);
ECHO_NPU_API const char* echoNpuGetErrorString(echoNpuError error);
// What went wrong in the last failed call of this thread; valid until the thread's next call.
ECHO_NPU_API const char* echoNpuGetLastErrorMessage(void);

// ---- Debug output -------------------------------------------------------------------------------
// ECHO_NPU_DEBUG_LEVEL 1 shows operations, 2 transfers too, 3 runtime detail too, as lines on
// standard error that begin with a tag (coloured on a terminal). The runtime writes NPU and COPY
// lines; who builds on it adds CPU (done by the host instead) and VIEW (nothing to do) lines.

typedef enum echoNpuDebugTag {
  ECHO_NPU_DEBUG_NPU = 0,   // green
  ECHO_NPU_DEBUG_CPU = 1,   // red
  ECHO_NPU_DEBUG_COPY = 2,  // blue
  ECHO_NPU_DEBUG_VIEW = 3   // cyan
} echoNpuDebugTag;

ECHO_NPU_API int echoNpuGetDebugLevel(void);
// Writes the line if the level is at least `level`.
ECHO_NPU_API void echoNpuDebugLog(int level, echoNpuDebugTag tag, const char* text);

// ---- Backend and devices ----------------------------------------------------------------------

typedef struct echoNpuBackendInfo {
  char name[16];       // cmodel, rtlmodel, fpga, asic
  char version[16];    // of the runtime
  char features[256];  // space-separated
  char missing[512];   // the other backends and why each is not usable
} echoNpuBackendInfo;

#define ECHO_NPU_BACKENDS 4

// The default backend: what echoNpuSetDefaultBackend said, or ECHO_NPU_BACKEND, or the build's.
// Numbers of devices are counted in it.
ECHO_NPU_API const char* echoNpuGetBackendName(void);
ECHO_NPU_API echoNpuError echoNpuGetBackendInfo(echoNpuBackendInfo* info);
// The names of the backends that have a device here.
ECHO_NPU_API echoNpuError echoNpuListBackends(const char* names[ECHO_NPU_BACKENDS], int* count);
// Several backends live in one process: memory, streams and events stay with the device they were
// made on, and a thread with the device it has used or set. The calling thread goes to device 0 of
// the new default. NULL: the environment's again.
ECHO_NPU_API echoNpuError echoNpuSetDefaultBackend(const char* name);

typedef struct echoNpuDeviceProperties {
  char name[64];
  uint64_t memory_total, memory_free;
  uint32_t array_size, vector_lanes, bus_bytes, hw_version;
  uint32_t clock_mhz;  // for turning cycles into time; 0: the card does not say; 1000 on models
  uint32_t status;     // ECHO_NPU_STATUS_*, as the register said between two jobs
} echoNpuDeviceProperties;

ECHO_NPU_API echoNpuError echoNpuGetDeviceCount(int* count);
ECHO_NPU_API echoNpuError echoNpuSetDevice(int device);  // for this thread
ECHO_NPU_API echoNpuError echoNpuGetDevice(int* device);
ECHO_NPU_API echoNpuError echoNpuGetDeviceProperties(int device, echoNpuDeviceProperties* out);
ECHO_NPU_API echoNpuError echoNpuDeviceSynchronize(void);
// Waits for the device, frees all its memory and streams, and closes it. Handles die with it.
ECHO_NPU_API echoNpuError echoNpuDeviceReset(void);
// Performance counters (ECHO_NPU_COUNTER_*) of the current device.
ECHO_NPU_API echoNpuError echoNpuReadCounters(uint64_t counters[ECHO_NPU_COUNTERS]);
ECHO_NPU_API echoNpuError echoNpuClearCounters(void);

// ---- Memory -----------------------------------------------------------------------------------

typedef enum echoNpuMemcpyKind {
  ECHO_NPU_MEMCPY_HOST_TO_HOST = 0,
  ECHO_NPU_MEMCPY_HOST_TO_DEVICE = 1,
  ECHO_NPU_MEMCPY_DEVICE_TO_HOST = 2,
  ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE = 3,
  ECHO_NPU_MEMCPY_DEFAULT = 4  // told from the pointers
} echoNpuMemcpyKind;

typedef struct echoNpuStream_st* echoNpuStream;
typedef struct echoNpuEvent_st* echoNpuEvent;

// 64-byte aligned; size 0 gives NULL. Freeing NULL is allowed. Free waits for the device.
ECHO_NPU_API echoNpuError echoNpuMalloc(void** ptr, size_t size);
ECHO_NPU_API echoNpuError echoNpuMallocArea(void** ptr, size_t size, int area);  // ECHO_NPU_AREA_*
ECHO_NPU_API echoNpuError echoNpuFree(void* ptr);
ECHO_NPU_API echoNpuError echoNpuMemGetInfo(size_t* free_bytes, size_t* total_bytes);
// The device and physical address behind a device pointer; either may be NULL.
ECHO_NPU_API echoNpuError echoNpuGetAddress(const void* ptr, int* device, uint64_t* address);

// Memcpy and Memset wait for all streams of the devices concerned, then copy, then return.
ECHO_NPU_API echoNpuError echoNpuMemcpy(void* dst, const void* src, size_t size,
                                        echoNpuMemcpyKind kind);
ECHO_NPU_API echoNpuError echoNpuMemset(void* dst, int value, size_t size);
// Host memory must stay valid until the stream has passed the copy.
ECHO_NPU_API echoNpuError echoNpuMemcpyAsync(void* dst, const void* src, size_t size,
                                             echoNpuMemcpyKind kind, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMemsetAsync(void* dst, int value, size_t size,
                                             echoNpuStream stream);

// ---- Streams and events -----------------------------------------------------------------------

typedef struct echoNpuFault {
  uint32_t code;     // ECHO_NPU_FAULT_*
  uint32_t index;    // of the packet in its submission
  uint64_t address;  // physical
  echo_npu_packet packet;
} echoNpuFault;

ECHO_NPU_API echoNpuError echoNpuStreamCreate(echoNpuStream* stream);
// Waits for the stream's work.
ECHO_NPU_API echoNpuError echoNpuStreamDestroy(echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuStreamSynchronize(echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuStreamQuery(echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuStreamWaitEvent(echoNpuStream stream, echoNpuEvent event);
// The last fault of the stream; code 0 when there was none.
ECHO_NPU_API echoNpuError echoNpuStreamGetFault(echoNpuStream stream, echoNpuFault* fault);
ECHO_NPU_API const char* echoNpuGetFaultString(uint32_t code);

ECHO_NPU_API echoNpuError echoNpuEventCreate(echoNpuEvent* event);
// The event may be destroyed while streams still refer to it.
ECHO_NPU_API echoNpuError echoNpuEventDestroy(echoNpuEvent event);
ECHO_NPU_API echoNpuError echoNpuEventRecord(echoNpuEvent event, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuEventSynchronize(echoNpuEvent event);
ECHO_NPU_API echoNpuError echoNpuEventQuery(echoNpuEvent event);
// Time between two recorded events: on the wall, and in busy cycles of the device.
ECHO_NPU_API echoNpuError echoNpuEventElapsedTime(float* milliseconds, echoNpuEvent start,
                                                  echoNpuEvent end);
ECHO_NPU_API echoNpuError echoNpuEventElapsedCycles(uint64_t* cycles, echoNpuEvent start,
                                                    echoNpuEvent end);

// Packets as they are, with physical addresses. They run in order and nothing runs between them.
ECHO_NPU_API echoNpuError echoNpuSubmit(const echo_npu_packet* packets, size_t count,
                                        echoNpuStream stream);

// ---- Recording ----------------------------------------------------------------------------------
// The packets a device runs and the counters each moved, as lines of text, for reports and for
// running them elsewhere. The file appears when recording stops or the device is closed. Both
// functions are of the current device and wait for it.

#define ECHO_NPU_LABEL_BYTES 24

ECHO_NPU_API echoNpuError echoNpuRecordStart(const char* path);
ECHO_NPU_API echoNpuError echoNpuRecordStop(void);
// What the calling thread's next packets belong to, at most 23 characters; NULL: nothing.
ECHO_NPU_API void echoNpuSetLabel(const char* label);

// ---- Elementwise (float, n contiguous elements; out may be an input) ----------------------------

ECHO_NPU_API echoNpuError echoNpuAddTensor(float* out, const float* a, const float* b, size_t n,
                                           echoNpuStream stream);
// out = a + alpha b, rounded once.
ECHO_NPU_API echoNpuError echoNpuAddTensorAlpha(float* out, const float* a, const float* b,
                                                float alpha, size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuAddScalar(float* out, const float* a, float s, size_t n,
                                           echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSubTensor(float* out, const float* a, const float* b, size_t n,
                                           echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMulTensor(float* out, const float* a, const float* b, size_t n,
                                           echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMulScalar(float* out, const float* a, float s, size_t n,
                                           echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuDivTensor(float* out, const float* a, const float* b, size_t n,
                                           echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuPow(float* out, const float* a, float exponent, size_t n,
                                     echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuPowTensor(float* out, const float* a, const float* b, size_t n,
                                           echoNpuStream stream);

// out = function(a): neg, abs, sqrt, rsqrt, exp, log, cos, sin, tanh, sigmoid, silu, gelu (erf),
// relu.
#define ECHO_NPU_UNARY(Name)                                                    \
  ECHO_NPU_API echoNpuError echoNpu##Name(float* out, const float* a, size_t n, \
                                          echoNpuStream stream);
ECHO_NPU_UNARY(Neg)
ECHO_NPU_UNARY(Abs)
ECHO_NPU_UNARY(Sqrt)
ECHO_NPU_UNARY(Rsqrt)
ECHO_NPU_UNARY(Exp)
ECHO_NPU_UNARY(Log)
ECHO_NPU_UNARY(Cos)
ECHO_NPU_UNARY(Sin)
ECHO_NPU_UNARY(Tanh)
ECHO_NPU_UNARY(Sigmoid)
ECHO_NPU_UNARY(SiLU)
ECHO_NPU_UNARY(GELU)
ECHO_NPU_UNARY(ReLU)
ECHO_NPU_UNARY(Clone)
#undef ECHO_NPU_UNARY

// Conversion between types (ECHO_NPU_F32, BF16, I8, I32), rounding to nearest even, saturating.
ECHO_NPU_API echoNpuError echoNpuCast(void* out, int out_type, const void* a, int a_type, size_t n,
                                      echoNpuStream stream);

// out = a * (1 / scale) + zero_point, rounded to nearest even and saturated.
ECHO_NPU_API echoNpuError echoNpuQuantize(int8_t* out, const float* a, float scale, int zero_point,
                                          size_t n, echoNpuStream stream);

// ---- Rows (float, rows x cols contiguous) -------------------------------------------------------

ECHO_NPU_API echoNpuError echoNpuSum(float* out, const float* a, size_t rows, size_t cols,
                                     echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMean(float* out, const float* a, size_t rows, size_t cols,
                                      echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMax(float* out, const float* a, size_t rows, size_t cols,
                                     echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSoftmax(float* out, const float* a, size_t rows, size_t cols,
                                         echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuRMSNorm(float* out, const float* a, const float* weight,
                                         size_t rows, size_t cols, float epsilon,
                                         echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuLayerNorm(float* out, const float* a, const float* weight,
                                           const float* bias, size_t rows, size_t cols,
                                           float epsilon,
                                           echoNpuStream stream);  // bias may be NULL
// x is tokens x heads x dim; table is tokens x dim, each row cos then sin of dim/2 angles.
ECHO_NPU_API echoNpuError echoNpuRope(float* out, const float* x, const float* table, size_t tokens,
                                      size_t heads, size_t dim, echoNpuStream stream);

// ---- Matrices -----------------------------------------------------------------------------------

typedef struct echoNpuMatMulDesc {
  size_t m, n, k;
  int trans_a, trans_b;                 // a is k x m, b is n x k in memory
  int type_a, type_b, type_c;           // F32/BF16 x F32/BF16 -> F32/BF16, or I8 x I8 -> I32
  int accumulate;                       // c += instead of c =
  size_t lda, ldb, ldc;                 // 0: contiguous rows
  size_t batch;                         // 0 or 1: none
  size_t stride_a, stride_b, stride_c;  // between matrices of the batch; 0 is one matrix for all
} echoNpuMatMulDesc;

ECHO_NPU_API echoNpuError echoNpuMatMulEx(void* c, const void* a, const void* b,
                                          const echoNpuMatMulDesc* desc, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMatMul(float* c, const float* a, const float* b, size_t m,
                                        size_t n, size_t k, int trans_a, int trans_b,
                                        echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMatMulBF16(float* c, const uint16_t* a, const uint16_t* b,
                                            size_t m, size_t n, size_t k, int trans_a, int trans_b,
                                            echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMatMulI8(int32_t* c, const int8_t* a, const int8_t* b, size_t m,
                                          size_t n, size_t k, int trans_a, int trans_b,
                                          echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuBatchMatMul(float* c, const float* a, const float* b, size_t batch,
                                             size_t m, size_t n, size_t k, int trans_a, int trans_b,
                                             echoNpuStream stream);

// Scaled dot-product attention: q is batch x heads x q_len x dim, k and v batch x kv_heads x kv_len
// x dim, heads a multiple of kv_heads.
typedef struct echoNpuSdpaDesc {
  size_t batch, heads, kv_heads, q_len, kv_len, dim;
  float scale;          // 0: 1 / sqrt(dim)
  int causal;           // query i sees the keys below causal_first + i
  size_t causal_first;  // 0: kv_len - q_len + 1, so that the last query sees all
  const float* mask;    // added to the scores, q_len x kv_len for each head; NULL: none
  size_t mask_stride;   // elements between the masks of heads; 0: one for all
} echoNpuSdpaDesc;

ECHO_NPU_API echoNpuError echoNpuSDPA(float* out, const float* q, const float* k, const float* v,
                                      const echoNpuSdpaDesc* desc, echoNpuStream stream);

// ---- Rearranging --------------------------------------------------------------------------------

// out[i] = table[indices[i]]; an index outside the table is a fault.
ECHO_NPU_API echoNpuError echoNpuEmbedding(float* out, const float* table, const int64_t* indices,
                                           size_t count, size_t dim, size_t table_rows,
                                           echoNpuStream stream);
// Joins `count` arrays along the inner dimension: each input is outer x inner[i], out outer x sum.
ECHO_NPU_API echoNpuError echoNpuCat(void* out, const void* const* inputs, const size_t* inner,
                                     size_t count, size_t outer, size_t element_size,
                                     echoNpuStream stream);
// Strided copy, up to 8 dimensions; strides in elements; element_size 1, 2, 4 or 8.
ECHO_NPU_API echoNpuError echoNpuCopyStrided(void* dst, const size_t* dst_stride, const void* src,
                                             const size_t* src_stride, const size_t* shape,
                                             size_t dims, size_t element_size,
                                             echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuContiguous(void* out, const void* in, const size_t* shape,
                                            const size_t* stride, size_t dims, size_t element_size,
                                            echoNpuStream stream);

// ---- Gradients ----------------------------------------------------------------------------------
// d names a gradient: dout is given, the others are computed. A NULL result is not computed.

ECHO_NPU_API echoNpuError echoNpuAddTensorBackward(float* da, float* db, const float* dout,
                                                   size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuAddScalarBackward(float* da, const float* dout, size_t n,
                                                   echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSubTensorBackward(float* da, float* db, const float* dout,
                                                   size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMulTensorBackward(float* da, float* db, const float* dout,
                                                   const float* a, const float* b, size_t n,
                                                   echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMulScalarBackward(float* da, const float* dout, float s, size_t n,
                                                   echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuDivTensorBackward(float* da, float* db, const float* dout,
                                                   const float* a, const float* b, size_t n,
                                                   echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuNegBackward(float* da, const float* dout, size_t n,
                                             echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSqrtBackward(float* da, const float* dout, const float* out,
                                              size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuRsqrtBackward(float* da, const float* dout, const float* out,
                                               size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuPowBackward(float* da, const float* dout, const float* a,
                                             float exponent, size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMeanBackward(float* da, const float* dout, size_t rows,
                                              size_t cols, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuCosBackward(float* da, const float* dout, const float* a, size_t n,
                                             echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSinBackward(float* da, const float* dout, const float* a, size_t n,
                                             echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSiLUBackward(float* da, const float* dout, const float* a,
                                              size_t n, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSoftmaxBackward(float* da, const float* dout, const float* out,
                                                 size_t rows, size_t cols, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuSDPABackward(float* dq, float* dk, float* dv, const float* dout,
                                              const float* q, const float* k, const float* v,
                                              const echoNpuSdpaDesc* desc, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuMatMulBackward(float* da, float* db, const float* dc,
                                                const float* a, const float* b, size_t m, size_t n,
                                                size_t k, int trans_a, int trans_b,
                                                echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuBatchMatMulBackward(float* da, float* db, const float* dc,
                                                     const float* a, const float* b, size_t batch,
                                                     size_t m, size_t n, size_t k, int trans_a,
                                                     int trans_b, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuEmbeddingBackward(float* dtable, const float* dout,
                                                   const int64_t* indices, size_t count, size_t dim,
                                                   size_t table_rows, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuCatBackward(void* const* dinputs, const void* dout,
                                             const size_t* inner, size_t count, size_t outer,
                                             size_t element_size, echoNpuStream stream);
ECHO_NPU_API echoNpuError echoNpuCloneBackward(float* da, const float* dout, size_t n,
                                               echoNpuStream stream);
// din has the strides of the forward input; elements it does not cover are not touched.
ECHO_NPU_API echoNpuError echoNpuContiguousBackward(void* din, const void* dout,
                                                    const size_t* shape, const size_t* stride,
                                                    size_t dims, size_t element_size,
                                                    echoNpuStream stream);

#ifdef __cplusplus
}
#endif

#endif  // ECHO_NPU_RUNTIME_H

// Test library for Ascend: weights in FRACTAL_NZ, by the documents of aclnnNpuFormatCast and
// aclnnMatmulWeightNz (ops-math and ops-nn of 2026). What a product reads may have been brought in
// that format by other means; products whose weight is no result of a cast are counted. Written
// out here: the reference's own packing would agree with itself.
#include <pthread.h>
#include <string.h>

#include "aclnn.h"
#include "ops/reference/element.h"

enum { MAX_CASTS = 1024 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static const void* casts[MAX_CASTS];  // where results are, the oldest forgotten first
static long n_casts, n_uncast;

VENDOR_API long ascend_products_of_uncast_weights(void);
long ascend_products_of_uncast_weights(void) {
  pthread_mutex_lock(&mutex);
  long n = n_uncast;
  pthread_mutex_unlock(&mutex);
  return n;
}

static void note_cast(const void* data) {
  pthread_mutex_lock(&mutex);
  casts[n_casts++ % MAX_CASTS] = data;
  pthread_mutex_unlock(&mutex);
}

static void note_product(const void* data) {
  bool found = false;
  pthread_mutex_lock(&mutex);
  for (long i = 0; i < n_casts && i < MAX_CASTS; i++) found |= casts[i] == data;
  n_uncast += !found;
  pthread_mutex_unlock(&mutex);
}

// Element (n, k) of a matrix with that many rows: [k1, n1, 16, 16].
static char* stored(const hy_tensor* packed, int64_t rows, int64_t n, int64_t k) {
  return (char*)packed->data + (((k / 16 * (rows / 16) + n / 16) * 16 + n % 16) * 16 + k % 16) * 2;
}

static bool same_matrix(const hy_tensor* a, const hy_tensor* b) {
  return a->dtype == b->dtype && a->ndim == 2 && b->ndim == 2 && a->shape[0] == b->shape[0] &&
         a->shape[1] == b->shape[1];
}

int op_format_cast(const job* j, bool check) {
  hy_tensor src = job_tensor(j, 0), dst = job_tensor(j, 1);
  RULE(ascend_has_bf16(), "aclnnNpuFormatCast: not on this chip");
  RULE(src.layout == HY_LAYOUT_STRIDED && dst.layout == HY_LAYOUT_FRACTAL_NZ,
       "aclnnNpuFormatCast: from ND to FRACTAL_NZ is what it is asked for here");
  RULE(hy_tensor_is_contiguous(&src) && hy_tensor_is_contiguous(&dst),
       "aclnnNpuFormatCast: both tensors are contiguous");
  RULE(same_matrix(&src, &dst), "aclnnNpuFormatCast: the tensors have one type and one shape");
  if (check) {
    note_cast(dst.data);
    return ACL_SUCCESS;
  }
  for (int64_t n = 0; n < src.shape[0]; n++)
    for (int64_t k = 0; k < src.shape[1]; k++)
      memcpy(stored(&dst, src.shape[0], n, k), (char*)src.data + (n * src.shape[1] + k) * 2, 2);
  return ACL_SUCCESS;
}

int op_product_nz(const job* j, bool check) {
  hy_tensor self = job_tensor(j, 0), mat2 = job_tensor(j, 1), out = job_tensor(j, 2);
  int64_t mode = job_integer(j, 3);
  RULE(ascend_has_bf16(), "aclnnMatmulWeightNz: not on this chip");
  RULE(mode == 0, "aclnnMatmulWeightNz: cubeMathType %d, which 950 has not for halves", (int)mode);
  RULE(self.layout == HY_LAYOUT_STRIDED && self.ndim == 2, "aclnnMatmulWeightNz: self is 2-D, ND");
  RULE(mat2.layout == HY_LAYOUT_FRACTAL_NZ, "aclnnMatmulWeightNz: mat2 is not FRACTAL_NZ");
  RULE(mat2.stride[0] == 1 && mat2.stride[1] == mat2.shape[0],
       "aclnnMatmulWeightNz: mat2 is no transpose, which all are here");
  RULE(mat2.shape[0] > 1 && mat2.shape[1] > 1, "aclnnMatmulWeightNz: k or n is 1");
  RULE(hy_tensor_is_contiguous(&out) && out.ndim == 2, "aclnnMatmulWeightNz: out is contiguous");
  RULE(self.dtype == mat2.dtype && (out.dtype == self.dtype || out.dtype == HY_F32),
       "aclnnMatmulWeightNz: types that do not go together");
  RULE(self.shape[1] == mat2.shape[0] && out.shape[0] == self.shape[0] &&
           out.shape[1] == mat2.shape[1],
       "aclnnMatmulWeightNz: shapes that do not fit");
  if (check) {
    note_product(mat2.data);
    return ACL_SUCCESS;
  }
  for (int64_t row = 0; row < out.shape[0]; row++) {
    for (int64_t n = 0; n < out.shape[1]; n++) {
      double sum = 0;
      for (int64_t k = 0; k < self.shape[1]; k++)
        sum += hy__load_f(self.dtype,
                          (char*)self.data + (row * self.stride[0] + k * self.stride[1]) * 2) *
               hy__load_f(mat2.dtype, stored(&mat2, out.shape[1], n, k));
      hy__store_f(out.dtype,
                  (char*)out.data + (row * out.shape[1] + n) * (int64_t)hy_dtype_size(out.dtype),
                  sum);
    }
  }
  return ACL_SUCCESS;
}

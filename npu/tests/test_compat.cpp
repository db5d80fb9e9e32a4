// test_compat.cpp - a program as the published sketch would have it: namespace, types, argument
// orders, alpha's default.
#include <cmath>
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {
#include <cmocka.h>
}

#include "echo_npu_compat.h"

using namespace echo_npu;

namespace {

void ok(EchoNpuError error) { assert_string_equal(echo_npu::echoNpuGetErrorString(error), "success"); }

float* device(const std::vector<float>& host) {
  void* p = nullptr;
  ok(echo_npu::echoNpuMalloc(&p, host.size() * sizeof(float)));
  const EchoNpuMemcpyKind kind = ECHO_NPU_MEMCPY_HOST_TO_DEVICE;
  ok(echo_npu::echoNpuMemcpy(p, host.data(), host.size() * sizeof(float), kind));
  return static_cast<float*>(p);
}

template <typename T>
std::vector<T> fetch(const T* p, size_t n) {
  std::vector<T> host(n);
  ok(echo_npu::echoNpuDeviceSynchronize());
  ok(echo_npu::echoNpuMemcpy(host.data(), p, n * sizeof(T), ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
  return host;
}

std::vector<float> ramp(size_t n, float step) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = step * static_cast<float>(i) - 1;
  return v;
}

void the_sketch_runs(void**) {
  const std::vector<std::string> backends = listBackends();
  assert_true(!backends.empty());
  ok(setDefaultBackend(std::string("cmodel")));
  int count = 0;
  ok(echo_npu::echoNpuGetDeviceCount(&count));
  assert_int_equal(count, 1);

  // B = 2, M = 2, K = 3, N = 4: all different, so that no two can be exchanged.
  const int64_t B = 2, M = 2, K = 3, N = 4;
  const std::vector<float> x = ramp(B * M * K, 0.5f), y = ramp(B * K * N, 0.25f);
  float *a = device(x), *b = device(y), *c = device(ramp(B * M * N, 0));
  ok(echo_npu::echoNpuBatchMatMul(c, a, b, B, M, K, N));
  const std::vector<float> batch = fetch(c, B * M * N);
  ok(echo_npu::echoNpuMatMul(c, a, b, M, K, N));
  const std::vector<float> single = fetch(c, M * N);
  for (int64_t i = 0; i < B; ++i)
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        float want = 0;
        for (int64_t k = 0; k < K; ++k)
          want = std::fma(x[(i * M + m) * K + k], y[(i * K + k) * N + n], want);
        assert_true(batch[(i * M + m) * N + n] == want);
        if (i == 0) assert_true(single[m * N + n] == want);
      }
  assert_int_equal(matMul(c, a, b, -1, K, N), ECHO_NPU_ERROR_INVALID_VALUE);

  ok(echo_npu::echoNpuAddTensor(c, a, a, 6));
  assert_true(fetch(c, 6)[5] == 2 * x[5]);
  ok(echo_npu::echoNpuAddTensor(c, a, b, 6, 0.1f));
  assert_true(fetch(c, 6)[5] == std::fma(0.1f, y[5], x[5]));

  const int64_t left[] = {2, 3}, right[] = {2, 1}, both[] = {2, 4};
  ok(echo_npu::echoNpuCat(c, a, b, 1, left, right, both, 2));
  const std::vector<float> joined = fetch(c, 8), want = {x[0], x[1], x[2], y[0], x[3], x[4], x[5], y[1]};
  assert_true(joined == want);
  assert_int_equal(echo_npu::echoNpuCat(c, a, b, 0, left, right, both, 2), ECHO_NPU_ERROR_INVALID_VALUE);

  int8_t* q = reinterpret_cast<int8_t*>(c);
  ok(echo_npu::echoNpuQuantize(q, a, 6, 0.25f, int8_t{3}));
  const std::vector<int8_t> quantized = fetch(q, 6);
  for (size_t i = 0; i < 6; ++i) assert_int_equal(quantized[i], static_cast<int>(x[i] * 4) + 3);
  assert_int_equal(quantize(q, a, 6, 0, 0), ECHO_NPU_ERROR_INVALID_VALUE);

  NpuStatus status;
  ok(getStatus(&status));
  assert_int_equal(status, NPU_STATUS_DONE);
  assert_true(ECHO_NPU_ERROR_UNKNOWN != ECHO_NPU_SUCCESS);
  ok(echo_npu::echoNpuFree(a));
  ok(echo_npu::echoNpuFree(b));
  ok(echo_npu::echoNpuFree(c));
}

}  // namespace

int main() {
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_sketch_runs)};
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}

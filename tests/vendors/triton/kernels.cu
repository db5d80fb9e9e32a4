// Stand-ins for the cubins of triton_kernels.py on the emulated GPU: the same entries and parameters, with the two
// pointers that Triton adds, which must be NULL; one thread does a block's work in double. What the real kernels were
// promised (addresses and sizes that 16 divides) ends the process with code 86 where it does not hold.
//
// Options: TYPE 0 f32, 1 f16, 2 bf16; SIZE and CAUSAL for attention.
extern "C" int dprintf(int file, const char* format, ...);
extern "C" void _exit(int code);
extern "C" double exp(double);
extern "C" double log(double);
extern "C" double sqrt(double);
#if TYPE == 0
typedef float T;
static double load(const T* x, long long i) { return x[i]; }
static void store(T* x, long long i, double value) { x[i] = (T)value; }
#elif TYPE == 1
typedef _Float16 T;
static double load(const T* x, long long i) { return (double)(float)x[i]; }
static void store(T* x, long long i, double value) { x[i] = (T)value; }
#else
typedef unsigned short T;
static double load(const T* x, long long i) {
  unsigned bits = (unsigned)x[i] << 16;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
static void store(T* x, long long i, double value) {
  float rounded = (float)value;
  unsigned bits;
  __builtin_memcpy(&bits, &rounded, 4);
  if (rounded == rounded) bits += 0x7fff + (bits >> 16 & 1);
  x[i] = (T)(bits >> 16);
}
#endif

static void need(bool condition, const char* what) {
  if (condition) return;
  dprintf(2, "triton: %s\n", what);
  _exit(86);
}

static bool begin(const char* name, const void* a, const void* b, const void* c, const void* own, const void* other) {
  if (threadIdx.x != 0) return false;
  need((((size_t)a | (size_t)b | (size_t)c) & 15) == 0, "an address that 16 does not divide");
  need(!own && !other, "memory that the kernel did not ask for");
  static bool said;
  if (!said) dprintf(2, "triton: %s runs\n", name);
  said = true;
  return true;
}

extern "C" __global__ void softmax(T* out, const T* x, int n, void* own, void* other) {
  if (!begin("softmax", out, x, nullptr, own, other)) return;
  need(n > 0 && n % 16 == 0, "a row that 16 does not divide");
  long long row = (long long)blockIdx.x * n;
  double largest = load(x, row), sum = 0;
  for (int i = 1; i < n; i++) largest = load(x, row + i) > largest ? load(x, row + i) : largest;
  for (int i = 0; i < n; i++) sum += exp(load(x, row + i) - largest);
  for (int i = 0; i < n; i++) store(out, row + i, exp(load(x, row + i) - largest) / sum);
}

extern "C" __global__ void rms_norm(T* out, const T* x, const T* weight, float eps, int n, void* own, void* other) {
  if (!begin("rms_norm", out, x, weight, own, other)) return;
  need(n > 0 && n % 16 == 0, "a row that 16 does not divide");
  long long row = (long long)blockIdx.x * n;
  double sum = 0;
  for (int i = 0; i < n; i++) sum += load(x, row + i) * load(x, row + i);
  for (int i = 0; i < n; i++) store(out, row + i, load(x, row + i) / sqrt(sum / n + eps) * load(weight, i));
}

#ifdef SIZE
extern "C" __global__ void attention(T* out, float* lse, const T* q, const T* k, const T* v, float scale, int t, int s,
                                     int heads, int group, int wants_lse, void* own, void* other) {
  if (!begin("attention", out, q, k, own, other)) return;
  long long head = blockIdx.y, shared = head / heads * (heads / group) + head % heads / group;
  for (int r = blockIdx.x * 128; r < t && r < (int)blockIdx.x * 128 + 128; r++) {
    double total[SIZE] = {0}, sum = 0, largest = -1e300;
    for (int pass = 0; pass < 2; pass++) {
      for (int j = 0; j < s && (!CAUSAL || j <= r); j++) {
        double score = 0;
        for (int d = 0; d < SIZE; d++)
          score += load(q, (head * t + r) * SIZE + d) * load(k, (shared * s + j) * SIZE + d);
        score *= scale;
        if (pass == 0) {
          largest = score > largest ? score : largest;
          continue;
        }
        sum += exp(score - largest);
        for (int d = 0; d < SIZE; d++) total[d] += exp(score - largest) * load(v, (shared * s + j) * SIZE + d);
      }
    }
    for (int d = 0; d < SIZE; d++) store(out, (head * t + r) * SIZE + d, total[d] / sum);
    if (wants_lse) lse[head * t + r] = (float)(largest + log(sum));
  }
}
#endif

// libcudnn.so.9 for tests on the emulated GPU: the convolutions with descriptors of cudnn_cnn.h and
// cudnn_ops.h (9.27), summed in double. What cuDNN's documents forbid ends the process with code
// 86: descriptors that were not set, shapes that do not go together, an algorithm that was not
// offered, less workspace than it asked for.
//
// Environment: CUDNN_TEST_ALGORITHMS=none offers no algorithm, as cuDNN does for what it does not
// support.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
enum { FLOAT = 0, DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };
enum { NHWC = 1, CROSS_CORRELATION = 1, IDENTITY = 5 };
enum { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3 };
enum { WORKSPACE = 1 << 10 };  // what every algorithm here asks for

int emu_enqueue(void* stream, void (*work)(void*), void* context);  // of the emulator

static void misuse(const char* what) {
  fprintf(stderr, "cudnn: %s\n", what);
  _exit(86);
}

static void need(bool condition, const char* what) {
  if (!condition) misuse(what);
}

// ---- descriptors ----

enum { HANDLE = 0x64001, TENSOR, FILTER, CONVOLUTION, ACTIVATION };
typedef struct {
  int magic, mode;
  bool set;
} activation;
typedef struct {
  int magic;
  void* stream;
} handle;
typedef struct {
  int magic, type, size[4], stride[4];
  bool set;
} tensor;
typedef struct {
  int magic, pad[2], stride[2], dilation[2], groups, math, compute;
  bool set;
} convolution;

static void* make(size_t size, int magic) {
  int* made = calloc(1, size);
  *made = magic;
  return made;
}

static void is(const void* object, int magic) {
  need(object && *(const int*)object == magic, "not an object of the kind that the call takes");
}

static size_t size_of(int type) {
  return type == DOUBLE ? 8 : type == FLOAT ? 4 : 2;
}

static void known_type(int type) {
  need(type == FLOAT || type == DOUBLE || type == HALF || type == BFLOAT16,
       "no type of a convolution");
}

size_t cudnnGetVersion(void);
size_t cudnnGetVersion(void) {
  return 92700;
}
size_t cudnnGetCudartVersion(void);
size_t cudnnGetCudartVersion(void) {
  const char* asked = getenv("CUDNN_TEST_CUDART");
  return asked ? (size_t)atoi(asked) : 13000;
}

int cudnnCreate(void** h);
int cudnnCreate(void** h) {
  return *h = make(sizeof(handle), HANDLE), OK;
}
int cudnnSetStream(void* h, void* stream);
int cudnnSetStream(void* h, void* stream) {
  is(h, HANDLE);
  ((handle*)h)->stream = stream;
  return OK;
}
int cudnnCreateTensorDescriptor(void** desc);
int cudnnCreateTensorDescriptor(void** desc) {
  return *desc = make(sizeof(tensor), TENSOR), OK;
}
int cudnnSetTensor4dDescriptorEx(void* desc, int type, int n, int c, int h, int w, int ns, int cs,
                                 int hs, int ws);
int cudnnSetTensor4dDescriptorEx(void* desc, int type, int n, int c, int h, int w, int ns, int cs,
                                 int hs, int ws) {
  is(desc, TENSOR);
  known_type(type);
  tensor* t = desc;
  int size[4] = {n, c, h, w}, stride[4] = {ns, cs, hs, ws};
  for (int d = 0; d < 4; d++) need(size[d] > 0 && stride[d] > 0, "a size or stride below 1");
  memcpy(t->size, size, sizeof size);
  memcpy(t->stride, stride, sizeof stride);
  t->type = type;
  t->set = true;
  return OK;
}
int cudnnCreateFilterDescriptor(void** desc);
int cudnnCreateFilterDescriptor(void** desc) {
  return *desc = make(sizeof(tensor), FILTER), OK;
}
int cudnnSetFilter4dDescriptor(void* desc, int type, int format, int k, int c, int h, int w);
int cudnnSetFilter4dDescriptor(void* desc, int type, int format, int k, int c, int h, int w) {
  is(desc, FILTER);
  known_type(type);
  need(format == 0 || format == NHWC, "no format of a filter");
  need(k > 0 && c > 0 && h > 0 && w > 0, "a filter of no size");
  tensor* t = desc;
  int size[4] = {k, c, h, w};
  bool last = format == NHWC;
  int stride[4] = {c * h * w, last ? 1 : h * w, last ? w * c : w, last ? c : 1};
  memcpy(t->size, size, sizeof size);
  memcpy(t->stride, stride, sizeof stride);
  t->type = type;
  t->set = true;
  return OK;
}
int cudnnCreateConvolutionDescriptor(void** desc);
int cudnnCreateConvolutionDescriptor(void** desc) {
  convolution* c = make(sizeof *c, CONVOLUTION);
  c->groups = 1;
  return *desc = c, OK;
}
int cudnnSetConvolution2dDescriptor(void* desc, int pad_h, int pad_w, int u, int v, int dilation_h,
                                    int dilation_w, int mode, int compute);
int cudnnSetConvolution2dDescriptor(void* desc, int pad_h, int pad_w, int u, int v, int dilation_h,
                                    int dilation_w, int mode, int compute) {
  is(desc, CONVOLUTION);
  need(pad_h >= 0 && pad_w >= 0 && u > 0 && v > 0 && dilation_h > 0 && dilation_w > 0,
       "padding below 0, or stride or dilation below 1");
  need(mode == CROSS_CORRELATION, "a convolution that turns the filter round is not the table's");
  convolution* c = desc;
  c->pad[0] = pad_h, c->pad[1] = pad_w;
  c->stride[0] = u, c->stride[1] = v;
  c->dilation[0] = dilation_h, c->dilation[1] = dilation_w;
  c->compute = compute;
  c->set = true;
  return OK;
}
int cudnnSetConvolutionGroupCount(void* desc, int groups);
int cudnnSetConvolutionGroupCount(void* desc, int groups) {
  is(desc, CONVOLUTION);
  need(groups > 0, "no groups");
  ((convolution*)desc)->groups = groups;
  return OK;
}
int cudnnSetConvolutionMathType(void* desc, int math);
int cudnnSetConvolutionMathType(void* desc, int math) {
  is(desc, CONVOLUTION);
  need(math >= 0 && math <= FMA_MATH, "no such math");
  ((convolution*)desc)->math = math;
  return OK;
}

// ---- problems ----

typedef struct {
  const tensor *x, *w, *y;
  const convolution* c;
} problem;

static problem check(const void* h, void* x, void* w, void* conv, void* y) {
  is(h, HANDLE), is(x, TENSOR), is(w, FILTER), is(conv, CONVOLUTION), is(y, TENSOR);
  problem p = {x, w, y, conv};
  need(p.x->set && p.w->set && p.y->set && p.c->set, "a descriptor that was not set");
  need(p.x->type == p.w->type && p.x->type == p.y->type, "types that differ");
  need(p.c->compute == (p.x->type == DOUBLE ? DOUBLE : FLOAT),
       "16-bit numbers are summed in float");
  need(p.x->type != FLOAT || p.c->math == FMA_MATH, "f32 would be computed in TF32");
  need(p.x->size[0] == p.y->size[0] && p.w->size[0] == p.y->size[1],
       "images or channels that differ");
  need(p.x->size[1] == p.w->size[1] * p.c->groups && p.w->size[0] % p.c->groups == 0,
       "channels that the groups do not divide");
  for (int d = 0; d < 2; d++) {
    int reach = (p.w->size[2 + d] - 1) * p.c->dilation[d] + 1;
    int out = (p.x->size[2 + d] + 2 * p.c->pad[d] - reach) / p.c->stride[d] + 1;
    need(out == p.y->size[2 + d], "an output of another size");
  }
  return p;
}

typedef struct {
  int algo, status;
  float time;
  size_t memory;
  int deterministic, math, reserved[3];
} offer;

// As cuDNN's heuristics: fast ones first, which the caller may not want, and those that fail.
static int offer_all(const problem* p, int wanted, int* found, offer* list) {
  static const offer all[] = {
      {.algo = 7, .memory = 1 << 20, .deterministic = 1},  // a transform
      {.algo = 1, .memory = (size_t)1 << 40, .deterministic = 1},
      {.algo = 0, .memory = 0, .deterministic = 0},
      {.algo = 1, .memory = WORKSPACE, .deterministic = 1},
      {.algo = 2, .status = NOT_SUPPORTED, .memory = 0, .deterministic = 1},
  };
  const char* asked = getenv("CUDNN_TEST_ALGORITHMS");
  need(wanted > 0, "no algorithms are wanted");
  *found = 0;
  for (int i = 0; i < 5 && i < wanted && !(asked && !strcmp(asked, "none")); i++) {
    list[i] = all[i];
    list[i].math = p->c->math;
    ++*found;
  }
  return OK;
}

int cudnnGetConvolutionForwardAlgorithm_v7(void* h, void* x, void* w, void* conv, void* y,
                                           int wanted, int* found, void* list);
int cudnnGetConvolutionForwardAlgorithm_v7(void* h, void* x, void* w, void* conv, void* y,
                                           int wanted, int* found, void* list) {
  problem p = check(h, x, w, conv, y);
  return offer_all(&p, wanted, found, list);
}
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void* h, void* w, void* dy, void* conv, void* dx,
                                                int wanted, int* found, void* list);
int cudnnGetConvolutionBackwardDataAlgorithm_v7(void* h, void* w, void* dy, void* conv, void* dx,
                                                int wanted, int* found, void* list) {
  problem p = check(h, dx, w, conv, dy);
  return offer_all(&p, wanted, found, list);
}
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void* h, void* x, void* dy, void* conv, void* dw,
                                                  int wanted, int* found, void* list);
int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void* h, void* x, void* dy, void* conv, void* dw,
                                                  int wanted, int* found, void* list) {
  problem p = check(h, x, dw, conv, dy);
  return offer_all(&p, wanted, found, list);
}

// ---- numbers ----

static size_t place(const tensor* t, int a, int b, int c, int d) {
  return (size_t)a * (size_t)t->stride[0] + (size_t)b * (size_t)t->stride[1] +
         (size_t)c * (size_t)t->stride[2] + (size_t)d * (size_t)t->stride[3];
}

static double load(const tensor* t, const void* data, size_t at) {
  if (t->type == DOUBLE) return ((const double*)data)[at];
  if (t->type == FLOAT) return (double)((const float*)data)[at];
  uint16_t bits = ((const uint16_t*)data)[at];
  if (t->type == HALF) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (double)half;
  }
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return (double)value;
}

static void store(const tensor* t, void* data, size_t at, double value) {
  if (t->type == DOUBLE) ((double*)data)[at] = value;
  if (t->type == FLOAT) ((float*)data)[at] = (float)value;
  if (t->type == HALF) {
    _Float16 half = (_Float16)value;
    memcpy((uint16_t*)data + at, &half, 2);
  }
  if (t->type == BFLOAT16) {
    float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    if (rounded == rounded) bits += 0x7fff + (bits >> 16 & 1);
    ((uint16_t*)data)[at] = (uint16_t)(bits >> 16);
  }
}

// ---- running ----

enum { FORWARD, DATA, WEIGHT };
typedef struct {
  tensor x, w, y;
  convolution c;
  const void *a, *b, *bias;  // what is read
  void *out, *workspace;
  int kind;
} job;

// Adds every product of the convolution to sums of the tensor that `kind` makes.
static void run(void* context) {
  job* j = context;
  const tensor* to = j->kind == FORWARD ? &j->y : j->kind == DATA ? &j->x : &j->w;
  size_t n = 0;
  for (int d = 0; d < 4; d++) n += (size_t)(to->size[d] - 1) * (size_t)to->stride[d];
  double* sums = calloc(n + 1, sizeof *sums);
  int group_in = j->w.size[1], group_out = j->w.size[0] / j->c.groups;
  memset(j->workspace, 0xff, WORKSPACE);
  for (int image = 0; image < j->y.size[0]; image++)
    for (int k = 0; k < j->w.size[0]; k++)
      for (int oy = 0; oy < j->y.size[2]; oy++)
        for (int ox = 0; ox < j->y.size[3]; ox++)
          for (int c = 0; c < group_in; c++)
            for (int r = 0; r < j->w.size[2]; r++)
              for (int s = 0; s < j->w.size[3]; s++) {
                int iy = oy * j->c.stride[0] - j->c.pad[0] + r * j->c.dilation[0];
                int ix = ox * j->c.stride[1] - j->c.pad[1] + s * j->c.dilation[1];
                if (iy < 0 || iy >= j->x.size[2] || ix < 0 || ix >= j->x.size[3]) continue;
                size_t at_x = place(&j->x, image, k / group_out * group_in + c, iy, ix);
                size_t at_w = place(&j->w, k, c, r, s), at_y = place(&j->y, image, k, oy, ox);
                if (j->kind == FORWARD)
                  sums[at_y] += load(&j->x, j->a, at_x) * load(&j->w, j->b, at_w);
                else if (j->kind == DATA)
                  sums[at_x] += load(&j->w, j->a, at_w) * load(&j->y, j->b, at_y);
                else
                  sums[at_w] += load(&j->x, j->a, at_x) * load(&j->y, j->b, at_y);
              }
  for (int a = 0; a < to->size[0]; a++)
    for (int b = 0; b < to->size[1]; b++)
      for (int c = 0; c < to->size[2]; c++)
        for (int d = 0; d < to->size[3]; d++)
          store(to, j->out, place(to, a, b, c, d),
                sums[place(to, a, b, c, d)] + (j->bias ? load(to, j->bias, (size_t)b) : 0));
  free(sums);
}

static double scalar(const problem* p, const void* value) {
  return p->x->type == DOUBLE ? *(const double*)value : (double)*(const float*)value;
}

static int begin(int kind, void* h, const problem* p, const void* alpha, const void* a,
                 const void* b, const void* bias, int algo, void* workspace, size_t bytes,
                 const void* beta, void* out) {
  need(scalar(p, alpha) == 1 && scalar(p, beta) == 0, "scales that these tests do not use");
  need(algo == 1, "an algorithm that was not offered as fit");
  need(workspace && bytes >= WORKSPACE, "less workspace than the algorithm needs");
  need(a && b && out, "no data");
  need(((uintptr_t)a | (uintptr_t)b | (uintptr_t)out) % size_of(p->x->type) == 0,
       "misaligned data");
  job* j = malloc(sizeof *j);
  *j = (job){*p->x, *p->w, *p->y, *p->c, a, b, bias, out, workspace, kind};
  return emu_enqueue(((handle*)h)->stream, run, j);
}

int cudnnConvolutionForward(void* h, const void* alpha, void* x_desc, const void* x, void* w_desc,
                            const void* w, void* conv, int algo, void* workspace, size_t bytes,
                            const void* beta, void* y_desc, void* y);
int cudnnConvolutionForward(void* h, const void* alpha, void* x_desc, const void* x, void* w_desc,
                            const void* w, void* conv, int algo, void* workspace, size_t bytes,
                            const void* beta, void* y_desc, void* y) {
  problem p = check(h, x_desc, w_desc, conv, y_desc);
  return begin(FORWARD, h, &p, alpha, x, w, NULL, algo, workspace, bytes, beta, y);
}
int cudnnConvolutionBackwardData(void* h, const void* alpha, void* w_desc, const void* w,
                                 void* dy_desc, const void* dy, void* conv, int algo,
                                 void* workspace, size_t bytes, const void* beta, void* dx_desc,
                                 void* dx);
int cudnnConvolutionBackwardData(void* h, const void* alpha, void* w_desc, const void* w,
                                 void* dy_desc, const void* dy, void* conv, int algo,
                                 void* workspace, size_t bytes, const void* beta, void* dx_desc,
                                 void* dx) {
  problem p = check(h, dx_desc, w_desc, conv, dy_desc);
  return begin(DATA, h, &p, alpha, w, dy, NULL, algo, workspace, bytes, beta, dx);
}
int cudnnConvolutionBackwardFilter(void* h, const void* alpha, void* x_desc, const void* x,
                                   void* dy_desc, const void* dy, void* conv, int algo,
                                   void* workspace, size_t bytes, const void* beta, void* dw_desc,
                                   void* dw);
int cudnnConvolutionBackwardFilter(void* h, const void* alpha, void* x_desc, const void* x,
                                   void* dy_desc, const void* dy, void* conv, int algo,
                                   void* workspace, size_t bytes, const void* beta, void* dw_desc,
                                   void* dw) {
  problem p = check(h, x_desc, dw_desc, conv, dy_desc);
  return begin(WEIGHT, h, &p, alpha, x, dy, NULL, algo, workspace, bytes, beta, dw);
}

int cudnnCreateActivationDescriptor(void** desc);
int cudnnCreateActivationDescriptor(void** desc) {
  return *desc = make(sizeof(activation), ACTIVATION), OK;
}
int cudnnSetActivationDescriptor(void* desc, int mode, int nan, double coefficient);
int cudnnSetActivationDescriptor(void* desc, int mode, int nan, double coefficient) {
  (void)coefficient;
  is(desc, ACTIVATION);
  need(mode >= 0 && mode <= 6 && (nan == 0 || nan == 1), "no such activation");
  ((activation*)desc)->mode = mode;
  ((activation*)desc)->set = true;
  return OK;
}
int cudnnConvolutionBiasActivationForward(void* h, const void* alpha, void* x_desc, const void* x,
                                          void* w_desc, const void* w, void* conv, int algo,
                                          void* workspace, size_t bytes, const void* alpha_z,
                                          void* z_desc, const void* z, void* bias_desc,
                                          const void* bias, void* act, void* y_desc, void* y);
int cudnnConvolutionBiasActivationForward(void* h, const void* alpha, void* x_desc, const void* x,
                                          void* w_desc, const void* w, void* conv, int algo,
                                          void* workspace, size_t bytes, const void* alpha_z,
                                          void* z_desc, const void* z, void* bias_desc,
                                          const void* bias, void* act, void* y_desc, void* y) {
  problem p = check(h, x_desc, w_desc, conv, y_desc);
  const tensor* b = bias_desc;
  is(z_desc, TENSOR), is(bias_desc, TENSOR), is(act, ACTIVATION);
  need(((activation*)act)->set && ((activation*)act)->mode == IDENTITY,
       "an activation not asked for");
  need(z && scalar(&p, alpha_z) == 0, "a second addend");
  need(b->set && b->type == p.y->type && b->size[0] == 1 && b->size[1] == p.y->size[1] &&
           b->size[2] == 1 && b->size[3] == 1 && bias,
       "a bias of another shape");
  if (p.x->type == DOUBLE) return NOT_SUPPORTED;
  return begin(FORWARD, h, &p, alpha, x, w, bias, algo, workspace, bytes, &(float){0}, y);
}

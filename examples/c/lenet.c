// LeNet-5 in C on Halyard: forward, backward and the optimizer, on any device.
//
//   lenet                      learns digits that it draws itself, and says how many it reads right
//   lenet FILE STEPS BATCH     takes parameters and batches from a file, and prints each step's
//   loss
//
// The file holds float32: the parameters in the order of `layers`, weight before bias, then for
// each step BATCH images of 28 x 28 and BATCH labels.
#include <halyard/halyard.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, LAYERS = 5, PARAMETERS = 2 * LAYERS };

static const struct {
  int ndim;
  int64_t shape[4];
} layers[LAYERS] = {
    {4, {6, 1, 5, 5}}, {4, {16, 6, 5, 5}}, {2, {120, 400}}, {2, {84, 120}}, {2, {CLASSES, 84}},
};

typedef struct lenet {
  hy_stream* stream;
  hy_tape* tape;
  hy_array* parameters[PARAMETERS];
  hy_optimizer* optimizer;
} lenet;

static int64_t elements(int parameter) {
  int64_t n = 1;
  for (int d = 0; d < (parameter % 2 ? 1 : layers[parameter / 2].ndim); d++)
    n *= layers[parameter / 2].shape[d];
  return n;
}

// ---- the network ----

// A scope owns what is computed, and its first failure sticks: formulas need no checks.
static hy_array* convolve(const lenet* net, hy_scope* s, int layer, hy_array* x, int64_t padding) {
  const hy_pair one = {1, 1}, two = {2, 2}, none = {0, 0}, around = {padding, padding};
  hy_array* const* p = net->parameters + 2 * layer;
  hy_array* y = hy_s_relu(s, hy_s_conv2d(s, x, p[0], p[1], one, around, one, 1));
  return hy_s_max_pool2d(s, y, two, two, none, one, false);
}

static hy_array* connect(const lenet* net, hy_scope* s, int layer, hy_array* x) {
  hy_array* const* p = net->parameters + 2 * layer;
  hy_array* y = hy_s_linear(s, x, p[0], p[1]);
  return layer < LAYERS - 1 ? hy_s_relu(s, y) : y;
}

// images [batch, 1, 28, 28] -> scores [batch, 10]
static hy_array* forward(const lenet* net, hy_scope* s, hy_array* images) {
  hy_array* x = convolve(net, s, 0, images, 2);
  x = convolve(net, s, 1, x, 0);
  x = hy_s_view(s, x, HY_SIZES(hy_s_size(s, x, 0), 400));
  for (int layer = 2; layer < LAYERS; layer++) x = connect(net, s, layer, x);
  return x;
}

static hy_array* upload_images(hy_scope* s, const float* pixels, int64_t batch) {
  return hy_s_from_host(s, HY_F32, HY_SIZES(batch, 1, SIDE, SIDE), pixels);
}

static hy_status train_step(lenet* net, const float* pixels, const int64_t* labels, int64_t batch,
                            double* value) {
  hy_scope s;
  hy_scope_begin(&s, net->tape);
  hy_optimizer_zero_grad(net->optimizer);
  hy_array* wanted = hy_s_from_host(&s, HY_I64, 1, &batch, labels);
  hy_array* scores = forward(net, &s, upload_images(&s, pixels, batch));
  hy_array* loss =
      hy_s_cross_entropy(&s, scores, wanted, NULL, -100, HY_REDUCTION_MEAN, 0, HY_NONE);
  HY_SCOPE_TRY(&s, hy_backward(net->tape, loss, NULL));
  HY_SCOPE_TRY(&s, hy_optimizer_step(net->optimizer));
  HY_SCOPE_TRY(&s, hy_array_item(net->stream, loss, value));
  return hy_scope_end(&s);
}

// How many of the images get the highest score where their label is.
static hy_status count_right(lenet* net, const float* pixels, const int64_t* labels, int64_t batch,
                             int* right) {
  double sum = 0;
  hy_scope s;
  hy_scope_begin(&s, net->tape);
  hy_tape_set_recording(net->tape, false);
  hy_array* best =
      hy_s_argmax(&s, forward(net, &s, upload_images(&s, pixels, batch)), hy_one_dim(1), false);
  hy_array* wanted = hy_s_from_host(&s, HY_I64, 1, &batch, labels);
  hy_array* hits = hy_s_sum(&s, hy_s_eq(&s, best, wanted), hy_all_dims(), false);
  HY_SCOPE_TRY(&s, hy_array_item(net->stream, hits, &sum));
  *right += (int)sum;
  hy_tape_set_recording(net->tape, true);
  return hy_scope_end(&s);
}

// ---- a net's life ----

static hy_status set_up(lenet* net, const float* values) {
  hy_device* device;
  HY_TRY(hy_device_get(NULL, &device));
  HY_TRY(hy_stream_create(device, &net->stream));
  HY_TRY(hy_tape_create(net->stream, &net->tape));
  for (int i = 0; i < PARAMETERS; i++) {
    HY_TRY(hy_array_from_host(net->stream, &net->parameters[i], HY_F32,
                              i % 2 ? 1 : layers[i / 2].ndim, layers[i / 2].shape, values));
    HY_TRY(hy_array_set_requires_grad(net->parameters[i], true));
    values += elements(i);
  }
  hy_attrs_adamw options = hy_adamw_defaults();
  options.lr = 2e-3;
  return hy_adamw_create(net->stream, net->parameters, PARAMETERS, &options, &net->optimizer);
}

static void tear_down(lenet* net) {
  hy_optimizer_destroy(net->optimizer);
  for (int i = 0; i < PARAMETERS; i++) hy_array_release(net->parameters[i]);
  hy_tape_destroy(net->tape);
  hy_stream_destroy(net->stream);
  hy_shutdown();
}

// ---- digits ----

static uint32_t noise_state = 1;
static float noise(void) {  // 0 .. 1
  noise_state = noise_state * 1664525u + 1013904223u;
  return (float)(noise_state >> 8) / 16777216.0f;
}

// A digit of seven segments, moved about, on a noisy ground.
static void draw_digit(int digit, float* pixels) {
  static const unsigned char lit[CLASSES] = {0x77, 0x12, 0x5d, 0x5b, 0x3a,
                                             0x6b, 0x6f, 0x52, 0x7f, 0x7b};
  // x, y, width, height of: top, upper left, upper right, middle, lower left, lower right, bottom
  static const int segments[7][4] = {{0, 0, 10, 2}, {0, 0, 2, 9}, {8, 0, 2, 9},  {0, 8, 10, 2},
                                     {0, 8, 2, 9},  {8, 8, 2, 9}, {0, 15, 10, 2}};
  int left = 4 + (int)(noise() * 10), top = 3 + (int)(noise() * 8);
  for (int i = 0; i < PIXELS; i++) pixels[i] = 0.3f * noise();
  for (int s = 0; s < 7; s++) {
    if (!(lit[digit] >> (6 - s) & 1)) continue;
    for (int y = 0; y < segments[s][3]; y++) {
      for (int x = 0; x < segments[s][2]; x++)
        pixels[(top + segments[s][1] + y) * SIDE + left + segments[s][0] + x] =
            0.7f + 0.3f * noise();
    }
  }
}

static void draw_batch(float* pixels, int64_t* labels, int batch) {
  for (int i = 0; i < batch; i++) {
    labels[i] = (int64_t)(noise() * CLASSES);
    draw_digit((int)labels[i], pixels + (ptrdiff_t)i * PIXELS);
  }
}

static hy_status learn_digits(lenet* net) {
  enum { BATCH = 32, STEPS = 200 };
  static float pixels[BATCH * PIXELS];
  int64_t labels[BATCH];
  double loss;
  int right = 0;
  for (int step = 1; step <= STEPS; step++) {
    draw_batch(pixels, labels, BATCH);
    HY_TRY(train_step(net, pixels, labels, BATCH, &loss));
    if (step % 25 == 0) printf("step %d: loss %.4f\n", step, loss);
  }
  for (int i = 0; i < 8; i++) {
    draw_batch(pixels, labels, BATCH);
    HY_TRY(count_right(net, pixels, labels, BATCH, &right));
  }
  printf("%d of %d new digits read right\n", right, 8 * BATCH);
  return HY_OK;
}

static hy_status learn_from(lenet* net, const float* values, int steps, int batch) {
  int64_t* labels = malloc((size_t)batch * sizeof *labels);
  hy_status status = labels ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no memory for labels");
  for (int step = 0; status == HY_OK && step < steps; step++) {
    double loss;
    const float* given = values + (ptrdiff_t)batch * PIXELS;
    for (int i = 0; i < batch; i++) labels[i] = (int64_t)given[i];
    status = train_step(net, values, labels, batch, &loss);
    if (status == HY_OK) printf("%.9g\n", loss);
    values = given + batch;
  }
  free(labels);
  return status;
}

// Uniform in +-1 / sqrt(inputs), as PyTorch starts.
static void draw_parameters(float* values) {
  for (int i = 0; i < PARAMETERS; i++) {
    double bound = 1 / sqrt((double)elements(i - i % 2) / (double)layers[i / 2].shape[0]);
    for (int64_t k = 0; k < elements(i); k++) *values++ = (float)((2 * noise() - 1) * bound);
  }
}

int main(int argc, char** argv) {
  size_t parameters = 0, more = 0;
  int steps = argc == 4 ? atoi(argv[2]) : 0, batch = argc == 4 ? atoi(argv[3]) : 0;
  if (argc != 1 && (argc != 4 || steps < 1 || batch < 1 || steps > 10000 || batch > 10000)) {
    fprintf(stderr, "usage: lenet [FILE STEPS BATCH]\n");
    return 2;
  }
  for (int i = 0; i < PARAMETERS; i++) parameters += (size_t)elements(i);
  more = (size_t)steps * (size_t)batch * (PIXELS + 1);
  float* values = malloc((parameters + more) * sizeof *values);
  if (!values) return 1;
  draw_parameters(values);
  if (argc == 4) {
    FILE* file = fopen(argv[1], "rb");
    bool whole =
        file && fread(values, sizeof *values, parameters + more, file) == parameters + more;
    if (file) fclose(file);
    if (!whole) {
      fprintf(stderr, "lenet: %s does not hold that much\n", argv[1]);
      free(values);
      return 4;
    }
  }
  lenet net = {0};
  hy_status status = set_up(&net, values);
  if (status == HY_OK)
    status = argc == 4 ? learn_from(&net, values + parameters, steps, batch) : learn_digits(&net);
  if (status != HY_OK) fprintf(stderr, "lenet: %s\n", hy_last_error());
  tear_down(&net);
  free(values);
  return status == HY_OK ? 0 : 1;
}

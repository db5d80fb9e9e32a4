// Runtime compilation on the guarded device: each line of a source is a kernel, an expression in
// postfix over the elements of float32 vectors.
//
//   axpy: x0 s0 * x1 +       # out[i] = x0[i] * s0 + x1[i]
//
// Words: x0 to x7 (vectors), s0 to s7 (floats), numbers, names given by -DNAME=NUMBER, and the
// operators + - * / min max neg exp. Arguments of a launch: the address of out, of x0, x1 ..., then
// s0, s1 ... (4 bytes each), then the number of elements (8 bytes). There is a thread for each
// element of the grid; those beyond the number of elements do nothing.
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

enum { MAX_WORDS = 64, MAX_NAME = 32, MAX_DEFINES = 16 };

typedef enum code { VECTOR, SCALAR, NUMBER, ADD, SUB, MUL, DIV, MIN, MAX, NEG, EXP } code;

typedef struct word {
  code code;
  int index;
  float number;
} word;

struct guarded_kernel {
  guarded_kernel* next;
  char name[MAX_NAME];
  word words[MAX_WORDS];
  int n_words, n_in, n_scalars;
};

typedef struct module {
  guarded_kernel* kernels;
} module;

typedef struct define {
  char name[MAX_NAME];
  float value;
} define;

// Every source is compiled with these, and may use the name.
static const char own_flags[] = "-Dpi=3.14159274";

typedef struct compiler {
  define defines[MAX_DEFINES];
  int n_defines;
  int line, depth;
} compiler;

// ---- flags ----

static bool to_number(const char* text, float* value) {
  char* end;
  *value = strtof(text, &end);
  return end != text && !*end;
}

static hy_status add_flag(compiler* c, char* flag) {
  char* equals = strchr(flag, '=');
  if (strncmp(flag, "-D", 2) != 0 || !equals || equals == flag + 2 || c->n_defines == MAX_DEFINES ||
      equals - flag - 2 >= MAX_NAME) {
    return guarded_host->fail(HY_INVALID_ARGUMENT, "postfix: flag '%s' is not -DNAME=NUMBER", flag);
  }
  define* d = &c->defines[c->n_defines];
  if (!to_number(equals + 1, &d->value)) {
    return guarded_host->fail(HY_INVALID_ARGUMENT, "postfix: '%s' defines no number", flag);
  }
  memcpy(d->name, flag + 2, (size_t)(equals - flag - 2));
  d->name[equals - flag - 2] = 0;
  c->n_defines++;
  return HY_OK;
}

static hy_status add_flags(compiler* c, const char* flags) {
  char* copy = strdup(flags);
  if (!copy) return guarded_host->fail(HY_OUT_OF_MEMORY, "postfix: no host memory");
  hy_status status = HY_OK;
  char* rest = NULL;
  for (char* flag = strtok_r(copy, " ", &rest); flag && status == HY_OK;
       flag = strtok_r(NULL, " ", &rest)) {
    status = add_flag(c, flag);
  }
  free(copy);
  return status;
}

// ---- words ----

static const struct {
  const char* text;
  code code;
  int takes;
} operators[] = {{"+", ADD, 2},   {"-", SUB, 2},   {"*", MUL, 2},   {"/", DIV, 2},
                 {"min", MIN, 2}, {"max", MAX, 2}, {"neg", NEG, 1}, {"exp", EXP, 1}};

static hy_status wrong(const compiler* c, const char* what, const char* text) {
  return guarded_host->fail(HY_INVALID_ARGUMENT, "postfix: line %d: %s '%s'", c->line, what, text);
}

static bool find_operand(const compiler* c, const char* text, guarded_kernel* k, word* w) {
  bool indexed = (text[0] == 'x' || text[0] == 's') && isdigit((unsigned char)text[1]) && !text[2];
  if (indexed && text[1] - '0' < GUARDED_MAX_OPERANDS) {
    w->code = text[0] == 'x' ? VECTOR : SCALAR;
    w->index = text[1] - '0';
    int* count = text[0] == 'x' ? &k->n_in : &k->n_scalars;
    if (w->index >= *count) *count = w->index + 1;
    return true;
  }
  w->code = NUMBER;
  for (int i = c->n_defines - 1; i >= 0; i--) {
    if (strcmp(c->defines[i].name, text) != 0) continue;
    w->number = c->defines[i].value;
    return true;
  }
  return to_number(text, &w->number);
}

static hy_status add_word(compiler* c, guarded_kernel* k, const char* text) {
  if (k->n_words == MAX_WORDS) return wrong(c, "the expression is too long at", text);
  word* w = &k->words[k->n_words++];
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (strcmp(text, operators[i].text) != 0) continue;
    if (c->depth < operators[i].takes) return wrong(c, "too few values before", text);
    c->depth -= operators[i].takes - 1;
    w->code = operators[i].code;
    return HY_OK;
  }
  if (!find_operand(c, text, k, w)) return wrong(c, "no such word:", text);
  c->depth++;
  return HY_OK;
}

static hy_status compile_line(compiler* c, module* m, char* line) {
  char *rest = NULL, *comment = strchr(line, '#');
  if (comment) *comment = 0;
  char* name = strtok_r(line, " \t", &rest);
  if (!name) return HY_OK;
  size_t length = strlen(name);
  if (length < 2 || length > MAX_NAME || name[length - 1] != ':') {
    return wrong(c, "a kernel begins with its name and a colon, not with", name);
  }
  guarded_kernel* k = calloc(1, sizeof *k);
  if (!k) return guarded_host->fail(HY_OUT_OF_MEMORY, "postfix: no host memory");
  k->next = m->kernels;
  m->kernels = k;
  memcpy(k->name, name, length - 1);
  c->depth = 0;
  for (char* word; (word = strtok_r(NULL, " \t", &rest));) HY_TRY(add_word(c, k, word));
  return c->depth == 1 ? HY_OK : wrong(c, "not one value remains in", k->name);
}

// ---- modules ----

void guarded_module_destroy(void* device, void* handle) {
  (void)device;
  module* m = handle;
  for (guarded_kernel *k = m->kernels, *next; k; k = next) {
    next = k->next;
    free(k);
  }
  free(m);
}

hy_status guarded_compile(void* device, const char* source, const char* flags, void** out) {
  compiler c = {.line = 1};
  HY_TRY(add_flags(&c, own_flags));
  HY_TRY(add_flags(&c, flags));
  module* m = calloc(1, sizeof *m);
  char* copy = strdup(source);
  hy_status status = HY_OK;
  if (!m || !copy) status = guarded_host->fail(HY_OUT_OF_MEMORY, "postfix: no host memory");
  for (char* line = copy; line && status == HY_OK; c.line++) {
    char* end = strchr(line, '\n');
    if (end) *end = 0;
    status = compile_line(&c, m, line);
    line = end ? end + 1 : NULL;
  }
  free(copy);
  if (status == HY_OK) {
    *out = m;
  } else if (m) {
    guarded_module_destroy(device, m);
  }
  return status;
}

hy_status guarded_compile_flags(void* device, char* text, size_t size) {
  (void)device;
  snprintf(text, size, "postfix %s", own_flags);
  return HY_OK;
}

hy_status guarded_module_kernel(void* device, void* handle, const char* name, void** kernel) {
  (void)device;
  guarded_kernel* k = ((module*)handle)->kernels;
  while (k && strcmp(k->name, name) != 0) k = k->next;
  if (!k) return guarded_host->fail(HY_NOT_FOUND, "postfix: the module has no kernel '%s'", name);
  *kernel = k;
  return HY_OK;
}

// ---- launches ----

static hy_status wrong_arguments(const guarded_kernel* k) {
  return guarded_host->fail(HY_INVALID_ARGUMENT,
                            "postfix: %s takes the address of its output, %d addresses, %d floats "
                            "and a 64-bit count",
                            k->name, k->n_in, k->n_scalars);
}

static hy_status vector_at(guarded_device* device, const hy_kernel_arg* arg, uint64_t count,
                           float** at) {
  void* address;
  char* bytes;
  memcpy(&address, arg->value, sizeof address);
  HY_TRY(guarded_memory_reach(&device->memory, address, count * sizeof(float), &bytes));
  *at = (float*)bytes;
  return HY_OK;
}

hy_status guarded_launch_localize(guarded_device* device, const guarded_kernel* k,
                                  const hy_launch* launch, guarded_launch* local) {
  int n_vectors = 1 + k->n_in, n = n_vectors + k->n_scalars + 1;
  if (launch->n_args != n || launch->args[n - 1].bytes != sizeof(uint64_t)) {
    return wrong_arguments(k);
  }
  uint64_t threads = 1;
  for (int d = 0; d < 3; d++) threads *= (uint64_t)launch->grid[d] * launch->block[d];
  *local = (guarded_launch){.kernel = k};
  memcpy(&local->count, launch->args[n - 1].value, sizeof local->count);
  if (local->count > threads) local->count = threads;
  for (int i = 0; i < n - 1; i++) {
    const hy_kernel_arg* arg = &launch->args[i];
    if (i >= n_vectors) {
      if (arg->is_address || arg->bytes != sizeof(float)) return wrong_arguments(k);
      memcpy(&local->scalar[i - n_vectors], arg->value, sizeof(float));
      continue;
    }
    if (!arg->is_address) return wrong_arguments(k);
    float* at;
    HY_TRY(vector_at(device, arg, local->count, &at));
    if (i == 0) {
      local->out = at;
    } else {
      local->in[i - 1] = at;
    }
  }
  return HY_OK;
}

static float evaluate(const guarded_launch* l, uint64_t i) {
  float stack[MAX_WORDS + 1] = {0};
  int top = 0;  // of the stack; stack[0] stays 0
  for (int n = 0; n < l->kernel->n_words; n++) {
    const word* w = &l->kernel->words[n];
    float b = stack[top], a = top > 0 ? stack[top - 1] : 0;
    switch (w->code) {
      case VECTOR: stack[++top] = l->in[w->index][i]; break;
      case SCALAR: stack[++top] = l->scalar[w->index]; break;
      case NUMBER: stack[++top] = w->number; break;
      case ADD: stack[--top] = a + b; break;
      case SUB: stack[--top] = a - b; break;
      case MUL: stack[--top] = a * b; break;
      case DIV: stack[--top] = a / b; break;
      case MIN: stack[--top] = fminf(a, b); break;
      case MAX: stack[--top] = fmaxf(a, b); break;
      case NEG: stack[top] = -b; break;
      case EXP: stack[top] = expf(b); break;
    }
  }
  return stack[top];
}

void guarded_launch_run(const guarded_launch* launch) {
  for (uint64_t i = 0; i < launch->count; i++) launch->out[i] = evaluate(launch, i);
}

static hy_status run_launch(void* context, bool broken) {
  if (!broken) guarded_launch_run(context);
  free(context);
  return HY_OK;
}

hy_status guarded_kernel_launch(void* device, void* stream, void* kernel, const hy_launch* launch) {
  guarded_graph* graph = guarded_queue_capturing(stream);
  guarded_launch* local = malloc(sizeof *local);
  if (!local) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory for a launch");
  hy_status status = guarded_launch_localize(device, kernel, launch, local);
  if (status == HY_OK && !graph) {
    status = guarded_push_work(stream, run_launch, local);
    if (status == HY_OK) return HY_OK;
  }
  free(local);
  if (status != HY_OK || !graph) return status;
  return guarded_graph_add(
      graph, &(hy_graph_node){.kind = HY_NODE_LAUNCH, .kernel = kernel, .launch = launch});
}

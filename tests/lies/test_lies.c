// Mutation testing of conformance: a table of lies made from the op table, each told by the lying
// backend to `halyard verify`, which must see it.
//
//   test_lies [--seed S] [--mode values|determinism|gradients] [--op OP] [--all]
//
// A lie that passes ends the test with 1: a generator is too weak, or a comparison. So does one
// that no case lets the liar tell, unless the op cannot give it an occasion (`impossible`, below),
// and an entry there that is not true.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "lies/liar.h"
#include "ops/internal.h"
#include "verify/compare.h"
#include "verify/verify.h"

#define MOST_LIES 256

typedef enum fate { UNTOLD, WITHOUT_EFFECT, REFUSED, SURVIVED, CAUGHT } fate;

typedef struct suspect {
  lie lie;
  fate fate;
} suspect;

// What the cases of an op show of it.
typedef struct facts {
  int ranks[HY_MAX_INPUTS];  // the most dimensions of each input
  bool floats, exact, unflushed, precise, wide_ints, elementwise;
} facts;

typedef struct table {
  const hy_op_info* info;
  suspect of[MOST_LIES];
  int n;
  facts facts;
} table;

static void add(table* t, lie_kind kind, int64_t a, int64_t b, int64_t c) {
  if (t->n < MOST_LIES) t->of[t->n++].lie = (lie){t->info->op, kind, a, b, c};
}

// ---- the table ----

static const char* shape_rule(hy_op op) {
  static const char* const rules[HY_OP_END] = {
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, dtype_rule, shape_rule, ...) \
  [id] = #shape_rule,
#include "halyard/ops.def"
  };
  return rules[op];
}

static bool is_one_of(const char* words, const char* word) {
  char spaced[60];
  snprintf(spaced, sizeof spaced, " %s ", word);
  return strstr(words, spaced) != NULL;
}

// How many dimensions of an input, from the last, have a meaning of their own. Elementwise ops,
// reductions and the like have none: any size and rank is as good as another.
static int roles(hy_op op, int input) {
  const char* rule = shape_rule(op);
  if (is_one_of(" broadcast broadcast_first matrix output vector random dropout reduce "
                "reduce_nonempty reduce_one along along_alike sort topk optimizer stack index_put "
                "index ",
                rule))
    return 0;
  if (is_one_of(" layer_norm rms_norm ", rule)) return 1;
  if (is_one_of(" layer_norm_backward rms_norm_backward ", rule)) return input < 2;
  if (is_one_of(" cross_entropy cross_entropy_backward ", rule)) return input == 0 ? 2 : 1;
  if (strcmp(rule, "attention") == 0) return input < 3 ? 3 : 2;
  if (strcmp(rule, "attention_backward") == 0) return input < 5 ? 3 : 2;
  if (strcmp(rule, "rope") == 0) return input == 0 ? 3 : 1;
  if (is_one_of(" embedding embedding_backward ", rule)) return input == 0 ? 2 : 1;
  if (is_one_of(" gather scatter index_select index_add cat linear quantize dequantize "
                "linear_quantized linear_sparse_2_4 linear_int8 fused_linear pack_fractal_nz "
                "linear_fractal_nz einsum ",
                rule))
    return 2;
  return 4;
}

// Real models stay below a hundred here: an input, a dimension of it from the last, and what they
// exceed.
static const struct {
  hy_op op;
  int input, axis;
  int64_t size;
} small_sizes[] = {
    {HY_OP_conv2d, 1, 1, 3},
    {HY_OP_conv2d, 1, 2, 3},
    {HY_OP_conv2d_backward, 2, 1, 3},
    {HY_OP_conv2d_backward, 2, 2, 3},
    {HY_OP_paged_attention, 1, 3, 4},
    {HY_OP_paged_attention, 2, 3, 4},
    {HY_OP_paged_attention, 3, 1, 16},
    {HY_OP_paged_attention, 1, 2, 8},
    {HY_OP_paged_attention, 2, 2, 8},
    {HY_OP_paged_attention, 0, 2, 8},
    {HY_OP_fused_moe, 3, 1, 3},
    {HY_OP_fused_moe, 4, 1, 3},
    {HY_OP_sample, 1, 1, 4},
    {HY_OP_rope, 1, 1, 32},
    {HY_OP_rope, 2, 1, 32},
    {HY_OP_linear_quantized, 2, 1, 16},
    {HY_OP_rope_paged_attention, 0, 2, 8},
    {HY_OP_rope_paged_attention, 0, 3, 4},
    {HY_OP_rope_paged_attention, 1, 2, 8},
    {HY_OP_rope_paged_attention, 1, 3, 4},
    {HY_OP_rope_paged_attention, 3, 1, 32},
    {HY_OP_rope_paged_attention, 4, 1, 32},
    {HY_OP_rope_paged_attention, 5, 1, 16},
    {HY_OP_rope_cache, 0, 2, 8},
    {HY_OP_rope_cache, 0, 3, 4},
    {HY_OP_rope_cache, 1, 2, 8},
    {HY_OP_rope_cache, 1, 3, 4},
    {HY_OP_rope_cache, 3, 1, 32},
    {HY_OP_rope_cache, 4, 1, 32},
    {HY_OP_fused_linear, 3, 1, 16},
    {HY_OP_linear_int8, 1, 1, 16},
    {HY_OP_linear_int8, 3, 1, 16},
};

static int64_t usual_size(hy_op op, int input, int axis) {
  for (size_t i = 0; i < sizeof small_sizes / sizeof small_sizes[0]; i++) {
    if (small_sizes[i].op == op && small_sizes[i].input == input && small_sizes[i].axis == axis)
      return small_sizes[i].size;
  }
  return 100;
}

static void add_sizes(table* t) {
  const hy_op_info* info = t->info;
  add(t, LIE_NUMEL, 32768, 0, 0);
  add(t, LIE_NUMEL, 131072, 0, 0);
  add(t, LIE_LONG, 20000, 0, 0);
  for (int dims = 4; dims < HY_MAX_DIMS; dims++) add(t, LIE_NDIM, dims, 0, 0);
  for (int i = 0; i < info->n_inputs; i++) {
    for (int axis = 1; axis <= roles(info->op, i); axis++)
      add(t, LIE_AXIS, i, axis, usual_size(info->op, i, axis));
    if (info->inputs[i].kind == HY_ARGUMENT_LIST) add(t, LIE_INPUTS, i + 4, 0, 0);
  }
  if (info->op == HY_OP_linear || info->op == HY_OP_linear_quantized ||
      info->op == HY_OP_linear_int8 || info->op == HY_OP_linear_sparse_2_4 ||
      info->op == HY_OP_fused_linear || info->op == HY_OP_linear_fractal_nz)
    add(t, LIE_ONE_ROW, 64, 0, 0);
}

static void add_attributes(table* t) {
  for (int i = 0; i < t->info->n_attrs; i++) {
    const char* type = t->info->attrs[i].type;
    // How many values of the type an attribute may be taken to have; liar.c says which.
    int values = 3;
    if (!strcmp(type, "bool") || !strcmp(type, "hy_scalar")) values = 2;
    if (!strcmp(type, "hy_dtype") || !strcmp(type, "hy_dims")) values = 1;
    if (!strcmp(type, "double")) values = 8;
    if (!strcmp(type, "hy_pair")) values = 4;
    if (!strcmp(type, "hy_equation")) values = 0;
    if (!strcmp(type, "uint64_t")) values = 1;
    for (int value = 0; value < values; value++) add(t, LIE_FIXED, i, value, 0);
    if (!strcmp(type, "int64_t")) add(t, LIE_FIXED, i, -1, 0);
    bool is_index = strstr(t->info->attrs[i].name, "dim") != NULL;  // of a dimension, 8 at most
    if ((!strcmp(type, "int64_t") || !strcmp(type, "uint64_t")) && !is_index)
      add(t, LIE_CAPPED, i, 100, 0);
  }
}

static void make_table(table* t, const hy_op_info* info) {
  memset(t, 0, sizeof *t);
  t->info = info;
  add(t, LIE_NOTHING, 0, 0, 0);
  add(t, LIE_REFUSES, 0, 0, 0);
  for (int o = 0; o < info->n_outputs; o++) {
    add(t, LIE_LAST, o, 0, 0);
    add(t, LIE_FIRST, o, 0, 0);
    if (info->outputs[o].kind != HY_ARGUMENT_OPTIONAL) continue;
    add(t, LIE_NO_OUTPUT, o, 0, 0);
    add(t, LIE_OUTPUT, o, 0, 0);
  }
  for (int i = 0; i < info->n_inputs; i++) {
    add(t, LIE_CONTIGUOUS, i, 0, 0);
    if (info->inputs[i].kind != HY_ARGUMENT_OPTIONAL) continue;
    add(t, LIE_NO_INPUT, i, 0, 0);
    add(t, LIE_INPUT, i, 0, 0);
  }
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    if (info->dtypes & HY_DTYPE_BIT(d)) add(t, LIE_DTYPE, d, 0, 0);
  }
  if (info->alias != HY_ALIAS_NONE) add(t, LIE_IN_PLACE, 0, 0, 0);
  add_sizes(t);
  add_attributes(t);
  for (int kind = LIE_ZERO_SIGN; kind <= LIE_LARGE_INT; kind++) add(t, (lie_kind)kind, 0, 0, 0);
  add(t, LIE_FAR, 5, 0, 0);
  add(t, LIE_FAR, 20, 0, 0);
  add(t, LIE_NEAR, 20, 0, 0);
  if (info->op == HY_OP_var || info->op == HY_OP_layer_norm || info->op == HY_OP_batch_norm ||
      info->op == HY_OP_batch_norm_update)
    add(t, LIE_NAIVE_VARIANCE, 0, 0, 0);
}

// ---- telling them ----

static hy__verify_options options = {.seed = 1, .index = -1, .until_failure = true};
static hy__op_verdict failure;

static void keep(void* context, const hy__op_verdict* verdict) {
  (void)context;
  if (verdict->failed > 0) failure = *verdict;
}

// What the case's results have to keep: the sign of zero, subnormal numbers.
static bool is_exact(const hy__case* c) {
  return hy_dtype_is_float(c->out[0].dtype) && hy__tolerance_of(c, 0).signed_zero;
}

static bool is_unflushed(const hy__case* c) {
  hy__tolerance t = hy__tolerance_of(c, 0);
  hy_dtype dtype = c->out[0].dtype;
  return dtype == HY_F32 && t.absolute <= 0x1p-140 && t.of_terms == 0;
}

// Whether a sum's own error leaves results below 2^-20 anything: where its terms are small too.
static bool is_precise(const hy__case* c) {
  return c->out[0].dtype == HY_F32 && hy__tolerance_of(c, 0).absolute < 0x1p-60;
}

static bool counts(const hy__case* c, lie_kind kind) {
  switch (kind) {
    case LIE_ZERO_SIGN: return is_exact(c);
    case LIE_FLUSHED: return is_unflushed(c);
    case LIE_SMALL_LOST: return hy__mixes_magnitudes(c) || is_precise(c);
    default: return true;
  }
}

static void learn(facts* f, const hy__case* c) {
  const hy_tensor* out = &c->out[0];
  for (int i = 0; i < c->call.n_in; i++)
    f->ranks[i] = c->in[i].ndim > f->ranks[i] ? c->in[i].ndim : f->ranks[i];
  if (!hy_dtype_is_float(c->result[0])) {
    f->wide_ints |= c->result[0] == HY_I64 && c->dtype == HY_I64;
    return;
  }
  f->floats = true;
  f->exact |= is_exact(c);
  f->unflushed |= is_unflushed(c);
  f->precise |= counts(c, LIE_SMALL_LOST);
  f->elementwise |= strcmp(shape_rule(c->call.op), "broadcast") == 0 && c->call.n_in > 0 &&
                    hy_dtype_is_float(c->in[0].dtype) && out->ndim > 0;
}

// Whether the op gives no occasion for the lie at all.
static bool is_void(const table* t, const lie* l) {
  const facts* f = &t->facts;
  switch (l->kind) {
    case LIE_AXIS: return f->ranks[l->a] < l->b;
    case LIE_ZERO_SIGN: return !f->exact;
    case LIE_FLUSHED: return !f->unflushed;
    case LIE_SMALL_LOST: return !f->precise;
    case LIE_LARGE_WRONG:
    case LIE_NAN_LOST:
    case LIE_INFINITY_LOST: return !f->floats;
    case LIE_THROUGH_DOUBLE:
    case LIE_LARGE_INT: return !f->wide_ints;
    case LIE_FAR:
    case LIE_NEAR: return !f->elementwise;
    default: return false;
  }
}

static hy_status tell(suspect* s, int index) {
  hy__verify_summary summary;
  options.op = s->lie.op;
  options.index = index;
  liar_tell(&s->lie);
  hy_status status = hy__verify(&options, &summary);
  liar_record said = liar_recorded();
  liar_tell(NULL);
  fate come = summary.failed > 0                             ? CAUGHT
              : said.told > 0                                ? SURVIVED
              : said.meant > 0 && said.refused == said.meant ? REFUSED
              : said.meant > 0                               ? WITHOUT_EFFECT
                                                             : UNTOLD;
  // In the order of the fates: where the shapes refuse a lie once, they tell on it.
  if (come > s->fate) s->fate = come;
  return status;
}

static hy_status tell_all(table* t, hy__case* c) {
  for (int index = 0; index < hy__case_count(t->info->op); index++) {
    hy__case_key key = {.op = t->info->op, .seed = options.seed, .index = index};
    hy_status made = hy__case_make(c, &key);
    if (made == HY_NOT_FOUND || c->expected != HY_OK) continue;
    HY_TRY(made);
    learn(&t->facts, c);
    // Before the reference overwrites what is computed in place.
    bool applies[MOST_LIES];
    for (int i = 0; i < t->n; i++) applies[i] = liar_applies(&t->of[i].lie, &c->call);
    HY_TRY(hy__reference(&c->call));
    uint64_t values = liar_values(&c->call);
    for (int i = 0; i < t->n; i++) {
      suspect* s = &t->of[i];
      bool about_values = s->lie.kind >= LIE_ZERO_SIGN && s->lie.kind <= LIE_LARGE_INT;
      if (s->fate == CAUGHT || !applies[i]) continue;
      if (about_values && (!(values >> s->lie.kind & 1) || !counts(c, s->lie.kind))) continue;
      HY_TRY(tell(s, index));
    }
  }
  return HY_OK;
}

// ---- what an op gives no occasion for ----

#include "lies/impossible.inc"

static int judge(const table* t, int* n_lies, int* n_caught, bool all) {
  int bad = 0;
  char words[120];
  for (int i = 0; i < t->n; i++) {
    const suspect* s = &t->of[i];
    const char* why = impossible(t->info, &s->lie);
    // In a sum of huge terms an element of small ones means nothing: what is said of elements by
    // their input is said of elementwise ops.
    bool occasion = !is_void(t, &s->lie) && s->fate != REFUSED;
    *n_lies += occasion || s->fate == CAUGHT;
    *n_caught += s->fate == CAUGHT;
    if (!occasion && s->fate != CAUGHT) continue;
    bool untold = s->fate == UNTOLD || s->fate == WITHOUT_EFFECT;
    static const char* const fates[] = {"UNTOLD", "WITHOUT EFFECT", "refused", "SURVIVED",
                                        "caught"};
    // A misread tensor that only lends its shape is told, and no lie.
    bool wrong = (s->fate == SURVIVED || untold) && !why;
    if (wrong || all)
      printf("%s %s%s%s\n", liar_describe(&s->lie, words, sizeof words), fates[s->fate],
             why ? ": " : "", why ? why : "");
    bad += wrong;
  }
  return bad;
}

int main(int argc, char** argv) {
  static const char* const modes[] = {"values", "determinism", "gradients"};
  const char* op = NULL;
  bool all = false;
  for (int i = 1; i < argc; i++) {
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    if (!strcmp(argv[i], "--seed"))
      options.seed = strtoull(value, NULL, 10), i++;
    else if (!strcmp(argv[i], "--op"))
      op = value, i++;
    else if (!strcmp(argv[i], "--all"))
      all = true;
    else if (!strcmp(argv[i], "--mode")) {
      for (int m = 0; m < 3; m++)
        if (!strcmp(value, modes[m])) options.mode = (hy__verify_mode)m;
      i++;
    }
  }
  setenv("HALYARD_LOG", "0", 1);
  const hy_backend* backend;
  hy__case* c;
  options.on_op = keep;
  if (halyard_backend_query(HY_ABI_VERSION, hy__host(), &backend) != HY_OK ||
      hy_register_backend(backend) != HY_OK || hy_device_get("liar", &options.device) != HY_OK ||
      hy__case_create(&c) != HY_OK) {
    fprintf(stderr, "test_lies: %s\n", hy_last_error());
    return 1;
  }
  int lies = 0, caught = 0, bad = 0;
  for (int i = 0; i < hy_op_count(); i++) {
    static table t;
    if (op && strcmp(op, hy_op_at(i)->name) != 0) continue;
    make_table(&t, hy_op_at(i));
    if (tell_all(&t, c) != HY_OK) {
      fprintf(stderr, "test_lies: %s\n", hy_last_error());
      return 1;
    }
    bad += judge(&t, &lies, &caught, all);
  }
  printf("%d lies, seed %llu, %s: %d caught, %d without an occasion, %d pass\n", lies,
         (unsigned long long)options.seed, modes[options.mode], caught, lies - caught - bad, bad);
  hy__case_destroy(c);
  hy_shutdown();
  return bad > 0;
}

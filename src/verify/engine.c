// Runs cases on a device and judges them.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "ops/internal.h"
#include "verify/capability.h"
#include "verify/child.h"
#include "verify/compare.h"
#include "verify/fence.h"
#include "verify/gradients.h"
#include "verify/verify.h"

enum { FIRST_ROOM = 1 << 20 };  // bytes; more than most cases need

typedef enum outcome { PASSED, FAILED, REFUSED, UNSUPPORTED, NO_CASE } outcome;

typedef struct engine {
  const hy__verify_options* options;
  hy_device* device;
  hy_stream* stream;
  hy__case* c;
  uint32_t declared;  // of the op at hand
  hy__capability_record capabilities;
  void* memory;  // on the device, as large as the largest image so far
  size_t memory_size;
  unsigned char *want, *got, *mask;  // on the host, equally large
  struct hy__executed executed;      // by the call at hand, as the stream has counted it
  hy_stream* host_stream;            // of the cpu, for gradients
} engine;

// What came of one case.
typedef struct verdict {
  outcome outcome;
  bool native;
  hy_support reason;
  char message[800];
} verdict;

static hy_status make_room(engine* e, size_t bytes) {
  if (bytes <= e->memory_size) return HY_OK;
  size_t size = bytes < FIRST_ROOM ? FIRST_ROOM : (bytes + bytes / 2 + 63) / 64 * 64;
  hy_free(e->device, e->memory);
  e->memory = NULL;
  e->memory_size = 0;
  free(e->want);
  free(e->got);
  free(e->mask);
  e->want = aligned_alloc(64, size);
  e->got = aligned_alloc(64, size);
  e->mask = aligned_alloc(64, size);
  if (!e->want || !e->got || !e->mask)
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a case of %zu bytes", size);
  HY_TRY(hy_alloc(e->stream, size, &e->memory));
  e->memory_size = size;
  return HY_OK;
}

typedef struct moved {
  hy_call call;
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
} moved;

// The case's call over a copy of its image at `memory`.
static void move_call(const hy__case* c, void* memory, moved* m) {
  m->call = c->call;
  m->call.in = m->in;
  m->call.out = m->out;
  for (int i = 0; i < HY_MAX_INPUTS && i < c->call.n_in; i++)
    m->in[i] = hy__rebase(c, &c->in[i], memory);
  for (int i = 0; i < c->call.n_out; i++) m->out[i] = hy__rebase(c, &c->out[i], memory);
}

// Half of the cases on a device in host memory have their outputs in front of guard pages; the
// others have them aligned, with guard zones around.
static bool is_fenced(const engine* e) {
  return hy_device_is_host(e->device) && e->c->expected == HY_OK &&
         e->c->flavour != HY__FLAVOUR_IN_PLACE && ((unsigned)e->c->key.index * 0x9e3779b1u) >> 31;
}

// Moves output `o` of the call in front of a guard page; with `got`, brings its bytes back there.
static void fence_output(const engine* e, moved* m, int o, unsigned char* got) {
  const hy_tensor* t = &e->c->out[o];
  int64_t first, last;
  if (!hy__present(t) || !t->data) return;
  hy_tensor_extent(t, &first, &last);
  unsigned char* end = hy__fence_end(o, (size_t)(last - first));
  size_t at = (size_t)((unsigned char*)t->data - e->c->image + first);
  if (!end || last <= first) return;
  if (got) {
    memcpy(got + at, end - (last - first), (size_t)(last - first));
  } else {
    memcpy(end - (last - first), e->c->image + at, (size_t)(last - first));
    m->out[o].data = end - last;
  }
}

// Runs the call on the device and brings the image back to `got`. `*ran` is the call's own status,
// wherever it showed; the return value is about everything else. Nothing waits between upload, call
// and download: order on a stream is a part of what is verified.
static hy_status run_on_device(engine* e, unsigned char* got, hy_status* ran, char* why,
                               size_t why_size) {
  moved m;
  bool fenced = is_fenced(e);
  move_call(e->c, e->memory, &m);
  HY_TRY(hy_memcpy(e->stream, e->memory, e->c->image, e->c->used, HY_COPY_HOST_TO_DEVICE));
  for (int o = 0; fenced && o < e->c->call.n_out; o++) fence_output(e, &m, o, NULL);
  struct hy__executed before = e->stream->executed, *now = &e->stream->executed;
  hy_status status = *ran = hy_run(e->stream, &m.call);
  e->executed.by_provider += now->by_provider - before.by_provider;
  e->executed.by_reference += now->by_reference - before.by_reference;
  e->executed.fallen_back += now->fallen_back - before.fallen_back;
  e->executed.composed += now->composed - before.composed;
  e->executed.provider = now->provider;
  if (status == HY_OK)
    status = hy_memcpy(e->stream, got, e->memory, e->c->used, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(e->stream);
  for (int o = 0; fenced && o < e->c->call.n_out; o++) fence_output(e, &m, o, got);
  if (status == HY_OK) return HY_OK;
  if (*ran == HY_OK) *ran = status;
  snprintf(why, why_size, "%s", hy_last_error());
  if (hy_stream_sync(e->stream) != HY_OK) HY_TRY(hy_stream_reset(e->stream));
  HY_TRY(hy_memcpy(e->stream, got, e->memory, e->c->used, HY_COPY_DEVICE_TO_HOST));
  return hy_stream_sync(e->stream);
}

static hy_status run_reference(engine* e, unsigned char* want) {
  moved m;
  memcpy(want, e->c->image, e->c->used);
  move_call(e->c, want, &m);
  return hy__reference(&m.call);
}

static outcome fail(verdict* v, const char* format, ...) __attribute__((format(printf, 2, 3)));
static outcome fail(verdict* v, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(v->message, sizeof v->message, format, arguments);
  va_end(arguments);
  return FAILED;
}

static outcome judge_refusal(engine* e, hy_status ran, const char* why, verdict* v) {
  const hy__case* c = e->c;
  if (ran == HY_OK)
    return fail(v, "%s must be refused with %s and was accepted", c->what,
                hy_status_name(c->expected));
  if (ran != c->expected)
    return fail(v, "%s must be refused with %s, not %s (%s)", c->what, hy_status_name(c->expected),
                hy_status_name(ran), why);
  hy__writable writable = {0, 0, NULL};
  if (c->by_value) writable = hy__writable_outputs(c, e->mask);
  return hy__check_untouched(c, &writable, e->got, v->message, sizeof v->message) ? REFUSED
                                                                                  : FAILED;
}

static outcome judge_values(engine* e, verdict* v) {
  char why[400] = "";
  hy__case* c = e->c;
  hy_status expected = run_reference(e, e->want);
  if (expected != c->expected)
    return fail(v, "the reference answers %s instead of %s: %s", hy_status_name(expected),
                hy_status_name(c->expected), hy_last_error());
  hy_status ran, status = run_on_device(e, e->got, &ran, why, sizeof why);
  if (status != HY_OK) return fail(v, "the device stopped: %s", hy_last_error());
  if (c->expected != HY_OK) return judge_refusal(e, ran, why, v);
  if (ran != HY_OK) return fail(v, "%s: %s", hy_status_name(ran), why);
  int touched = hy__fence_touched();
  if (touched >= 0)
    return fail(v, "memory behind the output %s was read or written",
                c->info->outputs[touched].name);
  hy__writable writable = hy__writable_outputs(c, e->mask);
  if (!hy__check_untouched(c, &writable, e->want, v->message, sizeof v->message)) {
    char found[sizeof v->message];
    memcpy(found, v->message, sizeof found);
    return fail(v, "by the reference itself, %.700s", found);
  }
  if (!hy__check_untouched(c, &writable, e->got, v->message, sizeof v->message)) return FAILED;
  return hy__check_outputs(c, e->want, e->got, v->message, sizeof v->message) ? PASSED : FAILED;
}

// The same call once more, after it has passed.
static outcome judge_determinism(engine* e, verdict* v) {
  char why[400] = "";
  hy_status ran, status = run_on_device(e, e->want, &ran, why, sizeof why);
  if (status != HY_OK) return fail(v, "the device stopped: %s", hy_last_error());
  if (ran != HY_OK) return fail(v, "the second time, %s: %s", hy_status_name(ran), why);
  if (memcmp(e->want, e->got, e->c->used) == 0) return PASSED;
  size_t at = 0;
  while (e->want[at] == e->got[at]) at++;
  return fail(v, "the same call gave other bits the second time, first at byte %zu", at);
}

static outcome judge_gradients(engine* e, verdict* v) {
  const hy__case* c = e->c;
  if (!hy__case_has_gradients(c)) return PASSED;
  hy__gradients want, got;
  outcome result = PASSED;
  hy_status status = hy__case_gradients(c, e->host_stream, &want);
  if (status != HY_OK) result = fail(v, "on the cpu: %s", hy_last_error());
  status = hy__case_gradients(c, e->stream, &got);
  if (status != HY_OK && result == PASSED) result = fail(v, "%s", hy_last_error());
  for (int i = 0; i < c->call.n_in && result == PASSED; i++) {
    if (!want.of[i] != !got.of[i])
      result = fail(v, "input %d has a gradient on one device alone", i);
    if (!want.of[i] || !got.of[i]) continue;
    hy_tensor a, b;
    hy_tensor_init(&a, want.of[i], c->in[i].dtype, c->in[i].ndim, c->in[i].shape);
    hy_tensor_init(&b, got.of[i], c->in[i].dtype, c->in[i].ndim, c->in[i].shape);
    char name[40];
    snprintf(name, sizeof name, "the gradient of input %d", i);
    if (!hy__check_tensor(&a, &b, hy__gradient_tolerance(c, i), name, v->message,
                          sizeof v->message))
      result = FAILED;
  }
  hy__gradients_free(&want);
  hy__gradients_free(&got);
  return result;
}

static hy_dtype first_dtype(const hy_call* call) {
  return call->n_in > 0 && hy__present(&call->in[0]) ? call->in[0].dtype : call->out[0].dtype;
}

// The types for which a provider of the device promises the op.
static uint32_t declared_dtypes(hy_device* device, hy_op op) {
  uint32_t dtypes = 0;
  hy_placement placement;
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    if (hy_place_op(device, op, (hy_dtype)d, &placement) == HY_OK &&
        placement.reason == HY_SUPPORT_YES)
      dtypes |= HY_DTYPE_BIT(d);
  }
  return dtypes;
}

static int count_declared(hy_device* device) {
  int count = 0;
  for (int i = 0; i < hy_op_count(); i++) count += declared_dtypes(device, hy_op_at(i)->op) != 0;
  return count;
}

// After a failure the next case finds a stream that takes work, or conformance cannot go on.
static hy_status recover(engine* e) {
  hy_status status = hy_stream_sync(e->stream);
  if (status == HY_OK) return HY_OK;
  if (hy_stream_reset(e->stream) == HY_OK && hy_stream_sync(e->stream) == HY_OK) return HY_OK;
  hy_stream* fresh;
  HY_TRY(hy_stream_create(e->device, &fresh));
  hy_stream_destroy(e->stream);
  e->stream = fresh;
  return hy_stream_sync(fresh);
}

static outcome judge(engine* e, verdict* v) {
  outcome result = judge_values(e, v);
  if (result != PASSED) return result;
  switch (e->options->mode) {
    case HY__VERIFY_VALUES: break;
    case HY__VERIFY_DETERMINISM: return judge_determinism(e, v);
    case HY__VERIFY_GRADIENTS: return judge_gradients(e, v);
  }
  return PASSED;
}

// Whether providers of this backend alone ran the call at hand: the call itself, or each part that
// it was taken apart into.
static bool ran_by_providers(const engine* e) {
  const struct hy__executed* x = &e->executed;
  return x->by_provider > 0 && x->by_reference == 0 && x->fallen_back == 0;
}

// The reference is the cpu's own kernel, and no other backend's, in host memory or not.
static bool ran_natively(const engine* e) {
  bool is_cpu = strcmp(hy_device_backend(e->device), "cpu") == 0;
  return ran_by_providers(e) || (is_cpu && e->executed.by_reference > 0);
}

// What is said of a case that passed, by who ran it. `asked` is what supports() made of the call
// before; an answer that changes with the one who asks is a lie.
static outcome judge_execution(engine* e, const hy_placement* asked, verdict* v) {
  const struct hy__executed* x = &e->executed;
  // A call without output elements is done before anybody is asked.
  if (x->by_provider == 0 && x->by_reference == 0 && x->fallen_back == 0) return PASSED;
  hy_dtype dtype = first_dtype(&e->c->call);
  const char* op = hy_op_name(e->c->call.op);
  bool said_yes = asked->reason == HY_SUPPORT_YES;
  bool provided = ran_by_providers(e), composed = x->composed > 0;
  if (said_yes && (!provided || composed))
    return fail(v, "supports() says yes to this %s when hy_place asks and no when hy_run does", op);
  if (said_yes && strcmp(asked->provider, x->provider) != 0)
    return fail(v, "hy_place names %s for this %s, and %s ran it", asked->provider, op,
                x->provider);
  if (!said_yes && provided && !composed)
    return fail(v, "supports() says no to this %s when hy_place asks and yes when hy_run does", op);
  if (provided) return PASSED;
  if (hy__case_is_promised(e->c) && (e->declared & HY_DTYPE_BIT(dtype)) &&
      hy__is_promised(e->device, &e->c->call))
    return fail(v, "a provider declares %s for %s and does not run this call: %s", op,
                hy_dtype_name(dtype), hy_support_text(asked->reason));
  return v->native ? PASSED : UNSUPPORTED;
}

// One case, start to end.
static hy_status try_case(engine* e, const hy__case_key* key, verdict* v) {
  v->outcome = NO_CASE;
  v->native = false;
  v->reason = HY_SUPPORT_YES;
  v->message[0] = 0;
  hy__case* c = e->c;
  if (e->options->progress) {
    e->options->progress->key = *key;
    atomic_fetch_add(&e->options->progress->beats, 1);
  }
  hy_status made = hy__case_make(c, key);
  if (made == HY_NOT_FOUND) return HY_OK;
  HY_TRY(made);
  HY_TRY(make_room(e, c->used));
  hy_placement asked = {NULL, HY_SUPPORT_YES};
  if (c->expected == HY_OK) {
    moved m;
    move_call(c, e->memory, &m);
    HY_TRY(hy_place(e->device, &m.call, &asked));
  }
  memset(&e->executed, 0, sizeof e->executed);
  v->outcome = judge(e, v);
  v->native = ran_natively(e);
  v->reason = asked.reason;
  if (v->outcome == PASSED) v->outcome = judge_execution(e, &asked, v);
  return v->outcome == FAILED ? recover(e) : HY_OK;
}

// Looks for a smaller case that fails in place of `key`: short dimensions first, then plain memory.
static hy_status shrink(engine* e, const hy__case_key* key, hy__op_verdict* op) {
  static const int64_t limits[] = {1, 2, 3, 5, 9, 0};
  verdict v;
  op->first = *key;
  for (int i = 0; i < 6; i++) {
    for (int simple = 1; simple >= 0; simple--) {
      hy__case_key smaller = *key;
      smaller.limit = limits[i];
      smaller.simple = simple || key->simple;
      if (key->limit > 0 && (limits[i] == 0 || limits[i] > key->limit)) smaller.limit = key->limit;
      HY_TRY(try_case(e, &smaller, &v));
      if (v.outcome != FAILED) continue;
      op->first = smaller;
      snprintf(op->failure, sizeof op->failure, "%s", v.message);
      hy__case_describe(e->c, op->call, sizeof op->call);
      return HY_OK;
    }
  }
  return HY_OK;
}

static hy_status verify_case(engine* e, const hy__case_key* key, hy__op_verdict* op) {
  verdict v;
  HY_TRY(try_case(e, key, &v));
  if (v.outcome == NO_CASE) return HY_OK;
  op->cases++;
  if (v.native) op->native |= HY_DTYPE_BIT(first_dtype(&e->c->call));
  if (v.native && v.outcome != REFUSED)
    hy__capability_ran(&e->capabilities, &e->c->call, v.outcome == PASSED);
  switch (v.outcome) {
    case PASSED: op->passed++; break;
    case REFUSED: op->refused++; break;
    case UNSUPPORTED:
      if (op->unsupported++ == 0) op->reason = v.reason;
      break;
    case FAILED:
      if (op->failed++ > 0) break;
      snprintf(op->failure, sizeof op->failure, "%s", v.message);
      hy__case_describe(e->c, op->call, sizeof op->call);
      return e->options->until_failure ? HY_OK : shrink(e, key, op);
    case NO_CASE: break;
  }
  return HY_OK;
}

static hy_status verify_op(engine* e, const hy_op_info* info, hy__op_verdict* op) {
  const hy__verify_options* o = e->options;
  memset(op, 0, sizeof *op);
  op->name = info->name;
  op->declared = e->declared = declared_dtypes(e->device, info->op);
  hy__capability_declared(&e->capabilities, e->device, info->op, op->declared);
  int first = o->index >= 0 ? o->index : 0;
  int end = o->index >= 0 ? o->index + 1 : hy__case_count(info->op);
  for (int i = first; i < end; i++) {
    bool narrow = (e->device->backend->flags & HY_BACKEND_NARROW_RANGE) != 0;
    hy__case_key key = {info->op, o->seed, i, o->quick, o->limit, o->simple, narrow};
    HY_TRY(verify_case(e, &key, op));
    if (op->failed > 0 && o->until_failure) return HY_OK;
  }
  uint32_t missing = op->declared & ~op->native;
  if (o->index < 0 && missing && op->failed == 0) {
    op->cases++;
    op->failed++;
    snprintf(op->failure, sizeof op->failure,
             "declared for %s, and no generated call of that type ran on the device",
             hy_dtype_name((hy_dtype)__builtin_ctz(missing)));
  }
  return HY_OK;
}

static void count(engine* e, const hy__op_verdict* op, hy__verify_summary* s) {
  if (op->cases == 0) return;
  s->cases += op->cases;
  s->passed += op->passed;
  s->failed += op->failed;
  s->refused += op->refused;
  s->unsupported += op->unsupported;
  if (e->options->on_op) e->options->on_op(e->options->context, op);
}

static const struct {
  const char* name;
  hy__verify_check check;
} checks[] = {
    {"copies", hy__verify_copies},
    {"order", hy__verify_order},
    {"memory", hy__verify_memory},
    {"concurrency", hy__verify_concurrency},
    {"communicators", hy__verify_communicators},
    {"graphs", hy__verify_graphs},
    {"streams", hy__verify_streams},
    {"pointers", hy__verify_pointers},
    {"peers", hy__verify_peers},
    {"sharing", hy__verify_sharing},
    {"compilation", hy__verify_compilation},
    {"threads", hy__verify_threads},
};

enum { N_CHECKS = sizeof checks / sizeof checks[0] };

// Whether number `at`, an op or behind all ops a check, is to be done in this process; the parent
// of a child is told that it is begun.
static bool begin(engine* e, int at, const char* check) {
  hy__verify_progress* p = e->options->progress;
  if (!p) return true;
  if (at < p->first) return false;
  p->at = at;
  snprintf(p->check, sizeof p->check, "%s", check);
  p->capabilities = e->capabilities;
  atomic_fetch_add(&p->beats, 1);
  return true;
}

static hy_status verify_checks(engine* e, hy__verify_summary* s) {
  hy__op_verdict verdict;
  const char* only = e->options->check;
  for (int i = 0; i < N_CHECKS; i++) {
    if (only && strcmp(only, checks[i].name) != 0) continue;
    if (!begin(e, hy_op_count() + i, checks[i].name)) continue;
    memset(&verdict, 0, sizeof verdict);
    verdict.name = verdict.check = checks[i].name;
    verdict.quick = e->options->quick;
    HY_TRY(checks[i].check(e->device, &verdict));
    if (checks[i].check == hy__verify_communicators)
      e->capabilities.communicators = verdict.passed > 0 && verdict.failed == 0;
    s->checks += verdict.cases > 0;
    count(e, &verdict, s);
  }
  if (only || !begin(e, hy_op_count() + N_CHECKS, "capabilities")) return HY_OK;
  memset(&verdict, 0, sizeof verdict);
  verdict.name = "capabilities";
  HY_TRY(hy__capability_judge(&e->capabilities, e->device, &verdict));
  s->checks += verdict.cases > 0;
  count(e, &verdict, s);
  return HY_OK;
}

static hy_status verify_all(engine* e, hy__verify_summary* s) {
  const hy__verify_options* o = e->options;
  hy__op_verdict op;
  for (int i = 0; i < hy_op_count() && !o->check; i++) {
    const hy_op_info* info = hy_op_at(i);
    if (o->op != HY_OP_NONE && info->op != o->op) continue;
    if (!begin(e, i, "")) continue;
    HY_TRY(verify_op(e, info, &op));
    s->ops += op.cases > 0;
    count(e, &op, s);
  }
  if (o->op != HY_OP_NONE || o->mode != HY__VERIFY_VALUES) return HY_OK;
  return verify_checks(e, s);
}

// Tells the parent of a child that the device is open, and takes up what the children before knew.
static void introduce(engine* e, const hy__verify_summary* s) {
  hy__verify_progress* p = e->options->progress;
  if (!p) return;
  const char* provider = hy_device_provider(e->device);
  if (provider)
    snprintf(p->selector, sizeof p->selector, "%s:%d", provider, hy_device_index(e->device));
  else
    snprintf(p->selector, sizeof p->selector, "%s", hy_device_selector(e->device));
  snprintf(p->backend, sizeof p->backend, "%s", hy_device_backend(e->device));
  p->declared = s->declared;
  p->declares_nothing = s->declares_nothing;
  e->capabilities = p->capabilities;
  p->started = true;
}

hy_status hy__verify(const hy__verify_options* options, hy__verify_summary* summary) {
  memset(summary, 0, sizeof *summary);
  engine e = {.options = options, .device = options->device};
  bool was_deterministic = hy_deterministic();
  hy_status status = hy__case_create(&e.c);
  if (status == HY_OK) status = hy_stream_create(e.device, &e.stream);
  if (status == HY_OK && hy_device_is_host(e.device)) status = hy__fence_open();
  if (status == HY_OK && options->mode == HY__VERIFY_GRADIENTS) {
    hy_device* host;
    status = hy_device_get("cpu", &host);
    if (status == HY_OK) status = hy_stream_create(host, &e.host_stream);
  }
  if (status == HY_OK) {
    if (options->mode == HY__VERIFY_DETERMINISM) hy_set_deterministic(true);
    summary->declared = count_declared(e.device);
    summary->declares_nothing = summary->declared == 0 && !options->check;
    introduce(&e, summary);
    status = verify_all(&e, summary);
    hy_set_deterministic(was_deterministic);
  }
  hy__fence_close();
  hy_free(e.device, e.memory);
  hy_stream_destroy(e.host_stream);
  hy_stream_destroy(e.stream);
  hy__case_destroy(e.c);
  free(e.want);
  free(e.got);
  free(e.mask);
  return status;
}

const char* hy__verify_check_at(int index) {
  return index < N_CHECKS ? checks[index].name : NULL;
}

bool hy__verify_passed(const hy__verify_summary* summary) {
  return summary->failed == 0 && !summary->declares_nothing && summary->cases > 0;
}

const char* hy__verify_command(const hy__verify_options* options, const hy__case_key* key,
                               char* buffer, size_t size) {
  static const char* const modes[] = {"", " --determinism", " --gradients"};
  char limit[32] = "", selector[64];
  const char* provider = options->device ? hy_device_provider(options->device) : NULL;
  if (!options->device)
    snprintf(selector, sizeof selector, "%s", options->selector ? options->selector : "");
  else if (provider)
    snprintf(selector, sizeof selector, "%s:%d", provider, hy_device_index(options->device));
  else
    snprintf(selector, sizeof selector, "%s", hy_device_selector(options->device));
  if (key->limit > 0) snprintf(limit, sizeof limit, " --size %lld", (long long)key->limit);
  if (key->op == HY_OP_NONE) {
    snprintf(buffer, size, "halyard verify --backend %s", selector);
    return buffer;
  }
  snprintf(buffer, size, "halyard verify --backend %s --op %s --seed %llu --case %d%s%s%s%s",
           selector, hy_op_name(key->op), (unsigned long long)key->seed, key->index,
           modes[options->mode], key->quick ? " --quick" : "", limit,
           key->simple ? " --simple" : "");
  return buffer;
}

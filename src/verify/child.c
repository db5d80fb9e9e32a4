// Conformance in a child process: the parent's side, and what the child tells it.
#include "verify/child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"

#define SHARED "HALYARD_VERIFY_CHILD"  // in the child's environment: the number of the shared file
enum { MOST_HANGS = 3, NOT_STARTED = 127 };  // hangs after which the rest is given up

// ---- the child ----

hy__verify_progress* hy__verify_shared(void) {
  static hy__verify_progress* shared;
  const char* number = hy__env(SHARED);
  if (!number || shared) return shared;
  void* at = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(number), 0);
  return shared = at == MAP_FAILED ? NULL : at;
}

void hy__verify_publish(void* progress, const hy__op_verdict* v) {
  hy__verify_progress* p = progress;
  int n = atomic_load(&p->n_slots);
  if (n >= HY__VERIFY_SLOTS) return;
  hy__verify_slot* slot = &p->slots[n];
  snprintf(slot->name, sizeof slot->name, "%s", v->name);
  slot->is_check = p->check[0] != 0;
  slot->verdict = *v;
  atomic_store(&p->n_slots, n + 1);
}

// ---- the parent ----

typedef struct watch {
  hy__verify_options* options;
  hy__verify_summary* summary;
  hy__verify_progress* shared;
  int file, taken;  // slots that have been passed on
  int seconds, hangs;
} watch;

static void pass_on(watch* w, const hy__op_verdict* v, bool is_check) {
  hy__verify_summary* s = w->summary;
  *(is_check ? &s->checks : &s->ops) += 1;
  s->cases += v->cases;
  s->passed += v->passed;
  s->failed += v->failed;
  s->refused += v->refused;
  s->unsupported += v->unsupported;
  if (w->options->on_op) w->options->on_op(w->options->context, v);
}

static void take_verdicts(watch* w) {
  for (int n = atomic_load(&w->shared->n_slots); w->taken < n; w->taken++) {
    hy__verify_slot* slot = &w->shared->slots[w->taken];
    slot->verdict.name = slot->name;
    slot->verdict.check = slot->is_check ? slot->name : NULL;
    pass_on(w, &slot->verdict, slot->is_check);
  }
}

static pid_t start(const watch* w, char* const* argv) {
  char number[16];
  snprintf(number, sizeof number, "%d", w->file);
  fflush(NULL);
  pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // the report is the parent's
  setenv(SHARED, number, 1);
  execv("/proc/self/exe", argv);
  _exit(NOT_STARTED);
}

// Until the child has ended, or has been ended because it hangs.
static bool wait_for(watch* w, pid_t child, int* how) {
  unsigned beats = atomic_load(&w->shared->beats);
  int64_t since = hy__now_ns();
  bool hangs = false;
  while (waitpid(child, how, WNOHANG) == 0) {
    usleep(2000);
    take_verdicts(w);
    unsigned now = atomic_load(&w->shared->beats);
    if (now != beats) since = hy__now_ns();
    beats = now;
    if (hangs || w->seconds == 0 || hy__now_ns() - since < (int64_t)w->seconds * 1000000000)
      continue;
    hangs = true;
    kill(child, SIGKILL);
  }
  take_verdicts(w);
  return hangs;
}

// What became of the child, in words.
static void describe_end(const watch* w, int how, bool hangs, char* text, size_t size) {
  const char* stopped = w->shared->stopped;
  if (hangs)
    snprintf(text, size, "it did not end within %d seconds", w->seconds);
  else if (WIFSIGNALED(how))
    snprintf(text, size, "it crashed: signal %d, %s", WTERMSIG(how), strsignal(WTERMSIG(how)));
  else if (stopped[0])
    snprintf(text, size, "%s", stopped);
  else
    snprintf(text, size, "it ended the process with exit code %d", WEXITSTATUS(how));
}

// The verdict on what the child was at.
static void accuse(watch* w, const char* what) {
  hy__verify_progress* p = w->shared;
  hy__op_verdict v = {.cases = 1, .failed = 1, .first = p->key};
  snprintf(v.failure, sizeof v.failure, "%s", what);
  if (p->check[0]) {
    v.name = v.check = p->check;
    v.first.op = HY_OP_NONE;
  } else {
    hy__case* c;
    v.name = hy_op_name(p->key.op);
    if (hy__case_create(&c) == HY_OK) {
      if (hy__case_make(c, &p->key) == HY_OK) hy_call_describe(&c->call, v.call, sizeof v.call);
      hy__case_destroy(c);
    }
  }
  pass_on(w, &v, p->check[0] != 0);
}

// One child, from p->first on. `*done`: no other is needed.
static hy_status run_one(watch* w, char* const* argv, int* code, bool* done) {
  hy__verify_progress* p = w->shared;
  int how = 0;
  char what[700];
  p->started = false;
  p->at = p->first;
  pid_t child = start(w, argv);
  if (child < 0)
    return hy_fail(HY_OUT_OF_MEMORY, "no process for conformance; --no-fork does without");
  bool hangs = wait_for(w, child, &how);
  w->hangs += hangs;
  w->summary->declared = p->declared;
  w->summary->declares_nothing = p->declares_nothing;
  describe_end(w, how, hangs, what, sizeof what);
  if (!p->started) {
    *done = true;
    if (!hangs && WIFEXITED(how) && WEXITSTATUS(how) == NOT_STARTED)
      return hy_fail(HY_IO, "this program cannot be started again; --no-fork does without");
    if (!hangs && WIFEXITED(how)) *code = WEXITSTATUS(how);
    return *code >= 0 ? HY_OK : hy_fail(HY_DEVICE_FAILED, "the device was opened, and %s", what);
  }
  bool clean = !hangs && WIFEXITED(how) && p->ended;
  *done = p->ended;
  if (clean) return HY_OK;
  if (p->ended) snprintf(p->check, sizeof p->check, "closing");
  accuse(w, what);
  p->stopped[0] = 0;
  p->first = p->at + 1;
  if (w->hangs < MOST_HANGS || *done) return HY_OK;
  *done = true;
  snprintf(p->check, sizeof p->check, "the rest");
  accuse(w, "not tried, because too much before it did not end");
  return HY_OK;
}

hy_status hy__verify_in_children(hy__verify_options* options, char* const* argv, int seconds,
                                 hy__verify_summary* summary, int* code) {
  watch w = {.options = options, .summary = summary, .seconds = seconds};
  memset(summary, 0, sizeof *summary);
  *code = -1;
  w.file = memfd_create("halyard_verify", 0);
  void* at = MAP_FAILED;
  if (w.file >= 0 && ftruncate(w.file, sizeof *w.shared) == 0)
    at = mmap(NULL, sizeof *w.shared, PROT_READ | PROT_WRITE, MAP_SHARED, w.file, 0);
  if (at == MAP_FAILED) {
    if (w.file >= 0) close(w.file);
    return hy_fail(HY_OUT_OF_MEMORY, "no shared memory for conformance; --no-fork does without");
  }
  w.shared = at;
  options->selector = w.shared->selector;
  options->backend = w.shared->backend;
  bool done = false;
  hy_status status = HY_OK;
  while (status == HY_OK && !done) status = run_one(&w, argv, code, &done);
  close(w.file);
  // The names in `options` live here: the mapping stays until the process ends.
  return status;
}

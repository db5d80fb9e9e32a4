// The cpu's thread pool: every task once, from many callers, inside tasks, after fork, at rest.
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cpu/runtime/thread_pool.h"

enum { TASKS = 1000, CALLERS = 4, ROUNDS = 200 };

static void count_task(void* context, int64_t i) {
  atomic_fetch_add(&((atomic_int*)context)[i], 1);
}

static void run_and_check_some(int tasks) {
  atomic_int counts[TASKS];
  for (int i = 0; i < TASKS; i++) atomic_init(&counts[i], 0);
  hy__pool_run(count_task, counts, tasks);
  for (int i = 0; i < TASKS; i++) assert_int_equal(atomic_load(&counts[i]), i < tasks);
}

static void run_and_check(void) {
  run_and_check_some(TASKS);
}

static void runs_every_task_once(void** state) {
  (void)state;
  for (int threads = 1; threads <= 5; threads += 2) {
    hy__pool_set_threads(threads);
    for (int i = 0; i < ROUNDS; i++) run_and_check();
    for (int i = 0; i < ROUNDS; i++) run_and_check_some(i % 16);
  }
  hy__pool_set_threads(2);
  hy__pool_run(count_task, NULL, 0);
}

// The end of a run and the order to stop may come so close together that a worker sees only the
// latter's generation.
static void stops_right_after_a_run(void** state) {
  (void)state;
  enum { STOPS = 4000 };
  for (int i = 0; i < STOPS; i++) {
    hy__pool_set_threads(8);
    run_and_check_some(2 + i % 7);
    hy__pool_set_threads(1);
  }
}

static void* call_pool(void* wrong) {
  for (int round = 0; round < ROUNDS; round++) {
    atomic_int counts[TASKS];
    for (int i = 0; i < TASKS; i++) atomic_init(&counts[i], 0);
    hy__pool_run(count_task, counts, TASKS);
    for (int i = 0; i < TASKS; i++) {
      if (atomic_load(&counts[i]) != 1) atomic_fetch_add((atomic_int*)wrong, 1);
    }
  }
  return NULL;
}

static void serves_several_callers(void** state) {
  (void)state;
  atomic_int wrong = 0;
  pthread_t callers[CALLERS];
  for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call_pool, &wrong);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
}

static void nested_task(void* context, int64_t i) {
  (void)i;
  hy__pool_run(count_task, context, TASKS);
}

static void nests_serially(void** state) {
  (void)state;
  atomic_int counts[TASKS];
  for (int i = 0; i < TASKS; i++) atomic_init(&counts[i], 0);
  hy__pool_run(nested_task, counts, 3);
  for (int i = 0; i < TASKS; i++) assert_int_equal(atomic_load(&counts[i]), 3);
}

typedef struct siege {
  atomic_int done;
  bool relieved;
} siege;

// The first task ends when all others have.
static void besieged_task(void* context, int64_t i) {
  siege* s = context;
  enum { TRIES = 6000, PAUSE = 10000 };
  for (int t = 0; i == 0 && t < TRIES && atomic_load(&s->done) < TASKS - 1; t++) usleep(PAUSE);
  if (i == 0) s->relieved = atomic_load(&s->done) == TASKS - 1;
  if (i > 0) atomic_fetch_add(&s->done, 1);
}

// A thread that is held up keeps nobody waiting for the tasks that are beside its own.
static void takes_over_from_the_slow(void** state) {
  (void)state;
  siege s = {0};
  hy__pool_set_threads(2);
  hy__pool_run(besieged_task, &s, TASKS);
  assert_true(s.relieved);
}

static void looks_ahead(void** state) {
  (void)state;
  enum { BYTES = 1 << 20 };
  char* gone = malloc(BYTES);
  hy__prefetch_range readings[] = {{gone, NULL, BYTES, 0},
                                   {gone, gone, BYTES, BYTES / 4},
                                   {NULL, NULL, 0, 0},
                                   {gone, gone, 1, BYTES},
                                   {(void*)64, NULL, SIZE_MAX, 0}};
  free(gone);
  for (int round = 0; round < ROUNDS; round++) {
    hy__pool_prefetch(&readings[round % 5]);
    run_and_check_some(7);
  }
}

static void works_after_fork(void** state) {
  (void)state;
#if defined(__SANITIZE_THREAD__)
  print_message("skipped: ThreadSanitizer does not allow threads after a fork\n");
  skip();
#endif
  run_and_check();
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    atomic_int counts[TASKS];
    for (int i = 0; i < TASKS; i++) atomic_init(&counts[i], 0);
    hy__pool_run(count_task, counts, TASKS);
    for (int i = 0; i < TASKS; i++) {
      if (atomic_load(&counts[i]) != 1) _exit(1);
    }
    hy__pool_stop();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The threads of this process but the calling one, and how many of them sleep.
static int count_sleepers(int* others) {
  int sleepers = 0;
  *others = 0;
  char self[64] = "";
  if (readlink("/proc/thread-self", self, sizeof self - 1) < 0) return -1;
  const char* own = strrchr(self, '/') + 1;
  DIR* tasks = opendir("/proc/self/task");
  if (!tasks) return -1;
  for (struct dirent* entry; (entry = readdir(tasks));) {
    if (entry->d_name[0] == '.' || strcmp(entry->d_name, own) == 0) continue;
    char path[300], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
    FILE* file = fopen(path, "r");
    if (!file) continue;  // it has just ended
    const char* name_end = fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    fclose(file);
    if (!name_end) continue;
    ++*others;
    sleepers += name_end[2] == 'S';
  }
  closedir(tasks);
  return sleepers;
}

// A thread that spins never sleeps, one that waits does so as soon as the system lets it; how long
// that takes does not matter.
static void sleeps_when_idle(void** state) {
  (void)state;
  enum { WORKERS = 2, TRIES = 6000, PAUSE = 10000 };
  hy__pool_set_threads(WORKERS + 1);
  run_and_check();
  int others = 0, sleepers = count_sleepers(&others);
  if (sleepers < 0) {
    print_message("skipped: there is no /proc to read\n");
    skip();
  }
  for (int i = 0; i < TRIES && sleepers < others; i++) {
    usleep(PAUSE);
    sleepers = count_sleepers(&others);
  }
  assert_true(others >= WORKERS);
  assert_int_equal(sleepers, others);
  hy__pool_set_threads(2);
}

static void stops_and_starts_again(void** state) {
  (void)state;
  hy__pool_stop();
  run_and_check();
  hy__pool_stop();
  hy__pool_stop();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(runs_every_task_once),     cmocka_unit_test(stops_right_after_a_run),
      cmocka_unit_test(serves_several_callers),   cmocka_unit_test(nests_serially),
      cmocka_unit_test(works_after_fork),         cmocka_unit_test(looks_ahead),
      cmocka_unit_test(takes_over_from_the_slow), cmocka_unit_test(sleeps_when_idle),
      cmocka_unit_test(stops_and_starts_again),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}

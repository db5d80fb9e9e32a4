// The cpu's thread pool: every task once, from many callers, inside tasks, after fork, at rest.
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "backends/cpu/pool.h"

enum { TASKS = 1000, CALLERS = 4, ROUNDS = 200 };

static void count_task(void* context, int64_t i) {
  atomic_fetch_add(&((atomic_int*)context)[i], 1);
}

static void run_and_check(void) {
  atomic_int counts[TASKS];
  for (int i = 0; i < TASKS; i++) atomic_init(&counts[i], 0);
  hy__pool_run(count_task, counts, TASKS);
  for (int i = 0; i < TASKS; i++) assert_int_equal(atomic_load(&counts[i]), 1);
}

static void runs_every_task_once(void** state) {
  (void)state;
  for (int threads = 1; threads <= 5; threads += 2) {
    hy__pool_set_threads(threads);
    for (int i = 0; i < ROUNDS; i++) run_and_check();
  }
  hy__pool_set_threads(2);
  hy__pool_run(count_task, NULL, 0);
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

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec;
}

// Sleeping threads use none of the processor however long the sleep is: a tenth of the time would
// be a spinning one.
static void rests_when_idle(void** state) {
  (void)state;
  run_and_check();
  usleep(50000);
  double before = cpu_seconds();
  usleep(300000);
  assert_true(cpu_seconds() - before < 0.03);
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
      cmocka_unit_test(runs_every_task_once), cmocka_unit_test(serves_several_callers),
      cmocka_unit_test(nests_serially),       cmocka_unit_test(works_after_fork),
      cmocka_unit_test(rests_when_idle),      cmocka_unit_test(stops_and_starts_again),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}

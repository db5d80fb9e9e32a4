// Log lines and trace files.
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "core/internal.h"
#include "halyard/ops.h"
#include "halyard/trace.h"
#include "support/check.h"

static char folder[] = "/tmp/halyard-trace-XXXXXX";
static char lines[8192];
static hy_device device = {.selector = "cuda:0"}, host = {.selector = "cpu:0", .is_host = true};

static void collect(void* user, int level, const char* line) {
  (void)user;
  size_t used = strlen(lines);
  snprintf(lines + used, sizeof lines - used, "%d %s\n", level, line);
}

static int setup(void** state) {
  (void)state;
  unsetenv("HALYARD_LOG");
  unsetenv("HALYARD_TRACE");
  hy_set_log_level(-1);
  lines[0] = 0;
  strcpy(folder + sizeof folder - 7, "XXXXXX");
  return mkdtemp(folder) ? 0 : 1;
}

static int teardown(void** state) {
  (void)state;
  hy_trace_stop();
  hy_shutdown();
  hy_set_log_sink(NULL, NULL);
  unsetenv("HALYARD_LOG");
  unsetenv("HALYARD_TRACE");
  hy_set_log_level(-1);
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static const char* inside(const char* name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

// The file's text, in a buffer that the next call reuses; NULL when there is no file.
static const char* text_of(const char* name) {
  static char text[1 << 16];
  FILE* f = fopen(inside(name), "r");
  if (!f) return NULL;
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  return text;
}

static void record(hy__trace_kind kind, const hy_device* on, const char* reason) {
  int64_t begin = hy__trace_begin();
  if (!begin) return;
  hy__trace_event event = {.kind = kind,
                           .name = "add",
                           .detail = "f32[2, 3]",
                           .device = on,
                           .provider = "cublas",
                           .reason = reason,
                           .bytes = 24};
  hy__trace_end(begin, &event);
}

static void silent_unless_asked(void** state) {
  (void)state;
  hy_set_log_sink(collect, NULL);
  hy__log(1, "a warning");
  assert_int_equal(hy__trace_begin(), 0);
  assert_string_equal(lines, "");
}

static void levels(void** state) {
  (void)state;
  hy_set_log_sink(collect, NULL);
  setenv("HALYARD_LOG", "2", 1);
  hy_set_log_level(-1);
  hy__log(1, "one %d", 1);
  hy__log(2, "two");
  hy__log(3, "three");
  assert_string_equal(lines, "1 halyard: one 1\n2 halyard: two\n");
  lines[0] = 0;
  hy_set_log_level(0);
  hy__log(1, "one");
  assert_string_equal(lines, "");
  hy_set_log_level(99);
  assert_int_equal(hy__log_level(), 3);
  setenv("HALYARD_LOG", "loud", 1);
  hy_set_log_level(-1);
  assert_int_equal(hy__log_level(), 1);
  assert_non_null(strstr(lines, "HALYARD_LOG is \"loud\""));
}

static void events_are_tagged(void** state) {
  (void)state;
  hy_set_log_sink(collect, NULL);
  hy_set_log_level(3);
  record(HY__TRACE_OP, &device, NULL);
  record(HY__TRACE_OP, &host, NULL);
  record(HY__TRACE_FALLBACK, &device, "the kernel lacks this data type");
  record(HY__TRACE_COPY, &device, NULL);
  record(HY__TRACE_VIEW, NULL, NULL);
  const char* at = lines;
  const char* starts[] = {"3 [NPU] add f32[2, 3] cuda:0 cublas 24 B ",
                          "3 [CPU] add f32[2, 3] cpu:0 ", "3 [CPU] add f32[2, 3] cuda:0 ",
                          "3 [COPY] add f32[2, 3] cuda:0 ", "3 [VIEW] add f32[2, 3] cublas "};
  for (int i = 0; i < 5; i++) {
    if (strncmp(at, starts[i], strlen(starts[i]))) fail_msg("%s", at);
    assert_non_null(strstr(at, " us"));
    if (i == 2) assert_non_null(strstr(at, "us (fallback: the kernel lacks this data type)\n"));
    at = strchr(at, '\n') + 1;
  }
  hy_set_log_level(2);
  assert_int_equal(hy__trace_begin(), 0);
}

static void the_library_tells_what_it_does(void** state) {
  (void)state;
  hy_set_log_sink(collect, NULL);
  hy_set_log_level(3);
  hy_device* cpu;
  hy_stream* stream;
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_stream_default(cpu, &stream));
  float a[2] = {1, 2}, b[2];
  hy_tensor x, y;
  CHECK_OK(hy_tensor_init(&x, a, HY_F32, 2, (int64_t[]){1, 2}));
  CHECK_OK(hy_tensor_init(&y, b, HY_F32, 2, (int64_t[]){1, 2}));
  CHECK_OK(hy_add(stream, &y, &x, &x, hy_int(1)));
  CHECK_OK(hy_memcpy(stream, a, b, sizeof a, HY_COPY_HOST_TO_HOST));
  CHECK_OK(hy_transpose(&y, &x, 0, 1));
  const char* add = strstr(lines, "3 [CPU] add(f32[1, 2], f32[1, 2]; alpha=1) -> f32[1, 2] cpu:0 ");
  const char* copy = strstr(lines, "3 [COPY] copy host to host cpu:0 8 B ");
  const char* view = strstr(lines, "3 [VIEW] transpose f32[2, 1] ");
  if (!add || !copy || !view) fail_msg("%s", lines);
  assert_true(add < copy && copy < view);
}

// What the event writes to standard error while that is `file`.
static void through(int file, char* text, size_t size, int from) {
  int saved = dup(STDERR_FILENO);
  dup2(file, STDERR_FILENO);
  record(HY__TRACE_OP, &device, NULL);
  dup2(saved, STDERR_FILENO);
  close(saved);
  ssize_t n = read(from, text, size - 1);
  text[n > 0 ? n : 0] = 0;
}

static void colours_only_on_a_terminal(void** state) {
  (void)state;
  unsetenv("NO_COLOR");
  hy_set_log_level(3);
  char text[512];
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  through(ends[1], text, sizeof text, ends[0]);
  close(ends[0]);
  close(ends[1]);
  assert_int_equal(strncmp(text, "[NPU] add", 9), 0);

  int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) || unlockpt(master)) {
    print_message("no pseudo terminal can be had here\n");
    skip();
  }
  int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
  assert_true(terminal >= 0);
  through(terminal, text, sizeof text, master);
  assert_int_equal(strncmp(text, "\033[32m[NPU] \033[0madd", 18), 0);
  setenv("NO_COLOR", "1", 1);
  through(terminal, text, sizeof text, master);
  assert_int_equal(strncmp(text, "[NPU] add", 9), 0);
  unsetenv("NO_COLOR");
  close(terminal);
  close(master);
}

static void writes_a_trace(void** state) {
  (void)state;
  record(HY__TRACE_OP, &device, NULL);  // before it starts
  char path[128];
  strcpy(path, inside("t.json"));
  CHECK_OK(hy_trace_start(path));
  assert_null(text_of("t.json"));
  CHECK_FAILS(HY_INVALID_ARGUMENT, path, hy_trace_start(inside("u.json")));
  record(HY__TRACE_OP, &device, NULL);
  record(HY__TRACE_FALLBACK, &device, "a \"quoted\\ \n reason\x01");
  CHECK_OK(hy_trace_stop());
  CHECK_OK(hy_trace_stop());
  record(HY__TRACE_OP, &device, NULL);
  const char* text = text_of("t.json");
  assert_non_null(text);
  assert_int_equal(
      strncmp(text, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"X\",", 50), 0);
  assert_non_null(
      strstr(text,
             "\"cat\":\"op\",\"name\":\"add\",\"args\":{\"bytes\":24,\"device\":\"cuda:0\","
             "\"provider\":\"cublas\",\"tensors\":\"f32[2, 3]\"}},\n{"));
  assert_non_null(strstr(text, "\"reason\":\"a \\\"quoted\\\\ \\u000a reason\\u0001\"}}\n]}\n"));
  // A trace of nothing is valid too, and replaces the file of before.
  CHECK_OK(hy_trace_start(path));
  CHECK_OK(hy_trace_stop());
  assert_string_equal(text_of("t.json"), "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n");
}

static void refuses_bad_paths(void** state) {
  (void)state;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "path", hy_trace_start(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "path", hy_trace_start(""));
  CHECK_FAILS(HY_IO, "/nonexistent/x.json", hy_trace_start("/nonexistent/x.json"));
  CHECK_OK(hy_trace_start(inside("t.json")));
  // Something that cannot be replaced by a file takes its place.
  char command[128];
  snprintf(command, sizeof command, "mkdir -p %s/t.json/x", folder);
  assert_int_equal(system(command), 0);
  CHECK_FAILS(HY_IO, "t.json", hy_trace_stop());
  snprintf(command, sizeof command, "test -z \"$(ls %s | grep part)\"", folder);
  assert_int_equal(system(command), 0);
}

static void starts_by_environment(void** state) {
  (void)state;
  setenv("HALYARD_TRACE", inside("env.json"), 1);
  CHECK_OK(hy_init());
  record(HY__TRACE_COPY, &device, NULL);
  hy_shutdown();
  assert_non_null(strstr(text_of("env.json"), "\"cat\":\"copy\""));
  setenv("HALYARD_TRACE", "/nonexistent/x.json", 1);
  CHECK_FAILS(HY_IO, "/nonexistent/x.json", hy_init());
  unsetenv("HALYARD_TRACE");
  CHECK_OK(hy_init());
}

static void* record_many(void* unused) {
  for (int i = 0; i < 100; i++) record(HY__TRACE_OP, &device, NULL);
  return unused;
}

static void many_threads_write_whole_events(void** state) {
  (void)state;
  hy_set_log_sink(collect, NULL);
  CHECK_OK(hy_trace_start(inside("m.json")));
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, record_many, NULL), 0);
  hy_set_log_level(3);
  hy_set_log_level(0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_OK(hy_trace_stop());
  const char* text = text_of("m.json");
  int events = 0;
  for (const char* at = text; (at = strstr(at, "\n{\"ph\":\"X\"")); at++) events++;
  assert_int_equal(events, 400);
}

static void survives_lack_of_memory(void** state) {
  (void)state;
  int n = 1;
  for (; n < 10; n++) {
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, n);
    hy_status status = hy_trace_start(inside("t.json"));
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
    if (status == HY_OK) break;
    assert_int_equal(status, HY_OUT_OF_MEMORY);
  }
  assert_int_equal(n, 3);
  CHECK_OK(hy_trace_stop());
}

static void a_folder_is_no_trace_file(void** state) {
  (void)state;
  CHECK_FAILS(HY_IO, "is a folder", hy_trace_start(folder));
  CHECK_FAILS(HY_IO, "is a folder", hy_trace_start(inside("new/")));
  CHECK_OK(hy_trace_start(inside("t.json")));
}

// The child of a fork neither writes nor ends its parent's trace.
static void a_fork_leaves_the_trace_alone(void** state) {
  (void)state;
  CHECK_OK(hy_trace_start(inside("t.json")));
  hy__trace_end(hy__trace_begin(), &(hy__trace_event){.name = "before", .device = &device});
  pid_t child = fork();
  if (child == 0) {
    bool watched = hy__trace_begin() != 0;
    hy__trace_end(1, &(hy__trace_event){.name = "child", .device = &device});
    hy_status stopped = hy_trace_stop();
    // One of its own is fine.
    bool own = hy_trace_start(inside("child.json")) == HY_OK && hy_trace_stop() == HY_OK;
    _exit(!watched && stopped == HY_OK && own ? 0 : 1);
  }
  int code;
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_int_equal(code, 0);
  assert_int_not_equal(access(inside("t.json"), F_OK), 0);
  hy__trace_end(hy__trace_begin(), &(hy__trace_event){.name = "after", .device = &device});
  CHECK_OK(hy_trace_stop());
  char text[4096];
  FILE* f = fopen(inside("t.json"), "r");
  assert_non_null(f);
  text[fread(text, 1, sizeof text - 1, f)] = 0;
  fclose(f);
  const char* before = strstr(text, "\"before\"");
  assert_non_null(before);
  assert_null(strstr(before + 1, "\"before\""));
  assert_non_null(strstr(text, "\"after\""));
  assert_null(strstr(text, "\"child\""));
}

// What others say cannot steer the terminal.
static void escapes_are_taken_out(void** state) {
  (void)state;
  hy_set_log_sink(collect, NULL);
  hy_set_log_level(1);
  hy__log(1,
          "a\033]52;c;eA==\007b\xc2\x9b"
          "2Jc\n\td");
  assert_null(strchr(lines, '\033'));
  assert_null(strchr(lines, '\007'));
  assert_null(strchr(lines, '\xc2'));
  assert_non_null(strstr(lines, "2Jc\n\td"));
  hy_fail(HY_IO, "%s", "\033[2Jgone \xc3\xa9");
  assert_string_equal(hy_last_error(), "?[2Jgone \xc3\xa9");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(silent_unless_asked),
      TEST(levels),
      TEST(events_are_tagged),
      TEST(the_library_tells_what_it_does),
      TEST(colours_only_on_a_terminal),
      TEST(writes_a_trace),
      TEST(refuses_bad_paths),
      TEST(starts_by_environment),
      TEST(many_threads_write_whole_events),
      TEST(survives_lack_of_memory),
      TEST(a_folder_is_no_trace_file),
      TEST(a_fork_leaves_the_trace_alone),
      TEST(escapes_are_taken_out),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

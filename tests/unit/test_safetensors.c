// Weights on disk: what is written is read back, and damaged files are refused by name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "model/safetensors.h"
#include "support/check.h"

static char folder[64];

static const char* path_of(const char* name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void put(const char* name, const void* data, size_t size) {
  FILE* file = fopen(path_of(name), "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, size, file), size);
  fclose(file);
}

static void put_with_header(const char* name, const char* header, size_t data) {
  uint8_t bytes[1024] = {(uint8_t)strlen(header)};
  memcpy(bytes + 8, header, strlen(header));
  put(name, bytes, 8 + strlen(header) + data);
}

static void reads_back_what_it_wrote(void** state) {
  (void)state;
  float a[6] = {1, 2, 3, 4, 5, 6};
  uint16_t b[4] = {1, 2, 3, 4};
  hy__weight list[2] = {{.name = "layer.b"}, {.name = "layer.\"a\""}};
  CHECK_OK(hy_tensor_init(&list[0].tensor, b, HY_BF16, 1, (int64_t[]){4}));
  CHECK_OK(hy_tensor_init(&list[1].tensor, a, HY_F32, 2, (int64_t[]){2, 3}));
  CHECK_OK(hy__weights_save(path_of("model.safetensors"), list, 2));
  assert_false(hy__file_exists(path_of("model.safetensors.part")));
  hy__weights* weights;
  CHECK_OK(hy__weights_open(folder, &weights));
  assert_int_equal(hy__weights_count(weights), 2);
  const hy__weight* found = hy__weights_find(weights, "layer.\"a\"");
  assert_non_null(found);
  assert_int_equal(found->tensor.ndim, 2);
  assert_memory_equal(found->tensor.data, a, sizeof a);
  found = hy__weights_find(weights, "layer.b");
  assert_int_equal(found->tensor.dtype, HY_BF16);
  assert_memory_equal(found->tensor.data, b, sizeof b);
  assert_null(hy__weights_find(weights, "layer.c"));
  hy__weights_close(weights);
  unlink(path_of("model.safetensors"));
}

static void reads_shards_by_their_index(void** state) {
  (void)state;
  put_with_header("one.safetensors",
                  "{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
  put_with_header("two.safetensors",
                  "{\"y\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4);
  const char* index = "{\"weight_map\":{\"x\":\"one.safetensors\",\"y\":\"two.safetensors\"}}";
  put("model.safetensors.index.json", index, strlen(index));
  hy__weights* weights;
  CHECK_OK(hy__weights_open(folder, &weights));
  assert_int_equal(hy__weights_count(weights), 2);
  hy__weights_close(weights);
  const char* missing = "{\"weight_map\":{\"z\":\"one.safetensors\"}}";
  put("model.safetensors.index.json", missing, strlen(missing));
  CHECK_FAILS(HY_FORMAT, "z should be in one.safetensors", hy__weights_open(folder, &weights));
  const char* outside = "{\"weight_map\":{\"x\":\"../one.safetensors\"}}";
  put("model.safetensors.index.json", outside, strlen(outside));
  CHECK_FAILS(HY_FORMAT, "not a plain name", hy__weights_open(folder, &weights));
  unlink(path_of("model.safetensors.index.json"));
  CHECK_FAILS(HY_IO, "neither", hy__weights_open(folder, &weights));
}

static void refuses_damaged_files(void** state) {
  (void)state;
  const struct {
    const char *header, *message;
    size_t data;
  } cases[] = {
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", "cut off", 8},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,12]}}", "takes 16 bytes", 16},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", "whole number", 16},
      {"{\"x\":{\"dtype\":\"Q9\",\"shape\":[4],\"data_offsets\":[0,16]}}", "Q9", 16},
      {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"y\":{\"dtype\":\"U8\","
       "\"shape\":[4],\"data_offsets\":[2,6]}}",
       "overlap", 8},
      {"{\"x\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,16]}}",
       "overflows", 16},
      {"{\"x\":{\"dtype\":\"F32\"}}", "lacks", 0},
      {"[1]", "no JSON object", 0},
      {"{\"x\":", "line 1, column 6", 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    hy__weights* weights;
    put_with_header("bad.safetensors", cases[i].header, cases[i].data);
    CHECK_FAILS(HY_FORMAT, cases[i].message,
                hy__weights_open_file(path_of("bad.safetensors"), &weights));
    assert_null(weights);
  }
  hy__weights* weights;
  put("bad.safetensors", "abc", 3);
  CHECK_FAILS(HY_FORMAT, "too few", hy__weights_open_file(path_of("bad.safetensors"), &weights));
  put("bad.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7f....", 12);
  CHECK_FAILS(HY_FORMAT, "does not fit",
              hy__weights_open_file(path_of("bad.safetensors"), &weights));
}

static void leaves_the_old_file_when_writing_fails(void** state) {
  (void)state;
  put("keep.safetensors", "old", 3);
  hy__weight list = {.name = "x"};
  CHECK_OK(hy_tensor_init(&list.tensor, NULL, HY_I4, 1, (int64_t[]){0}));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "cannot be saved",
              hy__weights_save(path_of("keep.safetensors"), &list, 1));
  char* text;
  size_t size;
  CHECK_OK(hy__read_file(path_of("keep.safetensors"), 100, &text, &size));
  assert_string_equal(text, "old");
  free(text);
  CHECK_FAILS(HY_FORMAT, "more than the 2",
              hy__read_file(path_of("keep.safetensors"), 2, &text, &size));
}

static int make_folder(void** state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/halyard-test-XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void** state) {
  (void)state;
  const char* names[] = {"one.safetensors", "two.safetensors", "bad.safetensors",
                         "keep.safetensors"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unlink(path_of(names[i]));
  return rmdir(folder);
}

// Opening a FIFO waits for its other end: it is refused before anybody waits, to read and to write.
static void a_fifo_is_no_file(void** state) {
  (void)state;
  hy__weights* weights;
  char* text;
  size_t size;
  unlink(path_of("bad.safetensors"));
  assert_int_equal(mkfifo(path_of("bad.safetensors"), 0600), 0);
  CHECK_FAILS(HY_IO, "not a plain file",
              hy__weights_open_file(path_of("bad.safetensors"), &weights));
  CHECK_FAILS(HY_IO, "not a plain file",
              hy__read_file(path_of("bad.safetensors"), 100, &text, &size));
  char part[160];
  snprintf(part, sizeof part, "%s.part", path_of("one.safetensors"));
  unlink(part);
  assert_int_equal(mkfifo(part, 0600), 0);
  hy__writer writer;
  CHECK_FAILS(HY_IO, "not a plain file", hy__write_begin(path_of("one.safetensors"), &writer));
  unlink(part);
  // Nor does a link lead the writing elsewhere.
  assert_int_equal(symlink("/tmp/halyard-elsewhere", part), 0);
  CHECK_FAILS(HY_IO, "cannot be written", hy__write_begin(path_of("one.safetensors"), &writer));
  unlink(part);
}

// A file beyond the system's limit is an error that leaves nothing, not the end of the program.
static void a_limit_of_size_is_an_error(void** state) {
  (void)state;
  pid_t child = fork();
  if (child == 0) {
    struct rlimit limit = {4096, 4096};
    hy__writer writer;
    static char bytes[100000];
    bool good = setrlimit(RLIMIT_FSIZE, &limit) == 0;
    good = good && hy__write_begin(path_of("keep.safetensors"), &writer) == HY_OK;
    hy_status status = HY_OK;
    for (int i = 0; good && i < 10 && status == HY_OK; i++)
      status = hy__write(&writer, bytes, sizeof bytes);
    if (status == HY_OK)
      status = hy__write_commit(&writer);
    else
      hy__write_abandon(&writer);
    _exit(good && status == HY_IO ? 0 : 1);
  }
  int code;
  assert_int_equal(waitpid(child, &code, 0), child);
  assert_int_equal(code, 0);
  char part[160];
  snprintf(part, sizeof part, "%s.part", path_of("keep.safetensors"));
  assert_int_not_equal(access(part, F_OK), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reads_back_what_it_wrote),
      cmocka_unit_test(reads_shards_by_their_index),
      cmocka_unit_test(refuses_damaged_files),
      cmocka_unit_test(leaves_the_old_file_when_writing_fails),
      cmocka_unit_test(a_fifo_is_no_file),
      cmocka_unit_test(a_limit_of_size_is_an_error),
  };
  return cmocka_run_group_tests_name("safetensors", tests, make_folder, remove_folder);
}

// A folder of files for a fuzz target, in memory where the system has such a place, and gone with
// the process.
#ifndef HALYARD_TESTS_FUZZ_FOLDER_H_
#define HALYARD_TESTS_FUZZ_FOLDER_H_

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char fuzz_folder[64];

static inline const char* fuzz_path(const char* name) {
  static char path[384];
  snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
  return path;
}

static void fuzz_remove_folder(void) {
  DIR* folder = opendir(fuzz_folder);
  for (struct dirent* e; folder && (e = readdir(folder));) unlink(fuzz_path(e->d_name));
  if (folder) closedir(folder);
  rmdir(fuzz_folder);
}

static inline void fuzz_make_folder(void) {
  snprintf(fuzz_folder, sizeof fuzz_folder, "%s/halyard-fuzz-XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (!mkdtemp(fuzz_folder)) __builtin_trap();
  atexit(fuzz_remove_folder);
}

// Files keep one time: what was made of a file still fits it after it has been put back.
static inline void fuzz_write(const char* name, const void* bytes, size_t size) {
  static const struct timespec times[2] = {{1, 0}, {1, 0}};
  FILE* file = fopen(fuzz_path(name), "wb");
  if (!file || fwrite(bytes, 1, size, file) != size) __builtin_trap();
  if (fflush(file) != 0 || futimens(fileno(file), times) != 0) __builtin_trap();
  fclose(file);
}

static inline size_t fuzz_read(const char* name, void* bytes, size_t capacity) {
  FILE* file = fopen(fuzz_path(name), "rb");
  if (!file) __builtin_trap();
  size_t size = fread(bytes, 1, capacity, file);
  fclose(file);
  if (size == capacity) __builtin_trap();
  return size;
}

#endif  // HALYARD_TESTS_FUZZ_FOLDER_H_

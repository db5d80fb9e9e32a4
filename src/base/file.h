// Files: read whole or mapped, and written so that a reader sees the old one or the new one, never
// a part.
#ifndef HALYARD_BASE_FILE_H_
#define HALYARD_BASE_FILE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "halyard/status.h"

typedef struct hy__mapped {
  const uint8_t* data;
  size_t size;
} hy__mapped;

// Opens a plain file to read; the caller closes it. HY_IO for anything else that has a name, such
// as a folder or a FIFO, without waiting for it.
hy_status hy__open_file(const char* path, int* fd, size_t* size);

// Read-only. HY_IO where the file is not there or cannot be read; an empty file maps to size 0.
hy_status hy__map_file(const char* path, hy__mapped* mapped);
void hy__unmap_file(hy__mapped* mapped);

// The whole file, terminated by a zero byte that `size` does not count. At most `limit` bytes, else
// HY_FORMAT.
hy_status hy__read_file(const char* path, size_t limit, char** text, size_t* size);

// A file being written under "<path>.part": commit puts it in place, abandon removes it. The data
// is on the disk before the name changes, so that a crash leaves the old file.
typedef struct hy__writer {
  FILE* file;
  char path[4096], part[4096 + 8];
} hy__writer;
hy_status hy__write_begin(const char* path, hy__writer* writer);
hy_status hy__write(hy__writer* writer, const void* data, size_t size);
hy_status hy__write_commit(hy__writer* writer);  // on failure the part is gone
void hy__write_abandon(hy__writer* writer);

// "folder/name"; HY_INVALID_ARGUMENT where it does not fit.
hy_status hy__join_path(const char* folder, const char* name, char* path, size_t size);
bool hy__file_exists(const char* path);

#endif  // HALYARD_BASE_FILE_H_

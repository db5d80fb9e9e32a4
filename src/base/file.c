// Files: read whole or mapped; written beside and renamed.
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

static hy_status io_error(const char* path, const char* what) {
  return hy_fail(HY_IO, "%s: %s: %s", path, what, strerror(errno));
}

static hy_status open_file(const char* path, int* fd, size_t* size) {
  struct stat info;
  *fd = open(path, O_RDONLY | O_CLOEXEC);
  if (*fd < 0) return io_error(path, "cannot be opened");
  if (fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(*fd);
    return hy_fail(HY_IO, "%s: is not a plain file", path);
  }
  *size = (size_t)info.st_size;
  return HY_OK;
}

hy_status hy__map_file(const char* path, hy__mapped* mapped) {
  int fd;
  mapped->data = NULL;
  HY_TRY(open_file(path, &fd, &mapped->size));
  if (mapped->size > 0) {
    void* data = mmap(NULL, mapped->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      hy_status status = io_error(path, "cannot be mapped");
      close(fd);
      return status;
    }
    mapped->data = data;
  }
  close(fd);
  return HY_OK;
}

void hy__unmap_file(hy__mapped* mapped) {
  if (mapped->data) munmap((void*)(uintptr_t)mapped->data, mapped->size);
  mapped->data = NULL;
  mapped->size = 0;
}

hy_status hy__read_file(const char* path, size_t limit, char** text, size_t* size) {
  int fd;
  *text = NULL;
  HY_TRY(open_file(path, &fd, size));
  hy_status status = HY_OK;
  char* buffer = NULL;
  if (*size > limit) {
    status = hy_fail(HY_FORMAT, "%s: %zu bytes are more than the %zu that such a file may have",
                     path, *size, limit);
  } else if (!(buffer = hy__malloc(*size + 1))) {
    status = hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to read it", path);
  }
  for (size_t at = 0; status == HY_OK && at < *size;) {
    ssize_t n = read(fd, buffer + at, *size - at);
    if (n > 0)
      at += (size_t)n;
    else if (n == 0)
      status = hy_fail(HY_IO, "%s: ended while it was read", path);
    else if (errno != EINTR)
      status = io_error(path, "cannot be read");
  }
  close(fd);
  if (status != HY_OK) {
    hy__mfree(buffer);
    return status;
  }
  buffer[*size] = 0;
  *text = buffer;
  return HY_OK;
}

hy_status hy__write_begin(const char* path, hy__writer* writer) {
  writer->file = NULL;
  if (strlen(path) >= sizeof writer->path)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the path is too long", path);
  snprintf(writer->path, sizeof writer->path, "%s", path);
  snprintf(writer->part, sizeof writer->part, "%s.part", path);
  writer->file = fopen(writer->part, "wb");
  return writer->file ? HY_OK : io_error(writer->part, "cannot be written");
}

hy_status hy__write(hy__writer* writer, const void* data, size_t size) {
  if (size > 0 && fwrite(data, 1, size, writer->file) != size)
    return io_error(writer->part, "cannot be written");
  return HY_OK;
}

void hy__write_abandon(hy__writer* writer) {
  if (!writer->file) return;
  fclose(writer->file);
  writer->file = NULL;
  unlink(writer->part);
}

hy_status hy__write_commit(hy__writer* writer) {
  if (fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0) {
    hy_status status = io_error(writer->part, "cannot be written");
    hy__write_abandon(writer);
    return status;
  }
  int closed = fclose(writer->file);
  writer->file = NULL;
  if (closed == 0 && rename(writer->part, writer->path) == 0) return HY_OK;
  hy_status status = io_error(writer->path, "cannot be put in place");
  unlink(writer->part);
  return status;
}

hy_status hy__join_path(const char* folder, const char* name, char* path, size_t size) {
  int n = snprintf(path, size, "%s/%s", folder, name);
  if (n < 0 || (size_t)n >= size)
    return hy_fail(HY_INVALID_ARGUMENT, "%s/%s: the path is too long", folder, name);
  return HY_OK;
}

bool hy__file_exists(const char* path) {
  return access(path, F_OK) == 0;
}

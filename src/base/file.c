// Files: read whole or mapped; written beside and renamed.
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

static hy_status io_error(const char* path, const char* what) {
  return hy_fail(HY_IO, "%s: %s: %s", path, what, strerror(errno));
}

// Opening a FIFO waits for its other end, and a device may do anything: only then is it known what
// was opened, so that the open itself must not wait.
static hy_status open_plain(const char* path, int flags, int* fd, size_t* size) {
  struct stat info;
  *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (*fd < 0 && errno != ENXIO) {  // ENXIO: a FIFO that nobody reads
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    return io_error(path, writes ? "cannot be written" : "cannot be opened");
  }
  if (*fd < 0 || fstat(*fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    if (*fd >= 0) close(*fd);
    return hy_fail(HY_IO, "%s: is not a plain file", path);
  }
  if (size) *size = (size_t)info.st_size;
  return HY_OK;
}

hy_status hy__open_file(const char* path, int* fd, size_t* size) {
  return open_plain(path, O_RDONLY, fd, size);
}

hy_status hy__map_file(const char* path, hy__mapped* mapped) {
  int fd;
  mapped->data = NULL;
  HY_TRY(hy__open_file(path, &fd, &mapped->size));
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
  HY_TRY(hy__open_file(path, &fd, size));
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
  int fd;
  HY_TRY(open_plain(writer->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, &fd, NULL));
  writer->file = fdopen(fd, "wb");
  if (writer->file) return HY_OK;
  hy_status status = io_error(writer->part, "cannot be written");
  close(fd);
  unlink(writer->part);
  return status;
}

// A write beyond the size that the system allows would end the program, and leave the part. The
// signal is held back, and taken away where it came of our own write.
typedef struct size_signal {
  sigset_t before;
  bool was_pending;
} size_signal;

static size_signal hold_size_signal(void) {
  size_signal s = {.was_pending = false};
  sigset_t xfsz, pending;
  sigemptyset(&xfsz);
  sigaddset(&xfsz, SIGXFSZ);
  if (sigpending(&pending) == 0) s.was_pending = sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &xfsz, &s.before);
  return s;
}

static void release_size_signal(const size_signal* s) {
  int error = errno;
  sigset_t xfsz;
  sigemptyset(&xfsz);
  sigaddset(&xfsz, SIGXFSZ);
  const struct timespec no_time = {0, 0};
  if (!s->was_pending) sigtimedwait(&xfsz, NULL, &no_time);
  pthread_sigmask(SIG_SETMASK, &s->before, NULL);
  errno = error;
}

hy_status hy__write(hy__writer* writer, const void* data, size_t size) {
  size_signal held = hold_size_signal();
  bool written = size == 0 || fwrite(data, 1, size, writer->file) == size;
  release_size_signal(&held);
  return written ? HY_OK : io_error(writer->part, "cannot be written");
}

void hy__write_abandon(hy__writer* writer) {
  if (!writer->file) return;
  size_signal held = hold_size_signal();
  fclose(writer->file);
  release_size_signal(&held);
  writer->file = NULL;
  unlink(writer->part);
}

hy_status hy__write_commit(hy__writer* writer) {
  size_signal held = hold_size_signal();
  bool written = fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
  release_size_signal(&held);
  // What was written through the file itself may have failed before.
  if (!written || ferror(writer->file)) {
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

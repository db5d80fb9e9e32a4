// Output folders: a flock on the folder itself leaves no file behind.
#include "cli/out_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static hy_status refuse(out_folder* f, const char* why) {
  hy_status status = hy_fail(HY_IO, "%s: %s", f->path, why);
  out_folder_close(f, true);
  return status;
}

hy_status out_folder_open(const char* path, out_folder* f) {
  *f = (out_folder){.path = path, .lock = -1};
  f->made = mkdir(path, 0777) == 0;
  if (!f->made && errno != EEXIST)
    return hy_fail(HY_IO, "%s: cannot be made: %s", path, strerror(errno));
  f->lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f->lock < 0)
    return hy_fail(HY_IO, "%s: %s", path,
                   errno == ENOTDIR ? "is a file; give a folder" : strerror(errno));
  if (faccessat(f->lock, ".", W_OK | X_OK, 0) != 0)
    return refuse(f, "the folder cannot be written");
  // Where a file system has no locks there is none.
  if (flock(f->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return refuse(f, "another halyard is at work in this folder");
  return HY_OK;
}

void out_folder_close(out_folder* f, bool failed) {
  if (f->lock < 0) return;
  if (failed && f->made) rmdir(f->path);
  close(f->lock);
  f->lock = -1;
}

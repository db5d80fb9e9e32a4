// A folder that appears whole or not at all.
#include "cli/new_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/status.h"

hy_status new_folder_begin(const char* path, new_folder* folder) {
  if (strlen(path) >= sizeof folder->path)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the path is too long", path);
  snprintf(folder->path, sizeof folder->path, "%s", path);
  snprintf(folder->part, sizeof folder->part, "%s.part", path);
  if (access(path, F_OK) == 0 && rmdir(path) != 0)
    return hy_fail(HY_IO, "%s: is there already; choose another --out", path);
  if (mkdir(folder->part, 0777) != 0 && errno != EEXIST)
    return hy_fail(HY_IO, "%s: cannot be made: %s", folder->part, strerror(errno));
  return HY_OK;
}

void new_folder_abandon(const new_folder* folder) {
  DIR* files = opendir(folder->part);
  if (!files) return;
  for (struct dirent* file; (file = readdir(files));) {
    char path[sizeof folder->part + 256];
    if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0) continue;
    if (hy__join_path(folder->part, file->d_name, path, sizeof path) == HY_OK) unlink(path);
  }
  closedir(files);
  rmdir(folder->part);
}

hy_status new_folder_commit(new_folder* folder) {
  if (rename(folder->part, folder->path) == 0) return HY_OK;
  hy_status status =
      hy_fail(HY_IO, "%s: cannot be put in place: %s", folder->path, strerror(errno));
  new_folder_abandon(folder);
  return status;
}

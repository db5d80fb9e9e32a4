// The launcher's world: which rank of how many this process is, and a communicator of all of them.
//
// Nothing is started to find out: launchers say it in the environment. Where the backend has
// communicators of its own, rank 0 hands their id to the others by MPI, or by a file where the
// launcher is no mpirun. A launcher's TCP store (torchrun's) is not spoken here:
// docs/architecture.md.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "comm/mpi.h"

static const struct {
  const char *rank, *size;
} launchers[] = {
    {"HALYARD_RANK", "HALYARD_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},  // Open MPI
    {"PMI_RANK", "PMI_SIZE"},                          // MPICH and its kin
};
// The number among those of one machine: Open MPI; MPICH and Intel's; Slurm's srun; torchrun.
static const char* const local_ranks[] = {"HALYARD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                          "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"};

static hy_status number(const char* name, long least, long most, int* value) {
  const char* text = hy__env(name);
  char* end = NULL;
  long read = text ? strtol(text, &end, 10) : -1;
  if (!text) return hy_fail(HY_INVALID_ARGUMENT, "%s is not set, and goes with the other", name);
  if (end == text || *end || read < least || read > most)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: \"%s\" is no number from %ld to %ld", name, text,
                   least, most);
  *value = (int)read;
  return HY_OK;
}

// torchrun tells the rank, and has a store whose protocol is PyTorch's own. Without a file for the
// id, each process would take itself for the only one.
static hy_status torchrun_rank(int* rank, int* size) {
  HY_TRY(number("WORLD_SIZE", 1, INT_MAX, size));
  HY_TRY(number("RANK", 0, *size - 1, rank));
  if (*size == 1 || hy__env("HALYARD_COMM_FILE")) return HY_OK;
  return hy_fail(
      HY_UNSUPPORTED,
      "RANK, WORLD_SIZE and MASTER_ADDR are set, as torchrun sets them: its store is for "
      "torch.distributed (init_process_group, backend \"halyard\"). Start C programs with "
      "mpirun -n %d, or name a file for the id in HALYARD_COMM_FILE, which takes a device "
      "with communicators of its own",
      *size);
}

hy_status hy_comm_world_rank(int* rank, int* size) {
  if (!rank || !size)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_world_rank: %s is NULL", rank ? "size" : "rank");
  *rank = 0;
  *size = 1;
  for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
    if (!hy__env(launchers[i].rank) && !hy__env(launchers[i].size)) continue;
    HY_TRY(number(launchers[i].size, 1, INT_MAX, size));
    return number(launchers[i].rank, 0, *size - 1, rank);
  }
  if (hy__env("MASTER_ADDR") && hy__env("RANK") && hy__env("WORLD_SIZE"))
    return torchrun_rank(rank, size);
  return HY_OK;
}

hy_status hy_comm_local_rank(int* rank) {
  int size;
  if (!rank) return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_local_rank: rank is NULL");
  *rank = 0;
  for (size_t i = 0; i < sizeof local_ranks / sizeof local_ranks[0]; i++)
    if (hy__env(local_ranks[i])) return number(local_ranks[i], 0, INT_MAX, rank);
  return hy_comm_world_rank(rank, &size);
}

hy_status hy_comm_world_device(const char* selectors, hy_device** device) {
  int local;
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_world_device: device is NULL");
  *device = NULL;
  HY_TRY(hy_comm_local_rank(&local));
  return hy__device_get_local(selectors, local, device);
}

// ---- the id by a file ----

static hy_status write_id(const char* path, const hy_comm_id* id) {
  hy__writer writer;
  HY_TRY(hy__write_begin(path, &writer));
  hy_status status = hy__write(&writer, id->bytes, sizeof id->bytes);
  if (status != HY_OK) {
    hy__write_abandon(&writer);
    return status;
  }
  return hy__write_commit(&writer);
}

static hy_status read_id(const char* path, hy_comm_id* id) {
  double seconds;
  HY_TRY(hy__comm_timeout(&seconds));
  int64_t deadline = hy__now_ns() + (int64_t)(1e9 * seconds);
  while (!hy__file_exists(path)) {
    if (hy__now_ns() > deadline)
      return hy_fail(HY_DEVICE_FAILED,
                     "HALYARD_COMM_FILE: rank 0 has not written %s within %g s "
                     "(HALYARD_COMM_TIMEOUT)",
                     path, seconds);
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  }
  char* text;
  size_t size;
  HY_TRY(hy__read_file(path, sizeof id->bytes, &text, &size));
  hy_status status = HY_OK;
  if (size == sizeof id->bytes)
    memcpy(id->bytes, text, size);
  else
    status = hy_fail(HY_FORMAT, "HALYARD_COMM_FILE: %s holds %zu bytes; an id has %zu", path, size,
                     sizeof id->bytes);
  hy__mfree(text);
  return status;
}

// Rank 0 writes the id and removes the file when all have joined; a file that is there before is an
// older run's.
static hy_status join_by_file(hy_device* device, const hy__comm_provider* provider,
                              const char* path, int rank, int size, void** handle) {
  hy_comm_id id;
  if (rank > 0) {
    HY_TRY(read_id(path, &id));
    return provider->init_rank(device, size, &id, rank, handle);
  }
  if (hy__file_exists(path))
    return hy_fail(
        HY_INVALID_ARGUMENT,
        "HALYARD_COMM_FILE: %s is there already, left by another run; remove it, or name "
        "another",
        path);
  HY_TRY(provider->unique_id(device, &id));
  HY_TRY(write_id(path, &id));
  hy_status status = provider->init_rank(device, size, &id, rank, handle);
  unlink(path);
  return status;
}

// ---- the id by MPI ----

static hy_status join_by_mpi(hy_device* device, const hy__comm_provider* provider, int rank,
                             int size, void** handle) {
  hy_comm_id id;
  hy__mpi_world_id(&id);
  if (provider == &hy__comm_mpi) return provider->init_rank(device, size, &id, rank, handle);
  // A communicator by MPI carries the backend's id.
  void* over_mpi;
  HY_TRY(hy__comm_mpi.init_rank(device, size, &id, rank, &over_mpi));
  hy_status status = rank == 0 ? provider->unique_id(device, &id) : HY_OK;
  if (status == HY_OK)
    status = hy__mpi_collective(
        over_mpi,
        &(hy__comm_call){
            .kind = HY__BROADCAST, .dtype = HY_U8, .count = sizeof id.bytes, .recv = id.bytes});
  else
    hy__mpi_comm_fail(over_mpi, status);
  if (status == HY_OK) status = provider->init_rank(device, size, &id, rank, handle);
  hy__comm_mpi.destroy(device, over_mpi);
  return status;
}

hy_status hy_comm_world(hy_device* device, hy_comm** comm) {
  if (!device || !comm)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_world: %s is NULL", device ? "comm" : "device");
  *comm = NULL;
  int rank, size;
  HY_TRY(hy_comm_world_rank(&rank, &size));
  const hy__comm_provider* provider = hy__comm_provider_of(device);
  const char* path = hy__env("HALYARD_COMM_FILE");
  void* handle = NULL;
  hy_status status;
  if (size == 1 && provider != &hy__comm_mpi) {
    hy_comm_id id;
    HY_TRY(provider->unique_id(device, &id));
    status = provider->init_rank(device, 1, &id, 0, &handle);
  } else if (path && size > 1) {
    status = join_by_file(device, provider, path, rank, size, &handle);
  } else {
    status = join_by_mpi(device, provider, rank, size, &handle);
  }
  HY_TRY(status);
  return hy__comm_adopt(device, provider, size, rank, handle, comm);
}

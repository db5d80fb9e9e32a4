// MPI by dlopen: which library, and the handles of its ABI.
//
// Three ABIs are in use. In Open MPI (libmpi.so.40) predefined handles are the addresses of
// symbols; in MPICH and its kin (libmpi.so.12) they are ints; in the standard ABI of MPI-5
// (libmpi_abi.so) they are small numbers in pointers. A process must use the library of the mpirun
// that started it: the launcher's variables decide, HALYARD_MPI overrules them.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "comm/mpi.h"
#include "core/registry.h"

hy__mpi_state hy__mpi;

#define HANDLE void*
#define MEMBER pointer
#define CALLS pointer_calls
#define FN(name) pointer_##name
#include "comm/mpi_calls.inc"

#define HANDLE int
#define MEMBER number
#define CALLS int_calls
#define FN(name) int_##name
#include "comm/mpi_calls.inc"

// ---- the three tables ----

static const hy__mpi_constants mpich = {
    .comm_world.number = 0x44000000,
    .byte.number = 0x4c00010d,
    .f32.number = 0x4c00040a,
    .sum.number = 0x58000003,
    .errors_return.number = 0x54000001,
    .any_source = -2,
    .any_tag = -1,
    .thread_serialized = 2,
    .source_at = 2,
    .tag_at = 3,
};

static const hy__mpi_constants standard = {
    .comm_world.pointer = (void*)0x101,
    .byte.pointer = (void*)0x247,
    .f32.pointer = (void*)0x210,
    .sum.pointer = (void*)0x21,
    .errors_return.pointer = (void*)0x143,
    .any_source = -1,
    .any_tag = -2,
    .thread_serialized = 2048,
    .source_at = 0,
    .tag_at = 1,
};

static const hy__mpi_constants open_mpi = {
    .any_source = -1, .any_tag = -1, .thread_serialized = 2, .source_at = 0, .tag_at = 1};

static const char* bind_open_mpi(void* library) {
  const struct {
    const char* symbol;
    hy__mpi_handle* handle;
  } rows[] = {
      {"ompi_mpi_comm_world", &hy__mpi.constants.comm_world},
      {"ompi_mpi_byte", &hy__mpi.constants.byte},
      {"ompi_mpi_float", &hy__mpi.constants.f32},
      {"ompi_mpi_op_sum", &hy__mpi.constants.sum},
      {"ompi_mpi_errors_return", &hy__mpi.constants.errors_return},
  };
  hy__mpi.constants = open_mpi;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    rows[i].handle->pointer = dlsym(library, rows[i].symbol);
    if (!rows[i].handle->pointer) return rows[i].symbol;
  }
  return pointer_calls.bind(library);
}

// The first symbol that is missing, or NULL.
static const char* bind_abi(void* library, const char* path) {
  if (strstr(path, "libmpi_abi")) {
    hy__mpi.abi = "MPI-5";
    hy__mpi.constants = standard;
    hy__mpi.call = &pointer_calls;
    return pointer_calls.bind(library);
  }
  if (dlsym(library, "ompi_mpi_comm_world")) {
    hy__mpi.abi = "Open MPI";
    hy__mpi.call = &pointer_calls;
    return bind_open_mpi(library);
  }
  hy__mpi.abi = "MPICH";
  hy__mpi.constants = mpich;
  hy__mpi.call = &int_calls;
  return int_calls.bind(library);
}

// ---- which library ----

#define OPEN_MPI "libmpi.so.40"
#define MPICH "libmpi.so.12 libmpich.so.12"  // the latter is Debian's name
#define STANDARD "libmpi_abi.so.1 libmpi_abi.so.0"

static const char* candidates(void) {
  const char* chosen = hy__env("HALYARD_MPI");
  if (chosen) return chosen;
  if (hy__env("OMPI_COMM_WORLD_SIZE")) return OPEN_MPI " " STANDARD;
  if (hy__env("PMI_SIZE")) return MPICH " " STANDARD;
  return OPEN_MPI " " MPICH " " STANDARD;
}

// What the program itself has loaded and initialised comes first: a process has one world.
static void* loaded_already(char* path, size_t size) {
  static const char* const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12",
                                      "libmpi_abi.so.1", "libmpi_abi.so.0"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    void* library = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD);
    if (!library) continue;
    snprintf(path, size, "%s", names[i]);
    return library;
  }
  return NULL;
}

static hy_status open_library(char* path, size_t size, void** library) {
  *library = hy__env("HALYARD_MPI") ? NULL : loaded_already(path, size);
  if (*library) return HY_OK;
  hy_probe report = {.size = sizeof report};
  if (hy__open_library(candidates(), NULL, &report, library) != HY_OK) {
    char reason[400];
    snprintf(reason, sizeof reason, "%.390s", hy_last_error());
    return hy_fail(HY_UNAVAILABLE,
                   "communicators of this device need an MPI library, and %s; install Open MPI or "
                   "MPICH (Debian: openmpi-bin or mpich), or name one by HALYARD_MPI",
                   reason);
  }
  snprintf(path, size, "%.*s", (int)size - 1, report.library);
  // Open MPI's components look for its symbols among the global ones.
  dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
  return HY_OK;
}

hy_status hy__mpi_error(int error, const char* what) {
  char text[1024] = "";
  int length = 0;
  if (hy__mpi.call->error_string(error, text, &length) != 0 || length <= 0)
    snprintf(text, sizeof text, "error %d", error);
  return hy_fail(HY_DEVICE_FAILED, "%s: %.300s (%s)", what, text, hy__mpi.abi);
}

static hy_status load(void) {
  char path[256];
  void* library;
  HY_TRY(open_library(path, sizeof path, &library));
  const char* missing = bind_abi(library, path);
  if (missing)
    return hy_fail(HY_UNAVAILABLE,
                   "%s has no %s: it is no MPI library, or older than MPI 3; install Open MPI 4 or "
                   "MPICH 4, or newer",
                   path, missing);
  int major = 0, minor = 0;
  hy__mpi.call->get_version(&major, &minor);
  if (major < 3)
    return hy_fail(HY_UNAVAILABLE,
                   "%s speaks MPI %d.%d; 3.0 is the least: install Open MPI 4 or MPICH 4, or newer",
                   path, major, minor);
  char text[8192] = "";  // MPI_MAX_LIBRARY_VERSION_STRING of MPICH, the longest
  int length = 0;
  hy__mpi.call->library_version(text, &length);
  text[strcspn(text, "\n,")] = 0;
  for (char* tab = text; (tab = strchr(tab, '\t'));) *tab = ' ';
  snprintf(hy__mpi.version, sizeof hy__mpi.version, "%.150s", text);
  hy__log(2, "MPI: %s, %s, MPI %d.%d", path, hy__mpi.version, major, minor);
  return HY_OK;
}

// A failure is kept: what was not there is not looked for again.
hy_status hy__mpi_load(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static bool tried;
  static hy_status status;
  static char message[700];
  pthread_mutex_lock(&mutex);
  if (!tried) {
    status = load();
    if (status != HY_OK) snprintf(message, sizeof message, "%s", hy_last_error());
    tried = true;
  }
  pthread_mutex_unlock(&mutex);
  return status == HY_OK ? HY_OK : hy_fail(status, "%s", message);
}

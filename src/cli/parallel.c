// Joining the launcher's other processes, and opening a list of devices.
#include "cli/parallel.h"

#include <stdlib.h>
#include <string.h>

#include "halyard/scope.h"

static int open_devices(const cli_command* command, cli_parallel* p) {
  char list[512];
  if (cli.backend || cli.fallback)
    return cli_usage(command, "--devices takes the place of --backend and --fallback");
  if (snprintf(list, sizeof list, "%s", p->device_list) >= (int)sizeof list)
    return cli_usage(command, "--devices is too long");
  for (char *rest = list, *name; (name = strsep(&rest, ","));) {
    if (p->n_devices == CLI_MOST_DEVICES)
      return cli_usage(command, "--devices takes %d at most", CLI_MOST_DEVICES);
    cli.backend = name;
    int code = cli_open_device(&p->devices[p->n_devices++]);
    cli.backend = NULL;
    if (code != CLI_DONE) return code;
  }
  return CLI_DONE;
}

// --split 4,2: layers of each device.
static int read_split(const cli_command* command, cli_parallel* p) {
  int n = 0;
  const char* at = p->split;
  for (char* end; n < CLI_MOST_DEVICES; at = end + 1) {
    p->layers[n++] = strtoll(at, &end, 10);
    if (end == at || p->layers[n - 1] < 1 || (*end && *end != ','))
      return cli_usage(command, "--split takes numbers of layers with commas between, not '%s'",
                       p->split);
    if (!*end) break;
  }
  if (n != p->n_devices)
    return cli_usage(command, "--split names the layers of %d devices, --devices has %d", n,
                     p->n_devices);
  return CLI_DONE;
}

static int join(cli_parallel* p, hy_device* device) {
  int size;
  hy_status status = hy_comm_world_rank(&p->rank, &size);
  if (status == HY_OK && size == 1)
    status = hy_fail(HY_INVALID_ARGUMENT,
                     "--parallel needs a launcher, such as mpirun -n 2 halyard ...: there is one "
                     "process alone");
  if (status == HY_OK) status = hy_comm_world(device, &p->comm);
  return status == HY_OK ? CLI_DONE : cli_fail(status);
}

int parallel_open(const cli_command* command, const char* wanted, cli_parallel* p,
                  hy_device** device) {
  int code;
  if (p->how && strcmp(p->how, wanted) != 0)
    return cli_usage(command, "--parallel is '%s', not '%s'", wanted, p->how);
  if (p->split && !p->device_list) return cli_usage(command, "--split goes with --devices");
  cli.of_local_rank = p->how != NULL;
  if (p->device_list) {
    code = open_devices(command, p);
    if (code == CLI_DONE && p->split) code = read_split(command, p);
    *device = p->devices[0];
  } else {
    code = cli_open_device(device);
  }
  return code == CLI_DONE && p->how ? join(p, *device) : code;
}

void parallel_load_options(const cli_parallel* p, hy_load_options* options) {
  options->comm = p->comm;
  options->devices = p->devices;
  options->n_devices = p->n_devices;
  options->layers = p->split ? p->layers : NULL;
}

// The largest of the ranks' numbers.
static hy_status largest(const cli_parallel* p, hy_stream* stream, int64_t* number) {
  hy_array* array = NULL;
  if (!p->comm) return HY_OK;
  HY_TRY(hy_array_from_host(stream, &array, HY_I64, HY_SIZES(1), number));
  void* data = hy_array_tensor(array)->data;
  hy_status status = hy_comm_all_reduce(p->comm, stream, data, data, 1, HY_I64, HY_REDUCE_MAX);
  if (status == HY_OK) status = hy_array_to_host(stream, array, number, sizeof *number);
  hy_array_release(array);
  return status;
}

hy_status parallel_any(const cli_parallel* p, hy_stream* stream, bool* flag) {
  int64_t number = *flag;
  HY_TRY(largest(p, stream, &number));
  *flag = number > 0;
  return HY_OK;
}

hy_status parallel_same(const cli_parallel* p, hy_stream* stream, const char* what,
                        int64_t number) {
  int64_t most = number, least = -number;
  HY_TRY(largest(p, stream, &most));
  HY_TRY(largest(p, stream, &least));
  if (most == -least) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "%s: %lld on one rank, %lld on another; here %lld", what,
                 (long long)-least, (long long)most, (long long)number);
}

void parallel_close(cli_parallel* p, bool failed) {
  if (failed && p->comm) hy_comm_abort(p->comm);
  hy_comm_destroy(p->comm);
  p->comm = NULL;
}

// A model on several processes or devices, as the command line asks: --parallel, --devices,
// --split.
#ifndef HALYARD_CLI_PARALLEL_H_
#define HALYARD_CLI_PARALLEL_H_

#include "cli/cli.h"
#include "halyard/comm.h"
#include "halyard/model.h"

enum { CLI_MOST_DEVICES = 16 };

typedef struct cli_parallel {
  const char *how, *device_list, *split;  // what was given
  hy_device* devices[CLI_MOST_DEVICES];
  int n_devices;
  int64_t layers[CLI_MOST_DEVICES];
  hy_comm* comm;  // of the launcher's processes; NULL without --parallel
  int rank;       // 0 without --parallel: the one that prints and writes
} cli_parallel;

// After parsing: opens the device or the devices, and joins the other ranks where --parallel is
// `wanted`. *device is the first. Returns an exit code.
int parallel_open(const cli_command* command, const char* wanted, cli_parallel* p,
                  hy_device** device);
// What the model's loading has to know.
void parallel_load_options(const cli_parallel* p, hy_load_options* options);
// Whether `flag` is set on one of the ranks at least, which all of them ask at the same time;
// without others, on this one. `stream` is of the communicator's device.
hy_status parallel_any(const cli_parallel* p, hy_stream* stream, bool* flag);
// HY_INVALID_ARGUMENT where the ranks do not have the same number; `what` it is, for the message.
hy_status parallel_same(const cli_parallel* p, hy_stream* stream, const char* what, int64_t number);
// Leaves the other ranks; `failed`: makes them end too.
void parallel_close(cli_parallel* p, bool failed);

#endif  // HALYARD_CLI_PARALLEL_H_

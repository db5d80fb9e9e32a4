// One rank of a test of PersistentKernel: `mpirun -n 2 persistent_rank CASE[,CASE] FOLDER OTHER`,
// for tests/integration/comm.py. `persistent_rank make FOLDER LAYERS` writes a model of random
// weights first. Prints "ok" where the case holds on this rank; what is wrong otherwise.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "halyard/halyard.h"
#include "halyard/persistent.h"
#include "model/create.h"
#include "model/load.h"
#include "model/shapes.h"

enum { PROMPT = 9, TOKENS = 16 };
static const char *folder, *other;  // of models; the other has one layer more
static int32_t prompt[PROMPT];
static int rank, n_ranks;

static hy_status make(const char* to, int layers) {
  demo_size size = demo_sizes[0];
  size.layers = layers;
  hy__config config =
      demo_config(&size, 51);  // 310 tokens or so, which 4 ranks do not share evenly
  hy_device* device;
  hy_model* model;
  TRY(hy_device_get("cpu", &device));
  TRY(hy__model_create(device, &config, NULL, -1, 3, &model));
  TRY(hy__transformer_save(model->stream, &model->transformer, to));
  hy_model_free(model);
  return HY_OK;
}

static hy_persistent_options options_for(double temperature) {
  hy_persistent_options options;
  hy_persistent_defaults(&options);
  options.backend = "cpu";
  options.world_size = n_ranks;
  options.rank = rank;
  options.positions = PROMPT + TOKENS;
  options.sampling.temperature = temperature;
  options.sampling.seed = 9;
  return options;
}

static hy_status one_process(double temperature, int32_t* tokens) {
  hy_persistent_options options = options_for(temperature);
  hy_persistent_kernel* kernel;
  options.world_size = options.rank = 0;
  TRY(hy_persistent_kernel_create(folder, &options, &kernel));
  TRY(hy_persistent_kernel_begin(kernel, prompt, PROMPT));
  TRY(hy_persistent_kernel_decode(kernel, TOKENS, tokens));
  hy_persistent_kernel_destroy(kernel);
  return HY_OK;
}

static hy_status decode_as(const hy_persistent_options* options, const int32_t* expected,
                           const char* reason) {
  int32_t tokens[TOKENS];
  hy_persistent_kernel* kernel;
  hy_persistent_stats stats;
  TRY(hy_persistent_kernel_create(folder, options, &kernel));
  EXPECT(strcmp(hy_persistent_kernel_device(kernel), "cpu:0") == 0);
  if (!strstr(hy_persistent_kernel_reasons(kernel), reason))
    return hy_fail(HY_INTERNAL, "the reasons are %s", hy_persistent_kernel_reasons(kernel));
  for (int round = 0; round < 2; round++) {
    TRY(hy_persistent_kernel_begin(kernel, prompt, PROMPT));
    TRY(hy_persistent_kernel_decode(kernel, 5, tokens));
    TRY(hy_persistent_kernel_decode(kernel, TOKENS - 5, tokens + 5));
    EXPECT(memcmp(tokens, expected, sizeof tokens) == 0);
  }
  hy_persistent_kernel_stats(kernel, &stats);
  EXPECT(stats.launches == 4 && stats.waits == 4);
  hy_persistent_kernel_destroy(kernel);
  return HY_OK;
}

// ---- tokens of one process ----

static hy_status tokens(void) {
  for (int warm = 0; warm < 2; warm++) {
    int32_t expected[TOKENS];
    hy_persistent_options options = options_for(warm ? 0.8 : 0);
    HY_TRY(one_process(options.sampling.temperature, expected));
    HY_TRY(decode_as(&options, expected, ""));
  }
  return HY_OK;
}

static hy_status prefill(void) {
  int32_t expected[TOKENS], token;
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  HY_TRY(one_process(0, expected));
  options.mode = HY_PERSISTENT_PREFILL;
  options.tokens = PROMPT;
  TRY(hy_persistent_kernel_create(folder, &options, &kernel));
  TRY(hy_persistent_kernel_prefill(kernel, prompt, &token));
  hy_persistent_kernel_destroy(kernel);
  EXPECT(token == expected[0]);
  return HY_OK;
}

// By a communicator of the caller's, which serves afterwards too.
static hy_status given(void) {
  int32_t expected[TOKENS];
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  hy_device* device;
  hy_stream* stream;
  HY_TRY(one_process(0, expected));
  TRY(hy_device_get("cpu", &device));
  TRY(hy_stream_default(device, &stream));
  TRY(hy_comm_world(device, &options.comm));
  HY_TRY(decode_as(&options, expected, ""));
  options.backend = NULL;
  HY_TRY(decode_as(&options, expected, ""));
  TRY(hy_comm_barrier(options.comm, stream));
  options.rank = n_ranks - 1 - rank;
  HY_TRY(expect(hy_persistent_kernel_create(folder, &options, &kernel), HY_INVALID_ARGUMENT,
                "by the communicator"));
  hy_comm_destroy(options.comm);
  return HY_OK;
}

// A device with graphs of its own refuses, with its reason; and so does one that is missing on one
// rank alone.
static hy_status fallback(void) {
  int32_t expected[TOKENS];
  static const char* const cpu[] = {"cpu"};
  hy_persistent_options options = options_for(0);
  bool echo = hy_backend_is_available("echo");
  HY_TRY(one_process(0, expected));
  options.fallback_backends = cpu;
  options.n_fallback_backends = 1;
  options.backend = "echo";
  HY_TRY(decode_as(&options, expected, echo ? "which hold no collectives" : "echo"));
  options.backend = rank == 1 ? "cuda:77" : "cpu";
  return decode_as(&options, expected, rank == 1 ? "cuda:77: " : "it does not serve rank 1");
}

// ---- ranks that do not agree ----

static hy_status models_differ(void) {
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  return expect(hy_persistent_kernel_create(rank == 1 ? other : folder, &options, &kernel),
                HY_INVALID_ARGUMENT, "the ranks' graphs differ from collective");
}

static hy_status a_model_is_missing(void) {
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  return expect(
      hy_persistent_kernel_create(rank == 1 ? "/nowhere/at/all" : folder, &options, &kernel), HY_IO,
      rank == 1 ? "/nowhere/at/all" : "it does not serve rank 1");
}

static hy_status sizes_differ(void) {
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  options.world_size = n_ranks + 1;
  return expect(hy_persistent_kernel_create(folder, &options, &kernel), HY_INVALID_ARGUMENT,
                "by the launcher");
}

// A step fails on one rank, between its collectives: the others need not wait for the time limit.
static hy_status a_step_fails(void) {
  int32_t ids[TOKENS];
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  TRY(hy_persistent_kernel_create(folder, &options, &kernel));
  TRY(hy_persistent_kernel_begin(kernel, prompt, PROMPT));
  if (rank == 1) hy_inject_fault(HY_FAULT_KERNEL, 40);
  hy_status status = hy_persistent_kernel_decode(kernel, TOKENS, ids);
  hy_inject_fault(HY_FAULT_KERNEL, 0);
  HY_TRY(expect(status, HY_DEVICE_FAILED,
                rank == 1 ? "injected fault" : "rank 1 has failed or aborted"));
  HY_TRY(expect(hy_persistent_kernel_decode(kernel, 1, ids), HY_DEVICE_FAILED, "failed before"));
  hy_persistent_kernel_destroy(kernel);
  return HY_OK;
}

// Steps until somebody ends the process, or a rank.
static hy_status forever(void) {
  int32_t ids[TOKENS];
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  TRY(hy_persistent_kernel_create(folder, &options, &kernel));
  printf("rank %d is process %ld\n", rank, (long)getpid());
  fflush(stdout);
  for (;;) {
    TRY(hy_persistent_kernel_begin(kernel, prompt, PROMPT));
    TRY(hy_persistent_kernel_decode(kernel, TOKENS, ids));
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);  // mpirun has to run as well
  }
}

static const struct {
  const char* name;
  hy_status (*run)(void);
} cases[] = {
    {"tokens", tokens},
    {"prefill", prefill},
    {"given", given},
    {"fallback", fallback},
    {"models_differ", models_differ},
    {"a_model_is_missing", a_model_is_missing},
    {"sizes_differ", sizes_differ},
    {"a_step_fails", a_step_fails},
    {"forever", forever},
};

static hy_status run(const char* name) {
  HY_TRY(hy_comm_world_rank(&rank, &n_ranks));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    if (strcmp(name, cases[i].name) == 0) return cases[i].run();
  return hy_fail(HY_NOT_FOUND, "no case %s", name);
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 53 + 11) % 300;
  folder = argv[2];
  other = argv[3];
  int failed = 0;
  char* rest = NULL;
  for (char* name = strtok_r(argv[1], ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
    hy_status status = strcmp(name, "make") == 0 ? make(folder, atoi(other)) : run(name);
    if (status == HY_OK)
      printf("rank %d of %d: %s ok\n", rank, n_ranks, name);
    else
      printf("rank %d of %d: %s FAILED: %s\n", rank, n_ranks, name, hy_last_error());
    fflush(stdout);
    failed |= status != HY_OK;
  }
  hy_shutdown();
  return failed;
}

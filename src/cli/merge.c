// halyard merge: folds an adapter into its model.
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/hub_folder.h"
#include "model/adapter.h"
#include "model/load.h"
#include "model/model.h"

static int run(int argc, char** argv);
const cli_command cli_merge = {"merge", "", "Fold an adapter into its model",
                               "halyard merge --model DIR --adapter DIR --out DIR", run};

static hy_status write_folder(hy_model* model, const char* from, const char* folder) {
  HY_TRY(hy__transformer_save(model->stream, &model->transformer, folder));
  return hub_folder_copy(from, folder);
}

// The folder takes its name when all of it is there.
static hy_status merge(hy_device* device, const char* folder, const char* adapter,
                       const char* out) {
  char part[4096];
  hy_model* model;
  if (snprintf(part, sizeof part, "%s.part", out) >= (int)sizeof part)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the path is too long", out);
  if (access(out, F_OK) == 0 && rmdir(out) != 0)
    return hy_fail(HY_IO, "%s: is there already; choose another --out", out);
  if (mkdir(part, 0777) != 0 && errno != EEXIST)
    return hy_fail(HY_IO, "%s: cannot be made: %s", part, strerror(errno));
  hy_status loaded = hy_model_load(device, folder, adapter, HY_WEIGHTS_AS_FILE, &model);
  if (loaded != HY_OK) {
    rmdir(part);
    return loaded;
  }
  hy_status status = hy__adapter_merge(model->tape, &model->transformer);
  if (status == HY_OK) status = write_folder(model, folder, part);
  if (status == HY_OK && rename(part, out) != 0)
    status = hy_fail(HY_IO, "%s: cannot be put in place: %s", out, strerror(errno));
  hy_model_free(model);
  return status;
}

static int run(int argc, char** argv) {
  const char *model = NULL, *adapter = NULL, *out = NULL;
  const cli_option options[] = {
      {"model", CLI_TEXT, &model, "DIR", "the model the adapter was trained on"},
      {"adapter", CLI_TEXT, &adapter, "DIR", "LoRA adapter in PEFT's format"},
      {"out", CLI_TEXT, &out, "DIR", "where the merged model goes; not there yet, or empty"},
  };
  int extra;
  int code = cli_parse(&cli_merge, options, 3, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  if (!model || !adapter || !out)
    return cli_usage(&cli_merge, "--model, --adapter and --out are needed");
  hy_device* device;
  code = cli_open_device(&device);
  if (code != CLI_DONE) return code;
  hy_status status = merge(device, model, adapter, out);
  if (status != HY_OK) return cli_fail(status);
  if (!cli.json) fprintf(stderr, "The merged model is in %s\n", out);
  return CLI_DONE;
}

// halyard merge: folds an adapter into its model.
#include "cli/cli.h"
#include "cli/hub_folder.h"
#include "cli/interrupt.h"
#include "cli/new_folder.h"
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

// A signal is heard between the steps, each of which may take a while.
static hy_status unless_interrupted(hy_status status) {
  if (status != HY_OK || !interrupt_asked()) return status;
  return hy_fail(HY_NOT_READY, "interrupted; nothing was written");
}

static hy_status merge(hy_device* device, const char* folder, const char* adapter,
                       const char* out) {
  new_folder whole;
  hy_model* model = NULL;
  HY_TRY(new_folder_begin(out, &whole));
  hy_status status = hy_model_load(device, folder, adapter, HY_WEIGHTS_AS_FILE, &model);
  status = unless_interrupted(status);
  if (status == HY_OK) status = hy__adapter_merge(model->tape, &model->transformer);
  status = unless_interrupted(status);
  if (status == HY_OK) status = write_folder(model, folder, whole.part);
  status = unless_interrupted(status);
  hy_model_free(model);
  if (status == HY_OK) return new_folder_commit(&whole);
  new_folder_abandon(&whole);
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
  interrupt_watch_all();
  hy_status status = merge(device, model, adapter, out);
  if (status != HY_OK) code = cli_fail(status);
  if (status != HY_OK) return interrupt_asked() ? interrupt_code() : code;
  if (!cli.json) fprintf(stderr, "The merged model is in %s\n", out);
  return CLI_DONE;
}

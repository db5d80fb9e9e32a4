// A language model inside a program of your own: load, ask, read the answer as it is made.
//
//   generate MODEL_FOLDER "Once upon a time"
#include <halyard/halyard.h>
#include <halyard/model.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_text(void* context, int32_t id, const char* text, size_t length) {
  (void)id;
  fwrite(text, 1, length, context);
  fflush(context);
  return true;  // false would end the answer here
}

static hy_status answer(hy_model* model, const char* prompt) {
  int64_t n;
  // The first call counts, the second writes.
  HY_TRY(hy_model_encode(model, prompt, strlen(prompt), HY_ENCODE_DEFAULT, NULL, 0, &n));
  int32_t* ids = malloc((size_t)(n + 1) * sizeof *ids);
  if (!ids) return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld tokens", (long long)n);
  hy_generate_options options;
  hy_generate_defaults(&options);
  options.max_tokens = 64;
  options.temperature = 0.7;
  options.top_p = 0.9;
  hy_generate_result result;
  hy_status status = hy_model_encode(model, prompt, strlen(prompt), HY_ENCODE_DEFAULT, ids, n, &n);
  if (status == HY_OK)
    status = hy_model_generate(model, ids, n, &options, print_text, stdout, NULL, &result);
  if (status == HY_OK)
    printf("\n[%lld tokens, %.1f a second]\n", (long long)result.tokens,
           (double)(result.tokens - 1) / result.decode_seconds);
  free(ids);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: generate MODEL_FOLDER PROMPT\n");
    return 2;
  }
  hy_device* device;
  hy_model* model = NULL;
  hy_status status = hy_device_get(NULL, &device);
  if (status == HY_OK) status = hy_model_load(device, argv[1], NULL, HY_WEIGHTS_AS_FILE, &model);
  if (status == HY_OK) status = answer(model, argv[2]);
  if (status != HY_OK) fprintf(stderr, "generate: %s\n", hy_last_error());
  hy_model_free(model);
  hy_shutdown();
  return status == HY_OK ? 0 : 1;
}

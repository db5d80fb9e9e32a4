// The files of a model's folder beside its weights: config.json and the tokenizer's.
#include "cli/hub_folder.h"

#include "base/file.h"

static hy_status copy(const char* from, const char* to) {
  hy__mapped file;
  hy__writer writer;
  HY_TRY(hy__map_file(from, &file));
  hy_status status = hy__write_begin(to, &writer);
  if (status == HY_OK) status = hy__write(&writer, file.data, file.size);
  if (status == HY_OK)
    status = hy__write_commit(&writer);
  else
    hy__write_abandon(&writer);
  hy__unmap_file(&file);
  return status;
}

hy_status hub_folder_copy(const char* from, const char* to) {
  static const char* const names[] = {"config.json",        "tokenizer.json",
                                      "vocab.json",         "tokenizer_config.json",
                                      "merges.txt",         "special_tokens_map.json",
                                      "added_tokens.json",  "generation_config.json",
                                      "chat_template.jinja"};
  char source[4096], target[4096];
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    HY_TRY(hy__join_path(from, names[i], source, sizeof source));
    HY_TRY(hy__join_path(to, names[i], target, sizeof target));
    if (hy__file_exists(source)) HY_TRY(copy(source, target));
  }
  return HY_OK;
}

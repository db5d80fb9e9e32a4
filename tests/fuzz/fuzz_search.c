// Fuzz target: what a search among graphs keeps on disk. A good file with changes.
#include "fuzz/edit.h"
#include "fuzz/fuzz.h"
#include "graph/search/search.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char good[] =
      "{\"halyard_graph_search\": 2, \"key\": \"0123456789abcdef\", \"rules\": [\"join\", "
      "\"split_k\"], \"passes\": 511, \"tiles\": [{\"node\": 3, \"variant\": 1}], \"before\": "
      "0.002, \"after\": 0.001}\n";
  uint8_t text[1024];
  size_t length = sizeof good - 1;
  memcpy(text, good, length);
  fuzz_input in = {data, size};
  fuzz_edit(&in, text, &length, sizeof text);
  hy__decision d;
  if (hy__decision_parse((const char*)text, length, 0x0123456789abcdef, &d) == HY_OK &&
      (d.rules >> HY__REWRITES != 0 || d.passes > HY_PASS_ALL || d.n_tiles > HY__MAX_TILES ||
       (d.n_tiles > 0 && (d.tiles[0].node < 0 || d.tiles[0].variant < 1))))
    __builtin_trap();
  return 0;
}

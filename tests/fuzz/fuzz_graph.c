// Fuzz target: graph files. A small valid file with bytes changed or cut short, or numbers put in
// place of its own; what loads is launched.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "graph/graph.h"
#include "halyard/halyard.h"

static const char good[] =
    "{\"halyard_graph\": 1, \"memory\": [\n"
    "{\"kind\": \"argument\", \"bytes\": 96, \"name\": \"x\"},\n"
    "{\"kind\": \"constant\", \"bytes\": 16, \"data\": \"0000803f000000400000404000008040\"},\n"
    "{\"kind\": \"value\", \"bytes\": 96},\n{\"kind\": \"value\", \"bytes\": 24}],\n"
    "\"nodes\": [\n"
    "{\"op\": \"add\", \"out\": [{\"memory\": 2, \"at\": 0, \"dtype\": \"f32\", \"shape\": [6, 4], "
    "\"stride\": [4, 1]}], \"in\": [{\"memory\": 0, \"at\": 0, \"dtype\": \"f32\", \"shape\": "
    "[6, 4], \"stride\": [4, 1]}, {\"memory\": 1, \"at\": 0, \"dtype\": \"f32\", \"shape\": [4], "
    "\"stride\": [1]}], \"attrs\": {\"alpha\": {\"kind\": \"i64\", \"value\": \"1\"}}},\n"
    "{\"op\": \"sum\", \"out\": [{\"memory\": 3, \"at\": 0, \"dtype\": \"f32\", \"shape\": [6], "
    "\"stride\": [1]}], \"in\": [{\"memory\": 2, \"at\": 0, \"dtype\": \"f32\", \"shape\": [6, 4], "
    "\"stride\": [4, 1]}], \"attrs\": {\"dims\": [1], \"keepdim\": false}},\n"
    "{\"op\": \"tril\", \"out\": [{\"memory\": 0, \"at\": 0, \"dtype\": \"f32\", \"shape\": [6, "
    "4], "
    "\"stride\": [4, 1]}], \"in\": [{\"memory\": 2, \"at\": 0, \"dtype\": \"f32\", \"shape\": [6, "
    "4], \"stride\": [4, 1]}], \"attrs\": {\"diagonal\": \"-1\"}},\n"
    "{\"bytes\": 24, \"to\": {\"memory\": 0, \"at\": 8}, \"from\": {\"memory\": 3, \"at\": 0}}],\n"
    "\"integers\": [{\"name\": \"d\", \"node\": 2, \"field\": \"diagonal\"}]}\n";

// Changes digits to digits, so that the file still parses, and now and then any byte.
static size_t edit(fuzz_input* in, char* text) {
  size_t length = sizeof good - 1;
  memcpy(text, good, length);
  bool cut = fuzz_byte(in) % 32 == 31;
  for (int i = 0; in->size > 3 && i < 6; i++) {
    size_t at = fuzz_bits(in, 2) % length;
    uint8_t how = fuzz_byte(in), with = fuzz_byte(in);
    if (how % 32 == 31) {
      text[at] = (char)with;
      continue;
    }
    while (at < length && (text[at] < '0' || text[at] > '9')) at++;
    if (at < length) text[at] = (char)(with % 11 < 10 ? '0' + with % 11 : '-');
  }
  return cut ? fuzz_bits(in, 2) % length : length;
}

static void launch(hy_stream* stream, hy_graph* graph) {
  static char memory[4][1 << 16];
  if (graph->n_arguments > 4) return;
  for (int i = 0; i < graph->n_arguments; i++) {
    if (graph->arguments[i].bytes > sizeof memory[i]) return;
    if (graph->arguments[i].name &&
        hy_graph_set(graph, graph->arguments[i].name, memory[i]) != HY_OK)
      return;
  }
  if (hy_graph_set_integer(graph, "d", 1) == HY_OK) hy_graph_run_passes(graph, HY_PASS_ALL, NULL);
  hy_graph_launch(graph, stream);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static hy_device* device;
  static hy_stream* stream;
  char text[sizeof good];
  if (!device) {
    setenv("HALYARD_MEMORY_LIMIT", "64M", 1);
    if (hy_device_get("cpu", &device) != HY_OK || hy_stream_create(device, &stream) != HY_OK) {
      fprintf(stderr, "%s\n", hy_last_error());
      __builtin_trap();
    }
  }
  fuzz_input in = {data, size};
  size_t length = edit(&in, text);
  int fd = memfd_create("fuzz", 0);
  if (fd < 0 || write(fd, text, length) != (ssize_t)length) __builtin_trap();
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  hy_graph* graph;
  if (hy_graph_load(device, path, &graph) == HY_OK) {
    launch(stream, graph);
    hy_graph_destroy(graph);
  }
  close(fd);
  return 0;
}

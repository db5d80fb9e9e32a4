// Graph files: what saving and loading share. JSON with a version; docs/graphs.md has the fields.
#ifndef HALYARD_GRAPH_FILE_H_
#define HALYARD_GRAPH_FILE_H_

#include "base/json_read.h"
#include "base/json_write.h"
#include "halyard/ops.h"

enum { HY__GRAPH_FILE_VERSION = 1, HY__GRAPH_FILE_NODES = 65536 };

// ---- file_attrs.c ----

void hy__attrs_write(json_writer* j, const char* key, const hy_call* call);
// Fields that are not there are 0.
hy_status hy__attrs_read(const hy__json* object, hy_op op, hy_attrs* attrs);

#endif  // HALYARD_GRAPH_FILE_H_

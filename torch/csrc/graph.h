// Graphs: capture on the calling thread's current stream.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <string>

#include "halyard/halyard.h"

namespace halyard_torch {

// Whether the current stream captures.
bool is_capturing(int device);
// Throws where it does: `what` touches the device's memory from the host.
void require_no_capture(int device, const char* what);

void capture_begin(int device);
hy_graph* capture_end(int device);
void capture_drop(int device);
std::string describe(const hy_graph* graph);

// torch.accelerator.Graph finds it under the device's name: after the renaming.
void register_graphs();

}  // namespace halyard_torch

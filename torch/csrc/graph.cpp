// torch.accelerator.Graph over hy_graph: capture on the current stream, replay on the current
// stream. Each graph has memory of its own; pools are not shared.
#include "graph.h"

#include <fstream>

#include "profiler.h"
#include "runtime.h"
#include "stream_error.h"
#include "writes.h"

#if TORCH_VERSION_MINOR >= 12
#include <ATen/core/GraphImplInterface.h>
#endif

namespace halyard_torch {

bool is_capturing(int device) {
  return device_is_open(device) && hy_stream_is_capturing(current_slot(device).handle);
}

void require_no_capture(int device, const char* what) {
  TORCH_CHECK(!is_capturing(device), what,
              " cannot be part of a graph: the host would read or write the device's memory while "
              "the graph is captured, not when it is replayed");
}

void capture_begin(int device) {
  auto& slot = current_slot(device);
  std::lock_guard<std::mutex> lock(slot.mutex);
  check_on(slot, hy_capture_begin(slot.handle));
}

hy_graph* capture_end(int device) {
  auto& slot = current_slot(device);
  std::lock_guard<std::mutex> lock(slot.mutex);
  hy_graph* graph = nullptr;
  check_on(slot, hy_capture_end(slot.handle, &graph));
  return graph;
}

void capture_drop(int device) {
  auto& slot = current_slot(device);
  std::lock_guard<std::mutex> lock(slot.mutex);
  check_on(slot, hy_capture_end(slot.handle, nullptr));
}

std::string describe(const hy_graph* graph) {
  std::string text(hy_graph_describe(graph, nullptr, 0), '\0');
  hy_graph_describe(graph, text.data(), text.size() + 1);
  return text;
}

#if TORCH_VERSION_MINOR >= 12
namespace {

class Graph final : public at::GraphImplInterface {
 public:
  explicit Graph(const at::GraphImplArgs&) {}
  ~Graph() override {
    if (!in_bad_fork()) hy_graph_destroy(graph_);
  }

  void capture_begin(at::MempoolId_t, at::GraphCaptureMode) override {
    TORCH_CHECK(!graph_, "the graph has been captured; reset() makes it ready for another capture");
    device_ = current_device();
    stream_ = current_stream(device_).id();
    halyard_torch::capture_begin(device_);
  }
  void capture_end() override {
    TORCH_CHECK(device_ == current_device() && stream_ == current_stream(device_).id(),
                "capture_end must be called on the stream of capture_begin");
    graph_ = halyard_torch::capture_end(device_);
  }
  void instantiate() override { require_graph(); }
  void replay() override {
    require_graph();
    auto& slot = current_slot(device_);
    std::lock_guard<std::mutex> lock(slot.mutex);
    ProfiledWork work("graph", device_, slot);
    note_writes_anywhere();
    check_on(slot, hy_graph_launch(graph_, slot.handle));
  }
  void reset() override {
    hy_graph_destroy(graph_);
    graph_ = nullptr;
  }
  at::MempoolId_t pool() const override { return {reinterpret_cast<uintptr_t>(this), 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string& path) override {
    require_graph();
    std::ofstream file(path);
    file << describe(graph_);
    TORCH_CHECK(file.flush(), "the graph could not be written to ", path);
  }

 private:
  void require_graph() const { TORCH_CHECK(graph_, "nothing has been captured"); }

  hy_graph* graph_ = nullptr;
  int device_ = -1;
  c10::StreamId stream_ = 0;
};

}  // namespace

void register_graphs() {
  at::GraphImplRegistry()->Register(
      c10::DeviceTypeName(kType, false),
      [](const at::GraphImplArgs& args) -> std::unique_ptr<at::GraphImplInterface> {
        return std::make_unique<Graph>(args);
      });
}
#else
void register_graphs() {}
#endif

}  // namespace halyard_torch

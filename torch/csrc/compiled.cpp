// Compiled graphs: what torch.compile(backend="halyard") captured, replayed on the memory of each
// call without Python.
//
// Passes fuse chains and plan the memory between. Inputs are bound to where they are now, outputs
// to fresh memory. Addresses that have not changed since the last replay cost nothing. An output
// that is where the graph had another value before, of which a part is elsewhere, cannot be
// bound: it is copied.
//
// Weights that stay are packed, and given up when they change.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "graph.h"
#include "profiler.h"
#include "runtime.h"
#include "storage.h"
#include "stream_error.h"
#include "writes.h"

namespace halyard_torch {
namespace {

using at::Tensor;

size_t extent_of(const Tensor& t) {
  if (t.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t d = 0; d < t.dim(); d++) last += (t.size(d) - 1) * t.stride(d);
  return static_cast<size_t>(last + 1) * t.itemsize();
}

// The bytes that a node reads or writes.
struct Extent {
  const char *first, *last;
  bool written;
};

Extent extent_of(const hy_tensor& t, bool written) {
  int64_t first, last;
  hy_tensor_extent(&t, &first, &last);
  auto* data = static_cast<const char*>(t.data);
  return {data + first, data + last, written};
}

// Memory that the graph knows by its captured address.
struct Range {
  const char* captured = nullptr;
  size_t bytes = 0;
  void* now = nullptr;
  bool used = false;  // by a node
  bool written = false;
  bool copied = false;  // an output that cannot be bound
};

struct Geometry {
  explicit Geometry(const Tensor& t)
      : sizes(t.sizes().vec()), strides(t.strides().vec()), type(t.scalar_type()) {}
  bool fits(const Tensor& t) const {
    return t.scalar_type() == type && t.sizes() == sizes && t.strides() == strides;
  }
  std::vector<int64_t> sizes, strides;
  at::ScalarType type;
};

// An input that products multiply by. It is packed once it has been the same in `wanted` calls
// after one another; each time that it changes after that, or finds no memory, twice as many are
// wanted.
struct Weight {
  uint64_t bytes = 0;     // of its packed copies; 0: there is nothing to pack
  uint64_t contents = 0;  // at the last call
  int64_t version = 0;    // PyTorch's, likewise
  int64_t same = 0, wanted = 1;
  bool packed = false;
};

struct Input {
  Range range;
  Geometry geometry;
  Weight weight;
};

// A tensor in block `block`, or in the storage of an input.
struct Output {
  Geometry geometry;
  int input = -1, block = -1;
  int64_t offset = 0;  // in elements: from the storage's start, or from the input's first element
};

class CompiledGraph {
 public:
  CompiledGraph(std::unique_ptr<hy_graph, void (*)(hy_graph*)> graph, c10::Device device,
                at::TensorList inputs, at::TensorList outputs, double search_seconds, bool packs)
      : graph_(graph.get()), device_(device) {
    hy_optimize_report report = {};
    report.size = sizeof report;
    report.passes.size = sizeof report.passes;
    if (search_seconds > 0)
      check(hy_graph_optimize(graph_, search_seconds, &report));
    else
      check(hy_graph_run_passes(graph_, HY_PASS_ALL, &report.passes));
    calls_ = report.passes.nodes_before;
    launches_ = report.passes.nodes_after;
    choices_ = report.choices;
    collect_extents();
    for (const Tensor& t : inputs) {
      inputs_.push_back({range_of(t.const_data_ptr(), extent_of(t)), Geometry(t), {}});
      if (packs) look_for_weight(inputs_.back());
    }
    for (const Tensor& t : outputs) add_output(t, inputs);
    extents_ = {};
    (void)graph.release();
  }
  ~CompiledGraph() {
    if (!in_bad_fork()) hy_graph_destroy(graph_);
  }
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  std::vector<Tensor> replay(at::TensorList inputs) {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK_VALUE(inputs.size() == inputs_.size(), "the graph has ", inputs_.size(),
                      " inputs, not ", inputs.size());
    changed_.clear();
    bindings_.clear();
    for (size_t i = 0; i < inputs.size(); i++) {
      TORCH_CHECK_VALUE(inputs_[i].geometry.fits(inputs[i]), "input ", i,
                        " of the graph has another shape, stride or type");
      bool moved = bind(inputs_[i].range, const_cast<void*>(inputs[i].const_data_ptr()));
      if (inputs_[i].weight.bytes) follow(inputs_[i], inputs[i], moved);
      if (inputs_[i].range.written) note_write(inputs[i]);
    }
    std::vector<Tensor> memory;
    for (Range& block : blocks_) {
      memory.push_back(make_tensor({static_cast<int64_t>(block.bytes)}, at::kByte, device_));
      if (!block.copied) bind(block, memory.back().mutable_data_ptr());
    }
    launch(memory);
    std::vector<Tensor> results;
    results.reserve(outputs_.size());
    for (const Output& output : outputs_) results.push_back(make(output, inputs, memory));
    return results;
  }

  std::string text() const { return describe(graph_); }
  // Nodes as captured, and as the passes left them.
  std::tuple<int64_t, int64_t> nodes() const { return {calls_, launches_}; }
  // What the search took beside all passes; "" for nothing.
  const std::string& choices() const { return choices_; }
  // What packed weights take, in bytes.
  int64_t packed() {
    std::lock_guard<std::mutex> lock(mutex_);
    uint64_t bytes = 0;
    for (const Input& input : inputs_)
      if (input.weight.packed) bytes += input.weight.bytes;
    return static_cast<int64_t>(bytes);
  }

 private:
  void collect_extents() {
    for (int i = 0; i < hy_graph_node_count(graph_); i++) {
      hy_graph_node node = {};
      node.size = sizeof node;
      check(hy_graph_node_at(graph_, i, &node));
      if (node.kind == HY_NODE_CALL) {
        for (int k = 0; k < node.call->n_in; k++) note(extent_of(node.call->in[k], false));
        for (int k = 0; k < node.call->n_out; k++) note(extent_of(node.call->out[k], true));
      } else if (node.kind == HY_NODE_CHAIN) {
        for (int k = 0; k < node.chain->n_in; k++) note(extent_of(node.chain->in[k], false));
        for (int k = 0; k < node.chain->n_out; k++) note(extent_of(node.chain->out[k], true));
      } else {
        auto *dst = static_cast<const char*>(node.dst), *src = static_cast<const char*>(node.src);
        note({dst, dst + node.bytes, true});
        note({src, src + node.bytes, false});
      }
    }
  }
  void note(Extent extent) {
    if (extent.first != extent.last) extents_.push_back(extent);
  }

  Range range_of(const void* address, size_t bytes) const {
    Range range{static_cast<const char*>(address), bytes, const_cast<void*>(address)};
    const char *begin = range.captured, *end = begin + bytes;
    for (const Extent& e : extents_) {
      if (e.last <= begin || e.first >= end) continue;
      range.used = true;
      range.written = range.written || e.written;
      range.copied = range.copied || e.first < begin || e.last > end;
    }
    return range;
  }

  void add_output(const Tensor& t, at::TensorList inputs) {
    Output output{Geometry(t)};
    output.offset = t.storage_offset();
    for (size_t i = 0; i < inputs.size() && output.input < 0; i++) {
      if (!inputs[i].storage().is_alias_of(t.storage())) continue;
      output.input = static_cast<int>(i);
      output.offset -= inputs[i].storage_offset();
    }
    if (output.input < 0) {
      auto* data = static_cast<const char*>(t.storage().data());
      auto same = std::find_if(blocks_.begin(), blocks_.end(),
                               [&](const Range& block) { return block.captured == data; });
      output.block = static_cast<int>(same - blocks_.begin());
      if (same == blocks_.end()) blocks_.push_back(range_of(data, t.storage().nbytes()));
    }
    outputs_.push_back(std::move(output));
  }

  // Whether the range moves.
  bool bind(Range& range, void* now) {
    if (!range.used || now == range.now) return false;
    changed_.emplace_back(&range, now);
    bindings_.push_back({range.captured, range.bytes, now});
    return true;
  }

  void look_for_weight(Input& input) const {
    const Range& range = input.range;
    if (range.used && !range.written)
      check(hy_graph_pack(graph_, range.captured, range.bytes, 0, &input.weight.bytes));
  }

  // Notes what the weight holds at this call, and gives up its copies where that is new. A version
  // that alone has changed is of somebody else's kernel, which notes no writes.
  void follow(Input& input, const Tensor& t, bool moved) {
    Weight& w = input.weight;
    uint64_t contents = contents_of(t);
    int64_t version = t.is_inference() ? 0 : t._version();
    if (contents == w.contents && version != w.version) {
      note_write(t);
      contents = contents_of(t);
    }
    w.version = version;
    if (contents == w.contents && !moved) {
      w.same++;
      return;
    }
    if (w.packed) {
      check(hy_graph_pack(graph_, input.range.captured, input.range.bytes, 0, nullptr));
      wait_longer(w);
    }
    w.packed = false;
    w.same = 0;
    w.contents = contents;
  }

  static void wait_longer(Weight& w) {
    w.same = 0;
    w.wanted = std::min<int64_t>(2 * w.wanted, 1 << 20);
  }

  // Whether an eighth of the device's memory stays free.
  bool has_room_for(uint64_t bytes) const {
    uint64_t free = 0, total = 0;
    check(hy_memory_info(device_at(device_.index()), &free, &total));
    return free >= bytes + total / 8;
  }

  // Packs what has stayed for long enough, or tries again later where memory is short.
  void pack_weights() {
    for (Input& input : inputs_) {
      Weight& w = input.weight;
      if (!w.bytes || w.packed || w.same < w.wanted) continue;
      hy_status status = HY_OUT_OF_MEMORY;
      if (has_room_for(w.bytes))
        status =
            hy_graph_pack(graph_, input.range.captured, input.range.bytes, w.contents, nullptr);
      w.packed = status == HY_OK;
      if (status != HY_OUT_OF_MEMORY) check(status);
      if (!w.packed) wait_longer(w);
    }
  }

  void launch(const std::vector<Tensor>& memory) {
    auto& slot = current_slot(device_.index());
    std::lock_guard<std::mutex> lock(slot.mutex);
    if (!bindings_.empty()) {
      hy_status status =
          hy_graph_bind(graph_, bindings_.data(), static_cast<int>(bindings_.size()));
      TORCH_CHECK_VALUE(status == HY_OK,
                        "the graph cannot be bound to these tensors: ", hy_last_error());
      for (auto& [range, now] : changed_) range->now = now;
    }
    pack_weights();
    ProfiledWork work("graph", device_.index(), slot);
    check_on(slot, hy_graph_launch(graph_, slot.handle));
    for (size_t i = 0; i < blocks_.size(); i++)
      if (blocks_[i].copied)
        check_on(slot, hy_memcpy(slot.handle, memory[i].mutable_data_ptr(), blocks_[i].captured,
                                 blocks_[i].bytes, HY_COPY_DEVICE_TO_DEVICE));
  }

  Tensor make(const Output& output, at::TensorList inputs,
              const std::vector<Tensor>& memory) const {
    const Geometry& g = output.geometry;
    if (output.input >= 0) {
      const Tensor& base = inputs[output.input];
      return base.as_strided(g.sizes, g.strides, base.storage_offset() + output.offset);
    }
    auto made = at::detail::make_tensor<c10::TensorImpl>(
        c10::Storage(memory[output.block].storage()),
        c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(g.type));
    made.unsafeGetTensorImpl()->set_storage_offset(output.offset);
    made.unsafeGetTensorImpl()->set_sizes_and_strides(g.sizes, g.strides);
    return made;
  }

  hy_graph* graph_;
  int calls_ = 0, launches_ = 0;
  std::string choices_;
  c10::Device device_;
  std::mutex mutex_;
  std::vector<Extent> extents_;  // of the nodes' tensors, while the graph is made
  std::vector<Input> inputs_;
  std::vector<Range> blocks_;  // the storages of outputs
  std::vector<Output> outputs_;
  std::vector<std::pair<Range*, void*>> changed_;
  std::vector<hy_binding> bindings_;
};

struct Shelf {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<CompiledGraph>> graphs;
  int64_t next = 0;
};

Shelf& shelf() {
  static auto* made = new Shelf;
  return *made;
}

std::shared_ptr<CompiledGraph> graph_at(int64_t number) {
  std::lock_guard<std::mutex> lock(shelf().mutex);
  auto found = shelf().graphs.find(number);
  TORCH_CHECK(found != shelf().graphs.end(), "there is no compiled graph ", number);
  return found->second;
}

int64_t end(at::TensorList inputs, at::TensorList outputs, double search_seconds, bool packs) {
  c10::Device device(kType, static_cast<c10::DeviceIndex>(current_device()));
  std::unique_ptr<hy_graph, void (*)(hy_graph*)> graph(capture_end(device.index()),
                                                       hy_graph_destroy);
  auto made = std::make_shared<CompiledGraph>(std::move(graph), device, inputs, outputs,
                                              search_seconds, packs);
  std::lock_guard<std::mutex> lock(shelf().mutex);
  shelf().graphs.emplace(++shelf().next, std::move(made));
  return shelf().next;
}

std::vector<Tensor> replay(int64_t graph, at::TensorList inputs) {
  at::AutoDispatchBelowADInplaceOrView guard;
  return graph_at(graph)->replay(inputs);
}

void release(int64_t graph) {
  std::shared_ptr<CompiledGraph> dropped;
  std::lock_guard<std::mutex> lock(shelf().mutex);
  auto found = shelf().graphs.find(graph);
  if (found == shelf().graphs.end()) return;
  dropped = std::move(found->second);
  shelf().graphs.erase(found);
}

TORCH_LIBRARY(halyard, m) {
  m.def("capture_begin() -> ()", [] { capture_begin(current_device()); });
  m.def("capture_drop() -> ()", [] { capture_drop(current_device()); });
  m.def("capture_end(Tensor[] inputs, Tensor[] outputs, float search_seconds, bool packs) -> int",
        end);
  m.def("graph_replay(int graph, Tensor[] inputs) -> Tensor[]", replay);
  m.def("graph_release(int graph) -> ()", release);
  m.def("graph_nodes(int graph) -> (int, int)",
        [](int64_t graph) { return graph_at(graph)->nodes(); });
  m.def("graph_choices(int graph) -> str",
        [](int64_t graph) { return graph_at(graph)->choices(); });
  m.def("graph_packed(int graph) -> int", [](int64_t graph) { return graph_at(graph)->packed(); });
  m.def("note_write(Tensor t) -> ()", [](const Tensor& t) { note_write(t); });
  m.def("graph_describe(int graph) -> str", [](int64_t graph) { return graph_at(graph)->text(); });
}

}  // namespace
}  // namespace halyard_torch

// A backward returns before the engine's device thread has freed its last node. Where that node is
// the last owner of something of Python's, freeing it takes the GIL; a Python that is ending
// (before 3.14) answers with pthread_exit, which unwinds through a destructor: std::terminate. So
// before Python ends, a node without anything of Python's passes through each thread: the thread
// takes it up only when it has put down the one before.
#include "autograd.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "runtime.h"

namespace halyard_torch {
namespace {

using torch::autograd::Edge;
using torch::autograd::Engine;
using torch::autograd::Node;
using torch::autograd::variable_list;

std::atomic<bool> g_backward{false};

struct Settle final : Node {
  variable_list apply(variable_list&&) override { return {}; }
};

void pass_through(int device) {
  auto nothing = at::empty({0}, at::Device(kType, static_cast<c10::DeviceIndex>(device)));
  std::unique_ptr<Node> node = std::make_unique<Settle>();
  node->add_input_metadata(nothing);
  // A shared pointer until torch 2.12, an intrusive one since.
  decltype(Edge::function) shared{std::move(node)};
  Engine::get_default_engine().execute({Edge(shared, 0)}, {nothing}, false, false, true);
}

}  // namespace

void note_backward() noexcept {
  if (!g_backward.load(std::memory_order_relaxed) &&
      torch::autograd::get_current_graph_task_id() >= 0)
    g_backward.store(true, std::memory_order_relaxed);
}

bool settle_autograd() noexcept {
  if (!g_backward || in_bad_fork()) return true;
  try {
    std::packaged_task<void()> work([] {
      for (int i = 0; i < device_count(); i++)
        if (device_is_open(i)) pass_through(i);
    });
    auto done = work.get_future();
    std::thread thread(std::move(work));
    if (done.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
      thread.detach();
      return false;
    }
    thread.join();
    done.get();
    return true;
  } catch (const std::exception&) {  // no thread to be had, or a device that fails
    return false;
  }
}

}  // namespace halyard_torch

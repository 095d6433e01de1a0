#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/device/device_graph.h"

namespace lockstep {
namespace {

// LibTorch's graph, which after a failed recording leaves its memory pool and the generators in the middle of it.
class Graph final : public at::cuda::CUDAGraph {
 public:
  Graph() : CUDAGraph(/*keep_graph=*/true) {}  // inputs are looked up in it

  // The memory of a recording that was not ended goes with the graph.
  void let_go_of_pool() { capture_ended_ = true; }
};

// Newer versions have the same for pinned memory.
template <typename Allocator, typename Pool>
void end_host_pool(Allocator* allocator, const Pool& pool) {
  if constexpr (requires { allocator->end_allocate_to_pool(pool); }) allocator->end_allocate_to_pool(pool);
}

void require_success(cudaError_t result, const char* what) {
  if (result != cudaSuccess) throw Error(ErrorCode::kInternal, str(what, ": CUDA: ", cudaGetErrorString(result)));
}

struct Input {
  void* to;
  const void* from;
  std::size_t bytes;
  cudaGraphNode_t node = nullptr;
};

// Which node of the graph copies each input.
void find_inputs(cudaGraph_t graph, std::vector<Input>& inputs) {
  std::size_t count = 0;
  require_success(cudaGraphGetNodes(graph, nullptr, &count), "the nodes of a graph");
  std::vector<cudaGraphNode_t> nodes(count);
  require_success(cudaGraphGetNodes(graph, nodes.data(), &count), "the nodes of a graph");
  for (const auto node : nodes) {
    cudaGraphNodeType type{};
    require_success(cudaGraphNodeGetType(node, &type), "a node of a graph");
    if (type != cudaGraphNodeTypeMemcpy) continue;
    cudaMemcpy3DParms copy{};
    require_success(cudaGraphMemcpyNodeGetParams(node, &copy), "a copy in a graph");
    for (auto& input : inputs)
      if (copy.dstPtr.ptr == input.to && copy.srcPtr.ptr == input.from && input.node == nullptr) input.node = node;
  }
  for (const auto& input : inputs)
    if (input.node == nullptr) throw Error(ErrorCode::kInternal, "an input of a recorded step is not in its graph");
}

template <typename F>
void without_errors(F&& fn) noexcept {
  try {
    fn();
  } catch (const std::exception&) {
    // It was not begun.
  }
}

}  // namespace

struct DeviceGraph::State {
  c10::Device device;
  std::vector<at::Generator> generators;
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  at::cuda::MempoolId_t pool = {};
  c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
  std::vector<Input> inputs = {};
};

std::string DeviceGraph::why_not(c10::Device device) {
  return device.is_cuda() ? "" : lockstep::str("work of ", device, " is not recorded, only that of GPUs");
}

DeviceGraph::DeviceGraph(c10::Device device, const std::vector<at::Generator>& generators) {
  if (const auto reason = why_not(device); !reason.empty()) throw Error(ErrorCode::kUnimplemented, reason);
  state_ = std::make_unique<State>(State{device, generators});
  state_->generators.push_back(at::cuda::detail::getDefaultCUDAGenerator(device.index()));
}

DeviceGraph::~DeviceGraph() = default;

void DeviceGraph::begin() {
  auto& s = *state_;
  s.stream = c10::cuda::getCurrentCUDAStream(s.device.index());
  s.pool = at::cuda::graph_pool_handle();
  for (const auto& generator : s.generators) s.graph->register_generator_state(generator);
  // Other threads go on with what they do: they copy the next batches to the device.
  s.graph->capture_begin(s.pool, cudaStreamCaptureModeThreadLocal);
}

void DeviceGraph::end() {
  auto& s = *state_;
  try {
    s.graph->capture_end();
    find_inputs(s.graph->raw_cuda_graph(), s.inputs);
    s.graph->instantiate();
  } catch (const std::exception& error) {
    abandon();
    throw Error(ErrorCode::kFailedPrecondition, str("the work could not be recorded: ", error.what()));
  }
}

bool DeviceGraph::is_sound() const noexcept {
  auto status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(state_->stream, &status) == cudaSuccess && status == cudaStreamCaptureStatusActive;
}

void DeviceGraph::abandon() noexcept {
  auto& s = *state_;
  cudaGraph_t unfinished = nullptr;
  cudaStreamEndCapture(s.stream, &unfinished);
  if (unfinished != nullptr) cudaGraphDestroy(unfinished);
  cudaGetLastError();  // it was told
  const auto index = s.device.index();
  without_errors([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(index, s.pool); });
  without_errors([&] { end_host_pool(at::getHostAllocator(at::kCUDA), s.pool); });
  // A generator that was being recorded would stay so: it gets a state that was not, with the same seed and place.
  for (auto& generator : s.generators) without_errors([&] { generator.graphsafe_set_state(generator.clone()); });
  s.graph->let_go_of_pool();
  s.graph.reset();
}

void DeviceGraph::add_input(void* to, const void* from, std::size_t bytes) {
  auto& s = *state_;
  require_success(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, s.stream), "an input of a recorded step");
  s.inputs.push_back({to, from, bytes});
}

void DeviceGraph::set_input(std::size_t index, const void* from) {
  auto& s = *state_;
  auto& input = s.inputs.at(index);
  if (from == input.from) return;
  require_success(cudaGraphExecMemcpyNodeSetParams1D(s.graph->raw_cuda_graph_exec(), input.node, input.to, from, input.bytes,
                                                     cudaMemcpyDeviceToDevice),
                  "an input of a recorded step");
  input.from = from;
}

void DeviceGraph::replay() { state_->graph->replay(); }

}  // namespace lockstep

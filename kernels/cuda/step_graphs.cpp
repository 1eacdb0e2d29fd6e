#include "kernels/cuda/step_graphs.hpp"

#include <memory>
#include <type_traits>

#include "kernels/cuda/check.hpp"

namespace banyan::kernels::cuda {
namespace {

struct GraphDeleter {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using CapturedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, GraphDeleter>;

// Leaves the stream as it was, also when launch() throws.
CapturedGraph captured(cudaStream_t stream, const std::function<void()>& launch) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    launch();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    cudaGetLastError();
    CapturedGraph broken(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return CapturedGraph(graph);
}

}  // namespace

void StepGraphs::Graph::launch(cudaStream_t stream) const { check(cudaGraphLaunch(graph_, stream), "cudaGraphLaunch"); }

void StepGraphs::run(const Key& key, cudaStream_t stream, const std::function<void()>& launch) {
  const Graph* graph = cache_.find(key);
  if (graph == nullptr && cache_.should_record()) {
    auto [recorded, n_nodes] = capture(stream, launch);
    if (cache_.is_full_for(n_nodes)) check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    graph = cache_.add(std::move(recorded), n_nodes);
  }
  if (graph != nullptr) {
    graph->launch(stream);
  } else {
    launch();
  }
}

std::pair<StepGraphs::Graph, std::int64_t> StepGraphs::capture(cudaStream_t stream,
                                                               const std::function<void()>& launch) {
  const CapturedGraph graph = captured(stream, launch);
  std::size_t n_nodes = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &n_nodes), "cudaGraphGetNodes");
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
  return {Graph(executable), static_cast<std::int64_t>(n_nodes)};
}

}  // namespace banyan::kernels::cuda

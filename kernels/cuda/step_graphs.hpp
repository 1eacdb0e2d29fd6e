// Steps as CUDA graphs: what a step puts on the stream is captured once and launched as one piece from then on. Which
// steps, and how many are kept, is ReplayCache's.
#pragma once

#include <cuda_runtime_api.h>
#include <functional>
#include <utility>

#include "kernels/cuda/replay_cache.hpp"

namespace banyan::kernels::cuda {

class StepGraphs {
 public:
  // An instantiated graph, not under way when it is destroyed.
  class Graph {
   public:
    explicit Graph(cudaGraphExec_t graph) : graph_(graph) {}
    Graph(Graph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
    Graph& operator=(Graph&& other) noexcept {
      std::swap(graph_, other.graph_);
      return *this;
    }
    ~Graph() {
      if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    }
    void launch(cudaStream_t stream) const;

   private:
    cudaGraphExec_t graph_;
  };
  using Key = ReplayCache<Graph>::Key;

  // Calls launch(), which puts kernels on the stream and does nothing else that CUDA forbids during capture: it must
  // have been called with this key before it is captured, so that nothing is allocated, picked or loaded then. Or
  // launches the graph of an earlier call with this key.
  void run(const Key& key, cudaStream_t stream, const std::function<void()>& launch);

 private:
  static std::pair<Graph, std::int64_t> capture(cudaStream_t stream, const std::function<void()>& launch);
  ReplayCache<Graph> cache_;
};

}  // namespace banyan::kernels::cuda

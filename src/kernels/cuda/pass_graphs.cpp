#include "kernels/cuda/pass_graphs.h"

#include <algorithm>

#include "kernels/cuda/cuda_error.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr size_t kMostEntries = 48;

// What `launch` enqueues, as a graph that can be launched.
Result<cudaGraphExec_t> capture(cudaStream_t stream, const std::function<Status()>& launch) {
  RH_TRY_STATUS(check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a pass"));
  const Status launched = launch();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  if (!launched.ok()) {
    if (graph) cudaGraphDestroy(graph);
    return launched.error();
  }
  RH_TRY_STATUS(check(ended, "capturing a pass"));
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  RH_TRY_STATUS(check(made, "making a graph of a pass"));
  return executable;
}

}  // namespace

PassGraphs::~PassGraphs() {
  for (Entry& entry : entries_) {
    if (entry.graph) cudaGraphExecDestroy(entry.graph);
  }
}

Status PassGraphs::run(const PassKey& key, cudaStream_t stream, const std::function<Status()>& launch) {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) {
    entries_.push_front({key, nullptr});
    if (entries_.size() > kMostEntries) {
      if (entries_.back().graph) cudaGraphExecDestroy(entries_.back().graph);
      entries_.pop_back();
    }
    return launch();
  }
  entries_.splice(entries_.begin(), entries_, found);
  Entry& entry = entries_.front();
  if (!entry.graph) {
    RH_TRY(entry.graph, capture(stream, launch));
  }
  return check(cudaGraphLaunch(entry.graph, stream), "launching a pass");
}

}  // namespace rhapsode::kernels::cuda

// One back end out of several devices: memory parallel.
//
// Every device holds all weights and computes every row; the pages of keys and values are spread over them
// (Page::device). In each layer a device attends to its own pages, and the partial results are exchanged and
// merged by log-sum-exp in the order of the devices, so all of them go on from the same bytes. What is gained
// is room: for N times the pages, read at N times the rate; other work is not divided. Results differ from
// those of one device by the rounding of the merge. Codes are spread and searched likewise, with the same
// results bit for bit.
//
// Ownership: owns the shards. Threads: as Backend; each shard lives on a thread of its own. Errors: what one
// shard cannot do none does, and the pass fails with its reason; read budgets are refused (their choice needs
// all pages in one place), and so are deterministic passes (bytes would depend on where pages happen to lie).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/collective.h"
#include "kernels/graph.h"

namespace rhapsode::kernels {

// Makes the back end of one shard; called on its thread. The options name its number, its device and its end
// of the collective.
using ShardMaker = std::function<Result<std::unique_ptr<Backend>>(BackendOptions options)>;

// One shard for each end, each on the device of its number, or `devices` [ends] where they are given.
Result<std::unique_ptr<Backend>> make_sharded_backend(BackendOptions options,
                                                      std::vector<std::unique_ptr<Collective>> ends,
                                                      const ShardMaker& make, std::vector<int> devices = {});

// Shards on the CPU, the threads divided among them: nothing is gained, but everything is as on several GPUs.
Result<std::unique_ptr<Backend>> make_sharded_cpu_backend(BackendOptions options, int shards);

}  // namespace rhapsode::kernels

// The CPU back end: libggml's graphs and quantised matmuls around our own attention (cpu/attend.h).
//
// Weights stay where the file is mapped, unless ggml has a faster packed layout for their type ("repack").
// One graph is kept per (recipe, rows, output rows), least recently used ones are dropped; attention reads
// page tables, positions and targets through the batch at run time, so a decode graph serves every step.
// Deterministic mode pads every pass to kDeterministicRows rows: ggml picks its matmul routine by the number
// of rows, never by their content or place, so a row then always takes the same arithmetic. Works with a
// linked CPU back end and with run-time loaded ones (GGML_BACKEND_DL): only the registry is used.
#pragma once

#include <filesystem>
#include <memory>

#include "kernels/graph.h"

namespace rhapsode::kernels::cpu {

inline constexpr int kDeterministicRows = 16;

// Makes ggml's CPU back end known: the linked one, else the best of the run-time loadable variants in
// `folder` (empty: beside libggml). Once a process.
Status load_ggml(const std::filesystem::path& folder = {});

Result<std::unique_ptr<Backend>> make_ggml_backend(BackendOptions options);

}  // namespace rhapsode::kernels::cpu

// The functions of NCCL that we call, found at run time; declared here as NCCL 2 has them, so that no header
// of it is needed to build.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "base/result.h"

namespace rhapsode::kernels::cuda {

struct NcclCommunicator;  // ncclComm
using NcclResult = int;   // ncclResult_t
inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr int kNcclBytes = 0;  // ncclInt8

struct NcclLibrary {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*error_string)(NcclResult result) = nullptr;
  NcclResult (*init_all)(NcclCommunicator** communicators, int devices, const int* list) = nullptr;
  NcclResult (*destroy)(NcclCommunicator* communicator) = nullptr;
  NcclResult (*abort)(NcclCommunicator* communicator) = nullptr;
  NcclResult (*all_gather)(const void* send, void* receive, size_t count, int type,
                           NcclCommunicator* communicator, cudaStream_t stream) = nullptr;

  Status check(NcclResult result, const char* what) const;
};

// Loaded once a process and kept: libnccl.so.2, where the system's loader looks or in the toolkit's folder.
Result<const NcclLibrary*> nccl_library();

}  // namespace rhapsode::kernels::cuda

#include "kernels/cuda/nccl_library.h"

#include "kernels/cuda/dynamic_library.h"

namespace rhapsode::kernels::cuda {

namespace {

constexpr char kName[] = "libnccl.so.2";

Result<const NcclLibrary*> load() {
  void* const library = open_library(kName);
  if (!library) {
    return make_error(
        ErrorKind::kUnsupported,
        "several GPUs need NCCL and {} cannot be loaded: install NCCL (the package libnccl2, or "
        "nvidia-nccl-cu13 of pip), put its folder into LD_LIBRARY_PATH, or leave out --devices",
        kName);
  }
  static NcclLibrary functions;
  NcclLibrary& f = functions;
  const bool complete = find_function(library, "ncclGetVersion", f.get_version) &&
                        find_function(library, "ncclGetErrorString", f.error_string) &&
                        find_function(library, "ncclCommInitAll", f.init_all) &&
                        find_function(library, "ncclCommDestroy", f.destroy) &&
                        find_function(library, "ncclCommAbort", f.abort) &&
                        find_function(library, "ncclAllGather", f.all_gather);
  if (!complete) return make_error(ErrorKind::kUnsupported, "{} lacks functions of its own interface", kName);
  return &functions;
}

}  // namespace

Status NcclLibrary::check(NcclResult result, const char* what) const {
  if (result == kNcclSuccess) return {};
  return make_error(ErrorKind::kInternal, "{} failed: NCCL says '{}' (NCCL_DEBUG=WARN tells more)", what,
                    error_string(result));
}

Result<const NcclLibrary*> nccl_library() {
  static const Result<const NcclLibrary*> library = load();
  return library;
}

}  // namespace rhapsode::kernels::cuda

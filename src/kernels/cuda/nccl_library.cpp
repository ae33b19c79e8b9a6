#include "kernels/cuda/nccl_library.h"

#include <dlfcn.h>

#include <string>

namespace rhapsode::kernels::cuda {

namespace {

constexpr char kName[] = "libnccl.so.2";

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Result<const NcclLibrary*> load() {
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (!library) library = dlopen((std::string(RHAPSODE_CUDA_LIBRARIES) + "/" + kName).c_str(), RTLD_NOW);
  if (!library) {
    return make_error(
        ErrorKind::kUnsupported,
        "several GPUs need NCCL and {} cannot be loaded: install NCCL (the package libnccl2, or "
        "nvidia-nccl-cu13 of pip), put its folder into LD_LIBRARY_PATH, or leave out --devices",
        kName);
  }
  static NcclLibrary functions;
  NcclLibrary& f = functions;
  const bool complete =
      find(library, "ncclGetVersion", f.get_version) && find(library, "ncclGetErrorString", f.error_string) &&
      find(library, "ncclCommInitAll", f.init_all) && find(library, "ncclCommDestroy", f.destroy) &&
      find(library, "ncclCommAbort", f.abort) && find(library, "ncclAllGather", f.all_gather);
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

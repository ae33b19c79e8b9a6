// The choice between kernels compiled for several instruction sets (Highway), and a way to force it for
// tests.
//
// A source compiled by foreach_target exports one function that returns the table of its target's kernels;
// kBest wraps the dynamic dispatch of that export. Kernels has a member `const char* target`. Threads: get()
// from any; force() only while nothing runs. Cost of get(): one atomic load and a call.
#pragma once

#include <atomic>
#include <string_view>

#include "hwy/targets.h"

namespace rhapsode {

template <class Kernels, const Kernels* (*kBest)()>
class KernelChoice {
 public:
  // The best kernels for this CPU, or the forced ones.
  static const Kernels& get() {
    const Kernels* kernels = forced_.load(std::memory_order_acquire);
    return kernels != nullptr ? *kernels : *kBest();
  }

  // Takes the kernels of the named target ("AVX2"), or the best again for "". False, and the best, if this
  // CPU or build does not have it.
  static bool force(std::string_view name) {
    forced_.store(nullptr, std::memory_order_release);
    if (name.empty()) return true;
    // Highway can only be asked for the best of a set: narrow the set to one, ask, and restore it.
    const Kernels* found = nullptr;
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      const Kernels* kernels = kBest();
      if (name == kernels->target) found = kernels;
      hwy::SetSupportedTargetsForTest(0);
    }
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    forced_.store(found, std::memory_order_release);
    return found != nullptr;
  }

 private:
  static inline std::atomic<const Kernels*> forced_{nullptr};
};

}  // namespace rhapsode

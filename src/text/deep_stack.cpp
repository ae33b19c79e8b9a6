#include "text/deep_stack.h"

#include <pthread.h>

#include <cstddef>

#include "base/result.h"

namespace rhapsode::text {
namespace {

constexpr size_t kStackBytes = size_t{256} << 20;

void* run(void* argument) {
  (*static_cast<const std::function<void()>*>(argument))();
  return nullptr;
}

}  // namespace

Status on_deep_stack(const std::function<void()>& call) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread;
  const int error =
      pthread_create(&thread, &attributes, run, const_cast<void*>(static_cast<const void*>(&call)));
  pthread_attr_destroy(&attributes);
  if (error != 0) return make_system_error(error, "a thread with a stack of 256 MiB cannot be made");
  pthread_join(thread, nullptr);
  return {};
}

}  // namespace rhapsode::text

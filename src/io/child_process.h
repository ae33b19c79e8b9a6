// One program run to its end: input from a file descriptor, output into memory, within limits.
//
// No shell. The child gets a process group of its own, which is killed at the time or output limit, and no
// descriptor of ours but its three standard ones. Threads: any. Cost: a process start.
// Errors: kNotFound when there is no such program on the PATH, kTooLarge over a limit, kIo otherwise. A child
// that ends with a code other than 0 is no error here.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode {

struct ChildLimits {
  std::chrono::milliseconds time{60'000};
  size_t output_bytes = size_t{64} << 20;
  uint64_t memory_bytes = uint64_t{4} << 30;  // address space
};

struct ChildOutput {
  int exit_code = 0;  // 128 + signal where one ended it
  std::string output;
  std::string errors;  // the first 4 KiB of standard error
};

// `arguments` begins with the program's name, looked up on the PATH. The environment holds PATH and a C
// locale.
Result<ChildOutput> run_child(const std::vector<std::string>& arguments, int input_descriptor,
                              const ChildLimits& limits = {});

// Bytes as an anonymous file in memory at its start, for a child's input. The caller closes it.
Result<int> memory_file(std::string_view bytes);

}  // namespace rhapsode

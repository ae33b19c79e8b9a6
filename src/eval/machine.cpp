#include "eval/machine.h"

#include <fstream>

#include "base/system.h"

namespace rhapsode::eval {
namespace {

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

}  // namespace

Json describe_machine() {
  return {{"cpu", processor()}, {"cores", usable_cores()}, {"memory_bytes", memory_bytes()}};
}

}  // namespace rhapsode::eval

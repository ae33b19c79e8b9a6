// `rhapsode bench`: prefill and decode speed by length, next to libllama's when asked.
#include "cli/command.h"

namespace rhapsode::cli {

Result<int> run_bench(Invocation&) {
  return make_error(ErrorKind::kUnsupported, "this build cannot measure yet");
}

}  // namespace rhapsode::cli

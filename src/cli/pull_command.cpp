// `rhapsode pull`: a model from the catalogue, a URL or a path into the home folder.
#include "cli/command.h"

namespace rhapsode::cli {

Result<int> run_pull(Invocation&) {
  return make_error(ErrorKind::kUnsupported,
                    "this build cannot get models yet; put GGUF files into the home folder");
}

}  // namespace rhapsode::cli

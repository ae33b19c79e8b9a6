// Uses the installed library as a stranger would: opens a model (or shows why not) and lets it answer.
//   consumer MODEL.gguf   prints the answer; exit 1 with one sentence when something fails
#include <cstdio>

#include "rhapsode/engine.h"
#include "rhapsode/version.h"

int main(int argc, char** argv) {
  rhapsode::EngineOptions options;
  options.model = argc > 1 ? argv[1] : "";
  auto engine = rhapsode::Engine::open(options);
  if (!engine.ok()) {
    std::printf("rhapsode %s: %s: %s\n", rhapsode::kVersion, rhapsode::to_string(engine.error().kind),
                engine.error().message.c_str());
    return 1;
  }
  rhapsode::Request request;
  request.messages = {{"user", "Say hello."}};
  request.max_tokens = 8;
  auto response = (*engine)->run(request);
  if (!response.ok()) {
    std::printf("%s\n", response.error().message.c_str());
    return 1;
  }
  std::printf("answer: %s\n", response->text.c_str());
  return 0;
}

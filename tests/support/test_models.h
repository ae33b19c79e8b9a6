// Where tests find real models: $RHAPSODE_TEST_MODELS (set by ctest to the model cache that `make test`
// fills). A test that needs one starts with `RH_REQUIRE_MODEL(path, "smollm2-135m");`: it is skipped with a
// sentence when the file is absent, and fails instead when RHAPSODE_REQUIRE_MODELS names it: `make test` and
// `make test-all` name there what they have pulled.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace rhapsode::test {

inline std::filesystem::path model_path(const std::string& name) {
  const char* folder = std::getenv("RHAPSODE_TEST_MODELS");
  return std::filesystem::path(folder ? folder : "") / (name + ".gguf");
}

// Whether nothing may be missing that the set-up makes or pulls.
inline bool models_required() {
  return std::getenv("RHAPSODE_REQUIRE_MODELS") != nullptr;
}

inline bool is_model_required(const std::string& name) {
  const char* names = std::getenv("RHAPSODE_REQUIRE_MODELS");
  return names && (' ' + std::string(names) + ' ').find(' ' + name + ' ') != std::string::npos;
}

}  // namespace rhapsode::test

#define RH_REQUIRE_MODEL(variable, name)                                                                    \
  const std::filesystem::path variable = ::rhapsode::test::model_path(name);                                \
  if (!std::filesystem::exists(variable)) {                                                                 \
    if (::rhapsode::test::is_model_required(name)) FAIL() << variable << " is missing: run `make test`";    \
    GTEST_SKIP() << variable << " is missing: `rhapsode pull " << name << "` and set RHAPSODE_TEST_MODELS"; \
  }

// Tiny random models and adapters, written on first use by tests/support/tiny_model.py (which lists them).
// A test that needs one starts with `RH_REQUIRE_TINY_MODEL(path, "qwen3-f32");`: it is skipped with a
// sentence when the Python packages of requirements-test.txt are absent, and fails instead when
// RHAPSODE_REQUIRE_MODELS is set, as `make test` does. $RHAPSODE_TEST_PYTHON names another interpreter than
// .venv's.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/test_models.h"

namespace rhapsode::test {

inline std::filesystem::path tiny_model_path(const std::string& name) {
  return std::filesystem::path(RHAPSODE_TEST_DATA) / "tiny" / (name + ".gguf");
}

// Writes the model unless a fresh one is there. False: the script's own words are on stderr.
inline bool make_tiny_model(const std::string& name) {
  const std::filesystem::path script =
      std::filesystem::path(RHAPSODE_SOURCE_DIR) / "tests/support/tiny_model.py";
  const std::filesystem::path path = tiny_model_path(name);
  std::error_code code;
  const auto written = std::filesystem::last_write_time(path, code);
  if (!code && written >= std::filesystem::last_write_time(script)) return true;
  const char* python = std::getenv("RHAPSODE_TEST_PYTHON");
  const std::string interpreter = python ? python : RHAPSODE_SOURCE_DIR "/.venv/bin/python";
  const std::string command =
      "'" + interpreter + "' '" + script.string() + "' '" + path.parent_path().string() + "' '" + name + "'";
  return std::system(command.c_str()) == 0;
}

}  // namespace rhapsode::test

#define RH_REQUIRE_TINY_MODEL(variable, name)                                                            \
  const std::filesystem::path variable = ::rhapsode::test::tiny_model_path(name);                        \
  if (!::rhapsode::test::make_tiny_model(name)) {                                                        \
    if (::rhapsode::test::models_required()) FAIL() << name << " could not be written: run `make test`"; \
    GTEST_SKIP() << name << " could not be written: pip install -r requirements-test.txt";               \
  }

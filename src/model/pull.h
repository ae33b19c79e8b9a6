// Gets models into HOME/models/NAME.gguf: by catalogue name, URL or path; and finds them there again.
//
// A pull is resumable (HOME/models/.partial), checked (size, SHA-256 where the catalogue pins it, and
// GgufFile::open) and atomic: NAME.gguf is there whole or not at all. A second pull of the same model returns
// at once: a small file beside it remembers that these bytes were verified, by size and modification time.
// Pulls of one model by several processes wait for each other. Threads: any. Errors: one sentence that says
// what to do; see io/http.h for kinds.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/catalogue.h"

namespace rhapsode::model {

enum class PullStage : uint8_t {
  kWaiting,      // another process pulls the same model
  kDownloading,  // or copying, for a path
  kVerifying,
};

struct PullProgress {
  PullStage stage = PullStage::kDownloading;
  std::string source;  // a URL, package or path, fit to be shown
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;  // 0: unknown
};

struct PullOptions {
  std::filesystem::path home;  // empty: home_folder()
  bool offline = false;        // use what is there; never touch the network
  std::string index_url;       // of packages; empty: $PIP_INDEX_URL, else the public index
  int attempts = 5;            // failures in a row before a source is given up
  std::chrono::milliseconds retry_delay{1000};
  int stall_seconds = 60;
  // Called often, also while nothing arrives; false cancels (what is there stays for a later pull).
  std::function<bool(const PullProgress&)> on_progress;
};

struct PulledModel {
  std::string name;
  std::filesystem::path path;
  uint64_t bytes = 0;
  std::string sha256;
  std::string source;          // where the bytes came from, fit to be shown
  bool already_there = false;  // nothing was fetched
  bool pinned = false;         // the SHA-256 was known beforehand; otherwise show it to the user
};

// `what`: a name of the catalogue (empty: its default), an http(s) URL of a GGUF file, or a path to one.
Result<PulledModel> pull(const std::string& what, const PullOptions& options = {});

// The local file of a path (has a '/' or ends in .gguf) or of a pulled name (empty: the default model);
// otherwise kNotFound with the `rhapsode pull` to type.
Result<std::filesystem::path> resolve_model(const std::string& name_or_path,
                                            const std::filesystem::path& home = {});

struct LocalModel {
  std::string name;
  std::filesystem::path path;
  uint64_t bytes = 0;
};
// Models in HOME/models, by name. Cost: one listing; nothing is opened.
std::vector<LocalModel> local_models(const std::filesystem::path& home = {});

}  // namespace rhapsode::model

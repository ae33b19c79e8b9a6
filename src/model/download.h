// Fetches one file into a partial file that outlives the process, from a URL or out of packages.
//
// A partial file FOLDER/NAME.part has a state beside it (NAME.state.json: source, ETag, finished parts),
// written atomically. A later call goes on where the last one ended, also after a kill and in the middle of
// several packages; another source starts anew. Short breaks are retried; each attempt that brings bytes
// renews the patience. Threads: one download per name at a time (the caller holds a lock). Errors: those of
// io/http.h and io/file.h, kCorrupt when sizes or hashes differ from what was promised, kNoSpace before the
// first byte when it will not fit.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"
#include "model/catalogue.h"

namespace rhapsode::model {

struct DownloadOptions {
  std::string index_url;        // of packages
  uint64_t expected_bytes = 0;  // of the whole file; 0: unknown
  bool pinned = false;          // the caller checks a hash, so a resume without an ETag is safe
  int attempts = 5;             // failures in a row before giving up; 2 while nothing came
  std::chrono::milliseconds retry_delay{1000};  // doubled from failure to failure
  int stall_seconds = 60;
  // Bytes of the file so far and in all (0: unknown); false cancels. Called often, also while nothing
  // arrives.
  std::function<bool(uint64_t done, uint64_t total)> on_progress;
};

struct PartialPaths {
  std::filesystem::path folder;
  std::string name;

  std::filesystem::path file() const { return folder / (name + ".part"); }
  std::filesystem::path state() const { return folder / (name + ".state.json"); }
};

// Completes partial.file() from `source`; the content is not checked beyond its size and the packages' own
// hashes.
Status download(const ModelSource& source, const PartialPaths& partial, const DownloadOptions& options);

// Forgets a partial file and its state.
void discard(const PartialPaths& partial);

}  // namespace rhapsode::model

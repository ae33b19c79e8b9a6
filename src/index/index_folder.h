// An index on the disk: anchors, segments, and a manifest whose replacement is the only commit.
//
// Format: docs/formats/index.md. Everything here can be made again from the codes: whoever finds it missing,
// damaged or of another key rebuilds it. Durability: segments are written and synced under new names, then
// the manifest is replaced; what no manifest names is removed by the next save. Threads: one at a time. One
// writer and any number of readers a folder: the caller sees to that (the memory's LOCK); a reader that loads
// while the writer saves gets the state before or after, or kNotFound when a file went away under its hands.
// Errors: kNotFound without an index, kCorrupt with the file's name, kUnsupported for an index of another
// key, kPermission for saving through a folder that was opened to be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "index/passage_index.h"

namespace rhapsode::index {

struct IndexFolderOptions {
  std::string key;  // what the codes are of (whitening, model): an index of another key is refused
  bool read_only = false;
  bool resident = true;  // lists in memory; else they are read from the files for each question
};

class IndexFolder {
 public:
  IndexFolder(std::filesystem::path folder, IndexFolderOptions options)
      : folder_(std::move(folder)), options_(std::move(options)) {}

  Result<IndexState> load() const;
  // Makes the state durable. Segments get numbers of files here: go on from what is returned, so that they
  // are not written again.
  Result<IndexState> save(const IndexState& state);
  // Removes everything.
  Status clear();
  // When the manifest was replaced last; a moment long ago without one. Tells whether to load again.
  std::filesystem::file_time_type changed() const;
  // Bytes of its files.
  uint64_t bytes_on_disk() const;
  const std::filesystem::path& path() const { return folder_; }

 private:
  Status check_writable() const;
  std::filesystem::path segment_path(int64_t number) const;
  Status sweep(const IndexState& kept) const;

  std::filesystem::path folder_;
  IndexFolderOptions options_;
};

}  // namespace rhapsode::index

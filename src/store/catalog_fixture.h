// What the catalog's tests share: a folder, and adding a small document the way recall does.
//
// A document is lines; each line is one passage. Its codes and KV are bytes that tests can look for.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/sha256.h"
#include "store/catalog.h"
#include "support/temporary_folder.h"

namespace rhapsode::store {

inline std::vector<std::byte> pattern(std::string_view seed, size_t bytes) {
  std::vector<std::byte> out(bytes);
  uint32_t state = 2166136261u;
  for (const char c : seed) state = (state ^ static_cast<unsigned char>(c)) * 16777619u;
  for (std::byte& byte : out) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::byte>(state >> 24);
  }
  return out;
}

struct Document {
  std::string name;
  std::string text;
  std::string added = "2026-01-01T00:00:00Z";
  std::string event_time = {};
  std::vector<std::string> tags = {};
  std::string recipe = "plain-1";
  std::string named_after = {};
  size_t kv_bytes = 5000;
};

// "word line0 of it", "word line1 of it", ...
inline std::string lines(const std::string& word, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{} line{} of it\n", word, i);
  return text;
}

inline int32_t token_of(std::string_view word) {
  int32_t token = 17;
  for (const char c : word) token = (token * 31 + c) & 0xffff;
  return token;
}

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

inline ContentRecord record_of(const Document& document) {
  ContentRecord record{document.text, "text", "title of " + document.name, document.named_after, {}, 1};
  size_t begin = 0;
  while (begin < document.text.size()) {
    const size_t end = std::min(document.text.find('\n', begin), document.text.size() - 1) + 1;
    PassagePlace place;
    place.begin = begin;
    place.end = end;
    place.header = document.named_after;
    place.terms = words_of(document.text.substr(begin, end - begin));
    place.tokens = static_cast<int>(place.terms.size()) + 1;
    for (const std::string& word : place.terms) place.unique_tokens.push_back(token_of(word));
    if (!place.terms.empty()) place.mentions.push_back({"about " + place.terms.front(), 1});
    record.passages.push_back(std::move(place));
    begin = end;
  }
  return record;
}

inline std::string passage_seed(const Document& document, size_t ordinal) {
  return document.text + '#' + std::to_string(ordinal);
}

inline Status encode_all(Catalog& catalog, const Document& document, const ContentInfo& content) {
  std::vector<std::vector<std::byte>> bytes;
  for (size_t i = 0; i < content.passages.size(); ++i) {
    bytes.push_back(pattern("codes" + passage_seed(document, i), 96));
    bytes.push_back(pattern("kv" + passage_seed(document, i), document.kv_bytes));
  }
  std::vector<EncodedPassage> encoded;
  for (size_t i = 0; i < content.passages.size(); ++i) {
    encoded.push_back({static_cast<int>(i), 8, "white-1", bytes[2 * i], "print-1", bytes[2 * i + 1]});
  }
  return catalog.put_encoded(content.id, encoded);
}

inline Result<int64_t> add(Catalog& catalog, const Document& document) {
  RH_TRY(const std::string hash, sha256(std::as_bytes(std::span(document.text))));
  const ContentKey key{hash, document.recipe};
  RH_TRY(auto found, catalog.find_content(key));
  ContentInfo content;
  if (found) {
    content = *found;
  } else {
    RH_TRY(content, catalog.begin_content(key, record_of(document)));
  }
  if (!content.complete) RH_TRY_STATUS(encode_all(catalog, document, content));
  SourceRecord source;
  source.name = document.name;
  source.kind = "text";
  source.tags = document.tags;
  source.event_time = document.event_time;
  source.added = document.added;
  source.bytes = document.text.size();
  RH_TRY_STATUS(catalog.publish(source, content.id));
  return content.id;
}

class CatalogTest : public test::TemporaryFolder {
 protected:
  // In memory where the system has such a folder: syncs are free there, and kills of processes are what they
  // are on a disk.
  CatalogTest() {
    const std::filesystem::path shared_memory = "/dev/shm";
    root_ = ::access(shared_memory.c_str(), W_OK) == 0 ? shared_memory / folder_.filename() : folder_;
  }
  ~CatalogTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  CatalogOptions options() const {
    CatalogOptions options;
    options.folder = root_ / "memory";
    options.create = true;
    options.wait_ms = 100;
    return options;
  }
  std::unique_ptr<Catalog> open_with(const CatalogOptions& options) {
    auto catalog = Catalog::open(options);
    EXPECT_TRUE(catalog.ok()) << (catalog.ok() ? "" : catalog.error().message);
    return catalog.ok() ? std::move(*catalog) : nullptr;
  }
  std::unique_ptr<Catalog> open() { return open_with(options()); }
  std::unique_ptr<Catalog> open_reader() {
    CatalogOptions reading = options();
    reading.read_only = true;
    reading.create = false;
    return open_with(reading);
  }
  static void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().message; }
  static void expect_sound(const Catalog& catalog) {
    const auto check = catalog.check();
    ASSERT_TRUE(check.ok()) << check.error().message;
    for (const std::string& problem : check->problems) ADD_FAILURE() << problem;
  }
  static int64_t must_add(Catalog& catalog, const Document& document) {
    const auto content = add(catalog, document);
    EXPECT_TRUE(content.ok()) << (content.ok() ? "" : content.error().message);
    return content.ok() ? *content : 0;
  }
  static std::vector<std::string> names(const Catalog& catalog, const Selection& selection = {}) {
    std::vector<std::string> names;
    const auto rows = catalog.sources(selection);
    EXPECT_TRUE(rows.ok()) << (rows.ok() ? "" : rows.error().message);
    if (rows.ok()) {
      for (const SourceRow& row : *rows) names.push_back(row.record.name);
    }
    return names;
  }
  static size_t hits(const Catalog& catalog, const std::string& term) {
    const auto found = catalog.best_by_terms(std::vector<std::string>{term}, {}, 1000);
    EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
    return found.ok() ? found->size() : 0;
  }

  std::filesystem::path root_;
};

}  // namespace rhapsode::store

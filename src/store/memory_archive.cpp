#include "store/memory_archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/sha256.h"
#include "io/file.h"
#include "store/sqlite_database.h"

namespace rhapsode::store {

namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;
constexpr char kManifest[] = "MANIFEST.json";
constexpr char kCatalog[] = "catalog.db";
constexpr size_t kChunk = 1 << 20;

struct Listed {
  uint64_t bytes = 0;
  std::string sha256;
};
using Manifest = std::map<std::string, Listed>;

Error archive_error(archive* handle, const fs::path& file) {
  const char* text = archive_error_string(handle);
  return make_error(ErrorKind::kIo, "{}: {}", file.string(), text ? text : "the archive library failed");
}

// Removes a temporary file or folder unless it was kept.
class Temporary {
 public:
  explicit Temporary(fs::path path) : path_(std::move(path)) {}
  ~Temporary() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  fs::path path_;
  bool kept_ = false;
};

class TarWriter {
 public:
  explicit TarWriter(fs::path path) : path_(std::move(path)), handle_(archive_write_new()) {}
  ~TarWriter() { archive_write_free(handle_); }
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  Status open() {
    archive_write_set_format_pax_restricted(handle_);
    if (archive_write_open_filename(handle_, path_.c_str()) != ARCHIVE_OK)
      return archive_error(handle_, path_);
    return {};
  }
  Status begin(const std::string& name, uint64_t bytes) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                         archive_entry_free);
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_size(entry.get(), static_cast<int64_t>(bytes));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    if (archive_write_header(handle_, entry.get()) != ARCHIVE_OK) return archive_error(handle_, path_);
    return {};
  }
  Status write(std::span<const std::byte> bytes) {
    const la_ssize_t written = archive_write_data(handle_, bytes.data(), bytes.size());
    if (written != static_cast<la_ssize_t>(bytes.size())) return archive_error(handle_, path_);
    return {};
  }
  Status close() {
    if (archive_write_close(handle_) != ARCHIVE_OK) return archive_error(handle_, path_);
    return {};
  }

 private:
  fs::path path_;
  archive* handle_;
};

Status add_file(TarWriter& tar, const std::string& name, const fs::path& path, Manifest& manifest) {
  RH_TRY(const File file, File::open_read(path));
  RH_TRY(const uint64_t bytes, file.size());
  RH_TRY_STATUS(tar.begin(name, bytes));
  Sha256 hash;
  std::vector<std::byte> chunk(kChunk);
  for (uint64_t offset = 0; offset < bytes;) {
    const auto part = std::span(chunk).first(std::min<uint64_t>(kChunk, bytes - offset));
    RH_TRY_STATUS(file.read_at(part, offset));
    hash.update(part);
    RH_TRY_STATUS(tar.write(part));
    offset += part.size();
  }
  RH_TRY(manifest[name].sha256, hash.finish());
  manifest[name].bytes = bytes;
  return {};
}

std::string to_json(const Manifest& manifest) {
  nlohmann::ordered_json json;
  json["format"] = kFormat;
  for (const auto& [name, listed] : manifest) {
    json["files"].push_back({{"name", name}, {"bytes", listed.bytes}, {"sha256", listed.sha256}});
  }
  return json.dump(1);
}

// Names of what belongs to a memory: texts and segments, temporary files aside.
Result<std::vector<std::string>> data_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const char* part : {"texts", "routing", "kv"}) {
    for (fs::recursive_directory_iterator at(folder / part, error), end; !error && at != end;
         at.increment(error)) {
      const std::string name = at->path().lexically_relative(folder).generic_string();
      if (at->is_regular_file() && !name.ends_with(".tmp")) names.push_back(name);
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return make_error(ErrorKind::kIo, "{}: {}", (folder / part).string(), error.message());
    }
    error.clear();
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool is_plain_name(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute()) return false;
  return std::none_of(path.begin(), path.end(),
                      [](const fs::path& part) { return part == ".." || part == "."; });
}

Result<Manifest> parse_manifest(const std::string& text, const fs::path& file) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", 0) != kFormat || !json.contains("files") ||
      !json["files"].is_array()) {
    return make_error(ErrorKind::kCorrupt,
                      "{} is no memory of format {}: its {} is damaged or of another version", file.string(),
                      kFormat, kManifest);
  }
  Manifest manifest;
  for (const auto& entry : json["files"]) {
    const bool whole = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                       entry.contains("bytes") && entry["bytes"].is_number_unsigned() &&
                       entry.contains("sha256") && entry["sha256"].is_string();
    if (!whole) return make_error(ErrorKind::kCorrupt, "{}: its {} is damaged", file.string(), kManifest);
    manifest[entry["name"].get<std::string>()] = {entry["bytes"].get<uint64_t>(),
                                                  entry["sha256"].get<std::string>()};
  }
  return manifest;
}

class TarReader {
 public:
  explicit TarReader(fs::path path) : path_(std::move(path)), handle_(archive_read_new()) {}
  ~TarReader() { archive_read_free(handle_); }
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  Status open() {
    archive_read_support_format_tar(handle_);
    if (archive_read_open_filename(handle_, path_.c_str(), kChunk) != ARCHIVE_OK) return damaged();
    return {};
  }
  // The next file's name; empty at the end.
  Result<std::string> next() {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(handle_, &entry);
    if (result == ARCHIVE_EOF) return std::string();
    if (result != ARCHIVE_OK) return damaged();
    const char* name = archive_entry_pathname(entry);
    if (!name || archive_entry_filetype(entry) != AE_IFREG || !is_plain_name(name)) return damaged();
    return std::string(name);
  }
  // Up to bytes.size() bytes; 0 at the end of the file.
  Result<size_t> read(std::span<std::byte> bytes) {
    const la_ssize_t got = archive_read_data(handle_, bytes.data(), bytes.size());
    if (got < 0) return damaged();
    return static_cast<size_t>(got);
  }

 private:
  Error damaged() const {
    const char* text = archive_error_string(handle_);
    return make_error(ErrorKind::kCorrupt, "{} is damaged or no exported memory: {}", path_.string(),
                      text ? text : "it holds something else than files");
  }
  fs::path path_;
  archive* handle_;
};

Result<Listed> unpack(TarReader& tar, const fs::path& target) {
  RH_TRY_STATUS(make_directories(target.parent_path()));
  RH_TRY(File file, File::open_write(target));
  Listed found;
  Sha256 hash;
  std::vector<std::byte> chunk(kChunk);
  while (true) {
    RH_TRY(const size_t got, tar.read(chunk));
    if (got == 0) break;
    const auto part = std::span(chunk).first(got);
    hash.update(part);
    RH_TRY_STATUS(file.write_at(part, found.bytes));
    found.bytes += got;
  }
  RH_TRY_STATUS(file.sync());
  RH_TRY_STATUS(file.close());
  RH_TRY(found.sha256, hash.finish());
  return found;
}

Status check(const Manifest& promised, const Manifest& found, const fs::path& file) {
  for (const auto& [name, listed] : promised) {
    const auto there = found.find(name);
    if (there == found.end() || there->second.bytes != listed.bytes ||
        there->second.sha256 != listed.sha256) {
      return make_error(ErrorKind::kCorrupt, "{}: '{}' in it is {}: export the memory again", file.string(),
                        name, there == found.end() ? "missing" : "damaged");
    }
  }
  if (promised.size() != found.size() || !promised.contains(kCatalog)) {
    return make_error(ErrorKind::kCorrupt, "{} holds other files than its {} names", file.string(),
                      kManifest);
  }
  return {};
}

}  // namespace

Status export_memory(const fs::path& folder, const fs::path& file) {
  Temporary partial(file.string() + fmt::format(".{}.partial", ::getpid()));
  Temporary snapshot(file.string() + fmt::format(".{}.catalog", ::getpid()));
  {
    RH_TRY(const std::unique_ptr<Database> database, Database::open(folder / kCatalog, {.read_only = true}));
    // The snapshot is another file; this one stays as it is.
    RH_TRY_STATUS(database->execute("PRAGMA query_only = OFF;"));
    RH_TRY_STATUS(database->run("VACUUM INTO ?", std::string_view(snapshot.path().native())));
  }
  RH_TRY(const std::vector<std::string> names, data_files(folder));
  TarWriter tar(partial.path());
  RH_TRY_STATUS(tar.open());
  Manifest manifest;
  RH_TRY_STATUS(add_file(tar, kCatalog, snapshot.path(), manifest));
  for (const std::string& name : names) RH_TRY_STATUS(add_file(tar, name, folder / name, manifest));
  const std::string json = to_json(manifest);
  RH_TRY_STATUS(tar.begin(kManifest, json.size()));
  RH_TRY_STATUS(tar.write(std::as_bytes(std::span(json.data(), json.size()))));
  RH_TRY_STATUS(tar.close());
  RH_TRY(File finished, File::open_write(partial.path()));
  RH_TRY_STATUS(finished.sync());
  RH_TRY_STATUS(finished.close());
  RH_TRY_STATUS(rename_durably(partial.path(), file));
  partial.keep();
  return {};
}

Status import_memory(const fs::path& file, const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && (!fs::is_directory(folder, error) || !fs::is_empty(folder, error))) {
    return make_error(ErrorKind::kInvalidArgument,
                      "{} holds something already: import into a folder that is empty or absent",
                      folder.string());
  }
  Temporary target(folder.string() + fmt::format(".{}.importing", ::getpid()));
  TarReader tar(file);
  RH_TRY_STATUS(tar.open());
  Manifest found;
  while (true) {
    RH_TRY(const std::string name, tar.next());
    if (name.empty()) break;
    RH_TRY(found[name], unpack(tar, target.path() / name));
  }
  if (found.erase(kManifest) == 0) {
    return make_error(ErrorKind::kCorrupt, "{} has no {}: it is cut off, or no exported memory",
                      file.string(), kManifest);
  }
  RH_TRY(const std::string manifest_text, read_text_file(target.path() / kManifest));
  RH_TRY(const Manifest promised, parse_manifest(manifest_text, file));
  RH_TRY_STATUS(check(promised, found, file));
  fs::remove(target.path() / kManifest, error);
  fs::remove(folder, error);  // when it is an empty folder
  RH_TRY_STATUS(rename_durably(target.path(), folder));
  target.keep();
  return {};
}

}  // namespace rhapsode::store

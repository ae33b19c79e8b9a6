#include "model/file_hash.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/sha256.h"
#include "io/file.h"

namespace rhapsode::model {

using Json = nlohmann::json;

std::optional<FileStamp> stamp_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileStamp{static_cast<uint64_t>(info.st_size),
                   static_cast<int64_t>(info.st_mtim.tv_sec) * 1000000000 + info.st_mtim.tv_nsec};
}

std::optional<HashNote> read_note(const std::filesystem::path& note) {
  const Result<std::string> text = read_text_file(note, 1u << 16);
  if (!text.ok()) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto bytes = json.find("bytes"), modified = json.find("modified_ns");
  const auto hash = json.find("sha256"), source = json.find("source");
  const auto end = json.end();
  if (bytes == end || modified == end || hash == end || source == end || !bytes->is_number_unsigned() ||
      !modified->is_number_integer() || !hash->is_string() || !source->is_string()) {
    return std::nullopt;
  }
  HashNote content{{bytes->get<uint64_t>(), modified->get<int64_t>()},
                   hash->get<std::string>(),
                   source->get<std::string>()};
  if (!is_sha256(content.sha256)) return std::nullopt;
  return content;
}

Status write_note(const std::filesystem::path& note, const HashNote& content) {
  const Json json = {{"bytes", content.stamp.bytes},
                     {"modified_ns", content.stamp.modified_ns},
                     {"sha256", content.sha256},
                     {"source", content.source}};
  return replace_file(note, json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Result<std::string> hash_file(const std::filesystem::path& path, const HashProgress& on_progress) {
  RH_TRY(const File file, File::open_read(path));
  RH_TRY(const uint64_t size, file.size());
  Sha256 hash;
  std::vector<std::byte> buffer(size_t{4} << 20);
  for (uint64_t at = 0;;) {
    RH_TRY(const size_t count, file.read_some(buffer, at));
    if (count == 0) break;
    hash.update(std::span(buffer).first(count));
    at += count;
    if (on_progress && !on_progress(at, size)) {
      return make_error(ErrorKind::kCancelled, "checking {} was cancelled", path.string());
    }
  }
  return hash.finish();
}

Result<std::string> known_hash(const std::filesystem::path& path, const std::filesystem::path& home,
                               const HashProgress& on_progress) {
  std::error_code code;
  const std::filesystem::path canonical = std::filesystem::canonical(path, code);
  if (code) return make_system_error(code.value(), "cannot find " + path.string());
  const std::string name = canonical.string();
  RH_TRY(const std::string key, sha256(std::as_bytes(std::span(name))));
  const std::filesystem::path note = home / "hashes" / (key.substr(0, 32) + ".json");
  const std::optional<FileStamp> stamp = stamp_of(canonical);
  if (!stamp) return make_error(ErrorKind::kInvalidArgument, "{} is not a regular file", path.string());
  const std::optional<HashNote> known = read_note(note);
  if (known && known->stamp == *stamp && known->source == name) return known->sha256;
  RH_TRY(const std::string hash, hash_file(canonical, on_progress));
  if (stamp_of(canonical) != stamp) {
    return make_error(ErrorKind::kIo, "{} changed while it was read", path.string());
  }
  if (make_directories(note.parent_path()).ok()) static_cast<void>(write_note(note, {*stamp, hash, name}));
  return hash;
}

}  // namespace rhapsode::model

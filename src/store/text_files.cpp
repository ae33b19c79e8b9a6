#include "store/text_files.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/sha256.h"
#include "io/file.h"
#include "store/compressed.h"

namespace rhapsode::store {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".zst";
constexpr uint64_t kMostTextBytes = 4ull << 30;

Status remove_left_over(const fs::path& path, bool* removed) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return make_system_error(errno, "cannot remove " + path.string());
  *removed = true;
  return {};
}

}  // namespace

Status remove_durably(const fs::path& path) {
  if (::unlink(path.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return make_system_error(errno, "cannot remove " + path.string());
  }
  return sync_directory(path.parent_path());
}

bool is_temporary_name(std::string_view name) {
  return name.find(".new-") != std::string_view::npos;
}

fs::path TextFiles::path_of(const std::string& sha256) const {
  return folder_ / sha256.substr(0, 2) / (sha256 + std::string(kSuffix));
}

// Nobody goes on into a folder that another thread has made and not made durable yet.
Status TextFiles::make_folder(const fs::path& folder) {
  const std::lock_guard lock(making_folders_);
  if (fs::exists(folder)) return {};
  RH_TRY_STATUS(make_directories(folder));
  return sync_directory(folder_);
}

Result<StoredText> TextFiles::put(std::string_view text) {
  if (text.size() > kMostTextBytes) {
    return make_error(ErrorKind::kTooLarge,
                      "a text of {} bytes is more than the {} that a memory keeps in one source", text.size(),
                      kMostTextBytes);
  }
  StoredText stored;
  RH_TRY(stored.sha256, sha256(std::as_bytes(std::span(text))));
  const fs::path path = path_of(stored.sha256);
  // A damaged file of that name is replaced.
  if (const auto present = get(stored.sha256, text.size()); !present.ok()) {
    RH_TRY_STATUS(make_folder(path.parent_path()));
    RH_TRY(const std::vector<std::byte> frame, compress(text));
    RH_TRY_STATUS(replace_file(path, {reinterpret_cast<const char*>(frame.data()), frame.size()}));
  }
  std::error_code failure;
  stored.stored_bytes = fs::file_size(path, failure);
  if (failure) return make_system_error(failure.value(), "cannot examine " + path.string());
  return stored;
}

Result<std::string> TextFiles::get(const std::string& hash, uint64_t bytes) const {
  if (!is_sha256(hash))
    return make_error(ErrorKind::kCorrupt, "the catalog names a text that no file can have");
  const fs::path path = path_of(hash);
  RH_TRY(const std::string frame, read_text_file(path, kMostTextBytes));
  auto text = decompress(std::as_bytes(std::span(frame)), std::min(bytes, kMostTextBytes));
  if (!text.ok()) return make_error(text.error().kind, "{}: {}", path.string(), text.error().message);
  RH_TRY(const std::string found, sha256(std::as_bytes(std::span(*text))));
  if (found != hash || text->size() != bytes) {
    return make_error(ErrorKind::kCorrupt,
                      "{}: the text inside is not the one of its name; add its source again", path.string());
  }
  return text;
}

Status TextFiles::remove(const std::string& hash) {
  return remove_durably(path_of(hash));
}

Status TextFiles::sweep(const std::function<Result<bool>(const std::string&)>& wanted) {
  std::error_code failure;
  for (fs::directory_iterator folder(folder_, failure), end; !failure && folder != end;
       folder.increment(failure)) {
    if (!folder->is_directory(failure) || folder->path().filename().string().size() != 2) continue;
    bool removed = false;
    std::error_code inner;
    for (fs::directory_iterator file(folder->path(), inner); !inner && file != end; file.increment(inner)) {
      const std::string name = file->path().filename().string();
      const bool is_text =
          name.size() == 64 + kSuffix.size() && name.ends_with(kSuffix) && is_sha256(name.substr(0, 64));
      if (is_temporary_name(name)) {
        RH_TRY_STATUS(remove_left_over(file->path(), &removed));
      } else if (is_text) {
        RH_TRY(const bool keep, wanted(name.substr(0, 64)));
        if (!keep) RH_TRY_STATUS(remove_left_over(file->path(), &removed));
      }
    }
    if (inner) return make_system_error(inner.value(), "cannot list " + folder->path().string());
    if (removed) RH_TRY_STATUS(sync_directory(folder->path()));
  }
  if (failure) return make_system_error(failure.value(), "cannot list " + folder_.string());
  return {};
}

}  // namespace rhapsode::store

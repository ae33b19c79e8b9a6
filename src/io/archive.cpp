#include "io/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <vector>

#include "base/text_check.h"

namespace rhapsode {

Status extract_member(const std::filesystem::path& path, const std::string& member,
                      const std::function<Status(std::span<const std::byte>)>& on_bytes) {
  const std::unique_ptr<archive, decltype(&archive_read_free)> reader{archive_read_new(), &archive_read_free};
  if (!reader) return make_error(ErrorKind::kNoSpace, "no memory to read {}", path.string());
  const auto damaged = [&]() -> Error {
    const char* detail = archive_error_string(reader.get());
    return make_error(ErrorKind::kCorrupt, "{} is not a sound archive: {}", path.string(),
                      shown(detail == nullptr ? "unknown damage" : detail, 200));
  };
  archive_read_support_format_zip(reader.get());
  archive_read_support_format_tar(reader.get());
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_filter_none(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 18) != ARCHIVE_OK) return damaged();
  archive_entry* entry = nullptr;
  int code = ARCHIVE_OK;
  while ((code = archive_read_next_header(reader.get(), &entry)) == ARCHIVE_OK) {
    const char* name = archive_entry_pathname(entry);
    if (name == nullptr || member != name) continue;
    if (archive_entry_filetype(entry) != AE_IFREG) {
      return make_error(ErrorKind::kCorrupt, "{} in {} is not a file", shown(member), path.string());
    }
    std::vector<std::byte> buffer(size_t{1} << 18);
    while (true) {
      const la_ssize_t count = archive_read_data(reader.get(), buffer.data(), buffer.size());
      if (count < 0) return damaged();
      if (count == 0) return {};
      RH_TRY_STATUS(on_bytes(std::span(buffer).first(static_cast<size_t>(count))));
    }
  }
  if (code != ARCHIVE_EOF) return damaged();
  return make_error(ErrorKind::kNotFound, "{} has no member {}", path.string(), shown(member));
}

}  // namespace rhapsode

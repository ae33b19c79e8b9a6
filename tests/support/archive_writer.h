// Archives for tests, written by libarchive: link the test with LibArchive::LibArchive.
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>
#include <locale.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rhapsode::test {

using Members = std::vector<std::pair<std::string, std::string>>;  // name and content

enum class Packing { kZip, kTarGz, kTarXz, kTarZst, kGz };

// libarchive's writers convert names from the locale's charset. Of this thread only, as long as it lives.
class Utf8Locale {
 public:
  Utf8Locale() : utf8_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(::uselocale(utf8_)) {}
  Utf8Locale(const Utf8Locale&) = delete;
  Utf8Locale& operator=(const Utf8Locale&) = delete;
  ~Utf8Locale() {
    ::uselocale(before_);
    if (utf8_ != nullptr) ::freelocale(utf8_);
  }

 private:
  locale_t utf8_;
  locale_t before_;
};

inline void pack(const std::filesystem::path& path, Packing packing, const Members& members) {
  const Utf8Locale utf8;
  const std::unique_ptr<archive, decltype(&archive_write_free)> out(archive_write_new(), &archive_write_free);
  if (packing == Packing::kZip) {
    archive_write_set_format_zip(out.get());
  } else if (packing == Packing::kGz) {
    archive_write_set_format_raw(out.get());
  } else {
    archive_write_set_format_pax_restricted(out.get());
  }
  if (packing == Packing::kTarGz || packing == Packing::kGz) archive_write_add_filter_gzip(out.get());
  if (packing == Packing::kTarXz) archive_write_add_filter_xz(out.get());
  if (packing == Packing::kTarZst) archive_write_add_filter_zstd(out.get());
  ASSERT_EQ(archive_write_open_filename(out.get(), path.c_str()), ARCHIVE_OK);
  const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                            &archive_entry_free);
  for (const auto& [name, content] : members) {
    archive_entry_clear(entry.get());
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_mtime(entry.get(), 1714557600, 0);  // 2024-05-01T10:00:00Z
    ASSERT_EQ(archive_write_header(out.get(), entry.get()), ARCHIVE_OK) << archive_error_string(out.get());
    ASSERT_EQ(archive_write_data(out.get(), content.data(), content.size()),
              static_cast<la_ssize_t>(content.size()));
  }
  ASSERT_EQ(archive_write_close(out.get()), ARCHIVE_OK);
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace rhapsode::test

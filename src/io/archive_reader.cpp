#include "io/archive_reader.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/text_check.h"

namespace rhapsode {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 16;

// Without the library of a format, libarchive would start a program of that name: such a filter stays off.
void support_filters(archive* handle) {
  archive_read_support_filter_none(handle);
  archive_read_support_filter_compress(handle);
  if (archive_zlib_version() != nullptr) archive_read_support_filter_gzip(handle);
  if (archive_bzlib_version() != nullptr) archive_read_support_filter_bzip2(handle);
  if (archive_liblzma_version() != nullptr) {
    archive_read_support_filter_xz(handle);
    archive_read_support_filter_lzma(handle);
  }
  if (archive_libzstd_version() != nullptr) archive_read_support_filter_zstd(handle);
  if (archive_liblz4_version() != nullptr) archive_read_support_filter_lz4(handle);
}

// libarchive converts names to the charset of the locale, and drops them where that is ASCII. Of this thread
// only, as long as it lives; without such a locale on the system names stay as they can be had.
class LocaleScope {
 public:
  explicit LocaleScope(void* locale)
      : before_(locale == nullptr ? nullptr : ::uselocale(static_cast<locale_t>(locale))) {}
  LocaleScope(const LocaleScope&) = delete;
  LocaleScope& operator=(const LocaleScope&) = delete;
  ~LocaleScope() {
    if (before_ != nullptr) ::uselocale(before_);
  }

 private:
  locale_t before_;
};

std::shared_ptr<void> utf8_locale() {
  const locale_t made = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return {made, [](void* locale) {
            if (locale != nullptr) ::freelocale(static_cast<locale_t>(locale));
          }};
}

}  // namespace

void ArchiveReader::Free::operator()(::archive* handle) const {
  archive_read_free(handle);
}

Error ArchiveReader::damaged() const {
  const char* detail = archive_error_string(handle_.get());
  return make_error(ErrorKind::kCorrupt, "{} is not a sound archive: {}", label_,
                    shown(detail == nullptr ? "unknown damage" : detail, 200));
}

Result<ArchiveReader> ArchiveReader::make(std::string label) {
  ArchiveReader reader;
  reader.label_ = std::move(label);
  reader.utf8_locale_ = utf8_locale();
  reader.handle_.reset(archive_read_new());
  if (!reader.handle_) return make_error(ErrorKind::kNoSpace, "no memory to read {}", reader.label_);
  support_filters(reader.handle_.get());
  archive_read_support_format_zip(reader.handle_.get());
  archive_read_support_format_tar(reader.handle_.get());
  archive_read_support_format_7zip(reader.handle_.get());
  archive_read_support_format_raw(reader.handle_.get());
  return reader;
}

Result<ArchiveReader> ArchiveReader::open(int descriptor, std::string label) {
  RH_TRY(ArchiveReader reader, make(std::move(label)));
  if (::lseek(descriptor, 0, SEEK_SET) < 0) return make_system_error(errno, "cannot read " + reader.label_);
  if (archive_read_open_fd(reader.handle_.get(), descriptor, kBlockBytes) != ARCHIVE_OK) {
    return reader.damaged();
  }
  return reader;
}

Result<ArchiveReader> ArchiveReader::open(std::span<const std::byte> bytes, std::string label) {
  RH_TRY(ArchiveReader reader, make(std::move(label)));
  if (archive_read_open_memory(reader.handle_.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) {
    return reader.damaged();
  }
  return reader;
}

Result<std::optional<ArchiveMember>> ArchiveReader::next() {
  const LocaleScope scope(utf8_locale_.get());
  archive_entry* entry = nullptr;
  const int code = archive_read_next_header(handle_.get(), &entry);
  if (code == ARCHIVE_EOF) return std::optional<ArchiveMember>();
  // A warning is about a name that does not fit the locale; the entry is sound.
  if (code != ARCHIVE_OK && code != ARCHIVE_WARN) return damaged();
  ArchiveMember member;
  member.is_single = archive_format(handle_.get()) == ARCHIVE_FORMAT_RAW;
  if (member.is_single && archive_filter_count(handle_.get()) < 2) {
    return make_error(ErrorKind::kUnsupported, "{} is no archive of a known format", label_);
  }
  const char* name = archive_entry_pathname_utf8(entry);
  if (name == nullptr) name = archive_entry_pathname(entry);
  if (!member.is_single && name != nullptr) member.name = name;
  member.is_file = member.is_single || archive_entry_filetype(entry) == AE_IFREG;
  member.is_folder = archive_entry_filetype(entry) == AE_IFDIR;
  if (archive_entry_size_is_set(entry) != 0) {
    member.bytes = static_cast<uint64_t>(std::max<la_int64_t>(0, archive_entry_size(entry)));
  }
  ahead_bytes_ = member.bytes.value_or(0);
  if (archive_entry_mtime_is_set(entry) != 0) member.modified_s = archive_entry_mtime(entry);
  return std::optional<ArchiveMember>(std::move(member));
}

Result<size_t> ArchiveReader::read(std::span<std::byte> bytes) {
  const la_ssize_t count = archive_read_data(handle_.get(), bytes.data(), bytes.size());
  if (count < 0) return damaged();
  read_bytes_ += static_cast<uint64_t>(count);
  ahead_bytes_ -= std::min(ahead_bytes_, static_cast<uint64_t>(count));
  return static_cast<size_t>(count);
}

bool ArchiveReader::is_stream() const {
  const int family = archive_format(handle_.get()) & ARCHIVE_FORMAT_BASE_MASK;
  return family == ARCHIVE_FORMAT_TAR || family == ARCHIVE_FORMAT_RAW;
}

uint64_t ArchiveReader::expanded_bytes() const {
  if (!is_stream()) return read_bytes_;
  const la_int64_t through = archive_filter_bytes(handle_.get(), 0);
  return ahead_bytes_ + static_cast<uint64_t>(std::max<la_int64_t>(0, through));
}

bool is_archive(std::string_view head) {
  using namespace std::string_view_literals;
  static constexpr std::array<std::string_view, 10> kMagics = {
      "PK\x03\x04"sv,       "PK\x05\x06"sv,         "\x1F\x8B"sv, "\xFD\x37zXZ\0"sv,  "\x28\xB5\x2F\xFD"sv,
      "\x04\x22\x4D\x18"sv, "7z\xBC\xAF\x27\x1C"sv, "\x1F\x9D"sv, "\x5D\0\0\x80\0"sv, "BZh"sv};
  for (const std::string_view magic : kMagics) {
    if (!head.starts_with(magic)) continue;
    if (magic != "BZh"sv) return true;
    // Three letters alone could begin a text.
    return head.size() >= 10 && head.substr(4, 6) == "1AY&SY"sv;
  }
  return head.size() >= 263 && head.substr(257, 5) == "ustar"sv;
}

}  // namespace rhapsode

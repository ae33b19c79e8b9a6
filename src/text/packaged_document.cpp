#include "text/packaged_document.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/text_check.h"

namespace rhapsode::text {
namespace {

constexpr uint64_t kMostPartBytes = uint64_t{32} << 20;
constexpr uint64_t kMostPackageBytes = uint64_t{128} << 20;
constexpr size_t kMostListed = 100'000;  // parts looked at

Result<PackageKind> kind_of(ArchiveReader& archive) {
  PackageKind kind = PackageKind::kNone;
  if (archive.is_stream()) return kind;
  for (size_t i = 0; i < kMostListed; ++i) {
    RH_TRY(const std::optional<ArchiveMember> member, archive.next());
    if (!member || archive.is_stream()) break;
    if (member->name == "word/document.xml") return PackageKind::kDocx;
    if (member->name == "META-INF/container.xml") return PackageKind::kEpub;
    if (member->name == "[Content_Types].xml" || (i == 0 && member->name == "mimetype")) {
      kind = PackageKind::kOther;
    }
  }
  return kind;
}

}  // namespace

Result<PackageKind> package_kind(std::string_view bytes, const std::string& name) {
  RH_TRY(ArchiveReader archive, ArchiveReader::open(std::as_bytes(std::span(bytes)), name));
  return kind_of(archive);
}

Result<bool> is_packaged_document(ArchiveReader& archive) {
  RH_TRY(const PackageKind kind, kind_of(archive));
  return kind != PackageKind::kNone;
}

Result<bool> is_packaged_document(std::string_view bytes, const std::string& name) {
  RH_TRY(const PackageKind kind, package_kind(bytes, name));
  return kind != PackageKind::kNone;
}

Result<std::string> Package::read_part(ArchiveReader& archive, const std::string& path) {
  std::string bytes;
  constexpr size_t kStep = size_t{1} << 16;
  while (true) {
    const size_t have = bytes.size();
    bytes.resize(have + kStep);
    RH_TRY(const size_t count, archive.read(std::as_writable_bytes(std::span(bytes)).subspan(have)));
    bytes.resize(have + count);
    expanded_bytes_ += count;
    if (count == 0) return bytes;
    if (bytes.size() > kMostPartBytes || expanded_bytes_ > kMostPackageBytes) {
      return make_error(ErrorKind::kTooLarge, "{} in {} expands to more than {} MiB", shown(path), name_,
                        (bytes.size() > kMostPartBytes ? kMostPartBytes : kMostPackageBytes) >> 20);
    }
  }
}

Status Package::each(const std::function<bool(std::string_view)>& wanted,
                     const std::function<void(std::string, std::string)>& on_part) {
  RH_TRY(ArchiveReader archive, ArchiveReader::open(std::as_bytes(std::span(bytes_)), name_));
  for (size_t i = 0; i < kMostListed; ++i) {
    RH_TRY(const std::optional<ArchiveMember> member, archive.next());
    if (!member) return {};
    if (!member->is_file || !wanted(member->name)) continue;
    RH_TRY(std::string bytes, read_part(archive, member->name));
    on_part(member->name, std::move(bytes));
  }
  return {};
}

Result<std::string> Package::part(std::string_view path) {
  std::optional<std::string> found;
  RH_TRY_STATUS(each([&](std::string_view name) { return !found && name == path; },
                     [&](const std::string&, std::string bytes) { found = std::move(bytes); }));
  if (!found) return make_error(ErrorKind::kNotFound, "{} has no part {}", name_, shown(path));
  return std::move(*found);
}

}  // namespace rhapsode::text

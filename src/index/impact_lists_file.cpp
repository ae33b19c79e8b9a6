// ImpactLists as a file: docs/formats/index.md.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "index/impact_lists.h"
#include "io/file.h"

namespace rhapsode::index {
namespace {

static_assert(std::endian::native == std::endian::little, "index files are little-endian");

constexpr char kMagic[8] = {'R', 'H', 'L', 'I', 'S', 'T', 'S', '\n'};
constexpr uint32_t kVersion = 1;
constexpr size_t kPostingBytes = sizeof(uint16_t) + sizeof(uint8_t);

// The beginning of the file; ids, list sizes, list checksums and a checksum of all that follow.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t anchors;
  uint64_t anchor_id;
  uint32_t passages;
  uint32_t zero;
};
static_assert(sizeof(Header) == 32);

size_t head_bytes(const Header& header) {
  return sizeof(Header) + header.passages * sizeof(int64_t) + header.anchors * size_t{2} * sizeof(uint32_t) +
         sizeof(uint64_t);
}

Error damaged(const std::string& path, const char* what) {
  return make_error(ErrorKind::kCorrupt, "{}: {}", path, what);
}

uint32_t checksum_of(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(XXH3_64bits(bytes.data(), bytes.size()));
}

template <class T>
void put(std::vector<std::byte>& out, const T* values, size_t count) {
  const auto bytes = std::as_bytes(std::span(values, count));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Result<Header> header_of(std::span<const std::byte> bytes, const std::string& path) {
  Header header;
  if (bytes.size() < sizeof(header)) return damaged(path, "ends inside its header");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) return damaged(path, "is no lists of an index");
  if (header.version != kVersion) {
    return make_error(ErrorKind::kCorrupt, "{}: format version {}, this build reads version {}", path,
                      header.version, kVersion);
  }
  if (header.passages > kMostSegmentPassages || header.anchors == 0 || header.anchors > kMostAnchors) {
    return damaged(path, "its header holds impossible sizes");
  }
  return header;
}

}  // namespace

Result<std::vector<std::byte>> ImpactLists::encode() const {
  std::vector<std::byte> lists;
  std::vector<uint32_t> sizes;
  std::vector<uint32_t> checksums;
  for (size_t anchor = 0; anchor < anchors(); ++anchor) {
    RH_TRY(const FetchedLists fetched, fetch(std::span(&anchor, 1)));
    const Postings& list = fetched.lists[0];
    const size_t begin = lists.size();
    put(lists, list.passages.data(), list.passages.size());
    put(lists, list.impacts.data(), list.impacts.size());
    sizes.push_back(static_cast<uint32_t>(list.passages.size()));
    checksums.push_back(checksum_of(std::span(lists).subspan(begin)));
  }
  Header header{
      {}, kVersion, static_cast<uint32_t>(anchors()), anchor_id_, static_cast<uint32_t>(ids_.size()), 0};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::vector<std::byte> bytes;
  put(bytes, &header, 1);
  put(bytes, ids_.data(), ids_.size());
  put(bytes, sizes.data(), sizes.size());
  put(bytes, checksums.data(), checksums.size());
  const uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  put(bytes, &checksum, 1);
  bytes.insert(bytes.end(), lists.begin(), lists.end());
  return bytes;
}

Status ImpactLists::save(const std::filesystem::path& path) const {
  RH_TRY(const std::vector<std::byte> bytes, encode());
  return replace_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<ImpactLists> ImpactLists::of_header(std::span<const std::byte> head, const AnchorSet& anchors,
                                           const std::string& path) {
  RH_TRY(const Header header, header_of(head, path));
  uint64_t checksum = 0;
  std::memcpy(&checksum, head.data() + head.size() - sizeof(checksum), sizeof(checksum));
  if (checksum != XXH3_64bits(head.data(), head.size() - sizeof(checksum))) {
    return damaged(path, "the header does not have its checksum");
  }
  if (header.anchor_id != anchors.id() || header.anchors != static_cast<uint32_t>(anchors.count())) {
    return damaged(path, "these are lists of other anchors");
  }
  ImpactLists lists;
  lists.anchor_id_ = header.anchor_id;
  lists.ids_.resize(header.passages);
  lists.begins_.resize(header.anchors + size_t{1});
  lists.checksums_.resize(header.anchors);
  const std::byte* in = head.data() + sizeof(Header);
  std::memcpy(lists.ids_.data(), in, header.passages * sizeof(int64_t));
  in += header.passages * sizeof(int64_t);
  std::memcpy(lists.begins_.data() + 1, in, header.anchors * sizeof(uint32_t));
  in += header.anchors * sizeof(uint32_t);
  std::memcpy(lists.checksums_.data(), in, header.anchors * sizeof(uint32_t));
  for (size_t a = 0; a < header.anchors; ++a) {
    if (lists.begins_[a + 1] > header.passages) return damaged(path, "a list is longer than the segment");
    lists.begins_[a + 1] += lists.begins_[a];
  }
  for (size_t p = 0; p < lists.ids_.size(); ++p) {
    if (lists.ids_[p] < 0 || (p > 0 && lists.ids_[p - 1] >= lists.ids_[p])) {
      return damaged(path, "its passages are out of order");
    }
  }
  return lists;
}

// A list as it may be added without looking: its checksum, and numbers of passages that the segment has.
Status ImpactLists::check_list(size_t anchor, std::span<const std::byte> bytes,
                               const std::string& path) const {
  if (checksum_of(bytes) != checksums_[anchor]) {
    return make_error(ErrorKind::kCorrupt, "{}: list {} does not have its checksum", path, anchor);
  }
  int64_t before = -1;
  for (size_t i = 0; i < list_size(anchor); ++i) {
    uint16_t passage = 0;
    std::memcpy(&passage, bytes.data() + i * sizeof(passage), sizeof(passage));
    if (passage <= before || passage >= ids_.size()) {
      return make_error(ErrorKind::kCorrupt, "{}: list {} names passages that are not there", path, anchor);
    }
    before = passage;
  }
  return {};
}

Status ImpactLists::take_lists(std::span<const std::byte> bytes, const std::string& path) {
  passages_.resize(postings());
  impacts_.resize(postings());
  for (size_t a = 0; a < anchors(); ++a) {
    const size_t size = list_size(a);
    const auto list = bytes.subspan(begins_[a] * kPostingBytes, size * kPostingBytes);
    RH_TRY_STATUS(check_list(a, list, path));
    std::memcpy(passages_.data() + begins_[a], list.data(), size * sizeof(uint16_t));
    std::memcpy(impacts_.data() + begins_[a], list.data() + size * sizeof(uint16_t), size);
  }
  return {};
}

Result<ImpactLists> ImpactLists::load(const std::filesystem::path& path, const AnchorSet& anchors,
                                      bool resident) {
  const std::string name = path.string();
  RH_TRY(const rhapsode::File file, rhapsode::File::open_read(path));
  RH_TRY(const uint64_t size, file.size());
  std::vector<std::byte> head(std::min<uint64_t>(size, sizeof(Header)));
  RH_TRY_STATUS(file.read_at(head, 0));
  RH_TRY(const Header header, header_of(head, name));
  const size_t begin = head_bytes(header);
  if (size < begin) return damaged(name, "ends inside its header");
  head.resize(begin);
  RH_TRY_STATUS(file.read_at(head, 0));
  RH_TRY(ImpactLists lists, of_header(head, anchors, name));
  if (size != begin + lists.postings() * kPostingBytes)
    return damaged(name, "does not end with its last list");
  if (resident) {
    std::vector<std::byte> bytes(size - begin);
    RH_TRY_STATUS(file.read_at(bytes, begin));
    RH_TRY_STATUS(lists.take_lists(bytes, name));
    return lists;
  }
  RH_TRY(lists.file_, BatchReader::open(path));
  return lists;
}

Result<FetchedLists> ImpactLists::fetch(std::span<const size_t> anchors) const {
  FetchedLists fetched;
  fetched.lists.reserve(anchors.size());
  if (file_ == nullptr) {
    for (const size_t anchor : anchors) fetched.lists.push_back(resident_list(anchor));
    return fetched;
  }
  // Lists are moved apart by the odd byte that keeps the 16-bit numbers aligned.
  std::vector<size_t> begins;
  size_t bytes = 0;
  for (const size_t anchor : anchors) {
    begins.push_back(bytes);
    bytes += (list_size(anchor) * kPostingBytes + 1) / 2 * 2;
  }
  fetched.buffer.resize(bytes);
  const Header sizes{{}, 0, static_cast<uint32_t>(this->anchors()), 0, static_cast<uint32_t>(ids_.size()), 0};
  std::vector<ReadRequest> requests;
  for (size_t i = 0; i < anchors.size(); ++i) {
    const size_t list_bytes = list_size(anchors[i]) * kPostingBytes;
    if (list_bytes == 0) continue;
    requests.push_back({head_bytes(sizes) + begins_[anchors[i]] * kPostingBytes,
                        std::span(fetched.buffer).subspan(begins[i], list_bytes)});
  }
  RH_TRY_STATUS(file_->read(requests));
  for (size_t i = 0; i < anchors.size(); ++i) {
    const size_t size = list_size(anchors[i]);
    const std::byte* list = fetched.buffer.data() + begins[i];
    RH_TRY_STATUS(check_list(anchors[i], std::span(list, size * kPostingBytes), file_->path().string()));
    fetched.lists.push_back({{reinterpret_cast<const uint16_t*>(list), size},
                             {reinterpret_cast<const uint8_t*>(list) + size * sizeof(uint16_t), size}});
  }
  return fetched;
}

}  // namespace rhapsode::index

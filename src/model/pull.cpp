#include "model/pull.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/system.h"
#include "base/text_check.h"
#include "io/file.h"
#include "io/http.h"
#include "model/download.h"
#include "model/file_hash.h"
#include "model/gguf_file.h"

namespace rhapsode::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPublicIndex = "https://pypi.org/simple";

fs::path home_of(const fs::path& home) {
  return home.empty() ? home_folder() : home;
}
bool is_url(const std::string& what) {
  return what.find("://") != std::string::npos;
}
bool is_path(const std::string& what) {
  return what.find('/') != std::string::npos || what.ends_with(".gguf");
}

// One model on its way into the home folder.
class Pull {
 public:
  Pull(CatalogueEntry entry, fs::path local, const PullOptions& options)
      : entry_(std::move(entry)),
        local_(std::move(local)),
        options_(options),
        folder_(home_of(options.home) / "models"),
        target_(folder_ / (entry_.name + ".gguf")),
        partial_{folder_ / ".partial", entry_.name} {}

  Result<PulledModel> run();

 private:
  Result<FileLock> lock();
  Result<std::optional<PulledModel>> find_present();
  Status fetch_any();
  Status fetch(const ModelSource& source);
  Result<bool> same_as_local(const std::optional<PulledModel>& present) const;
  Status copy_local();
  Result<std::string> verify(const std::string& source);
  Result<PulledModel> finish();
  Status remember(const fs::path& path, const std::string& hash, const std::string& source) const;
  PulledModel pulled(uint64_t bytes, std::string hash, std::string source, bool already_there) const;
  DownloadOptions download_options(const std::string& source) const;
  bool report(PullStage stage, const std::string& source, uint64_t done, uint64_t total) const {
    return !options_.on_progress || options_.on_progress({stage, source, done, total});
  }
  fs::path verified_path() const { return folder_ / ("." + entry_.name + ".verified.json"); }

  CatalogueEntry entry_;
  fs::path local_;  // the path to copy from; empty: the entry's sources
  const PullOptions& options_;
  fs::path folder_;
  fs::path target_;
  PartialPaths partial_;
  std::string source_;
  std::string hash_;
};

PulledModel Pull::pulled(uint64_t bytes, std::string hash, std::string source, bool already_there) const {
  return {entry_.name,           target_, bytes, std::move(hash), std::move(source), already_there,
          !entry_.sha256.empty()};
}

Status Pull::remember(const fs::path& path, const std::string& hash, const std::string& source) const {
  const std::optional<FileStamp> stamp = stamp_of(path);
  if (!stamp) return make_error(ErrorKind::kIo, "{} disappeared while it was checked", path.string());
  return write_note(verified_path(), {*stamp, hash, source});
}

Result<FileLock> Pull::lock() {
  const fs::path path = partial_.folder / (entry_.name + ".lock");
  while (true) {
    Result<FileLock> held = FileLock::acquire(path, /*wait=*/false);
    if (held.ok() || held.error().kind != ErrorKind::kCancelled) return held;
    if (!report(PullStage::kWaiting, path.string(), 0, 0)) {
      return make_error(ErrorKind::kCancelled, "waiting for another pull of {} was cancelled", entry_.name);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// The model, if the right bytes are in place already. A file whose bytes are not those of the catalogue does
// not count.
Result<std::optional<PulledModel>> Pull::find_present() {
  const std::optional<FileStamp> stamp = stamp_of(target_);
  if (!stamp) return std::optional<PulledModel>();
  const std::optional<HashNote> verified = read_note(verified_path());
  std::string hash = verified ? verified->sha256 : "";
  const std::string source = verified ? verified->source : target_.string();
  if (!verified || verified->stamp != *stamp) {
    RH_TRY(hash, hash_file(target_, [&](uint64_t done, uint64_t total) {
             return report(PullStage::kVerifying, target_.string(), done, total);
           }));
    if (!entry_.sha256.empty() && hash != entry_.sha256) return std::optional<PulledModel>();
    if (const auto opened = GgufFile::open(target_); !opened.ok()) return std::optional<PulledModel>();
    RH_TRY_STATUS(remember(target_, hash, source));
  }
  if (!entry_.sha256.empty() && hash != entry_.sha256) return std::optional<PulledModel>();
  return std::optional<PulledModel>(pulled(stamp->bytes, hash, source, true));
}

DownloadOptions Pull::download_options(const std::string& source) const {
  DownloadOptions download;
  const char* index = std::getenv("PIP_INDEX_URL");
  download.index_url = !options_.index_url.empty()          ? options_.index_url
                       : index != nullptr && *index != '\0' ? index
                                                            : kPublicIndex;
  download.expected_bytes = entry_.bytes;
  download.pinned = !entry_.sha256.empty();
  download.attempts = options_.attempts;
  download.retry_delay = options_.retry_delay;
  download.stall_seconds = options_.stall_seconds;
  download.on_progress = [this, source](uint64_t done, uint64_t total) {
    return report(PullStage::kDownloading, source, done, total);
  };
  return download;
}

// Checks the complete partial file; a bad one is thrown away, so that it is not resumed again.
Result<std::string> Pull::verify(const std::string& source) {
  const auto check = [&]() -> Result<std::string> {
    RH_TRY(std::string hash, hash_file(partial_.file(), [&](uint64_t done, uint64_t total) {
             return report(PullStage::kVerifying, source, done, total);
           }));
    if (!entry_.sha256.empty() && hash != entry_.sha256) {
      return make_error(ErrorKind::kCorrupt, "{} has the SHA-256 {}, but the catalogue says {}", source, hash,
                        entry_.sha256);
    }
    RH_TRY(const GgufFile file, GgufFile::open(partial_.file()));
    return hash;
  };
  Result<std::string> hash = check();
  if (!hash.ok() && hash.error().kind != ErrorKind::kCancelled) discard(partial_);
  return hash;
}

Status Pull::fetch(const ModelSource& source) {
  const std::string shown = source.url.empty() ? source.shown() : shown_url(source.url);
  std::error_code ignored;
  bool resumed = fs::exists(partial_.file(), ignored);
  for (;; resumed = false) {
    RH_TRY_STATUS(download(source, partial_, download_options(shown)));
    Result<std::string> hash = verify(shown);
    if (hash.ok()) {
      hash_ = *hash;
      source_ = shown;
      return {};
    }
    // Halves of two different files look like this: once more, from the start.
    if (!resumed || hash.error().kind != ErrorKind::kCorrupt) return hash.error();
  }
}

Status Pull::fetch_any() {
  std::string reasons;
  Error last;
  for (const ModelSource& source : entry_.sources) {
    const Status status = fetch(source);
    if (status.ok()) return {};
    last = status.error();
    if (last.kind == ErrorKind::kCancelled || last.kind == ErrorKind::kNoSpace) return status;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", last.message);
  }
  if (entry_.sources.size() == 1) return last;
  return make_error(last.kind, "{} could not be had from any of its {} sources: {}", entry_.name,
                    entry_.sources.size(), reasons);
}

Result<bool> Pull::same_as_local(const std::optional<PulledModel>& present) const {
  const std::optional<FileStamp> stamp = stamp_of(local_);
  if (!present || !stamp || stamp->bytes != present->bytes) return false;
  RH_TRY(const std::string hash, hash_file(local_, [&](uint64_t done, uint64_t total) {
           return report(PullStage::kVerifying, local_.string(), done, total);
         }));
  return hash == present->sha256;
}

Status Pull::copy_local() {
  discard(partial_);
  RH_TRY(const File from, File::open_read(local_));
  RH_TRY(const uint64_t size, from.size());
  RH_TRY(const uint64_t space, free_space(partial_.folder));
  if (size > space) {
    return make_error(ErrorKind::kNoSpace, "{} needs {} MB in {}, but only {} MB are free", local_.string(),
                      size / 1000000 + 1, folder_.string(), space / 1000000);
  }
  RH_TRY(File to, File::open_write(partial_.file()));
  std::vector<std::byte> buffer(size_t{4} << 20);
  for (uint64_t at = 0;;) {
    RH_TRY(const size_t count, from.read_some(buffer, at));
    if (count == 0) break;
    RH_TRY_STATUS(to.write_at(std::span(buffer).first(count), at));
    at += count;
    if (!report(PullStage::kDownloading, local_.string(), at, size)) {
      discard(partial_);
      return make_error(ErrorKind::kCancelled, "copying {} was cancelled", local_.string());
    }
  }
  RH_TRY_STATUS(to.sync());
  RH_TRY_STATUS(to.close());
  source_ = local_.string();
  RH_TRY(hash_, verify(source_));
  return {};
}

Result<PulledModel> Pull::finish() {
  const std::optional<FileStamp> stamp = stamp_of(partial_.file());
  if (!stamp) return make_error(ErrorKind::kIo, "{} disappeared", partial_.file().string());
  // The note first: it names the file by its stamp, which a rename keeps, so a crash in between costs
  // nothing.
  RH_TRY_STATUS(remember(partial_.file(), hash_, source_));
  RH_TRY_STATUS(rename_durably(partial_.file(), target_));
  discard(partial_);
  return pulled(stamp->bytes, hash_, source_, false);
}

Result<PulledModel> Pull::run() {
  RH_TRY_STATUS(make_directories(partial_.folder));
  RH_TRY(const FileLock held, lock());
  RH_TRY(std::optional<PulledModel> present, find_present());
  if (local_.empty()) {
    if (present) return *std::move(present);
    if (options_.offline) {
      return make_error(ErrorKind::kNotFound, "{} is not in {}, and downloads are switched off", entry_.name,
                        folder_.string());
    }
    RH_TRY_STATUS(fetch_any());
  } else {
    RH_TRY(const bool same, same_as_local(present));
    if (same) return *std::move(present);
    RH_TRY_STATUS(copy_local());
  }
  return finish();
}

// Last part of a path or URL without .gguf, as a model's name.
Result<std::string> name_from(const std::string& path, const std::string& shown) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  if (is_model_name(name)) return name;
  return make_error(ErrorKind::kInvalidArgument,
                    "{} does not end in a name of letters, digits, '.', '_' and '-' to keep the model under",
                    shown);
}

Result<PulledModel> pull_url(const std::string& url, const PullOptions& options) {
  if (!url.starts_with("https://") && !url.starts_with("http://")) {
    return make_error(ErrorKind::kInvalidArgument, "{} is no HTTP or HTTPS address", shown_url(url));
  }
  CatalogueEntry entry;
  RH_TRY(entry.name, name_from(url.substr(0, url.find_first_of("?#")), shown_url(url)));
  entry.sources.push_back({url, {}});
  return Pull(std::move(entry), {}, options).run();
}

Result<PulledModel> pull_path(const std::string& what, const PullOptions& options) {
  const fs::path path = what;
  CatalogueEntry entry;
  RH_TRY(entry.name, name_from(path.filename().string(), what));
  // Before anything is copied: is it a model, and is it one file?
  RH_TRY(const GgufFile file, GgufFile::open(path));
  if (file.integer("split.count").value_or(1) > 1) {
    return make_error(ErrorKind::kUnsupported,
                      "{} is split over several files: use it by its path where it is", what);
  }
  std::error_code ignored;
  const bool in_place =
      fs::equivalent(path, home_of(options.home) / "models" / (entry.name + ".gguf"), ignored);
  return Pull(std::move(entry), in_place ? fs::path() : path, options).run();
}

Error unknown_model(const std::string& name, const Catalogue& catalogue) {
  return make_error(ErrorKind::kNotFound, "there is no model '{}': give a path, a URL or one of {}",
                    shown(name), catalogue.names());
}

}  // namespace

Result<PulledModel> pull(const std::string& what, const PullOptions& options) {
  if (is_url(what)) return pull_url(what, options);
  if (is_path(what)) return pull_path(what, options);
  RH_TRY(const Catalogue catalogue, Catalogue::load(home_of(options.home)));
  const std::string& name = what.empty() ? catalogue.default_model() : what;
  const CatalogueEntry* entry = catalogue.find(name);
  if (entry == nullptr) return unknown_model(name, catalogue);
  return Pull(*entry, {}, options).run();
}

Result<fs::path> resolve_model(const std::string& name_or_path, const fs::path& home) {
  const fs::path folder = home_of(home) / "models";
  std::error_code ignored;
  if (is_path(name_or_path)) {
    if (fs::exists(name_or_path, ignored)) return fs::path(name_or_path);
    return make_error(ErrorKind::kNotFound, "there is no file {}", shown(name_or_path, 400));
  }
  RH_TRY(const Catalogue catalogue, Catalogue::load(home_of(home)));
  const std::string& name = name_or_path.empty() ? catalogue.default_model() : name_or_path;
  if (!is_model_name(name)) return unknown_model(name, catalogue);
  const fs::path path = folder / (name + ".gguf");
  if (fs::exists(path, ignored)) return path;
  const CatalogueEntry* entry = catalogue.find(name);
  if (entry == nullptr) return unknown_model(name, catalogue);
  return make_error(ErrorKind::kNotFound, "the model {} is not in {}: type `rhapsode pull {}` ({} MB)", name,
                    folder.string(), name, (entry->bytes + 999999) / 1000000);
}

std::vector<LocalModel> local_models(const fs::path& home) {
  std::vector<LocalModel> models;
  std::error_code code;
  for (fs::directory_iterator at(home_of(home) / "models", code), end; !code && at != end;
       at.increment(code)) {
    const fs::path& path = at->path();
    const std::optional<FileStamp> stamp = stamp_of(path);
    if (path.extension() != ".gguf" || !stamp) continue;
    models.push_back({path.stem().string(), path, stamp->bytes});
  }
  std::sort(models.begin(), models.end(),
            [](const LocalModel& a, const LocalModel& b) { return a.name < b.name; });
  return models;
}

}  // namespace rhapsode::model

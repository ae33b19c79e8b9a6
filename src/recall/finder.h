// The finder: the latent half of routing over memories of any size (design: "Find", "Index").
//
// Below `least_chunks` every allowed passage is scored from the codes. From there on the memory keeps an
// index (index/passage_index.h) in its folder, which the writer brings up to date after each change; passages
// that it does not list yet are scored all the same, and few allowed passages are scored exactly. A missing,
// damaged or foreign index costs time, never an answer: the exact scan takes its place until the next writer
// has made it again, and stats() says why. A sample of the questions is answered a second time exactly; what
// that says of the recall is in stats(). Ownership: keeps views into the catalog's codes until the catalog
// changes. Where there is a device that can hold the codes, it answers instead of index and host, with the
// exact scan's answers; without room for them the host goes on, and stats() says so. Threads: one at a time.
// Errors: the catalog's, the device's. Cost: with an index, lists and some thousand passages a question;
// without, all codes; after a change of the catalog, once the places of all codes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "index/find_monitor.h"
#include "index/index_folder.h"
#include "index/passage_index.h"
#include "recall/device_codes.h"
#include "store/catalog.h"

namespace rhapsode::recall {

struct FinderOptions {
  std::filesystem::path folder;  // of the index
  std::string key;               // of the codes: whitening and model
  int dimensions = 0;            // of the codes; 0: only stats() is asked for
  bool read_only = false;
  int64_t least_chunks = 1'000'000;  // exact below; 0: always
  int threads = 1;
  index::QuestionForm form = index::QuestionForm::kFourBits;
  CodeSearchMaker device;  // empty: codes are scanned on the host
};

struct FinderStats {
  bool approximate = false;  // questions over everything are answered by the index
  size_t indexed = 0;        // passages
  uint64_t bytes = 0;        // of the index on disk
  std::string problem;       // why there is no index, if there should be one
  index::RecallReport recall;
  bool on_device = false;  // questions are answered by a device, exactly
  uint64_t device_bytes = 0;
  std::string device_problem;  // why the host scans although there is a device
};

// Latent scores of a question: of the best passages, and of others as they were asked for.
struct LatentScores {
  std::vector<int64_t> best;  // best first
  std::unordered_map<int64_t, double> known;
};

// The whitened states of a sentence read as a question: [tokens][dimensions].
using SentenceStates = std::function<Result<std::vector<float>>(const std::string& sentence)>;

class Finder {
 public:
  explicit Finder(FinderOptions options);

  // Makes the index follow the catalog: for a writer, after each change. Anchors are trained on sentences of
  // the memory, read as questions; when one of those passages is gone they are trained anew, so that nothing
  // derived from it stays.
  Status sync(store::Catalog& catalog, const SentenceStates& states);

  // The best `count` of the allowed passages (ids ascending; `everything`: they are all that are visible
  // now).
  Result<LatentScores> find(const store::Catalog& catalog, const index::QuestionVectors& question,
                            std::span<const int64_t> allowed, bool everything, int count);
  // Adds the scores of passages that are not known yet; 0 for those without codes.
  Status score(const store::Catalog& catalog, const index::QuestionVectors& question,
               std::span<const int64_t> ids, LatentScores& scores);

  // What questions were sampled since the last call: for a caller that keeps it. Counts it as known here.
  index::RecallReport take_new_samples();
  void add_samples(const index::RecallReport& earlier) { kept_samples_.add(earlier); }
  FinderStats stats();

 private:
  class CatalogCodes;
  bool has_index() const { return index_ != nullptr && index_->size() > 0; }
  // Loads the index if its files have changed, and lets go of what is kept of an older catalog.
  Status look_around(const store::Catalog& catalog);
  void load_index();
  Result<index::AnchorSet> train_anchors(store::Catalog& catalog, std::span<const int64_t> ids,
                                         const SentenceStates& states);
  Status rebuild(store::Catalog& catalog, std::span<const int64_t> ids, const SentenceStates& states);
  Status update(store::Catalog& catalog, std::vector<int64_t> ids);
  Status save();
  Status add_to_index(store::Catalog& catalog, std::span<const int64_t> ids);
  Status keep_codes(const store::Catalog& catalog, std::span<const int64_t> visible);
  // Empty when there is no device or no room on it.
  Result<std::optional<LatentScores>> find_on_device(const store::Catalog& catalog,
                                                     const index::QuestionVectors& question,
                                                     std::span<const int64_t> allowed, bool everything,
                                                     int count);
  int code_bytes() const { return (options_.dimensions + 63) / 64 * 8; }
  index::FindOptions find_options(size_t passages, int count) const;

  FinderOptions options_;
  index::IndexFolder folder_;
  std::unique_ptr<index::PassageIndex> index_;
  std::filesystem::file_time_type loaded_ = std::filesystem::file_time_type::max();  // state of its files
  std::string problem_;
  index::FindMonitor monitor_;
  index::FindMonitor kept_samples_;
  // Of the catalog as it was: codes of all visible passages, and the scope of a question without filters.
  std::optional<int64_t> generation_;
  bool keeps_codes_ = false;
  std::vector<index::PassageCodes> visible_;  // ids ascending
  index::Scope everything_;
  std::unique_ptr<DeviceCodes> device_;
  std::string device_problem_;
};

}  // namespace rhapsode::recall

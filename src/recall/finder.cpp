#include "recall/finder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "text/document.h"
#include "text/passage.h"

namespace rhapsode::recall {
namespace {

// Sentences that anchors are trained on: some 70,000 states.
constexpr size_t kTrainingSentences = 3000;
constexpr size_t kFewestSentenceBytes = 30;
constexpr size_t kMostSentenceBytes = 200;
constexpr int kAnchors = 4096;
// Passages looked at for a question (docs/results.md).
constexpr size_t kFewestCandidates = 8192;
constexpr size_t kCandidateShare = 40;
constexpr int kProbes = 4;
constexpr std::string_view kTrainedOnSetting = "index_trained_on";

uint64_t mixed(int64_t id) {
  uint64_t x = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull;
  return x ^ (x >> 29);
}

std::vector<index::PassageCodes> with_codes(std::span<const int64_t> ids,
                                            std::span<const store::CodeView> codes, size_t code_bytes) {
  std::vector<index::PassageCodes> passages;
  passages.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    // Codes of another size are another model's, left by a re-encoding that was cut short.
    const bool fits = codes[i].bytes.size() == static_cast<size_t>(codes[i].chunks) * code_bytes;
    passages.push_back({ids[i], codes[i].bytes.data(), fits ? codes[i].chunks : 0});
  }
  return passages;
}

// The first sentence of a question's length.
std::string sentence_of(const std::string& text) {
  const std::vector<size_t> starts = text::sentence_starts(text, text::DocumentKind::kPlain);
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : text.size();
    const size_t bytes = end - starts[i];
    if (bytes >= kFewestSentenceBytes && bytes <= kMostSentenceBytes) return text.substr(starts[i], bytes);
  }
  return {};
}

std::vector<int64_t> numbers_of(std::string_view list) {
  std::vector<int64_t> numbers;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    numbers.push_back(std::atoll(std::string(list.substr(begin, end - begin)).c_str()));
    begin = end + 1;
  }
  return numbers;
}

}  // namespace

// Codes of the visible passages from what is kept of the catalog, of others from the catalog itself.
class Finder::CatalogCodes final : public index::CodeSource {
 public:
  CatalogCodes(const store::Catalog& catalog, const Finder& finder) : catalog_(catalog), finder_(finder) {}

  Result<std::vector<index::PassageCodes>> codes(std::span<const int64_t> ids) override {
    std::vector<index::PassageCodes> found(ids.size());
    std::vector<int64_t> others;
    std::vector<size_t> places;
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto kept =
          std::lower_bound(finder_.visible_.begin(), finder_.visible_.end(), ids[i],
                           [](const index::PassageCodes& passage, int64_t id) { return passage.id < id; });
      if (kept != finder_.visible_.end() && kept->id == ids[i]) {
        found[i] = *kept;
      } else {
        others.push_back(ids[i]);
        places.push_back(i);
      }
    }
    if (others.empty()) return found;
    RH_TRY(const std::vector<store::CodeView> views, catalog_.codes(others));
    const std::vector<index::PassageCodes> more =
        with_codes(others, views, static_cast<size_t>(finder_.code_bytes()));
    for (size_t i = 0; i < more.size(); ++i) found[places[i]] = more[i];
    return found;
  }

 private:
  const store::Catalog& catalog_;
  const Finder& finder_;
};

Finder::Finder(FinderOptions options)
    : options_(std::move(options)),
      folder_(options_.folder, {options_.key, options_.read_only, /*resident=*/options_.dimensions > 0}) {
  if (options_.device && options_.dimensions > 0 && options_.form == index::QuestionForm::kFourBits) {
    device_ = std::make_unique<DeviceCodes>(options_.device, options_.dimensions);
  }
}

void Finder::load_index() {
  const std::filesystem::file_time_type changed = folder_.changed();
  if (changed == loaded_) return;
  loaded_ = changed;
  index_.reset();
  problem_.clear();
  auto state = folder_.load();
  const bool any = options_.dimensions == 0;
  if (state.ok() && (any || state->anchors->dimensions() == options_.dimensions)) {
    index_ = std::make_unique<index::PassageIndex>(std::move(*state), index::ListOptions{});
  } else if (!state.ok() && state.error().kind != ErrorKind::kNotFound) {
    problem_ = state.error().message;
  }
}

Status Finder::look_around(const store::Catalog& catalog) {
  RH_TRY(const int64_t generation, catalog.generation());
  if (generation_ == generation) return {};
  generation_ = generation;
  keeps_codes_ = false;
  visible_.clear();
  if (device_) device_->distrust();
  load_index();
  return {};
}

Status Finder::sync(store::Catalog& catalog, const SentenceStates& states) {
  RH_TRY_STATUS(look_around(catalog));
  RH_TRY(const std::vector<store::CodedPassage> passages, catalog.coded_passages());
  int64_t chunks = 0;
  std::vector<int64_t> ids;
  for (const store::CodedPassage& passage : passages) {
    chunks += passage.chunks;
    ids.push_back(passage.passage);
  }
  if (options_.least_chunks == 0 || chunks < options_.least_chunks) {
    index_.reset();
    return folder_.clear();
  }
  RH_TRY(const std::optional<std::string> trained_on, catalog.setting(kTrainedOnSetting));
  const std::vector<int64_t> sample = numbers_of(trained_on.value_or(""));
  const bool sound = !sample.empty() && std::all_of(sample.begin(), sample.end(), [&](int64_t id) {
    return std::binary_search(ids.begin(), ids.end(), id);
  });
  if (index_ == nullptr || !sound) return rebuild(catalog, ids, states);
  return update(catalog, std::move(ids));
}

Result<index::AnchorSet> Finder::train_anchors(store::Catalog& catalog, std::span<const int64_t> ids,
                                               const SentenceStates& states) {
  std::vector<int64_t> order(ids.begin(), ids.end());
  std::sort(order.begin(), order.end(), [](int64_t a, int64_t b) { return mixed(a) < mixed(b); });
  std::vector<float> points;
  std::vector<int64_t> trained_on;
  for (const int64_t id : order) {
    if (trained_on.size() == kTrainingSentences) break;
    RH_TRY(const std::string text, catalog.passage_text(id));
    const std::string sentence = sentence_of(text);
    if (sentence.empty()) continue;
    RH_TRY(const std::vector<float> more, states(sentence));
    points.insert(points.end(), more.begin(), more.end());
    trained_on.push_back(id);
  }
  const std::string list = fmt::format("{}", fmt::join(trained_on, ","));
  RH_TRY_STATUS(catalog.set_settings({{std::string(kTrainedOnSetting), list}}));
  index::AnchorTraining training;
  training.count = kAnchors;
  training.threads = options_.threads;
  return index::AnchorSet::train(options_.dimensions, points, training);
}

Status Finder::rebuild(store::Catalog& catalog, std::span<const int64_t> ids, const SentenceStates& states) {
  index_.reset();
  RH_TRY_STATUS(folder_.clear());
  auto anchors = train_anchors(catalog, ids, states);
  if (!anchors.ok()) {
    // Too few sentences, say: the exact scan goes on.
    if (anchors.error().kind != ErrorKind::kInvalidArgument) return anchors.error();
    problem_ = anchors.error().message;
    return {};
  }
  index::ListOptions lists;
  lists.threads = options_.threads;
  index_ = std::make_unique<index::PassageIndex>(
      std::make_shared<const index::AnchorSet>(std::move(*anchors)), lists);
  RH_TRY_STATUS(add_to_index(catalog, ids));
  return save();
}

Status Finder::update(store::Catalog& catalog, std::vector<int64_t> ids) {
  const index::IdSet there{ids};
  std::vector<int64_t> gone;
  index::IdSet listed;
  const std::shared_ptr<const index::IndexState> state = index_->state();
  for (const index::IndexSegment& segment : state->segments) {
    for (size_t p = 0; p < segment.live->size(); ++p) {
      if (!segment.live->test(p)) continue;
      const int64_t id = segment.lists->ids()[p];
      listed.insert(id);
      if (!there.contains(id)) gone.push_back(id);
    }
  }
  std::erase_if(ids, [&](int64_t id) { return listed.contains(id); });
  if (gone.empty() && ids.empty()) return {};
  index_->remove(gone);
  RH_TRY_STATUS(index_->purge());
  RH_TRY_STATUS(add_to_index(catalog, ids));
  return save();
}

Status Finder::add_to_index(store::Catalog& catalog, std::span<const int64_t> ids) {
  for (size_t begin = 0; begin < ids.size(); begin += index::kMostSegmentPassages) {
    const auto some = ids.subspan(begin, std::min(index::kMostSegmentPassages, ids.size() - begin));
    RH_TRY(const std::vector<store::CodeView> codes, catalog.codes(some));
    RH_TRY(const size_t added, index_->add(with_codes(some, codes, static_cast<size_t>(code_bytes()))));
    static_cast<void>(added);
  }
  return {};
}

Status Finder::save() {
  for (bool more = true; more;) {
    RH_TRY(more, index_->merge());
  }
  auto saved = folder_.save(*index_->state());
  if (!saved.ok()) return saved.error();
  index_->adopt_numbers(*saved);
  loaded_ = folder_.changed();
  problem_.clear();
  return {};
}

// Takes over where all visible codes lie, once for each state of the catalog.
Status Finder::keep_codes(const store::Catalog& catalog, std::span<const int64_t> visible) {
  if (keeps_codes_) return {};
  RH_TRY(const std::vector<store::CodeView> codes, catalog.codes(visible));
  visible_ = with_codes(visible, codes, static_cast<size_t>(code_bytes()));
  everything_ = index_->scope(visible);
  keeps_codes_ = true;
  return {};
}

index::FindOptions Finder::find_options(size_t passages, int count) const {
  index::FindOptions options;
  options.count = count;
  options.probes = kProbes;
  options.candidates = std::max(kFewestCandidates, passages / kCandidateShare);
  options.form = options_.form;
  options.threads = options_.threads;
  return options;
}

Result<std::optional<LatentScores>> Finder::find_on_device(const store::Catalog& catalog,
                                                           const index::QuestionVectors& question,
                                                           std::span<const int64_t> allowed, bool everything,
                                                           int count) {
  if (device_ == nullptr) return std::optional<LatentScores>();
  CatalogCodes codes(catalog, *this);
  const auto hits = device_->best(question, allowed, everything, codes, count);
  if (!hits.ok() && hits.error().kind == ErrorKind::kNoSpace) {
    device_problem_ = hits.error().message;
    device_.reset();
    return std::optional<LatentScores>();
  }
  if (!hits.ok()) return hits.error();
  LatentScores scores;
  for (const index::ScanHit& hit : *hits) {
    scores.best.push_back(hit.id);
    scores.known[hit.id] = hit.score;
  }
  return std::optional<LatentScores>(std::move(scores));
}

Result<LatentScores> Finder::find(const store::Catalog& catalog, const index::QuestionVectors& question,
                                  std::span<const int64_t> allowed, bool everything, int count) {
  RH_TRY_STATUS(look_around(catalog));
  RH_TRY(std::optional<LatentScores> on_device,
         find_on_device(catalog, question, allowed, everything, count));
  if (on_device) return std::move(*on_device);
  LatentScores scores;
  if (!has_index()) {
    RH_TRY_STATUS(score(catalog, question, allowed, scores));
    std::vector<std::pair<double, int64_t>> order;
    order.reserve(scores.known.size());
    for (const auto& [id, value] : scores.known) order.emplace_back(-value, id);
    const size_t kept = std::min(order.size(), static_cast<size_t>(count));
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end());
    for (size_t i = 0; i < kept; ++i) scores.best.push_back(order[i].second);
    return scores;
  }
  if (everything) RH_TRY_STATUS(keep_codes(catalog, allowed));
  const index::Scope scope = everything ? everything_ : index_->scope(allowed);
  CatalogCodes codes(catalog, *this);
  const index::FindOptions options = find_options(scope.passages(), count);
  RH_TRY(const index::Found found, index_->find(question, scope, codes, options));
  RH_TRY_STATUS(monitor_.observe(*index_, question, scope, codes, options, found));
  for (const index::ScanHit& hit : found.hits) {
    scores.best.push_back(hit.id);
    scores.known[hit.id] = hit.score;
  }
  return scores;
}

Status Finder::score(const store::Catalog& catalog, const index::QuestionVectors& question,
                     std::span<const int64_t> ids, LatentScores& scores) {
  RH_TRY_STATUS(look_around(catalog));
  std::vector<int64_t> unknown;
  for (const int64_t id : ids) {
    if (scores.known.count(id) == 0) unknown.push_back(id);
  }
  if (unknown.empty()) return {};
  CatalogCodes codes(catalog, *this);
  RH_TRY(const std::vector<index::PassageCodes> passages, codes.codes(unknown));
  const std::vector<float> values =
      index::score_passages(question, passages, options_.form, options_.threads);
  scores.known.reserve(scores.known.size() + unknown.size());
  for (size_t i = 0; i < unknown.size(); ++i) {
    // A passage without codes (index of another model, or damaged) is found by its words only.
    scores.known[unknown[i]] = std::isfinite(values[i]) ? values[i] : 0.0;
  }
  return {};
}

index::RecallReport Finder::take_new_samples() {
  const index::RecallReport fresh = monitor_.take();
  kept_samples_.add(fresh);
  return fresh;
}

FinderStats Finder::stats() {
  load_index();
  take_new_samples();
  FinderStats stats;
  stats.approximate = has_index() && device_ == nullptr;
  stats.indexed = index_ ? index_->size() : 0;
  stats.bytes = folder_.bytes_on_disk();
  stats.problem = problem_;
  stats.recall = kept_samples_.report();
  stats.on_device = device_ != nullptr;
  stats.device_bytes = device_ ? device_->device_bytes() : 0;
  stats.device_problem = device_problem_;
  return stats;
}

}  // namespace rhapsode::recall

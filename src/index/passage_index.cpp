#include "index/passage_index.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "index/candidate_choice.h"

namespace rhapsode::index {
namespace {

// Sums of a question of 512 tokens of the largest weight stay below 2^32.
constexpr float kFactorSteps = 64.0f;  // of weight x dot product
constexpr long kMostFactor = 16384;
// Segments below this share of a full one are joined as soon as there are kMergeWidth of them.
constexpr size_t kSmallShare = 4;
constexpr size_t kMergeWidth = 8;

struct Probe {
  size_t anchor = 0;
  uint32_t factor = 0;
};

// [tokens] the lists to add, those of nothing left out.
std::vector<std::vector<Probe>> probes_of(const AnchorSet& anchors, const QuestionVectors& question,
                                          int probes) {
  const std::vector<std::vector<AnchorHit>> nearest = anchors.nearest(question.vectors, probes);
  std::vector<std::vector<Probe>> found(nearest.size());
  for (size_t t = 0; t < nearest.size(); ++t) {
    for (const AnchorHit& hit : nearest[t]) {
      const long factor = std::lround(question.weights[t] * hit.dot * kFactorSteps);
      if (factor <= 0) continue;
      found[t].push_back(
          {static_cast<size_t>(hit.anchor), static_cast<uint32_t>(std::min(factor, kMostFactor))});
    }
  }
  return found;
}

// What the passages of a segment gather over the question's tokens.
Result<std::vector<uint32_t>> sums_of(const ImpactLists& lists,
                                      const std::vector<std::vector<Probe>>& probes) {
  std::vector<size_t> anchors;
  for (const std::vector<Probe>& token : probes) {
    for (const Probe& probe : token) anchors.push_back(probe.anchor);
  }
  RH_TRY(const FetchedLists fetched, lists.fetch(anchors));
  ImpactSums sums;
  sums.begin(lists.ids().size());
  auto list = fetched.lists.begin();
  for (const std::vector<Probe>& token : probes) {
    sums.begin_token();
    for (const Probe& probe : token) sums.add(*list++, probe.factor);
  }
  return sums.take();
}

// The best by estimate, in the order they came.
void keep_finalists(const QuestionVectors& question, const FindOptions& options,
                    std::vector<PassageCodes>& passages) {
  const size_t kept = std::max(options.finalists, static_cast<size_t>(std::max(options.count, 0)));
  if (passages.size() <= kept) return;
  const std::vector<float> scores = score_passages(question, passages, QuestionForm::kSigns, options.threads);
  std::vector<size_t> order(passages.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(kept);
  std::nth_element(order.begin(), end, order.end(), [&](size_t a, size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : passages[a].id < passages[b].id;
  });
  std::sort(order.begin(), end);
  for (size_t i = 0; i < kept; ++i) passages[i] = passages[order[i]];
  passages.resize(kept);
}

uint64_t postings_of(const IndexState& state, const std::vector<std::vector<Probe>>& probes) {
  uint64_t count = 0;
  for (const IndexSegment& segment : state.segments) {
    for (const std::vector<Probe>& token : probes) {
      for (const Probe& probe : token) count += segment.lists->list_size(probe.anchor);
    }
  }
  return count;
}

// Where a living id is: {segment, passage}; the number of segments when nowhere.
struct Place {
  size_t segment = 0;
  size_t passage = 0;
};

Place place_of(const IndexState& state, int64_t id) {
  for (size_t s = 0; s < state.segments.size(); ++s) {
    const std::span<const int64_t> ids = state.segments[s].lists->ids();
    const auto found = std::lower_bound(ids.begin(), ids.end(), id);
    if (found == ids.end() || *found != id) continue;
    const auto passage = static_cast<size_t>(found - ids.begin());
    if (state.segments[s].live->test(passage)) return {s, passage};
  }
  return {state.segments.size(), 0};
}

// Takes the ids out of the state; how many were there.
size_t bury(IndexState& state, std::span<const int64_t> ids) {
  std::vector<std::vector<size_t>> dead(state.segments.size());
  for (const int64_t id : ids) {
    const Place place = place_of(state, id);
    if (place.segment < dead.size()) dead[place.segment].push_back(place.passage);
  }
  size_t count = 0;
  for (size_t s = 0; s < dead.size(); ++s) {
    if (dead[s].empty()) continue;
    IndexSegment& segment = state.segments[s];
    auto live = std::make_shared<PassageBits>(*segment.live);
    for (const size_t passage : dead[s]) live->clear(passage);
    const size_t left = live->count();
    count += segment.live_count - left;
    segment.live = std::move(live);
    segment.live_count = left;
  }
  std::erase_if(state.segments, [](const IndexSegment& segment) { return segment.live_count == 0; });
  return count;
}

IndexSegment segment_of(ImpactLists lists) {
  IndexSegment segment;
  segment.live_count = lists.ids().size();
  segment.live = std::make_shared<PassageBits>(segment.live_count, true);
  segment.lists = std::make_shared<const ImpactLists>(std::move(lists));
  return segment;
}

}  // namespace

PassageIndex::PassageIndex(std::shared_ptr<const AnchorSet> anchors, ListOptions options)
    : PassageIndex(IndexState{std::move(anchors), {}, 0}, options) {}

PassageIndex::PassageIndex(IndexState state, ListOptions options)
    : options_(options), state_(std::make_shared<const IndexState>(std::move(state))) {}

std::shared_ptr<const IndexState> PassageIndex::state() const {
  const std::lock_guard lock(reading_);
  return state_;
}

void PassageIndex::publish(IndexState state) {
  auto next = std::make_shared<const IndexState>(std::move(state));
  const std::lock_guard lock(reading_);
  state_.swap(next);
}

Result<size_t> PassageIndex::add(std::span<const PassageCodes> passages) {
  std::vector<PassageCodes> ordered(passages.begin(), passages.end());
  std::sort(ordered.begin(), ordered.end(),
            [](const PassageCodes& a, const PassageCodes& b) { return a.id < b.id; });
  if (!ordered.empty() && ordered.front().id < 0) {
    return make_error(ErrorKind::kInvalidArgument, "ids of an index are not negative: {}",
                      ordered.front().id);
  }
  const std::lock_guard lock(writing_);
  std::vector<IndexSegment> made;
  std::vector<int64_t> ids;
  for (size_t begin = 0; begin < ordered.size(); begin += kMostSegmentPassages) {
    const size_t size = std::min(kMostSegmentPassages, ordered.size() - begin);
    RH_TRY(ImpactLists lists,
           ImpactLists::build(*state_->anchors, std::span(ordered).subspan(begin, size), options_));
    if (!ids.empty() && ids.back() == lists.ids().front()) {
      return make_error(ErrorKind::kInvalidArgument, "the passage {} is given twice", ids.back());
    }
    ids.insert(ids.end(), lists.ids().begin(), lists.ids().end());
    made.push_back(segment_of(std::move(lists)));
  }
  IndexState next = *state_;
  const size_t replaced = bury(next, ids);
  for (IndexSegment& segment : made) next.segments.push_back(std::move(segment));
  publish(std::move(next));
  return ids.size() - replaced;
}

size_t PassageIndex::remove(std::span<const int64_t> ids) {
  const std::lock_guard lock(writing_);
  IndexState next = *state_;
  const size_t count = bury(next, ids);
  if (count > 0) publish(std::move(next));
  return count;
}

// The small segments if they are many or fill one together, else one that is mostly dead.
std::vector<size_t> PassageIndex::choose_segments_to_merge(const IndexState& state) const {
  std::vector<size_t> small;
  size_t passages = 0;
  for (size_t s = 0; s < state.segments.size(); ++s) {
    const IndexSegment& segment = state.segments[s];
    if (segment.live_count > kMostSegmentPassages / kSmallShare) continue;
    if (passages + segment.live_count > kMostSegmentPassages) break;
    passages += segment.live_count;
    small.push_back(s);
  }
  const bool fills = passages > kMostSegmentPassages / 2;
  if (small.size() >= kMergeWidth || (small.size() > 1 && fills)) return small;
  for (size_t s = 0; s < state.segments.size(); ++s) {
    if (state.segments[s].live_count * 2 < state.segments[s].lists->ids().size()) return {s};
  }
  return {};
}

// Only the exchange holds the writer up: what was buried meanwhile is buried in the new segment as well.
Status PassageIndex::replace_segments(const IndexState& before, std::span<const size_t> chosen) {
  std::vector<MergePart> parts;
  for (const size_t s : chosen)
    parts.push_back({before.segments[s].lists.get(), before.segments[s].live.get()});
  RH_TRY(ImpactLists lists, ImpactLists::merge(parts));
  IndexSegment merged = segment_of(std::move(lists));
  const std::lock_guard lock(writing_);
  IndexState next = *state_;
  const auto was_merged = [&](const ImpactLists* one) {
    return std::any_of(parts.begin(), parts.end(), [&](const MergePart& part) { return part.lists == one; });
  };
  auto live = std::make_shared<PassageBits>(merged.lists->ids().size());
  IndexState old = next;
  std::erase_if(old.segments, [&](const IndexSegment& segment) { return !was_merged(segment.lists.get()); });
  for (size_t p = 0; p < live->size(); ++p) {
    if (place_of(old, merged.lists->ids()[p]).segment < old.segments.size()) live->set(p);
  }
  merged.live_count = live->count();
  merged.live = std::move(live);
  std::erase_if(next.segments, [&](const IndexSegment& segment) { return was_merged(segment.lists.get()); });
  if (merged.live_count > 0) next.segments.push_back(std::move(merged));
  publish(std::move(next));
  return {};
}

Result<bool> PassageIndex::merge() {
  const std::shared_ptr<const IndexState> before = state();
  const std::vector<size_t> chosen = choose_segments_to_merge(*before);
  if (chosen.empty()) return false;
  RH_TRY_STATUS(replace_segments(*before, chosen));
  return true;
}

Status PassageIndex::purge() {
  const std::shared_ptr<const IndexState> before = state();
  for (size_t s = 0; s < before->segments.size(); ++s) {
    const IndexSegment& segment = before->segments[s];
    if (segment.live_count == segment.lists->ids().size()) continue;
    RH_TRY_STATUS(replace_segments(*before, std::span(&s, 1)));
  }
  return {};
}

void PassageIndex::adopt_numbers(const IndexState& saved) {
  const std::lock_guard lock(writing_);
  IndexState next = *state_;
  next.last_number = std::max(next.last_number, saved.last_number);
  for (IndexSegment& segment : next.segments) {
    for (const IndexSegment& one : saved.segments) {
      if (one.lists == segment.lists) segment.number = one.number;
    }
  }
  publish(std::move(next));
}

size_t PassageIndex::size() const {
  size_t count = 0;
  for (const IndexSegment& segment : state()->segments) count += segment.live_count;
  return count;
}

bool PassageIndex::contains(int64_t id) const {
  const std::shared_ptr<const IndexState> now = state();
  return place_of(*now, id).segment < now->segments.size();
}

Scope PassageIndex::scope() const {
  Scope scope;
  scope.state_ = state();
  for (const IndexSegment& segment : scope.state_->segments) {
    scope.open_.push_back(*segment.live);
    scope.listed_ += segment.live_count;
  }
  return scope;
}

Scope PassageIndex::scope(std::span<const int64_t> allowed) const {
  Scope scope;
  scope.state_ = state();
  const IdSet wanted(allowed);
  IdSet listed;
  for (const IndexSegment& segment : scope.state_->segments) {
    PassageBits open(segment.live->size());
    const std::span<const int64_t> ids = segment.lists->ids();
    for (size_t p = 0; p < ids.size(); ++p) {
      if (!segment.live->test(p) || !wanted.contains(ids[p])) continue;
      open.set(p);
      listed.insert(ids[p]);
      ++scope.listed_;
    }
    scope.open_.push_back(std::move(open));
  }
  for (const int64_t id : allowed) {
    if (!listed.contains(id)) scope.unlisted_.push_back(id);
  }
  return scope;
}

Result<Found> PassageIndex::find(const QuestionVectors& question, const Scope& scope, CodeSource& codes,
                                 const FindOptions& options) const {
  const IndexState& state = *scope.state_;
  Found found;
  found.exact = options.exact || scope.listed_ <= options.candidates;
  std::vector<std::vector<uint32_t>> sums(state.segments.size());
  if (!found.exact) {
    const std::vector<std::vector<Probe>> probes = probes_of(*state.anchors, question, options.probes);
    found.postings = postings_of(state, probes);
    std::vector<Status> done(sums.size());
    for_each_on_threads(sums.size(), options.threads, [&](size_t s) {
      auto gathered = sums_of(*state.segments[s].lists, probes);
      if (gathered.ok()) {
        sums[s] = std::move(*gathered);
      } else {
        done[s] = gathered.error();
      }
    });
    for (const Status& status : done) RH_TRY_STATUS(status);
  }
  std::vector<SegmentSums> views;
  for (size_t s = 0; s < sums.size(); ++s) {
    if (found.exact) sums[s].resize(scope.open_[s].size());
    views.push_back({sums[s], &scope.open_[s], state.segments[s].lists->ids()});
  }
  std::vector<int64_t> ids = choose_candidates(views, found.exact ? scope.listed_ : options.candidates);
  ids.insert(ids.end(), scope.unlisted_.begin(), scope.unlisted_.end());
  RH_TRY(std::vector<PassageCodes> passages, codes.codes(ids));
  if (!found.exact) keep_finalists(question, options, passages);
  found.hits = best_passages(question, passages, options.form, options.count, options.threads);
  found.scored = passages.size();
  return found;
}

Found find_exactly(const QuestionVectors& question, std::span<const PassageCodes> passages,
                   const FindOptions& options) {
  Found found;
  found.hits = best_passages(question, passages, options.form, options.count, options.threads);
  found.exact = true;
  found.scored = passages.size();
  return found;
}

}  // namespace rhapsode::index

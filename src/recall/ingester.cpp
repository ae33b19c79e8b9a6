#include "recall/ingester.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <set>

#include "base/clock.h"
#include "base/iso_time.h"
#include "base/sha256.h"
#include "recall/links.h"
#include "store/conversation_types.h"
#include "store/kv_codec.h"
#include "text/readers.h"

namespace rhapsode::recall {

namespace {

// Whatever changes passages: readers, cutter, headers, routing's view of the text.
constexpr char kRecipe[] = "reader 1; cutter 2; 512/640";
// Tokens encoded between two commits at least: what a kill may cost. Devices take wider passes than that.
constexpr int kLeastBatchTokens = 2048;
// Of a device whose passes are wider than that, when no KV is stored.
constexpr int kPassesACommit = 8;
// How long a finished batch may lie uncommitted while the next source is waited for.
constexpr std::chrono::milliseconds kPatience(20);

Result<std::string> sha256_of(std::string_view bytes) {
  return sha256(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

bool lies_below(const std::string& name, const std::string& folder) {
  if (folder.empty() || folder == ".") return !name.empty() && name.front() != '/';
  const std::string prefix = folder.back() == '/' ? folder : folder + "/";
  return name.starts_with(prefix);
}

std::string normal_path(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().generic_string();
}

}  // namespace

struct Ingester::CutSource {
  Result<CutDocument> document;
  // Of a content that was not known: its text is durable.
  std::optional<Result<store::PreparedContent>> prepared;
};

struct Ingester::Coming {
  text::SourceBytes source;  // of one that is not cut ahead, its bytes; else only the name
  KnownContent content;
  uint64_t bytes = 0;
  std::optional<std::future<CutSource>> cut;
};

struct Ingester::Cut {
  CutDocument document;
  KnownContent content;
  std::optional<store::PreparedContent> prepared;
};

struct Ingester::Publishing {
  store::SourceRecord source;
  int64_t content = 0;
};

struct Ingester::Run {
  struct Waiting {
    EncodingBatch::Place place;
    PassageTokens tokens;
  };

  Run(const AddOptions& given, const Ingester& ingester, int threads)
      : options(given),
        pool(threads),
        line(ingester.encoder_, ingester.whitening_, ingester.setting_.stored_kv, pool),
        begin_ns(now_ns()) {}

  const AddOptions& options;
  AddReport report;
  AddProgress progress;
  std::map<std::string, int64_t> current;  // source name to the content of its current version
  std::set<std::string> seen;
  std::set<std::string> published;
  std::string now;
  // The way of a source, stage by stage.
  WorkerPool pool;
  std::deque<Coming> coming;  // being cut
  uint64_t coming_bytes = 0;
  std::set<std::pair<std::string, std::string>> keys;  // hash and recipe of whatever came so far
  std::vector<Cut> cut;                                // to begin
  size_t cut_tokens = 0;
  std::map<int64_t, int> missing;     // passages of contents that were begun and are not complete
  std::deque<Publishing> publishing;  // sources in their order, waiting for their contents
  std::deque<Waiting> waiting;        // to encode
  size_t waiting_tokens = 0;
  EncodingLine line;
  std::optional<uint64_t> most_kv_bytes;  // that can be stored by now
  int64_t begin_ns;
};

std::string name_for(const std::string& user, const std::string& name) {
  return user.empty() ? name : "@" + user + "/" + name;
}

std::string vocabulary_id(const text::Tokenizer& tokenizer) {
  std::string pieces;
  for (int32_t id = 0; id < tokenizer.size(); ++id) pieces += tokenizer.piece(id, true) + '\n';
  const auto hash = sha256_of(pieces);
  return hash.ok() ? hash->substr(0, 16) : "unknown";
}

// Without KV a batch is small and a fast device done with it at once: the commits would take longer.
size_t Ingester::batch_tokens(bool index_only) const {
  const int rows = runner_.most_rows();
  const bool fast = index_only && rows > kLeastBatchTokens;
  return static_cast<size_t>(std::max(kLeastBatchTokens, fast ? kPassesACommit * rows : rows));
}

// Equal bytes are one content, unless their names promise different formats, another model counts its tokens,
// or they belong to different users: headers hold names, and nothing of one user's shows to another.
std::string Ingester::recipe_of(const std::string& name, const std::string& user) const {
  const std::string ending = std::filesystem::path(name).extension().string();
  const std::string owner = user.empty() ? "" : "; of " + user;
  return std::string(kRecipe) + "; vocabulary " + vocabulary_id_ + "; " + ending + owner;
}

Result<Ingester::KnownContent> Ingester::look_up(const text::SourceBytes& source,
                                                 const std::string& user) const {
  KnownContent content;
  RH_TRY(content.key.sha256, sha256_of(source.bytes));
  content.key.recipe = recipe_of(source.name, user);
  RH_TRY(content.known, catalog_.find_content(content.key));
  return content;
}

void Ingester::report_progress(Run& run) {
  const double seconds = ms_between(run.begin_ns, now_ns()) / 1e3;
  run.progress.tokens_done = run.report.encoded_tokens;
  run.progress.tokens_per_s = seconds > 0 ? static_cast<double>(run.report.encoded_tokens) / seconds : 0;
  if (run.progress.tokens_total > run.progress.tokens_done && run.progress.tokens_per_s > 0) {
    run.progress.seconds_left =
        static_cast<double>(run.progress.tokens_total - run.progress.tokens_done) / run.progress.tokens_per_s;
  }
  if (run.report.cancelled || !run.options.on_progress) return;
  run.report.cancelled = !run.options.on_progress(run.progress);
}

// In their order, as far as contents are complete: a part of somebody's commit.
Status Ingester::publish(Run& run) {
  for (; !run.publishing.empty(); run.publishing.pop_front()) {
    const auto& [source, content] = run.publishing.front();
    if (run.missing.contains(content)) return {};
    RH_TRY_STATUS(catalog_.publish(source, content));
    const auto had = run.current.find(source.name);
    if (had == run.current.end()) {
      ++run.report.added;
    } else if (had->second == content) {
      ++run.report.unchanged;
    } else {
      ++run.report.updated;
    }
    run.current[source.name] = content;
    run.published.insert(source.name);
    ++run.progress.sources_done;
  }
  return {};
}

// Those of the content's passages that have no codes yet wait to be encoded.
Status Ingester::queue_passages(CutDocument& cut, int64_t content, bool fresh, Run& run) {
  std::vector<int> done;
  if (!fresh) {
    RH_TRY(done, catalog_.encoded_ordinals(content));
  }
  const std::set<int> encoded(done.begin(), done.end());
  for (size_t i = 0; i < cut.passages.size(); ++i) {
    const auto ordinal = static_cast<int>(i);
    if (encoded.contains(ordinal)) continue;
    run.waiting_tokens += cut.passages[i].tokens.size();
    run.waiting.push_back({{content, ordinal}, std::move(cut.passages[i])});
    ++run.missing[content];
  }
  return {};
}

Status Ingester::begin(Cut& cut, Run& run) {
  CutDocument& document = cut.document;
  for (const std::string& warning : document.warnings) {
    run.report.warnings.push_back({document.source.name, warning});
  }
  std::optional<store::ContentInfo>& known = cut.content.known;
  const bool fresh = !known;
  if (fresh) {
    RH_TRY(known, catalog_.begin_content(cut.content.key, *cut.prepared));
  }
  run.publishing.push_back({std::move(document.source), known->id});
  return known->complete ? Status{} : queue_passages(document, known->id, fresh, run);
}

Status Ingester::begin_cut(Run& run) {
  if (run.cut.empty()) return {};
  const auto begin_all = [&]() -> Status {
    for (Cut& cut : run.cut) RH_TRY_STATUS(begin(cut, run));
    return publish(run);
  };
  RH_TRY_STATUS(catalog_.in_one_commit(begin_all));
  run.cut.clear();
  run.cut_tokens = 0;
  return {};
}

// On any thread.
Ingester::CutSource Ingester::cut(text::SourceBytes source, const KnownContent& content,
                                  const AddOptions& options) const {
  const std::string read_as = content.read_as(source.name);
  CutSource made{cutter_.cut_source(std::move(source), read_as, options), {}};
  if (!made.document.ok() || content.known) return made;
  add_mentions(made.document->content);
  made.prepared = catalog_.prepare_content(std::move(made.document->content));
  return made;
}

// What is there already as it is now: nothing is to be done.
bool Ingester::is_unchanged(const std::string& name, const KnownContent& content, const Run& run) {
  const auto had = run.current.find(name);
  const bool same = content.known && content.known->complete && had != run.current.end() &&
                    had->second == content.known->id;
  const bool tells_more =
      !run.options.tags.empty() || !run.options.event_time.empty() || !run.options.supersedes.empty();
  return same && !tells_more;
}

void Ingester::note_unchanged(Run& run) {
  ++run.report.unchanged;
  ++run.progress.sources_done;
}

Status Ingester::take_source(text::SourceBytes source, Run& run) {
  run.seen.insert(source.name);
  RH_TRY(KnownContent content, look_up(source, run.options.user));
  Coming coming;
  coming.bytes = source.bytes.size();
  coming.content = content;
  coming.source.name = source.name;
  if (!run.keys.emplace(content.key.sha256, content.key.recipe).second) {
    // How it is read depends on what becomes of the one before it.
    coming.source = std::move(source);
  } else if (is_unchanged(source.name, content, run)) {
    run.progress.source = source.name;
    note_unchanged(run);
    return {};
  } else {
    coming.cut =
        run.pool.run([this, &run, content = std::move(content), cut_now = std::move(source)]() mutable {
          return cut(std::move(cut_now), content, run.options);
        });
  }
  run.coming_bytes += coming.bytes;
  run.coming.push_back(std::move(coming));
  const auto threads = static_cast<size_t>(run.pool.threads());
  return take_coming(threads == 1 ? 0 : kAheadPerThread * threads, run);
}

// In their order, until there are so few left or the next one is still being cut.
Status Ingester::take_coming(size_t most_coming, Run& run) {
  while (!run.coming.empty() && !run.report.cancelled) {
    const bool must = run.coming.size() > most_coming || run.coming_bytes > kMostBytesAhead;
    RH_TRY_STATUS(store_made(run));
    Coming& next = run.coming.front();
    while (next.cut && next.cut->wait_for(kPatience * (must ? 1 : 0)) != std::future_status::ready) {
      if (!must) return {};
      RH_TRY_STATUS(store_made(run));
    }
    Coming taken = std::move(next);
    run.coming.pop_front();
    run.coming_bytes -= taken.bytes;
    RH_TRY_STATUS(take_cut(std::move(taken), run));
  }
  return {};
}

Status Ingester::take_cut(Coming coming, Run& run) {
  const std::string name = coming.source.name;
  run.progress.source = name;
  if (!coming.cut) {
    RH_TRY_STATUS(begin_cut(run));
    RH_TRY(coming.content, look_up(coming.source, run.options.user));
    if (is_unchanged(name, coming.content, run)) {
      note_unchanged(run);
      return {};
    }
  }
  CutSource made =
      coming.cut ? coming.cut->get() : cut(std::move(coming.source), coming.content, run.options);
  if (!made.document.ok()) {
    const Error& error = made.document.error();
    const bool empty = error.kind == ErrorKind::kNotFound || error.kind == ErrorKind::kUnsupported;
    (empty ? run.report.skipped : run.report.failed).push_back({name, error.message});
    ++run.progress.sources_done;
    return {};
  }
  made.document->source.added = run.now;
  const std::optional<store::ContentInfo>& known = coming.content.known;
  if (known && run.missing.contains(known->id)) {
    run.publishing.push_back({std::move(made.document->source), known->id});
    return {};
  }
  const bool encodes = !known || !known->complete;
  Cut cut{std::move(made.document).value(), std::move(coming.content), {}};
  if (made.prepared) {
    RH_TRY(cut.prepared, std::move(*made.prepared));
  }
  for (const PassageTokens& passage : cut.document.passages) {
    if (encodes) run.cut_tokens += passage.tokens.size();
  }
  run.cut.push_back(std::move(cut));
  if (run.waiting_tokens + run.cut_tokens < batch_tokens(run.report.index_only)) return {};
  RH_TRY_STATUS(begin_cut(run));
  return flush(run);
}

// What is in the line is stored before anything is said that depends on it.
Status Ingester::heed_cap(uint64_t bytes, Run& run) {
  if (setting_.disk_cap_bytes == 0 || run.report.index_only) return {};
  if (run.most_kv_bytes && *run.most_kv_bytes + bytes <= setting_.disk_cap_bytes) {
    *run.most_kv_bytes += bytes;
    return {};
  }
  while (run.line.size() > 0) RH_TRY_STATUS(store_next(run));
  RH_TRY(const store::CatalogStats stats, catalog_.stats(setting_.kv_fingerprint));
  run.most_kv_bytes = stats.kv_bytes + bytes;
  if (*run.most_kv_bytes <= setting_.disk_cap_bytes) return {};
  // What is new is not worth more than what is there: the rest goes without KV until it is read.
  run.report.index_only = true;
  return {};
}

Status Ingester::store(const EncodingBatch& batch, Run& run) {
  std::map<int64_t, std::vector<store::EncodedPassage>> by_content;
  for (size_t i = 0; i < batch.places.size(); ++i) {
    const EncodingBatch::Made& made = batch.made[i];
    by_content[batch.places[i].content].push_back({batch.places[i].ordinal, made.chunks, whitening_.id(),
                                                   made.codes, setting_.kv_fingerprint, made.kv});
    run.report.kv_bytes += made.kv.size();
    run.report.encoded_tokens += batch.passages[i].tokens.size();
    ++run.report.passages;
  }
  const auto put = [&]() -> Status {
    for (const auto& [id, passages] : by_content) {
      RH_TRY_STATUS(catalog_.put_encoded(id, passages));
      const auto missing = run.missing.find(id);
      missing->second -= static_cast<int>(passages.size());
      if (missing->second == 0) run.missing.erase(missing);
    }
    return publish(run);
  };
  // Under a cap, KV makes room for itself, in commits of its own.
  return setting_.disk_cap_bytes == 0 ? catalog_.in_one_commit(put) : put();
}

Status Ingester::store_next(Run& run) {
  const EncodingBatch batch = run.line.pop();
  if (run.report.cancelled && !batch.status.ok()) return {};
  RH_TRY_STATUS(batch.status);
  RH_TRY_STATUS(store(batch, run));
  report_progress(run);
  return {};
}

Status Ingester::store_made(Run& run) {
  while (run.line.size() > 0 && run.line.ready()) RH_TRY_STATUS(store_next(run));
  return {};
}

Status Ingester::flush(Run& run) {
  while (!run.waiting.empty() && !run.report.cancelled) {
    EncodingBatch batch;
    const size_t most = batch_tokens(run.report.index_only);
    uint64_t bytes = 0;
    for (size_t tokens = 0; !run.waiting.empty() && tokens < most; run.waiting.pop_front()) {
      Run::Waiting& next = run.waiting.front();
      const size_t count = next.tokens.tokens.size();
      tokens += count;
      bytes += store::kv_extent_bytes(runner_.kv_shape(), setting_.stored_kv, static_cast<int>(count));
      batch.places.push_back(next.place);
      batch.passages.push_back(std::move(next.tokens));
    }
    RH_TRY_STATUS(heed_cap(bytes, run));
    batch.index_only = run.report.index_only;
    if (run.line.size() == EncodingLine::kMostBatches) RH_TRY_STATUS(store_next(run));
    run.line.push(std::move(batch));
    if (run.pool.threads() == 1) RH_TRY_STATUS(store_next(run));
  }
  run.waiting.clear();
  run.waiting_tokens = 0;
  return {};
}

Status Ingester::finish(Run& run) {
  RH_TRY_STATUS(take_coming(0, run));
  if (!run.report.cancelled) {
    RH_TRY_STATUS(begin_cut(run));
    RH_TRY_STATUS(flush(run));
  }
  while (run.line.size() > 0) {
    if (run.report.cancelled) run.line.drop_waiting();
    RH_TRY_STATUS(store_next(run));
  }
  return {};
}

Status Ingester::remove_vanished(Run& run) {
  std::vector<std::string> vanished;
  for (const auto& [name, content] : run.current) {
    if (run.seen.contains(name)) continue;
    const std::string own = name_for(run.options.user, "");
    const bool below = name.starts_with(own) &&
                       std::any_of(run.options.paths.begin(), run.options.paths.end(), [&](const auto& path) {
                         return lies_below(name.substr(own.size()), normal_path(path));
                       });
    if (below) vanished.push_back(name);
  }
  if (vanished.empty()) return {};
  if (run.options.confirm_removal && !run.options.confirm_removal(vanished)) return {};
  RH_TRY(run.report.removed, catalog_.retire(vanished));
  return {};
}

// What the user says of sources that are not there, and whatever goes in circles.
Status Ingester::report_supersessions(Run& run) {
  RH_TRY(const std::vector<store::SupersessionRow> rows, catalog_.supersessions(store::Selection::stored()));
  for (const store::SupersessionRow& row : rows) {
    if (row.problem.empty()) continue;
    const bool about_older = run.published.contains(row.older);
    if (!about_older && !run.published.contains(row.newer)) continue;
    const std::string& source = about_older ? row.older : row.newer;
    if (row.problem == "cycle") {
      run.report.warnings.push_back(
          {source,
           fmt::format("'{}' and '{}' supersede each other: neither is hidden", row.older, row.newer)});
      continue;
    }
    const auto& asked = run.options.supersedes;
    if (std::find(asked.begin(), asked.end(), row.older) == asked.end()) continue;
    run.report.warnings.push_back(
        {source, fmt::format("supersedes '{}', which the memory does not hold yet", row.older)});
  }
  return {};
}

Result<std::vector<int64_t>> Ingester::encode(std::vector<text::Document> documents,
                                              const std::string& user) {
  const AddOptions options;
  Run run(options, *this, /*threads=*/1);
  std::vector<int64_t> contents;
  for (text::Document& document : documents) {
    const std::string name = document.name;
    RH_TRY(const std::string hash, sha256_of(document.text));
    RH_TRY(CutDocument made, cutter_.cut(std::move(document)));
    // The header is part of what is encoded: the same words of another day are another content.
    const std::string header = made.content.passages.empty() ? "" : made.content.passages.front().header;
    made.content.named_after = name;
    RH_TRY(const int64_t content,
           begin_unpublished(std::move(made), {hash, recipe_of(name, user) + "; under " + header}, run));
    contents.push_back(content);
  }
  RH_TRY_STATUS(flush(run));
  return contents;
}

Result<int64_t> Ingester::begin_unpublished(CutDocument cut, const store::ContentKey& key, Run& run) {
  RH_TRY(std::optional<store::ContentInfo> known, catalog_.find_content(key));
  if (!known) {
    RH_TRY(known, catalog_.begin_content(key, cut.content));
  }
  if (known->complete || run.missing.contains(known->id)) return known->id;
  RH_TRY_STATUS(queue_passages(cut, known->id, /*fresh=*/false, run));
  return known->id;
}

Status Ingester::rebuild(const store::SourceRow& row) {
  const std::string& name = row.record.name;
  KnownContent content;
  content.key = {row.sha256, recipe_of(name, row.record.user)};
  RH_TRY(content.known, catalog_.find_content(content.key));
  if (content.known && content.known->complete && content.known->id == row.content) return {};
  RH_TRY(std::string text, catalog_.text(row.content));
  // Text that was extracted from another format is read as plain text; the rest as it was.
  const bool is_own_text = row.record.kind == to_string(text::DocumentKind::kPlain) ||
                           row.record.kind == to_string(text::DocumentKind::kMarkdown) ||
                           row.record.kind == to_string(text::DocumentKind::kCode) ||
                           row.record.kind == to_string(text::DocumentKind::kTable);
  RH_TRY(text::Document document,
         is_own_text ? text::read_document(name, std::move(text)) : text::read_plain(name, std::move(text)));
  RH_TRY(CutDocument made, cutter_.cut(std::move(document)));
  made.content.named_after = name;
  made.content.kind = row.record.kind;
  made.content.title = row.record.title;
  std::vector<store::SupersessionClaim> claims = std::move(made.source.supersessions);
  made.source = row.record;
  made.source.supersessions = std::move(claims);
  std::optional<store::PreparedContent> prepared;
  if (!content.known) {
    add_mentions(made.content);
    RH_TRY(prepared, catalog_.prepare_content(std::move(made.content)));
  }
  const AddOptions options;
  Run run(options, *this, /*threads=*/1);
  Cut cut{std::move(made), std::move(content), std::move(prepared)};
  RH_TRY_STATUS(begin(cut, run));
  RH_TRY_STATUS(publish(run));
  return flush(run);
}

Result<AddReport> Ingester::add(const AddOptions& options, uint64_t expected_tokens) {
  Run run(options, *this, setting_.threads);
  run.now = format_iso_time(wall_clock_ms());
  run.report.index_only = options.index_only;
  run.progress.tokens_total = expected_tokens;
  const uint64_t before = encoder_.evaluated_tokens();
  RH_TRY(const std::vector<store::SourceRow> rows, catalog_.sources(store::Selection::stored()));
  for (const store::SourceRow& row : rows) {
    // Not a document, whatever folder its name seems to lie in.
    if (row.record.kind != store::kConversationKind) run.current[row.record.name] = row.content;
  }
  Status failed;
  text::ScanCallbacks callbacks;
  callbacks.on_found = [&](const std::string&, uint64_t) { ++run.progress.sources_total; };
  callbacks.on_skip = [&](const text::Skip& skip) {
    // A source that was stored and cannot be read now is not gone.
    run.seen.insert(name_for(options.user, skip.name));
    run.report.skipped.push_back({skip.name, skip.reason});
  };
  callbacks.on_source = [&](text::SourceBytes source) {
    if (source.name == "-") source.name = options.standard_input_name;
    source.name = name_for(options.user, source.name);
    failed = take_source(std::move(source), run);
    return failed.ok() && !run.report.cancelled;
  };
  text::ScanOptions scan{options.most_source_bytes, options.ignore_files, options.hidden};
  RH_TRY_STATUS(text::scan_sources(options.paths, scan, callbacks));
  if (failed.ok()) failed = finish(run);
  RH_TRY_STATUS(failed);
  if (options.sync && !run.report.cancelled) RH_TRY_STATUS(remove_vanished(run));
  RH_TRY_STATUS(report_supersessions(run));
  run.report.evaluated_tokens = encoder_.evaluated_tokens() - before;
  run.report.seconds = ms_between(run.begin_ns, now_ns()) / 1e3;
  return run.report;
}

}  // namespace rhapsode::recall

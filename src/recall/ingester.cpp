#include "recall/ingester.h"

#include <algorithm>

#include "base/clock.h"
#include "base/iso_time.h"
#include "base/sha256.h"
#include "recall/links.h"
#include "store/conversation_types.h"
#include "store/host_pages.h"
#include "store/kv_codec.h"
#include "text/passage.h"
#include "text/readers.h"
#include "text/search_terms.h"

namespace rhapsode::recall {

namespace {

// Whatever changes passages: readers, cutter, headers, routing's view of the text.
constexpr char kRecipe[] = "reader 1; cutter 2; 512/640";
// Tokens encoded between two commits at least: what a kill may cost. Devices take wider passes than that.
constexpr int kLeastBatchTokens = 2048;
// Below this an estimate of the time would cost more than it tells.
constexpr uint64_t kEstimateFrom = 4096;

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

struct Ingester::Cut {
  store::SourceRecord source;
  store::ContentKey key;
  store::ContentRecord content;
  std::vector<PassageTokens> passages;
  std::vector<std::string> warnings;
};

struct Ingester::Content {
  int64_t id = 0;
  std::vector<store::SourceRecord> sources;  // to publish when it is complete
  int missing = 0;                           // passages
};

struct Ingester::Work {
  int64_t content = 0;
  int ordinal = 0;
  PassageTokens tokens;
};

struct Ingester::Run {
  const AddOptions& options;
  AddReport report;
  AddProgress progress;
  std::map<std::string, int64_t> current;  // source name to the content of its current version
  std::map<int64_t, Content> begun;
  std::vector<Work> waiting;
  size_t waiting_tokens = 0;
  std::set<std::string> seen;
  std::set<std::string> published;
  std::string now;
  int64_t begin_ns = 0;
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

size_t Ingester::batch_tokens() const {
  return static_cast<size_t>(std::max(kLeastBatchTokens, runner_.most_rows()));
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

// Headers hold a name, and where passages end depends on the header's length: bytes that are known already
// are cut under the name that their content has.
Result<Ingester::Cut> Ingester::cut_bytes(text::SourceBytes source, const KnownContent& content,
                                          const AddOptions& options) const {
  const uint64_t bytes = source.bytes.size();
  const bool named = content.known && !content.known->named_after.empty();
  const std::string read_as = named ? content.known->named_after : source.name;
  RH_TRY(text::Document document, text::read_document(read_as, std::move(source.bytes)));
  RH_TRY(Cut made, cut(std::move(document)));
  made.key = content.key;
  made.source.name = source.name;
  made.content.named_after = read_as;
  made.source.bytes = bytes;
  made.source.tags = options.tags;
  made.source.user = options.user;
  for (const std::string& older : options.supersedes) {
    made.source.supersessions.push_back({.reverse = false, .reference = older, .by_user = true});
  }
  if (!options.event_time.empty()) made.source.event_time = options.event_time;
  return made;
}

Result<Ingester::Cut> Ingester::cut(text::Document document) const {
  Cut cut;
  Status counted;
  const auto count = [&](std::string_view piece) {
    auto tokens = runner_.tokenizer().encode(piece);
    if (!tokens.ok()) counted = tokens.error();
    return tokens.ok() ? static_cast<int>(tokens->size()) : 0;
  };
  RH_TRY(const std::vector<text::Passage> passages, text::cut_passages(document, count));
  RH_TRY_STATUS(counted);
  for (const text::Passage& passage : passages) {
    const std::string_view body =
        std::string_view(document.text).substr(passage.begin, passage.end - passage.begin);
    RH_TRY(PassageTokens tokens, frame_.passage(passage.header, body));
    store::PassagePlace place;
    place.begin = passage.begin;
    place.end = passage.end;
    place.header = passage.header;
    place.line = passage.line;
    place.page = passage.page;
    place.tokens = static_cast<int>(tokens.tokens.size());
    place.terms = text::search_terms(passage.header + "\n" + std::string(body));
    const auto text_begin = tokens.tokens.begin() + tokens.header_tokens;
    const std::set<int32_t> unique(text_begin, text_begin + tokens.text_tokens);
    place.unique_tokens.assign(unique.begin(), unique.end());
    cut.content.passages.push_back(std::move(place));
    cut.passages.push_back(std::move(tokens));
  }
  cut.content.kind = cut.source.kind = text::to_string(document.kind);
  cut.content.title = cut.source.title = document.title;
  cut.source.author = document.author;
  cut.source.event_time = document.date;
  cut.source.identifier = document.identifier;
  for (const std::string& older : document.supersedes) cut.source.supersessions.push_back({false, older});
  for (const std::string& newer : document.superseded_by) cut.source.supersessions.push_back({true, newer});
  cut.content.text = std::move(document.text);
  cut.warnings = std::move(document.warnings);
  return cut;
}

Result<double> Ingester::measured_tokens_per_s(bool index_only) {
  PassageTokens sample;
  sample.tokens.assign(std::min(256, runner_.most_rows()), 0);
  sample.text_tokens = static_cast<int>(sample.tokens.size());
  RH_TRY_STATUS(encoder_.prefix_pages());
  RH_TRY_STATUS(encoder_.encode(std::span(&sample, 1), index_only));  // the first of a shape also plans it
  const int64_t begin = now_ns();
  RH_TRY_STATUS(encoder_.encode(std::span(&sample, 1), index_only));
  return 1e3 * static_cast<double>(sample.tokens.size()) / ms_between(begin, now_ns());
}

Result<AddPlan> Ingester::plan(const AddOptions& options) {
  AddPlan plan;
  RH_TRY(const std::vector<store::SourceRow> rows, catalog_.sources(store::Selection::stored()));
  std::map<std::string, int64_t> current;
  for (const store::SourceRow& row : rows) current[row.record.name] = row.content;
  std::set<std::string> hashes;
  Status failed;
  text::ScanCallbacks callbacks;
  callbacks.on_skip = [](const text::Skip&) {};
  callbacks.on_source = [&](text::SourceBytes source) {
    const std::string name = source.name = name_for(options.user, source.name);
    const auto content = look_up(source, options.user);
    if (!content.ok()) {
      failed = content.error();
      return false;
    }
    const auto& known = content->known;
    const auto had = current.find(name);
    const bool complete = known && known->complete;
    if (had != current.end() && complete && known->id == had->second) {
      ++plan.sources_unchanged;
      return true;
    }
    auto document = cut_bytes(std::move(source), *content, options);
    if (!document.ok()) return true;  // add() reports it
    ++(had == current.end() ? plan.sources_new : plan.sources_changed);
    if (complete || !hashes.insert(content->key.sha256).second) return true;
    for (const PassageTokens& passage : document->passages) {
      plan.tokens += passage.tokens.size();
      plan.kv_bytes += store::kv_extent_bytes(runner_.kv_shape(), setting_.stored_kv,
                                              static_cast<int>(passage.tokens.size()));
    }
    return true;
  };
  text::ScanOptions scan{options.most_source_bytes, options.ignore_files, options.hidden};
  RH_TRY_STATUS(text::scan_sources(options.paths, scan, callbacks));
  RH_TRY_STATUS(failed);
  RH_TRY(const store::CatalogStats stats, catalog_.stats(setting_.kv_fingerprint));
  plan.index_only = options.index_only ||
                    (setting_.disk_cap_bytes > 0 && stats.kv_bytes + plan.kv_bytes > setting_.disk_cap_bytes);
  if (plan.index_only) plan.kv_bytes = 0;
  if (plan.tokens >= kEstimateFrom) {
    RH_TRY(const double speed, measured_tokens_per_s(plan.index_only));
    plan.seconds = static_cast<double>(plan.tokens) / speed;
  }
  return plan;
}

bool Ingester::report_progress(Run& run) {
  const double seconds = ms_between(run.begin_ns, now_ns()) / 1e3;
  run.progress.tokens_done = run.report.encoded_tokens;
  run.progress.tokens_per_s = seconds > 0 ? static_cast<double>(run.report.encoded_tokens) / seconds : 0;
  if (run.progress.tokens_total > run.progress.tokens_done && run.progress.tokens_per_s > 0) {
    run.progress.seconds_left =
        static_cast<double>(run.progress.tokens_total - run.progress.tokens_done) / run.progress.tokens_per_s;
  }
  if (!run.options.on_progress || run.options.on_progress(run.progress)) return true;
  run.report.cancelled = true;
  return false;
}

Status Ingester::publish(const Content& content, Run& run) {
  for (const store::SourceRecord& source : content.sources) {
    RH_TRY_STATUS(catalog_.publish(source, content.id));
    const auto had = run.current.find(source.name);
    if (had == run.current.end()) {
      ++run.report.added;
    } else if (had->second == content.id) {
      ++run.report.unchanged;
    } else {
      ++run.report.updated;
    }
    run.current[source.name] = content.id;
    run.published.insert(source.name);
    ++run.progress.sources_done;
  }
  return {};
}

// Those of the content's passages that have no codes yet wait to be encoded.
Status Ingester::queue_passages(Cut& cut, Content& content, Run& run) {
  RH_TRY(const std::vector<int> done, catalog_.encoded_ordinals(content.id));
  const std::set<int> encoded(done.begin(), done.end());
  for (size_t ordinal = 0; ordinal < cut.passages.size(); ++ordinal) {
    if (encoded.contains(static_cast<int>(ordinal))) continue;
    run.waiting_tokens += cut.passages[ordinal].tokens.size();
    run.waiting.push_back({content.id, static_cast<int>(ordinal), std::move(cut.passages[ordinal])});
    ++content.missing;
  }
  return {};
}

Status Ingester::begin(Cut cut, Run& run) {
  for (const std::string& warning : cut.warnings) run.report.warnings.push_back({cut.source.name, warning});
  RH_TRY(std::optional<store::ContentInfo> known, catalog_.find_content(cut.key));
  if (!known) {
    add_mentions(cut.content);
    RH_TRY(known, catalog_.begin_content(cut.key, cut.content));
  }
  Content content;
  content.id = known->id;
  content.sources.push_back(cut.source);
  RH_TRY_STATUS(queue_passages(cut, content, run));
  if (content.missing == 0) return publish(content, run);
  run.begun.emplace(content.id, std::move(content));
  return {};
}

Status Ingester::take_source(text::SourceBytes source, Run& run) {
  const std::string name = source.name;
  run.seen.insert(name);
  run.progress.source = name;
  RH_TRY(const KnownContent content, look_up(source, run.options.user));
  const std::optional<store::ContentInfo>& known = content.known;
  const auto had = run.current.find(name);
  const bool same = known && known->complete && had != run.current.end() && had->second == known->id;
  const bool tells_more =
      !run.options.tags.empty() || !run.options.event_time.empty() || !run.options.supersedes.empty();
  if (same && !tells_more) {
    ++run.report.unchanged;
    ++run.progress.sources_done;
    return {};
  }
  auto document = cut_bytes(std::move(source), content, run.options);
  if (!document.ok()) {
    const bool empty =
        document.error().kind == ErrorKind::kNotFound || document.error().kind == ErrorKind::kUnsupported;
    (empty ? run.report.skipped : run.report.failed).push_back({name, document.error().message});
    ++run.progress.sources_done;
    return {};
  }
  document->source.added = run.now;
  if (known) {
    if (auto waiting = run.begun.find(known->id); waiting != run.begun.end()) {
      waiting->second.sources.push_back(document->source);
      return {};
    }
  }
  RH_TRY_STATUS(begin(std::move(document).value(), run));
  return run.waiting_tokens >= batch_tokens() ? flush(run) : Status{};
}

Status Ingester::heed_cap(uint64_t bytes, Run& run) {
  if (setting_.disk_cap_bytes == 0) return {};
  RH_TRY(const store::CatalogStats stats, catalog_.stats(setting_.kv_fingerprint));
  if (stats.kv_bytes + bytes <= setting_.disk_cap_bytes) return {};
  // What is new is not worth more than what is there: the rest goes without KV until it is read.
  run.report.index_only = true;
  return {};
}

Status Ingester::store(std::span<const Work> batch, std::vector<Encoded> encoded, Run& run) {
  const size_t code_bytes = whitening_.code_bytes();
  std::vector<std::vector<std::byte>> codes(batch.size());
  std::vector<std::vector<std::byte>> extents(batch.size());
  std::map<int64_t, std::vector<store::EncodedPassage>> by_content;
  for (size_t i = 0; i < batch.size(); ++i) {
    codes[i].resize(encoded[i].chunks * code_bytes);
    whitening_.encode(encoded[i].chunk_states, codes[i]);
    const auto tokens = static_cast<int>(batch[i].tokens.tokens.size());
    if (!encoded[i].pages.empty()) {
      RH_TRY(extents[i], store::encode_pinned_kv(encoded[i].pages, setting_.stored_kv, tokens));
      run.report.kv_bytes += extents[i].size();
    }
    by_content[batch[i].content].push_back({batch[i].ordinal, encoded[i].chunks, whitening_.id(), codes[i],
                                            setting_.kv_fingerprint, extents[i]});
    run.report.encoded_tokens += tokens;
    ++run.report.passages;
  }
  for (const auto& [id, passages] : by_content) {
    RH_TRY_STATUS(catalog_.put_encoded(id, passages));
    Content& content = run.begun.at(id);
    content.missing -= static_cast<int>(passages.size());
    if (content.missing > 0) continue;
    RH_TRY_STATUS(publish(content, run));
    run.begun.erase(id);
  }
  return {};
}

Status Ingester::flush(Run& run) {
  size_t first = 0;
  while (first < run.waiting.size() && !run.report.cancelled) {
    size_t last = first;
    size_t tokens = 0;
    std::vector<PassageTokens> passages;
    while (last < run.waiting.size() && (last == first || tokens < batch_tokens())) {
      tokens += run.waiting[last].tokens.tokens.size();
      passages.push_back(run.waiting[last++].tokens);
    }
    uint64_t bytes = 0;
    for (const PassageTokens& passage : passages) {
      bytes += store::kv_extent_bytes(runner_.kv_shape(), setting_.stored_kv,
                                      static_cast<int>(passage.tokens.size()));
    }
    RH_TRY_STATUS(heed_cap(bytes, run));
    RH_TRY(std::vector<Encoded> encoded, encoder_.encode(passages, run.report.index_only));
    RH_TRY_STATUS(store(std::span(run.waiting).subspan(first, last - first), std::move(encoded), run));
    first = last;
    report_progress(run);
  }
  run.waiting.clear();
  run.waiting_tokens = 0;
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
  Run run{options, {}, {}, {}, {}, {}, 0, {}, {}, {}, now_ns()};
  std::vector<int64_t> contents;
  for (text::Document& document : documents) {
    const std::string name = document.name;
    RH_TRY(const std::string hash, sha256_of(document.text));
    RH_TRY(Cut made, cut(std::move(document)));
    // The header is part of what is encoded: the same words of another day are another content.
    const std::string header = made.content.passages.empty() ? "" : made.content.passages.front().header;
    made.key = {hash, recipe_of(name, user) + "; under " + header};
    made.content.named_after = name;
    RH_TRY(const int64_t content, begin_unpublished(std::move(made), run));
    contents.push_back(content);
  }
  RH_TRY_STATUS(flush(run));
  return contents;
}

Result<int64_t> Ingester::begin_unpublished(Cut cut, Run& run) {
  RH_TRY(std::optional<store::ContentInfo> known, catalog_.find_content(cut.key));
  if (!known) {
    RH_TRY(known, catalog_.begin_content(cut.key, cut.content));
  }
  if (known->complete || run.begun.contains(known->id)) return known->id;
  Content content;
  content.id = known->id;
  RH_TRY_STATUS(queue_passages(cut, content, run));
  if (content.missing > 0) run.begun.emplace(known->id, std::move(content));
  return known->id;
}

Status Ingester::rebuild(const store::SourceRow& row) {
  const std::string& name = row.record.name;
  RH_TRY(const std::optional<store::ContentInfo> known,
         catalog_.find_content({row.sha256, recipe_of(name, row.record.user)}));
  if (known && known->complete && known->id == row.content) return {};
  RH_TRY(std::string text, catalog_.text(row.content));
  // Text that was extracted from another format is read as plain text; the rest as it was.
  const bool is_own_text = row.record.kind == to_string(text::DocumentKind::kPlain) ||
                           row.record.kind == to_string(text::DocumentKind::kMarkdown) ||
                           row.record.kind == to_string(text::DocumentKind::kCode) ||
                           row.record.kind == to_string(text::DocumentKind::kTable);
  RH_TRY(text::Document document,
         is_own_text ? text::read_document(name, std::move(text)) : text::read_plain(name, std::move(text)));
  RH_TRY(Cut made, cut(std::move(document)));
  made.key = {row.sha256, recipe_of(name, row.record.user)};
  made.content.named_after = name;
  made.content.kind = row.record.kind;
  made.content.title = row.record.title;
  std::vector<store::SupersessionClaim> claims = std::move(made.source.supersessions);
  made.source = row.record;
  made.source.supersessions = std::move(claims);
  const AddOptions options;
  Run run{options, {}, {}, {}, {}, {}, 0, {}, {}, {}, now_ns()};
  RH_TRY_STATUS(begin(std::move(made), run));
  return flush(run);
}

Result<AddReport> Ingester::add(const AddOptions& options, uint64_t expected_tokens) {
  Run run{options, {}, {}, {}, {}, {}, 0, {}, {}, format_iso_time(wall_clock_ms()), now_ns()};
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
  if (failed.ok() && !run.report.cancelled) failed = flush(run);
  RH_TRY_STATUS(failed);
  if (options.sync && !run.report.cancelled) RH_TRY_STATUS(remove_vanished(run));
  RH_TRY_STATUS(report_supersessions(run));
  run.report.evaluated_tokens = encoder_.evaluated_tokens() - before;
  run.report.seconds = ms_between(run.begin_ns, now_ns()) / 1e3;
  return run.report;
}

}  // namespace rhapsode::recall

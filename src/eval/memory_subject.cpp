#include "eval/memory_subject.h"

#include <algorithm>

#include "eval/metrics.h"
#include "io/file.h"

namespace rhapsode::eval {
namespace {

constexpr uint64_t kMostDocumentBytes = 64u << 20;
constexpr size_t kMostSlugBytes = 40;

std::string slug_of(const std::string& title) {
  std::string slug;
  for (const char c : title) {
    if (slug.size() == kMostSlugBytes) break;
    const bool upper = c >= 'A' && c <= 'Z';
    const bool plain = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (plain) {
      slug += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  while (slug.ends_with('-')) slug.pop_back();
  return slug;
}

// Leaves a file that is as wanted alone, so that its time stays.
Status write_if_different(const std::filesystem::path& path, const std::string& content) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    const auto there = read_text_file(path, kMostDocumentBytes);
    if (there.ok() && *there == content) return {};
  }
  return replace_file(path, content);
}

// Of searching, in SearchOptions or AskOptions.
template <typename Options>
void set_signal(Signal signal, bool links, const MemorySubjectOptions& measured, Options& options) {
  const bool trained = signal == Signal::kEvidence || signal == Signal::kJudgedEvidence;
  options.rank = trained ? RankBy::kEvidence : RankBy::kFused;
  if (signal != Signal::kEvidence && signal >= Signal::kJudged) options.judge = measured.judge;
  if (signal == Signal::kChain) options.chain = measured.chain;
  options.links = measured.links;
  options.links.on = links || trained;
}

}  // namespace

DocumentFile document_file(const Document& document, int number) {
  if (!document.file_name.empty()) return {document.file_name, document.text, 0};
  const std::string slug = slug_of(document.title);
  if (document.title.empty()) return {fmt::format("{:05}.txt", number), document.text + "\n", 0};
  std::string heading = "# " + document.title + "\n\n";
  std::replace(heading.begin(), heading.end() - 2, '\n', ' ');
  const size_t begin = heading.size();
  return {slug.empty() ? fmt::format("{:05}.md", number) : fmt::format("{}-{:05}.md", slug, number),
          heading + document.text + "\n", begin};
}

MemoryOptions memory_options(const MemorySubjectOptions& options, const std::string& name) {
  MemoryOptions memory;
  memory.folder = options.folder / name;
  memory.create = true;
  memory.instruction = options.instruction;
  memory.stored_kv = options.stored_kv;
  memory.disk_cap_bytes = options.disk_cap_bytes;
  memory.whitening = options.whitening;
  memory.ranker = options.ranker;
  return memory;
}

Result<std::unique_ptr<MemorySubject>> MemorySubject::open(const Dataset& dataset,
                                                           MemorySubjectOptions options) {
  std::unique_ptr<MemorySubject> subject(new MemorySubject(dataset));
  subject->options_ = options;
  RH_TRY(subject->engine_, Engine::open(options.engine));
  RH_TRY_STATUS(make_directories(options.folder / "documents"));
  RH_TRY(subject->memory_, Memory::open(*subject->engine_, memory_options(options, "memory")));
  RH_TRY_STATUS(subject->fill(options));
  RH_TRY_STATUS(subject->read_names());
  RH_TRY(const MemoryStats stats, subject->memory_->stats());
  subject->info_ = {subject->engine_->model().name, subject->engine_->model().weights, stats.fingerprint};
  return subject;
}

Status MemorySubject::fill(const MemorySubjectOptions& options) {
  const std::filesystem::path folder = options.folder / "documents";
  for (size_t i = 0; i < dataset_.documents.size(); ++i) {
    const auto number = static_cast<int>(i);
    DocumentFile file = document_file(dataset_.documents[i], number);
    documents_[file.name] = number;
    if (!std::binary_search(options.documents.begin(), options.documents.end(), number)) continue;
    RH_TRY_STATUS(write_if_different(folder / file.name, file.content));
  }
  AddOptions add;
  add.paths = {folder.string()};
  add.index_only = !options.encode;
  add.ignore_files = false;
  add.most_source_bytes = kMostDocumentBytes;
  add.on_progress = options.on_progress;
  RH_TRY(added_, memory_->add(add));
  if (added_.cancelled) {
    return make_error(ErrorKind::kCancelled,
                      "stopped while the memory was being made; it goes on from there");
  }
  for (const std::vector<SourceIssue>* issues : {&added_.failed, &added_.skipped}) {
    for (const SourceIssue& issue : *issues) notes_.push_back(issue.source + ": " + issue.reason);
  }
  return {};
}

Status MemorySubject::read_names() {
  RH_TRY(const std::vector<SourceInfo> sources, memory_->list({}));
  for (const SourceInfo& source : sources) {
    RH_TRY(const int document, document_of(source.source));
    sources_[document] = source.source;
  }
  return {};
}

Result<int> MemorySubject::document_of(const std::string& source) const {
  const auto found = documents_.find(std::filesystem::path(source).filename().string());
  if (found != documents_.end()) return found->second;
  return make_error(ErrorKind::kNotFound,
                    "{} in the memory is no document of this task: give another --memory folder", source);
}

Result<Span> MemorySubject::span_of(const std::string& source, uint64_t begin, uint64_t end) const {
  RH_TRY(const int document, document_of(source));
  const size_t offset = document_file(dataset_.documents[static_cast<size_t>(document)], document).text_begin;
  const auto moved = [&](uint64_t byte) { return byte > offset ? static_cast<size_t>(byte) - offset : 0; };
  return Span{document, moved(begin), moved(end)};
}

Result<std::vector<PassageInfo>> MemorySubject::stored(int document) {
  if (const auto known = passages_.find(document); known != passages_.end()) return known->second;
  const auto source = sources_.find(document);
  if (source == sources_.end()) {
    return make_error(ErrorKind::kNotFound, "document {} ({}) is not in the memory", document,
                      dataset_.documents[static_cast<size_t>(document)].title);
  }
  RH_TRY(const SourceDetail detail, memory_->show(source->second));
  return passages_[document] = detail.passages;
}

Result<std::vector<PassageInfo>> MemorySubject::passages_at(const std::vector<Span>& places) {
  std::vector<PassageInfo> found;
  const auto is_found = [&](const PassageInfo& passage) {
    return std::any_of(found.begin(), found.end(),
                       [&](const PassageInfo& other) { return other.id == passage.id; });
  };
  for (const Span& place : places) {
    RH_TRY(const std::vector<PassageInfo> passages, stored(place.document));
    bool there = false;
    for (const PassageInfo& passage : passages) {
      RH_TRY(const Span span, span_of(passage.source, passage.start_byte, passage.end_byte));
      if (!span.overlaps(place)) continue;
      there = true;
      if (!is_found(passage)) found.push_back(passage);
    }
    if (!there) {
      return make_error(ErrorKind::kNotFound, "the memory has no passage of document {} at bytes {} to {}",
                        place.document, place.begin, place.end);
    }
  }
  return found;
}

Result<AskOptions> MemorySubject::ask_options(const ReadRequest& request) {
  AskOptions options;
  options.question = request.question;
  options.budget_tokens = request.budget_tokens;
  options.most_passages = request.most_passages;
  options.best_first = request.best_first;
  options.heed_times = options_.heed_times;
  options.max_tokens = request.max_tokens;
  options.cite = request.cite;
  options.abstain = false;
  options.self_check = 0;
  options.policy = request.policy;
  set_signal(request.signal, request.links, options_, options);
  options.reroute = request.reroute;
  options.blend = request.blend;
  if (request.closed) {
    options.most_passages = 0;
    options.cite = false;
  } else if (request.places) {
    RH_TRY(const std::vector<PassageInfo> passages, passages_at(*request.places));
    for (const PassageInfo& passage : passages) options.passages.push_back(passage.id);
  }
  return options;
}

Result<PlacedPassage> MemorySubject::placed(const FoundPassage& found) const {
  const PassageInfo& info = found.passage;
  RH_TRY(const Span span, span_of(info.source, info.start_byte, info.end_byte));
  return PlacedPassage{span, info.source, found.text, found.score, found.evidence};
}

Result<Reply> MemorySubject::answer(const ReadRequest& request) {
  RH_TRY(const AskOptions options, ask_options(request));
  RH_TRY(const Answer answer, memory_->ask(options));
  Reply reply;
  reply.text = answer.text;
  reply.abstained = answer.abstained;
  reply.usage = answer.usage;
  reply.timing = answer.timing;
  reply.policy = rhapsode::to_string(answer.policy);
  reply.policy_reason = answer.policy_reason;
  for (const FoundPassage& found : answer.passages) {
    RH_TRY(PlacedPassage passage, placed(found));
    reply.passages.push_back(std::move(passage));
  }
  for (const Citation& citation : answer.citations) {
    RH_TRY(const Span span, span_of(citation.source, citation.start_byte, citation.end_byte));
    reply.citations.push_back({span, citation.quote, citation.support});
  }
  return reply;
}

Status MemorySubject::warm(const std::vector<Span>& places) {
  RH_TRY(const std::vector<PassageInfo> passages, passages_at(places));
  AskOptions options;
  // Anything but the question: its tokens would be found in the prefix cache.
  options.question = "What is this about?";
  options.policy = ReadPolicy::kReuse;
  options.max_tokens = 1;
  options.cite = options.abstain = false;
  for (const PassageInfo& passage : passages) {
    RH_TRY(const SourceDetail detail, memory_->show(passage.source));
    const bool as_text = std::any_of(
        detail.passages.begin(), detail.passages.end(),
        [&](const PassageInfo& now) { return now.id == passage.id && now.tier == KvTier::kText; });
    if (as_text) options.passages.push_back(passage.id);
  }
  if (options.passages.empty()) return {};
  RH_TRY_STATUS(memory_->ask(options));
  return {};
}

Result<ScoredAnswer> MemorySubject::score(const ReadRequest& request, const std::string& answer,
                                          int most_tokens) {
  RH_TRY(const AskOptions options, ask_options(request));
  RH_TRY(AnswerScore score, memory_->score(options, answer, most_tokens));
  ScoredAnswer scored;
  scored.tokens = std::move(score.tokens);
  for (std::vector<float>& row : score.logits) {
    log_softmax(row);
    scored.vocabulary = row.size();
    scored.rows.insert(scored.rows.end(), row.begin(), row.end());
  }
  return scored;
}

SearchOptions search_options(const Ranking& ranking, const MemorySubjectOptions& measured) {
  SearchOptions options;
  options.limit = ranking.passages;
  options.latent = ranking.signal != Signal::kKeywords;
  options.keywords = ranking.signal != Signal::kLatent;
  set_signal(ranking.signal, ranking.links, measured, options);
  options.heed_times = measured.heed_times;
  return options;
}

Result<std::vector<PlacedPassage>> MemorySubject::rank(const std::string& question, const Ranking& ranking) {
  RH_TRY(const std::vector<FoundPassage> found, memory_->search(question, search_options(ranking, options_)));
  std::vector<PlacedPassage> ranked;
  for (const FoundPassage& one : found) {
    RH_TRY(PlacedPassage passage, placed(one));
    ranked.push_back(std::move(passage));
  }
  return ranked;
}

Result<std::vector<int32_t>> MemorySubject::tokenize(const std::string& text) {
  return engine_->tokenize(text, false);
}

}  // namespace rhapsode::eval

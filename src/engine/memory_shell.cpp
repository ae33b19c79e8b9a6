// Memory's housekeeping: list, show, forget, stats, verify, export, import.
#include <algorithm>
#include <cmath>
#include <random>

#include "engine/memory_impl.h"
#include "engine/page_difference.h"
#include "store/conversation_log.h"
#include "store/host_pages.h"
#include "store/memory_archive.h"

namespace rhapsode {

namespace {

using Supersessions = std::vector<store::SupersessionRow>;

SourceInfo info_of(const store::SourceRow& row, const Supersessions& supersessions) {
  SourceInfo info;
  info.source = row.record.name;
  info.kind = row.record.kind;
  info.title = row.record.title;
  info.tags = row.record.tags;
  info.version = row.version;
  info.versions = row.versions;
  info.bytes = row.record.bytes;
  info.passages = row.passages;
  info.tokens = row.tokens;
  info.added = row.record.added;
  info.event_time = row.record.event_time;
  info.user = row.record.user;
  info.identifier = row.record.identifier;
  Supersessions newest = supersessions;
  std::stable_sort(newest.begin(), newest.end(),
                   [](const auto& a, const auto& b) { return a.since > b.since; });
  for (const store::SupersessionRow& one : newest) {
    if (!one.problem.empty()) continue;
    if (one.older == info.source) info.superseded_by.push_back(one.newer);
    if (one.newer == info.source) info.supersedes.push_back(one.older);
  }
  return info;
}

std::string source_of(const store::ConversationRow& row) {
  return std::string(store::kConversationFolder) + row.name;
}

// A conversation as one source, whatever passages it has become.
SourceInfo info_of(const store::ConversationRow& row) {
  SourceInfo info;
  info.source = source_of(row);
  info.kind = store::kConversationKind;
  info.title = row.name;
  info.bytes = static_cast<uint64_t>(row.bytes);
  info.passages = static_cast<int>(row.passages);
  info.tokens = static_cast<uint64_t>(row.tokens);
  info.added = row.created;
  return info;
}

// Conversations that `source` names, or the folder of all.
Result<std::vector<store::ConversationRow>> conversations_of(store::Catalog& catalog,
                                                             const std::vector<std::string>& sources) {
  RH_TRY(std::vector<store::ConversationRow> rows, store::ConversationLog(catalog).list());
  if (sources.empty()) return rows;
  std::erase_if(rows, [&](const store::ConversationRow& row) {
    return std::none_of(sources.begin(), sources.end(), [&](const std::string& source) {
      return source + "/" == store::kConversationFolder || source == store::kConversationFolder ||
             source == source_of(row) || source == source_of(row) + "/";
    });
  });
  return rows;
}

// The conversation that a name stands for, if it does.
Result<std::optional<store::ConversationRow>> conversation_of(store::Catalog& catalog,
                                                              const std::string& source, bool all_users) {
  RH_TRY(const bool users, catalog.has_users());
  const bool seen = all_users || !users;  // conversations have no users yet
  if (!seen || !source.starts_with(store::kConversationFolder))
    return std::optional<store::ConversationRow>();
  return store::ConversationLog(catalog).find(source.substr(store::kConversationFolder.size()));
}

// What stands in the way of a source's supersessions, a sentence each.
std::vector<std::string> problems_of(const std::string& source, const Supersessions& supersessions) {
  std::vector<std::string> problems;
  for (const store::SupersessionRow& one : supersessions) {
    if (one.problem.empty() || (one.older != source && one.newer != source)) continue;
    problems.push_back(
        one.problem == "cycle"
            ? fmt::format("'{}' and '{}' supersede each other: neither is hidden", one.older, one.newer)
        : one.newer == source
            ? fmt::format("it supersedes '{}', which the memory does not hold", one.older)
            : fmt::format("it is superseded by '{}', which the memory does not hold", one.newer));
  }
  return problems;
}

// Whichever source the selection's user and time show by this name, superseded or not.
Result<store::SourceRow> find_source(const store::Catalog& catalog, const std::string& name,
                                     store::Selection selection) {
  selection.sources = {name};
  selection.superseded = true;
  RH_TRY(const std::vector<store::SourceRow> rows, catalog.sources(selection));
  for (const store::SourceRow& row : rows) {
    if (row.record.name == name) return row;
  }
  return make_error(ErrorKind::kNotFound, "the memory has no source '{}': 'rhapsode list' names them", name);
}

}  // namespace

Result<std::vector<SourceInfo>> Memory::list(const SourceFilter& filter) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(store::Selection selection, impl_->selection(filter));
  // A list shows what there is, and says what is superseded.
  selection.superseded = true;
  RH_TRY(const std::vector<store::SourceRow> rows, impl_->catalog->sources(selection));
  RH_TRY(const Supersessions supersessions, impl_->catalog->supersessions(selection));
  std::vector<SourceInfo> infos;
  for (const store::SourceRow& row : rows) {
    if (row.record.kind != store::kConversationKind) infos.push_back(info_of(row, supersessions));
  }
  RH_TRY(const bool users, impl_->catalog->has_users());
  if (!filter.tags.empty() || (users && !filter.all_users)) return infos;
  RH_TRY(const auto conversations, conversations_of(*impl_->catalog, filter.sources));
  for (const store::ConversationRow& row : conversations) infos.push_back(info_of(row));
  std::sort(infos.begin(), infos.end(), [](const auto& a, const auto& b) { return a.source < b.source; });
  return infos;
}

Result<SourceDetail> Memory::show(const std::string& source, const SourceFilter& filter) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(const store::Selection selection, impl_->selection(filter));
  SourceDetail detail;
  RH_TRY(const auto conversation, conversation_of(*impl_->catalog, source, filter.all_users));
  if (conversation) {
    detail.info = info_of(*conversation);
    detail.versions.push_back({1, conversation->created, "", "", detail.info.bytes, ""});
    store::Selection below = selection;
    below.sources = {source};
    RH_TRY(const std::vector<int64_t> ids, impl_->catalog->visible_passages(below));
    RH_TRY(const std::vector<store::PassageRow> rows, impl_->catalog->passages(ids, below));
    for (const store::PassageRow& passage : rows) detail.passages.push_back(impl_->info_of(passage));
    return detail;
  }
  RH_TRY(const store::SourceRow row, find_source(*impl_->catalog, source, selection));
  RH_TRY(const Supersessions supersessions, impl_->catalog->supersessions(selection));
  detail.info = info_of(row, supersessions);
  detail.problems = problems_of(source, supersessions);
  RH_TRY(const std::vector<store::VersionRow> versions, impl_->catalog->versions(source, selection));
  for (const store::VersionRow& version : versions) {
    detail.versions.push_back({version.version, version.added, version.replaced, version.event_time,
                               version.bytes, version.sha256});
  }
  RH_TRY(const std::vector<store::PassageRow> passages, impl_->catalog->passages_of(source, selection));
  for (const store::PassageRow& passage : passages) detail.passages.push_back(impl_->info_of(passage));
  return detail;
}

Result<std::string> Memory::text(const std::string& source, const SourceFilter& filter) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(const store::Selection selection, impl_->selection(filter));
  RH_TRY(const auto conversation, conversation_of(*impl_->catalog, source, filter.all_users));
  if (conversation) {
    RH_TRY(const auto messages, store::ConversationLog(*impl_->catalog).messages(conversation->id));
    std::string text;
    for (const store::MessageRow& message : messages) {
      text += fmt::format("[{}, {}] {}\n", message.speaker.empty() ? message.role : message.speaker,
                          message.said, message.forgotten ? "(forgotten)" : message.text);
    }
    return text;
  }
  RH_TRY(const store::SourceRow row, find_source(*impl_->catalog, source, selection));
  return impl_->catalog->text(row.content);
}

Result<std::vector<std::string>> Memory::Impl::names_of(const ForgetOptions& asked) {
  std::vector<std::string> names;
  store::Selection mine;
  mine.user = asked.user;
  mine.all_users = asked.all_users;
  mine.superseded = true;
  const auto take = [&](const store::Selection& selection) -> Result<size_t> {
    RH_TRY(const std::vector<store::SourceRow> rows, catalog->sources(selection));
    size_t found = 0;
    for (const store::SourceRow& row : rows) {
      if (row.record.kind == store::kConversationKind) continue;
      names.push_back(row.record.name);
      ++found;
    }
    RH_TRY(const bool users, catalog->has_users());
    if (selection.sources.empty() || (users && !selection.all_users)) return found;
    RH_TRY(const auto conversations, conversations_of(*catalog, selection.sources));
    for (const store::ConversationRow& row : conversations) names.push_back(source_of(row));
    return found + conversations.size();
  };
  for (const std::string& source : asked.sources) {
    store::Selection selection = mine;
    selection.sources = {source};
    RH_TRY(size_t found, take(selection));
    if (found == 0) {
      // What is not current any more, such as a fact that was retracted, can be forgotten too.
      selection.history = true;
      RH_TRY(found, take(selection));
    }
    if (found == 0 && source.starts_with(store::kConversationFolder)) {
      return make_error(ErrorKind::kNotFound,
                        "the memory has no conversation '{}' ('rhapsode list' names them), and a part of one "
                        "is not forgotten alone",
                        source);
    }
    if (found == 0) {
      return make_error(ErrorKind::kNotFound, "the memory has no source '{}': 'rhapsode list' names them",
                        source);
    }
  }
  for (const std::string& tag : asked.tags) {
    store::Selection selection = mine;
    selection.tags = {tag};
    RH_TRY_STATUS(take(selection));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

Result<ForgetReport> Memory::forget(const ForgetOptions& options) {
  const std::lock_guard lock(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  if (impl_->options.read_only) {
    return make_error(ErrorKind::kInvalidArgument, "the memory {} is open for reading only",
                      impl_->options.folder.string());
  }
  RH_TRY(const std::vector<std::string> names, impl_->names_of(options));
  ForgetReport report;
  if (names.empty()) return report;
  if (options.confirm && !options.confirm(names)) return report;
  // Whatever was computed over the passages goes too: pages here, and cached prefixes of requests that read
  // them.
  impl_->tier->clear();
  impl_->engine->scheduler->forget_prefixes();
  RH_TRY(report.derived, impl_->derived_answers(names));
  if (options.derived) {
    for (const DerivedAnswer& answer : report.derived) RH_TRY_STATUS(impl_->erase_derived(answer));
  }
  RH_TRY(store::Erased erased, impl_->catalog->erase(names));
  if (!erased.renamed.empty()) {
    // Headers of a text that others still hold carry the forgotten name: it is encoded again under another
    // one.
    for (const store::RenamedContent& renamed : erased.renamed) {
      RH_TRY(const store::SourceRow row,
             find_source(*impl_->catalog, renamed.source, store::Selection::stored()));
      RH_TRY_STATUS(impl_->ingester()->rebuild(row));
    }
    RH_TRY(const store::Erased rest, impl_->catalog->erase(names));
    erased.bytes += rest.bytes;
  }
  RH_TRY_STATUS(impl_->sync_index());
  report.sources = erased.sources;
  report.passages = erased.passages;
  report.bytes = erased.bytes;
  return report;
}

Result<MemoryStats> Memory::stats(bool all_users) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY_STATUS(impl_->needs_all_users(all_users, "what it takes"));
  RH_TRY(const store::CatalogStats stored, impl_->catalog->stats(impl_->kv_fingerprint));
  const recall::KvTierStats tier = impl_->tier ? impl_->tier->stats() : recall::KvTierStats{};
  MemoryStats stats;
  RH_TRY(const std::optional<std::string> model, impl_->catalog->setting("model_name"));
  stats.model = model.value_or("");
  stats.fingerprint = impl_->kv_fingerprint;
  stats.sources = stored.sources;
  stats.versions = stored.versions;
  stats.contents = stored.contents;
  stats.passages = stored.passages;
  stats.passages_with_kv = stored.passages_with_kv;
  stats.tokens = stored.tokens;
  stats.text_bytes = stored.text_bytes;
  stats.catalog_bytes = stored.catalog_bytes;
  stats.code_bytes = stored.code_bytes;
  stats.kv_bytes = stored.kv_bytes;
  stats.kv_cap_bytes = impl_->disk_cap_bytes;
  stats.stale_bytes = stored.stale_bytes;
  stats.foreign_kv_entries = stored.foreign_kv_entries;
  stats.quarantined = stored.quarantined;
  stats.kv_hits = tier.memory_hits + tier.ram_hits + tier.disk_hits;
  stats.kv_misses = tier.encoded;
  stats.kv_outrun = tier.outrun;
  stats.kv_resident_bytes = tier.bytes;
  stats.kv_ram_bytes = tier.ram_bytes;
  const recall::FinderStats finding = impl_->finder->stats();
  stats.approximate = finding.approximate;
  stats.indexed_passages = static_cast<int>(finding.indexed);
  stats.index_bytes = finding.bytes;
  stats.index_problem = finding.problem;
  if (impl_->engine) stats.found_on = finding.on_device ? "cuda" : "cpu";
  stats.device_bytes = finding.device_bytes;
  stats.device_problem = finding.device_problem;
  stats.recall_questions = finding.recall.sampled;
  stats.recall = finding.recall.recall();
  stats.lowest_recall = finding.recall.sampled > 0 ? finding.recall.lowest : 0;
  return stats;
}

Result<VerifyReport> Memory::verify(const VerifyOptions& options) {
  const std::lock_guard lock(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY_STATUS(impl_->needs_all_users(options.all_users, "checking it"));
  VerifyReport report;
  RH_TRY(const store::CheckResult checked, impl_->catalog->check());
  report.extents_checked = checked.extents;
  report.texts_checked = checked.texts;
  for (const std::string& problem : checked.problems) report.problems.push_back({"", problem});
  RH_TRY(std::vector<int64_t> ids, impl_->catalog->visible_passages(store::Selection::stored()));
  std::mt19937 random(options.seed);
  std::shuffle(ids.begin(), ids.end(), random);
  const auto wanted = static_cast<size_t>(std::ceil(options.sample * static_cast<double>(ids.size())));
  ids.resize(std::min(ids.size(), std::max<size_t>(wanted, ids.empty() ? 0 : 1)));
  for (int64_t id : ids) RH_TRY_STATUS(impl_->verify_passage(id, report));
  return report;
}

const engine::FoundVerdict& Memory::Impl::verdict() {
  if (!found_verdict) found_verdict = engine::find_verdict(engine->options, model_sha256);
  return *found_verdict;
}

// Encodes one passage again and compares it with what is stored.
Status Memory::Impl::verify_passage(int64_t id, VerifyReport& report) {
  RH_TRY(const std::optional<store::KvExtent> extent, catalog->kv_extent(kv_fingerprint, id));
  if (!extent) return {};
  RH_TRY(const std::vector<store::PassageRow> rows,
         catalog->passages(std::span(&id, 1), store::Selection::stored()));
  RH_TRY(const std::string text, catalog->passage_text(id));
  RH_TRY(const recall::PassageTokens tokens, frame->passage(rows.front().header, text));
  const auto count = static_cast<int>(tokens.tokens.size());
  std::vector<std::byte> bytes(extent->extent.bytes);
  if (Status read = catalog->read_kv(*extent, bytes); !read.ok()) {
    report.problems.push_back({rows.front().source, read.error().message});
    return {};
  }
  RH_TRY(std::vector<store::PagePin> stored, passes->take_pages(recall::pages_for(count)));
  if (Status decoded = store::decode_pinned_kv(bytes, stored, count); !decoded.ok()) {
    report.problems.push_back({rows.front().source, decoded.error().message});
    return {};
  }
  RH_TRY(const std::vector<recall::Encoded> fresh, encoder->encode(std::span(&tokens, 1), false));
  RH_TRY(const double difference,
         engine::page_difference(passes->kv_shape(), stored, fresh.front().pages, count));
  report.largest_difference = std::max(report.largest_difference, difference);
  ++report.passages_encoded;
  if (!(difference <= engine::kMostPageDifference)) {
    report.problems.push_back(
        {rows.front().source,
         fmt::format("the stored KV of the passage at byte {} differs from a fresh one by "
                     "{:.2f} of its size",
                     rows.front().begin, difference)});
  }
  return {};
}

Status Memory::export_to(const std::filesystem::path& file, bool all_users) {
  const std::lock_guard lock(impl_->gate);
  RH_TRY_STATUS(impl_->needs_all_users(all_users, "an export"));
  return store::export_memory(impl_->options.folder, file);
}

Status Memory::import_from(const std::filesystem::path& file, const std::filesystem::path& folder) {
  return store::import_memory(file, folder);
}

}  // namespace rhapsode

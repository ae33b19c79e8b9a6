// Memory: facts, from a statement to the version of the source that it is.
#include <algorithm>

#include "base/iso_time.h"
#include "base/sha256.h"
#include "base/text_check.h"
#include "engine/memory_impl.h"
#include "text/text_scan.h"

namespace rhapsode {

namespace {

constexpr size_t kMostPartBytes = 400;  // of a subject, an attribute, a value

// "Ana's favourite tea" to "ana-s-favourite-tea": a part of a source's name. Bytes of other scripts stay.
std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text::ascii_lower(text)) {
    const bool kept =
        text::is_ascii_letter(c) || text::is_ascii_digit(c) || static_cast<unsigned char>(c) >= 0x80;
    if (kept) out += c;
    if (!kept && !out.empty() && out.back() != '-') out += '-';
  }
  while (!out.empty() && out.back() == '-') out.pop_back();
  return out;
}

std::string source_of(const FactStatement& statement) {
  return recall::name_for(statement.user,
                          "facts/" + slug(statement.subject) + "/" + slug(statement.attribute));
}

Status check_statement(const FactStatement& statement) {
  for (const std::string* part : {&statement.subject, &statement.attribute, &statement.value}) {
    if (part->size() > kMostPartBytes || !is_utf8(*part)) {
      return make_error(ErrorKind::kInvalidArgument, "'{}' is too long for a part of a fact, or no UTF-8",
                        shown(*part));
    }
  }
  if (slug(statement.subject).empty() || slug(statement.attribute).empty()) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a fact needs a subject and an attribute; '{}' and '{}' given",
                      shown(statement.subject), shown(statement.attribute));
  }
  for (const std::string* time : {&statement.event_time, &statement.told}) {
    if (!time->empty()) RH_TRY_STATUS(parse_iso_time(*time));
  }
  return {};
}

// The same message told twice has the same key.
Result<std::string> key_of(const FactStatement& statement) {
  const std::string message = statement.message.empty()
                                  ? statement.speaker + "\n" + statement.told + "\n" + statement.quote
                                  : statement.message;
  std::string parts;
  for (const std::string& part :
       {statement.user, message, slug(statement.subject), slug(statement.attribute),
        text::ascii_lower(statement.value), std::string(to_string(statement.action))}) {
    parts += fmt::format("{}:{};", part.size(), part);
  }
  return sha256(std::as_bytes(std::span(parts.data(), parts.size())));
}

std::string sentence_of(const FactStatement& statement) {
  if (!statement.sentence.empty()) return statement.sentence;
  return fmt::format("{}'s {} is {}.", statement.subject, statement.attribute, statement.value);
}

FactInfo fact_info(const store::FactRow& row) {
  const store::FactEvent& event = row.event;
  FactInfo info;
  info.action = static_cast<FactAction>(event.action);
  info.source = row.source;
  info.user = row.user;
  info.subject = event.subject;
  info.attribute = event.attribute;
  info.value = event.value;
  info.quote = event.statement;
  info.message = event.message;
  info.speaker = event.speaker;
  info.told = event.told;
  info.made_by = event.made_by;
  info.event_time = row.event_time;
  info.version = row.version;
  info.valid_from = row.valid_from;
  info.valid_to = row.valid_to;
  info.current = row.current;
  return info;
}

store::SourceRecord record_of(const FactStatement& statement) {
  store::SourceRecord record;
  record.name = source_of(statement);
  record.kind = "fact";
  record.title = statement.subject + ": " + statement.attribute;
  record.author = statement.speaker;
  record.event_time = statement.event_time.empty() ? statement.told : statement.event_time;
  record.added = format_iso_time(wall_clock_ms());
  record.user = statement.user;
  return record;
}

store::FactEvent event_of(const FactStatement& statement, std::string key) {
  store::FactEvent event;
  event.key = std::move(key);
  event.action = static_cast<store::FactAction>(statement.action);
  event.subject = statement.subject;
  event.attribute = statement.attribute;
  event.value = statement.action == FactAction::kRetracted ? "" : statement.value;
  event.statement = statement.quote.empty() ? sentence_of(statement) : statement.quote;
  event.message = statement.message;
  event.speaker = statement.speaker;
  event.told = statement.told;
  event.made_by = statement.made_by;
  return event;
}

}  // namespace

Status Memory::Impl::record(const FactStatement& statement, FactReport& report) {
  RH_TRY_STATUS(check_statement(statement));
  RH_TRY(std::string key, key_of(statement));
  RH_TRY(const bool known, catalog->knows_fact(key));
  if (known) {
    ++report.known;
    return {};
  }
  const bool retracts = statement.action == FactAction::kRetracted;
  const bool corrects = statement.action == FactAction::kCorrected;
  store::SourceRecord record = record_of(statement);
  RH_TRY(const std::string current, catalog->fact_in_force(record.name, ""));
  const std::string at = record.event_time.empty() ? record.added : record.event_time;
  RH_TRY(const std::string then, catalog->fact_in_force(record.name, corrects ? "" : at));
  if (retracts && current.empty()) {
    report.problems.push_back(fmt::format("nothing is recorded of {}'s {} that could be taken back",
                                          statement.subject, statement.attribute));
    return {};
  }
  std::optional<int64_t> content;
  if (!retracts && text::ascii_lower(then) != text::ascii_lower(statement.value)) {
    text::Document document;
    document.name = record.name;
    document.title = record.title;
    document.author = record.author;
    document.date = record.event_time;
    document.text = sentence_of(statement) + "\n";
    std::vector<text::Document> documents;
    documents.push_back(std::move(document));
    RH_TRY(const std::vector<int64_t> contents, ingester()->encode(std::move(documents), statement.user));
    content = contents.front();
  }
  RH_TRY(const bool recorded, catalog->record_fact(record, content, event_of(statement, std::move(key))));
  if (!recorded) return {};
  ++report.recorded;
  RH_TRY(const std::string after, catalog->fact_in_force(record.name, ""));
  if (!current.empty() && after != current) ++report.superseded;
  store::Selection one;
  one.sources = {record.name};
  one.all_users = one.history = true;
  RH_TRY(const std::vector<store::FactRow> rows, catalog->facts(one));
  if (!rows.empty()) report.facts.push_back(fact_info(rows.back()));
  return {};
}

Result<FactReport> Memory::record(std::span<const FactStatement> statements) {
  const std::lock_guard lock(impl_->gate);
  RH_TRY_STATUS(impl_->needs_model());
  if (impl_->options.read_only) {
    return make_error(ErrorKind::kInvalidArgument, "the memory {} is open for reading only",
                      impl_->options.folder.string());
  }
  FactReport report;
  const uint64_t before = impl_->encoder->evaluated_tokens();
  for (const FactStatement& statement : statements) RH_TRY_STATUS(impl_->record(statement, report));
  if (report.recorded > 0) RH_TRY_STATUS(impl_->sync_index());
  report.evaluated_tokens = impl_->encoder->evaluated_tokens() - before;
  return report;
}

Result<std::vector<FactInfo>> Memory::facts(const SourceFilter& filter) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(const store::Selection selection, impl_->selection(filter));
  RH_TRY(const std::vector<store::FactRow> rows, impl_->catalog->facts(selection));
  std::vector<FactInfo> facts;
  for (const store::FactRow& row : rows) facts.push_back(fact_info(row));
  return facts;
}

}  // namespace rhapsode

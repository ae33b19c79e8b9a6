// What a question says of time: dates, the past, and documents that others have superseded.
#include <algorithm>
#include <array>
#include <set>

#include "engine/memory_impl.h"
#include "text/text_scan.h"
#include "text/time_spans.h"

namespace rhapsode {

namespace {

constexpr std::array<std::string_view, 10> kPastWords = {"before", "previous", "previously", "formerly",
                                                         "former", "earlier",  "originally", "once",
                                                         "past",   "history"};

bool is_word_byte(char c) {
  return text::is_identifier_byte(c);
}

// Both in lower case; at the borders of words.
bool mentions(std::string_view text, std::string_view name) {
  if (name.empty()) return false;
  for (size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool begins = at == 0 || !is_word_byte(text[at - 1]) || !is_word_byte(name.front());
    const bool ends = end == text.size() || !is_word_byte(text[end]) || !is_word_byte(name.back());
    if (begins && ends) return true;
  }
  return false;
}

bool asks_about_the_past(std::string_view question) {
  return mentions(question, "used to") ||
         std::any_of(kPastWords.begin(), kPastWords.end(),
                     [&](std::string_view word) { return mentions(question, word); });
}

// By its identifier, its name, the last part of it, or its title.
bool names_source(std::string_view question, const store::SourceRecord& source) {
  constexpr size_t kShortestTitle = 8;
  const std::string name = text::ascii_lower(source.name);
  const std::string file = name.substr(name.find_last_of('/') + 1);
  const std::string stem = file.substr(0, file.rfind('.'));
  const bool telling = stem.find_first_of("0123456789-_") != std::string::npos;
  const std::string identifier = text::ascii_lower(source.identifier);
  std::string title = text::ascii_lower(source.title);
  if (!identifier.empty() && title.starts_with(identifier + ": ")) title.erase(0, identifier.size() + 2);
  return mentions(question, identifier) || mentions(question, name) || mentions(question, file) ||
         (telling && mentions(question, stem)) ||
         (title.size() >= kShortestTitle && mentions(question, title));
}

// What took the place of what took its place, and so on.
std::string latest_of(const std::string& source, const std::map<std::string, std::string>& newer_of) {
  std::string latest = source;
  for (size_t steps = 0; steps <= newer_of.size(); ++steps) {
    const auto newer = newer_of.find(latest);
    if (newer == newer_of.end()) return latest;
    latest = newer->second;
  }
  return source;  // they take one another's places
}

}  // namespace

std::string called(const store::SourceRecord& source) {
  return source.identifier.empty() ? "'" + source.name + "'" : source.identifier;
}

Result<Memory::Impl::QuestionTimes> Memory::Impl::question_times(const std::string& question,
                                                                 const SourceFilter& filter,
                                                                 bool heed) const {
  QuestionTimes times;
  RH_TRY(times.selection, reading_selection(filter));
  const std::string lower = text::ascii_lower(question);
  if (!filter.as_of.empty()) {
    times.period = text::period_of(filter.as_of);
    times.as_of = filter.as_of;
  } else if (heed) {
    for (const text::TimeSpan& span : text::time_spans(question)) {
      if (!span.first || !span.last) continue;
      times.period = text::DatePeriod{*span.first, *span.last};
      times.as_of = times.period->iso();
      times.notes.push_back(fmt::format("passages about {} are preferred, since the question names it",
                                        question.substr(span.begin, span.end - span.begin)));
      break;
    }
  }
  if (heed && filter.as_of.empty() && !filter.history) {
    RH_TRY(const bool facts, catalog->has_facts());
    times.selection.past_facts = facts && (times.period || asks_about_the_past(lower));
    if (times.selection.past_facts) {
      times.notes.push_back("earlier values of facts are seen, since the question asks about another time");
    }
  }
  store::Selection all = times.selection;
  all.superseded = true;
  RH_TRY(const std::vector<store::SupersessionRow> rows, catalog->supersessions(all));
  store::Selection named = all;
  std::map<std::string, std::string> newer_of;
  for (const store::SupersessionRow& row : rows) {
    if (!row.problem.empty()) continue;
    newer_of.try_emplace(row.older, row.newer);
    named.sources.push_back(row.older);
    named.sources.push_back(row.newer);
  }
  if (newer_of.empty()) return times;
  RH_TRY(const std::vector<store::SourceRow> sources, catalog->sources(named));
  std::map<std::string, const store::SourceRecord*> records;
  for (const store::SourceRow& row : sources) records[row.record.name] = &row.record;
  for (const auto& [older, newer] : newer_of) {
    const auto record = records.find(older);
    if (record == records.end() || !records.contains(newer)) continue;
    const auto latest = records.find(latest_of(newer, newer_of));
    const store::SourceRecord& now = *(latest == records.end() ? records[newer] : latest->second);
    times.superseded[older] = {newer,
                               fmt::format("{} is superseded by {}.", called(*record->second), called(now))};
    if (heed && names_source(lower, *record->second)) times.selection.admitted.push_back(older);
  }
  return times;
}

recall::RouteOptions Memory::Impl::route_options(const QuestionTimes& times) {
  recall::RouteOptions options;
  options.selection = times.selection;
  options.period = times.period;
  return options;
}

}  // namespace rhapsode

// Questions out of the headers of Python Enhancement Proposals: what supersedes what, who wrote it, when, for
// which version. The header field is the evidence, so answers and gold passages are exact.
#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "eval/dataset_builder.h"
#include "eval/random.h"
#include "io/file.h"

namespace rhapsode::eval {
namespace {

constexpr uint64_t kMostFileBytes = 16u << 20;

struct Field {
  std::string value;  // continuation lines joined
  Span span;          // of the whole field, from its name on
};

struct Pep {
  std::string file;
  std::string number;
  std::string title;
  int document = 0;
  std::map<std::string, Field> fields;
};

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin));
}

std::map<std::string, Field> header_fields(std::string_view text) {
  std::map<std::string, Field> fields;
  Field* open = nullptr;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (trimmed(line).empty()) break;
    const size_t colon = line.find(':');
    if (line.front() == ' ' || line.front() == '\t') {
      if (open) {
        open->value += ' ' + trimmed(line);
        open->span.end = end;
      }
    } else if (colon != std::string_view::npos) {
      open = &fields[std::string(line.substr(0, colon))];
      *open = {trimmed(line.substr(colon + 1)), {0, begin, end}};
    }
    begin = end + 1;
  }
  return fields;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (std::string item = trimmed(text.substr(begin, end - begin)); !item.empty()) items.push_back(item);
    begin = end + 1;
  }
  return items;
}

// "Ann Lee <ann@example.org>, bob@example.org (Bob Ray)" to the two names.
std::vector<std::string> author_names(const std::string& value) {
  std::vector<std::string> names;
  for (std::string item : split_list(value)) {
    const size_t open = item.find('(');
    const size_t close = item.find(')');
    if (open != std::string::npos && close != std::string::npos && close > open) {
      item = item.substr(open + 1, close - open - 1);
    }
    item = trimmed(std::string_view(item).substr(0, item.find('<')));
    if (item == "Jr." || item == "Jr") continue;
    if (!item.empty() && item.find('@') == std::string::npos) names.push_back(item);
  }
  return names;
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The numbers of "245, 246", each as "PEP 245" and "245", and all of them together.
std::vector<std::string> pep_answers(const std::string& value) {
  std::vector<std::string> numbers;
  for (const std::string& item : split_list(value)) {
    if (is_number(item)) numbers.push_back(item);
  }
  std::vector<std::string> answers;
  for (const std::string& number : numbers) {
    answers.push_back("PEP " + number);
    answers.push_back(number);
  }
  if (numbers.size() > 1) {
    answers.push_back(fmt::format("PEP {}", fmt::join(numbers, ", PEP ")));
    answers.push_back(fmt::format("PEPs {}", fmt::join(numbers, " and ")));
    answers.push_back(fmt::format("PEP {}", fmt::join(numbers, " and PEP ")));
    answers.push_back(fmt::format("{}", fmt::join(numbers, ", ")));
    answers.push_back(fmt::format("{}", fmt::join(numbers, " and ")));
  }
  return answers;
}

std::vector<std::string> author_answers(const std::string& value) {
  std::vector<std::string> answers = author_names(value);
  if (answers.size() > 1) {
    const std::string all = fmt::format("{}", fmt::join(answers, ", "));
    const std::string last = answers.back();
    std::vector<std::string> before(answers.begin(), answers.end() - 1);
    answers.push_back(all);
    answers.push_back(fmt::format("{} and {}", fmt::join(before, ", "), last));
  }
  return answers;
}

// "12-Apr-1999" in the ways people write a date; nothing for what is not of that form.
std::vector<std::string> date_answers(const std::string& value) {
  static constexpr std::array<const char*, 12> kMonths{"January",   "February", "March",    "April",
                                                       "May",       "June",     "July",     "August",
                                                       "September", "October",  "November", "December"};
  const size_t first = value.find('-');
  const size_t second = value.rfind('-');
  if (first == std::string::npos || second == first) return {};
  std::string day = value.substr(0, first);
  const std::string month = value.substr(first + 1, second - first - 1);
  const std::string year = value.substr(second + 1);
  const auto named = std::find_if(kMonths.begin(), kMonths.end(), [&](std::string_view name) {
    return month.size() == 3 && name.starts_with(month);
  });
  if (!is_number(day) || day.size() > 2 || !is_number(year) || year.size() != 4 || named == kMonths.end()) {
    return {};
  }
  const std::string padded = day.size() == 1 ? "0" + day : day;
  if (day.front() == '0') day.erase(0, 1);
  return {value,
          fmt::format("{} {} {}", day, *named, year),
          fmt::format("{} {} {}", padded, *named, year),
          fmt::format("{} {}, {}", *named, day, year),
          fmt::format("{} {}, {}", *named, padded, year),
          fmt::format("{}-{:02}-{}", year, named - kMonths.begin() + 1, padded),
          fmt::format("{}-{}-{}", day, month, year),
          fmt::format("{} {} {}", day, month, year)};
}

std::vector<std::string> version_answers(const std::string& value) {
  const size_t point = value.find('.');
  if (point == std::string::npos || !is_number(std::string_view(value).substr(0, point)) ||
      !is_number(std::string_view(value).substr(point + 1))) {
    return {};
  }
  return {value, "Python " + value};
}

std::vector<std::string> plain_answer(const std::string& value) {
  if (value.empty()) return {};
  return {value};
}

// Which field, what makes answers of it, and how it is asked for; {} is the PEP.
struct Asked {
  const char* field;
  const char* group;
  std::vector<std::string> (*answers)(const std::string& value);
  std::array<const char*, 3> wordings;
};
constexpr std::array<Asked, 7> kAsked{{
    {"Superseded-By",
     "superseded-by",
     pep_answers,
     {"Which PEP supersedes {}?", "By which PEP was {} superseded?", "Which PEP replaced {}?"}},
    {"Replaces",
     "replaces",
     pep_answers,
     {"Which PEP does {} replace?", "Which earlier PEP was replaced by {}?", "What PEP does {} supersede?"}},
    {"Author",
     "author",
     author_answers,
     {"Who wrote {}?", "Who is an author of {}?", "Name an author of {}."}},
    {"Created",
     "created",
     date_answers,
     {"When was {} created?", "On which date was {} created?", "What is the creation date of {}?"}},
    {"Status",
     "status",
     plain_answer,
     {"What is the status of {}?", "Which status does {} have?", "What status is given for {}?"}},
    {"Type",
     "type",
     plain_answer,
     {"Of which type is {}?", "What type of PEP is {}?", "Which type does the header of {} name?"}},
    {"Python-Version",
     "python-version",
     version_answers,
     {"For which Python version was {} proposed?", "Which Python version does {} target?",
      "What Python version is named in the header of {}?"}},
}};

Result<std::vector<Pep>> read_peps(const std::filesystem::path& folder, DatasetBuilder& builder) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".rst") files.push_back(entry.path());
  }
  if (error) return make_system_error(error.value(), folder.string());
  std::sort(files.begin(), files.end());
  std::vector<Pep> peps;
  for (const std::filesystem::path& file : files) {
    RH_TRY(std::string text, read_text_file(file, kMostFileBytes));
    Pep pep;
    pep.file = file.stem().string();
    pep.fields = header_fields(text);
    pep.number = pep.fields["PEP"].value;
    pep.title = pep.fields["Title"].value;
    if (!is_number(pep.number) || pep.title.empty()) {
      return make_error(ErrorKind::kCorrupt, "{} has no header with PEP and Title", file.string());
    }
    pep.document = builder.add_document(pep.title, std::move(text), file.filename().string());
    for (auto& [name, field] : pep.fields) field.span.document = pep.document;
    peps.push_back(std::move(pep));
  }
  if (peps.empty()) return make_error(ErrorKind::kNotFound, "{} holds no .rst file", folder.string());
  return peps;
}

// The other PEP's field that says the same from its side ("Replaces: 241" in PEP 314).
void add_reverse_places(const Pep& pep, const std::string& field, const std::vector<Pep>& peps,
                        Evidence& evidence) {
  const bool superseded = field == "Superseded-By";
  if (!superseded && field != "Replaces") return;
  const std::vector<std::string> named = split_list(pep.fields.at(field).value);
  for (const Pep& other : peps) {
    if (std::find(named.begin(), named.end(), other.number) == named.end()) continue;
    const auto reverse = other.fields.find(superseded ? "Replaces" : "Superseded-By");
    if (reverse == other.fields.end()) continue;
    const std::vector<std::string> back = split_list(reverse->second.value);
    if (std::find(back.begin(), back.end(), pep.number) != back.end()) {
      evidence.places.push_back(reverse->second.span);
    }
  }
}

}  // namespace

Status make_pep_questions(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Pep> peps, read_peps(input.path, builder));
  std::map<std::string, int> titles;
  for (const Pep& pep : peps) ++titles[pep.title];
  for (const Pep& pep : peps) {
    for (const Asked& asked : kAsked) {
      const auto field = pep.fields.find(asked.field);
      if (field == pep.fields.end()) continue;
      Question question;
      question.answers = asked.answers(field->second.value);
      if (question.answers.empty()) continue;
      question.id = fmt::format("{}/{}", pep.file, asked.group);
      question.group = asked.group;
      Random random(input.options.seed(), question.id);
      const bool by_title = titles[pep.title] == 1 && random.below(2) == 1;
      question.type = by_title ? "by-title" : "by-number";
      const std::string who =
          by_title ? fmt::format("the PEP \"{}\"", pep.title) : fmt::format("PEP {}", pep.number);
      question.text = fmt::format(fmt::runtime(asked.wordings[random.below(asked.wordings.size())]), who);
      Evidence evidence{{field->second.span}};
      question.own = evidence.places;
      add_reverse_places(pep, asked.field, peps, evidence);
      question.gold.push_back(std::move(evidence));
      builder.add_question(std::move(question));
    }
  }
  return {};
}

// Which PEP holds now where others have held before: of every chain of supersessions within the set, the last
// one, asked for by the title of an earlier one; the earlier ones are stale.
Status make_pep_successions(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Pep> peps, read_peps(input.path, builder));
  std::map<std::string, const Pep*> by_number;
  for (const Pep& pep : peps) by_number[pep.number] = &pep;
  std::map<std::string, std::string> newer_of;
  const auto link = [&](const std::string& older, const std::string& newer) {
    if (older != newer && by_number.contains(older) && by_number.contains(newer)) newer_of[older] = newer;
  };
  for (const Pep& pep : peps) {
    for (const char* field : {"Superseded-By", "Replaces"}) {
      const auto found = pep.fields.find(field);
      if (found == pep.fields.end()) continue;
      const bool older = std::string_view(field) == "Superseded-By";
      for (const std::string& other : split_list(found->second.value)) {
        older ? link(pep.number, other) : link(other, pep.number);
      }
    }
  }
  for (const auto& [number, first] : newer_of) {
    std::vector<std::string> earlier = {number};
    std::string last = first;
    while (newer_of.contains(last) && earlier.size() <= newer_of.size()) {
      earlier.push_back(last);
      last = newer_of[last];
    }
    if (std::find(earlier.begin(), earlier.end(), last) != earlier.end()) continue;  // a circle
    Question question;
    question.id = fmt::format("{}/succession", by_number[number]->file);
    question.group = input.group;
    question.text =
        fmt::format("Which PEP is in force today in place of the PEP \"{}\"?", by_number[number]->title);
    question.answers = pep_answers(last);
    for (const std::string& old : earlier) {
      for (const std::string& name : pep_answers(old)) question.stale.push_back(name);
    }
    Evidence evidence{{{by_number[last]->document, 0, 1}}};
    for (const Pep& pep : peps) {
      const auto field = pep.fields.find("Superseded-By");
      if (pep.number == earlier.back() && field != pep.fields.end())
        evidence.places.push_back(field->second.span);
    }
    question.own = evidence.places;
    question.gold.push_back(std::move(evidence));
    builder.add_question(std::move(question));
  }
  return {};
}

}  // namespace rhapsode::eval

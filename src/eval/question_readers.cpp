// Readers of published question sets.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "eval/dataset_builder.h"
#include "eval/metrics.h"
#include "io/file.h"
#include "io/gzip.h"

namespace rhapsode::eval {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = 256u << 20;

// One JSON value that takes fields out of itself by name and remembers the first complaint of the whole file.
class Record {
 public:
  Record(const Json& json, std::string where, Status& status)
      : json_(json), where_(std::move(where)), status_(status) {}

  std::string text(const char* key) const {
    const Json* found = member(key);
    if (found && found->is_string()) return found->get<std::string>();
    complain(key, "is not a text");
    return "";
  }
  bool flag(const char* key) const {
    const Json* found = member(key);
    if (found && found->is_boolean()) return found->get<bool>();
    complain(key, "is not true or false");
    return false;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> out;
    for (const Json& element : list(key)) {
      if (element.is_string()) {
        out.push_back(element.get<std::string>());
      } else {
        complain(key, "is not a list of texts");
      }
    }
    return out;
  }
  std::vector<Record> records(const char* key) const {
    std::vector<Record> out;
    for (const Json& element : list(key)) {
      out.emplace_back(element, fmt::format("{}, {} {}", where_, key, out.size() + 1), status_);
    }
    return out;
  }
  // A list that is given as [a, b, ...] instead of as an object.
  const Json* element(size_t index) const {
    if (json_.is_array() && index < json_.size()) return &json_[index];
    if (status_.ok()) status_ = make_error(ErrorKind::kCorrupt, "{} has no element {}", where_, index + 1);
    return nullptr;
  }
  std::string element_text(size_t index) const {
    const Json* found = element(index);
    if (found && found->is_string()) return found->get<std::string>();
    if (found) complain("a title", "is not a text");
    return "";
  }
  void complain(const char* key, const char* what) const {
    if (status_.ok()) status_ = make_error(ErrorKind::kCorrupt, "{}: '{}' {}", where_, key, what);
  }

 private:
  const Json* member(const char* key) const {
    const auto found = json_.is_object() ? json_.find(key) : json_.end();
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& list(const char* key) const {
    static const Json kEmpty = Json::array();
    const Json* found = member(key);
    if (found && found->is_array()) return *found;
    complain(key, "is not a list");
    return kEmpty;
  }

  const Json& json_;
  std::string where_;
  Status& status_;
};

Result<Json> parse_json(std::string_view text, const std::string& where) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return make_error(ErrorKind::kCorrupt, "{} is not JSON", where);
  return json;
}

Result<std::vector<Json>> parse_json_lines(std::string_view text, const std::string& where) {
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      RH_TRY(Json json, parse_json(line, fmt::format("{}, line {}", where, lines.size() + 1)));
      lines.push_back(std::move(json));
    }
    begin = end + 1;
  }
  return lines;
}

// A list of records, or a record a line.
Result<std::vector<Json>> parse_records(std::string_view text, const std::string& where) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '[') return parse_json_lines(text, where);
  RH_TRY(Json json, parse_json(text, where));
  return std::vector<Json>(std::make_move_iterator(json.begin()), std::make_move_iterator(json.end()));
}

Result<std::vector<Json>> read_records(const std::filesystem::path& path) {
  RH_TRY(const std::string text, read_text_file(path, kMostBytes));
  return parse_records(text, path.string());
}

std::string trimmed(const std::string& text) {
  constexpr const char* kBlank = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

std::string with_question_mark(std::string text) {
  text = trimmed(text);
  while (text.ends_with('?')) text.pop_back();
  return trimmed(text) + "?";
}

bool holds(const std::vector<Span>& spans, int document) {
  return std::any_of(spans.begin(), spans.end(), [&](const Span& span) { return span.document == document; });
}

void add_own(Question& question, int document, bool gold) {
  if (!holds(question.own, document)) question.own.push_back({document});
  const bool known = std::any_of(question.gold.begin(), question.gold.end(),
                                 [&](const Evidence& evidence) { return holds(evidence.places, document); });
  if (gold && !known) question.gold.push_back({{{document}}});
}

std::string joined_sentences(const Record& paragraph, const Json* sentences) {
  std::string text;
  if (!sentences || !sentences->is_array()) {
    paragraph.complain("the sentences", "are not a list");
    return text;
  }
  for (const Json& sentence : *sentences) {
    if (!sentence.is_string()) {
      paragraph.complain("a sentence", "is not a text");
      return text;
    }
    const std::string piece = sentence.get<std::string>();
    if (!text.empty() && !text.ends_with(' ') && !piece.starts_with(' ')) text += ' ';
    text += piece;
  }
  return trimmed(text);
}

std::string wiki_title(const std::string& index) {
  std::string title = index.substr(0, index.find('#'));
  if (title.starts_with("/wiki/")) title = title.substr(6);
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

}  // namespace

Status read_musique(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Json> list, read_records(input.path));
  Status status;
  for (const Json& element : list) {
    const Record record(element, input.path.string(), status);
    Question question;
    question.id = record.text("id");
    question.group = input.group;
    question.type = question.id.substr(0, question.id.find("__"));
    question.text = trimmed(record.text("question"));
    question.answers = record.texts("answer_aliases");
    question.answers.insert(question.answers.begin(), record.text("answer"));
    for (const Record& paragraph : record.records("paragraphs")) {
      const int document =
          builder.add_document(paragraph.text("title"), trimmed(paragraph.text("paragraph_text")));
      add_own(question, document, paragraph.flag("is_supporting"));
    }
    RH_TRY_STATUS(status);
    builder.add_question(std::move(question));
  }
  return {};
}

Status read_hotpot(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Json> list, read_records(input.path));
  Status status;
  for (const Json& element : list) {
    const Record record(element, input.path.string(), status);
    Question question;
    question.id = record.text("_id");
    question.group = input.group;
    question.type = record.text("type");
    question.text = trimmed(record.text("question"));
    question.answers = {record.text("answer")};
    std::set<std::string> supporting;
    for (const Record& fact : record.records("supporting_facts")) supporting.insert(fact.element_text(0));
    for (const Record& paragraph : record.records("context")) {
      std::string title = paragraph.element_text(0);
      const bool gold = supporting.contains(title);
      add_own(question,
              builder.add_document(std::move(title), joined_sentences(paragraph, paragraph.element(1))),
              gold);
    }
    RH_TRY_STATUS(status);
    builder.add_question(std::move(question));
  }
  return {};
}

// `last`: questions asked, from the end of the file (0: all); the other questions' passages stay in the pool.
// `drop_shared` = 1: without those asked whose passage belongs to one of the others, too.
Status read_nq_oracle(const ReaderInput& input, DatasetBuilder& builder) {
  const int last = input.options.integer("last", 0, 0, 1 << 24);
  const bool drop_shared = input.options.integer("drop_shared", 0, 0, 1) == 1;
  RH_TRY(const std::string text, read_gzip_file(input.path));
  RH_TRY(const std::vector<Json> lines, parse_records(text, input.path.string()));
  const size_t asked_from = last > 0 && static_cast<size_t>(last) < lines.size() ? lines.size() - last : 0;
  std::set<int> training_documents;
  Status status;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Record record(lines[i], fmt::format("{}, line {}", input.path.string(), i + 1), status);
    Question question;
    question.id = fmt::format("{}", i);
    question.group = input.group;
    question.text = with_question_mark(record.text("question"));
    question.answers = record.texts("answers");
    for (const Record& passage : record.records("ctxs")) {
      add_own(question, builder.add_document(passage.text("title"), trimmed(passage.text("text"))),
              passage.flag("isgold"));
    }
    RH_TRY_STATUS(status);
    const bool shared = std::any_of(question.own.begin(), question.own.end(), [&](const Span& span) {
      return training_documents.contains(span.document);
    });
    if (i < asked_from) {
      for (const Span& span : question.own) training_documents.insert(span.document);
    } else if (!drop_shared || !shared) {
      builder.add_question(std::move(question));
    }
  }
  return {};
}

Status read_squad(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::string text, read_text_file(input.path, kMostBytes));
  RH_TRY(const Json json, parse_json(text, input.path.string()));
  Status status;
  for (const Record& article : Record(json, input.path.string(), status).records("data")) {
    std::string title = article.text("title");
    std::replace(title.begin(), title.end(), '_', ' ');
    for (const Record& paragraph : article.records("paragraphs")) {
      const int document = builder.add_document(title, trimmed(paragraph.text("context")));
      for (const Record& asked : paragraph.records("qas")) {
        Question question;
        question.id = asked.text("id");
        question.group = input.group;
        question.text = trimmed(asked.text("question"));
        for (const Record& answer : asked.records("answers")) question.answers.push_back(answer.text("text"));
        add_own(question, document, true);
        RH_TRY_STATUS(status);
        builder.add_question(std::move(question));
      }
    }
  }
  return status;
}

// Its chunks carry no mark of evidence: there is no `gold` to read or recall.
Status read_cacheblend(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Json> list, read_records(input.path));
  Status status;
  int number = 0;
  for (const Json& element : list) {
    const Record record(element, fmt::format("{}, record {}", input.path.string(), number + 1), status);
    Question question;
    question.id = fmt::format("{}", number++);
    question.group = input.group;
    question.text = with_question_mark(record.text("question"));
    question.answers = record.texts("answers");
    for (const Record& chunk : record.records("ctxs")) {
      add_own(question, builder.add_document(chunk.text("title"), trimmed(chunk.text("text"))), false);
    }
    RH_TRY_STATUS(status);
    builder.add_question(std::move(question));
  }
  return {};
}

Status read_passages(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Json> list, read_records(input.path));
  Status status;
  for (const Json& element : list) {
    const Record record(element, input.path.string(), status);
    std::string title = record.text("title");
    std::string text = trimmed(record.text("text"));
    RH_TRY_STATUS(status);
    if (!text.empty()) builder.add_document(std::move(title), std::move(text));
  }
  return {};
}

Status read_timeqa(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Json> list, read_records(input.path));
  Status status;
  for (const Json& element : list) {
    const Record article(element, input.path.string(), status);
    const std::string title = wiki_title(article.text("index"));
    for (const std::string& paragraph : article.texts("paras")) {
      std::string text = trimmed(paragraph);
      if (!text.empty()) builder.add_document(title, std::move(text));
    }
    RH_TRY_STATUS(status);
  }
  return {};
}

// One article as one document; returns where its paragraphs lie in it.
std::pair<int, std::vector<Span>> add_article(const std::string& title,
                                              const std::vector<std::string>& paragraphs,
                                              DatasetBuilder& builder) {
  std::string text;
  std::vector<Span> places;
  for (const std::string& paragraph : paragraphs) {
    const size_t begin = text.size();
    text += trimmed(paragraph);
    places.push_back({0, begin, text.size()});
    if (text.size() > begin) text += "\n\n";
  }
  const int document = builder.add_document(title, std::move(text));
  for (Span& place : places) place.document = document;
  return {document, places};
}

// The answers that an annotator marked, and the paragraphs they stand in.
Status take_timeqa_answers(const Record& answers, size_t count, const std::vector<Span>& places,
                           Question& question) {
  Status status;
  for (size_t i = 0; i < count; ++i) {
    const Json* const marked = answers.element(i);
    if (!marked) break;
    const Record answer(*marked, "an answer", status);
    const std::string text = trimmed(answer.text("answer"));
    const auto paragraph = marked->is_object() ? marked->value("para", -1) : -1;
    if (text.empty() || paragraph < 0 || static_cast<size_t>(paragraph) >= places.size()) continue;
    question.answers.push_back(text);
    if (question.gold.empty()) question.gold.push_back({});
    question.gold.front().places.push_back(places[static_cast<size_t>(paragraph)]);
  }
  return status;
}

// What answers the other questions about the same relation of an article was, or will be, right at another
// time.
Status read_timeqa_questions(const ReaderInput& input, DatasetBuilder& builder) {
  RH_TRY(const std::vector<Json> list, read_records(input.path));
  Status status;
  for (const Json& element : list) {
    const Record article(element, input.path.string(), status);
    const std::string index = article.text("index");
    const auto [document, places] = add_article(wiki_title(index), article.texts("paras"), builder);
    std::vector<Question> questions;
    const Json asked = element.is_object() ? element.value("questions", Json::array()) : Json::array();
    for (const Json& pair : asked) {
      const Record record(pair, index, status);
      const Json* const answers = record.element(1);
      Question question;
      question.id = fmt::format("{}/{}", index, questions.size());
      question.group = input.group;
      question.text = with_question_mark(record.element_text(0));
      question.own.push_back({document});
      RH_TRY_STATUS(status);
      if (answers && answers->is_array()) {
        RH_TRY_STATUS(
            take_timeqa_answers(Record(*answers, index, status), answers->size(), places, question));
      }
      questions.push_back(std::move(question));
    }
    RH_TRY_STATUS(status);
    for (Question& question : questions) {
      for (const Question& other : questions) {
        for (const std::string& value : other.answers) {
          if (exact_match(value, question.answers) == 0) question.stale.push_back(value);
        }
      }
      // Annotators found no answer to some: what they are asked for is not in the article.
      if (!question.answers.empty()) builder.add_question(question);
    }
  }
  return {};
}

}  // namespace rhapsode::eval

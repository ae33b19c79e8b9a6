// Messages as JSON: "author (time): text", a block each. Other objects stay as they are, a row each.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/dates.h"
#include "text/document_fields.h"
#include "text/json_records.h"
#include "text/readers.h"
#include "text/section_stack.h"
#include "text/text_scan.h"
#include "text/utf8_gate.h"

namespace rhapsode::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostRecordBytes = 8
                                    << 20;  // a tree takes many times the bytes; a longer record stays a row

std::optional<Json> parse(std::string_view record) {
  if (record.size() > kMostRecordBytes) return std::nullopt;
  Json json = Json::parse(record, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::nullopt;
  return json;
}

const Json* find(const Json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto at = object.find(key);
    if (at != object.end() && !at->is_null()) return &*at;
  }
  return nullptr;
}

std::string as_string(const Json* value) {
  if (!value) return {};
  if (value->is_string()) return value->get<std::string>();
  if (value->is_number_integer()) return std::to_string(value->get<int64_t>());
  if (value->is_number_float()) return std::to_string(value->get<double>());
  return {};
}

// A string, or the text parts of a list such as [{"type": "text", "text": "..."}].
std::string text_of(const Json* value) {
  if (!value) return {};
  if (!value->is_array()) return value->is_string() ? value->get<std::string>() : std::string();
  std::string out;
  for (const Json& part : *value) {
    const std::string one = part.is_object() ? as_string(find(part, {"text", "content"})) : as_string(&part);
    if (!one.empty()) out += (out.empty() ? "" : "\n") + one;
  }
  return out;
}

struct Message {
  std::string author, time, text;
};

// "1355517523.000005" counts as seconds; what is no date stays as it is written.
std::string time_of(const Json& object) {
  constexpr size_t kLongest = 40;
  const std::string said =
      as_string(find(object, {"time", "date", "timestamp", "created_at", "createdAt", "create_time",
                              "sent_at", "datetime", "ts", "time_anchor"}));
  const std::string date = iso_date(
      said.find_first_not_of("0123456789.") == std::string::npos ? said.substr(0, said.find('.')) : said);
  return date.empty() ? shortened(one_line(said), kLongest) : date;
}

std::string author_of(const Json& object) {
  const Json* author =
      find(object, {"author", "name", "sender", "speaker", "from", "user", "username", "role", "by"});
  if (author && author->is_object()) {
    author = find(*author, {"name", "display_name", "real_name", "username", "login", "role", "email", "id"});
  }
  constexpr size_t kLongest = 80;
  return shortened(one_line(as_string(author)), kLongest);
}

std::optional<Message> message_of(const Json& object) {
  if (!object.is_object()) return std::nullopt;
  Message message{author_of(object), time_of(object), {}};
  const Json* inner = find(object, {"message"});
  if (inner && inner->is_object()) {
    // Logs wrap what was said: {"type": ..., "message": {"role": ..., "content": ...}, "timestamp": ...}.
    if (message.author.empty()) message.author = author_of(*inner);
    if (message.time.empty()) message.time = time_of(*inner);
    message.text = text_of(find(*inner, {"text", "content", "body"}));
  } else {
    message.text = text_of(find(object, {"text", "content", "message", "body", "utterance"}));
  }
  if (trim(message.text).empty() || (message.author.empty() && message.time.empty())) return std::nullopt;
  return message;
}

// The messages of a record in their order: itself, or those in the lists inside of it.
void collect(const Json& record, std::vector<Message>& out) {
  std::vector<const Json*> open = {&record};
  while (!open.empty()) {
    const Json& value = *open.back();
    open.pop_back();
    if (auto message = message_of(value)) {
      out.push_back(std::move(*message));
      continue;
    }
    if (!value.is_array() && !value.is_object()) continue;
    const size_t first = open.size();
    for (const Json& child : value) open.push_back(&child);
    std::reverse(open.begin() + static_cast<std::ptrdiff_t>(first), open.end());
  }
}

class MessagesReader {
 public:
  explicit MessagesReader(Document document) : document_(std::move(document)), records_(document_.text) {}

  // First what the records hold, then the text: unchanged if no message is among them.
  Document read() && {
    for (JsonRecords::Record record; records_.next(record);) read_record(record);
    if (messages_ == 0) return as_rows();
    document_.text = std::move(out_);
    document_.extracted = true;
    if (broken_ > 0) {
      document_.warnings.push_back(
          fmt::format("{} records are no sound JSON: they were kept as they are", broken_));
    }
    return std::move(document_);
  }

 private:
  void read_record(const JsonRecords::Record& record) {
    const std::string_view raw =
        std::string_view(document_.text).substr(record.begin, record.end - record.begin);
    rows_.push_back(record.begin);
    rows_end_ = record.end;
    const auto json = record.sound ? parse(raw) : std::nullopt;
    if (!json) ++broken_;
    std::vector<Message> messages;
    if (json && (json->is_object() || json->is_array())) collect(*json, messages);
    if (json && json->is_object() && !messages.empty()) add_section(*json);
    for (const Message& message : messages) add(message);
    if (messages.empty() && !trim(raw).empty()) begin_block().append(one_line(raw));
  }

  // A conversation's title heads its messages.
  void add_section(const Json& object) {
    constexpr size_t kLongest = 120;
    if (message_of(object)) return;
    const std::string title = as_string(find(object, {"title", "topic", "subject", "name"}));
    begin_block();
    conversation_ = shortened(one_line(title), kLongest);
    enter(conversation_);
  }

  void enter(const std::string& path) {
    if (document_.sections.empty() ? path.empty() : document_.sections.back().path == path) return;
    document_.sections.push_back({out_.size(), path});
  }

  void add(const Message& message) {
    ++messages_;
    std::string& out = begin_block();
    std::string who = message.author;
    if (!message.time.empty()) who += (message.author.empty() ? "(" : " (") + message.time + ")";
    // A message that may be cut says in the headers of its parts whose it is.
    constexpr size_t kLong = 1200;
    const std::string inner = conversation_ + (conversation_.empty() ? "" : " > ") + who;
    enter(message.text.size() > kLong ? inner : conversation_);
    out += who;
    out += ": ";
    out += to_valid_utf8(trim(message.text));
    if (document_.date.empty()) document_.date = iso_date(message.time);
  }

  std::string& begin_block() {
    if (!out_.empty() && !out_.ends_with("\n\n")) out_ += "\n\n";
    if (document_.breaks.empty() || document_.breaks.back().offset < out_.size()) {
      document_.breaks.push_back({out_.size(), BreakStrength::kBlock});
    }
    return out_;
  }

  Document as_rows() {
    document_.breaks.clear();
    document_.sections.clear();
    RowBlock block{mark_bytes(document_.text), rows_end_, {}, std::move(rows_)};
    if (block.end > block.begin) document_.row_blocks.push_back(std::move(block));
    return std::move(document_);
  }

  Document document_;
  JsonRecords records_;
  std::string out_;
  std::string conversation_;
  std::vector<size_t> rows_;
  size_t rows_end_ = 0;
  size_t messages_ = 0;
  size_t broken_ = 0;
};

}  // namespace

bool is_messages(std::string_view text) {
  JsonRecords records(text);
  JsonRecords::Record record;
  constexpr int kLooks = 3;
  int objects = 0;
  for (int i = 0; i < kLooks && records.next(record); ++i) {
    if (text[record.begin] != '{' || !record.sound) return false;
    const auto json = parse(text.substr(record.begin, record.end - record.begin));
    if (!json || !json->is_object()) return false;
    std::vector<Message> messages;
    collect(*json, messages);
    if (!messages.empty()) return true;
    ++objects;
  }
  // One object alone is rather a file of settings.
  return objects > 1 || (objects == 1 && records.form() == JsonRecords::Form::kArray);
}

Result<Document> read_messages(std::string name, std::string text) {
  Document document;
  document.name = std::move(name);
  document.kind = DocumentKind::kMessages;
  document.text = std::move(text);
  return MessagesReader(std::move(document)).read();
}

}  // namespace rhapsode::text

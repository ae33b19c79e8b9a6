// Reader of BEAM's conversations (Tavakoli et al., "Beyond a Million Tokens"): a folder for each, with
// chat.json and probing_questions.json.
//
// Every message becomes a document, every probing question that says where its evidence stands a question;
// its group is the ability it probes. What ends user messages in the published files (" ->-> 1,1") was never
// said. A message is of the day of the last time anchor before it.
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "eval/dataset_builder.h"
#include "io/file.h"

namespace rhapsode::eval {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = 256u << 20;
constexpr int kMostConversations = 1000;

// "March-15-2024" as 2024-03-15; empty when it is no day.
std::string day_of_anchor(const std::string& anchor) {
  static constexpr std::array<std::string_view, 12> kMonths{"January",   "February", "March",    "April",
                                                            "May",       "June",     "July",     "August",
                                                            "September", "October",  "November", "December"};
  const size_t first = anchor.find('-');
  const size_t second = anchor.find('-', first == std::string::npos ? first : first + 1);
  if (second == std::string::npos) return "";
  const auto month = std::find(kMonths.begin(), kMonths.end(), std::string_view(anchor).substr(0, first));
  const std::string day = anchor.substr(first + 1, second - first - 1);
  const std::string year = anchor.substr(second + 1);
  const auto digits = [](const std::string& text, size_t count) {
    return text.size() == count && text.find_first_not_of("0123456789") == std::string::npos;
  };
  if (month == kMonths.end() || !digits(day, 2) || !digits(year, 4)) return "";
  return fmt::format("{}-{:02}-{}", year, month - kMonths.begin() + 1, day);
}

// Without " ->-> 1,1" at its end.
std::string without_marker(std::string text) {
  const size_t arrow = text.rfind("->->");
  if (arrow == std::string::npos) return text;
  if (text.find_first_not_of("0123456789, \t\r\n", arrow + 4) != std::string::npos) return text;
  const size_t last = arrow == 0 ? std::string::npos : text.find_last_not_of(" \t\r\n", arrow - 1);
  text.resize(last == std::string::npos ? 0 : last + 1);
  return text;
}

class BeamReader {
 public:
  BeamReader(const ReaderInput& input, DatasetBuilder& builder) : input_(input), builder_(builder) {}

  Status read(int number) {
    const std::filesystem::path folder = input_.path / fmt::format("{}", number);
    spoken_ = {fmt::format("chat-{}", number), {}};
    documents_.clear();
    day_.clear();
    speaker_ = fmt::format("user-{}", number);
    where_ = (folder / "chat.json").string();
    RH_TRY(const Json chat, load(folder / "chat.json"));
    RH_TRY_STATUS(read_messages(chat));
    where_ = (folder / "probing_questions.json").string();
    RH_TRY(const Json questions, load(folder / "probing_questions.json"));
    builder_.dataset().conversations.push_back(std::move(spoken_));
    return read_questions(questions);
  }

 private:
  static Result<Json> load(const std::filesystem::path& path) {
    RH_TRY(const std::string text, read_text_file(path, kMostBytes));
    Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) return make_error(ErrorKind::kCorrupt, "{} is not JSON", path.string());
    return json;
  }
  Error complaint(const std::string& what) const {
    return make_error(ErrorKind::kCorrupt, "{}: {}", where_, what);
  }

  Status read_messages(const Json& chat) {
    if (!chat.is_array()) return complaint("is not a list of batches");
    for (const Json& batch : chat) {
      const auto turns = batch.is_object() ? batch.find("turns") : batch.end();
      if (!batch.is_object() || turns == batch.end() || !turns->is_array()) {
        return complaint("a batch has no list of turns");
      }
      for (const Json& turn : *turns) {
        if (!turn.is_array()) return complaint("a turn is not a list of messages");
        for (const Json& message : turn) RH_TRY_STATUS(read_message(message));
      }
    }
    return spoken_.messages.empty() ? Status(complaint("holds no messages")) : Status{};
  }

  Status read_message(const Json& message) {
    const auto text = [&](const char* key) -> const std::string* {
      const auto found = message.is_object() ? message.find(key) : message.end();
      if (!message.is_object() || found == message.end()) return nullptr;
      return found->get_ptr<const std::string*>();
    };
    const std::string* const role = text("role");
    const std::string* const content = text("content");
    const auto id = message.is_object() ? message.find("id") : message.end();
    if (!role || !content || id == message.end() || !id->is_number_integer()) {
      return complaint(fmt::format("message {} lacks a role, id or content", spoken_.messages.size()));
    }
    if (*role != "user" && *role != "assistant") {
      return complaint(
          fmt::format("message {} is neither of the user nor of the assistant", spoken_.messages.size()));
    }
    if (const std::string* const anchor = text("time_anchor")) {
      day_ = day_of_anchor(*anchor);
      if (day_.empty()) return complaint(fmt::format("'{}' is no time anchor", *anchor));
    }
    const int document = builder_.add_message(without_marker(*content));
    if (!documents_.emplace(id->get<int64_t>(), document).second) {
      return complaint(fmt::format("two messages are number {}", id->get<int64_t>()));
    }
    spoken_.messages.push_back({document, *role, *role == "user" ? speaker_ : "", day_});
    return {};
  }

  Status read_questions(const Json& questions) {
    if (!questions.is_object()) return complaint("is not an object of abilities");
    const int conversation = static_cast<int>(builder_.dataset().conversations.size()) - 1;
    const std::string& name = builder_.dataset().conversations.back().name;
    for (const auto& [ability, list] : questions.items()) {
      if (!list.is_array()) return complaint(fmt::format("'{}' is not a list of questions", ability));
      for (size_t i = 0; i < list.size(); ++i) {
        const auto text = list[i].is_object() ? list[i].find("question") : list[i].end();
        if (!list[i].is_object() || text == list[i].end() || !text->is_string()) {
          return complaint(fmt::format("a question of '{}' has no text", ability));
        }
        Question question;
        question.id = fmt::format("{}/{}", name, i + 1);
        question.group = ability;
        question.text = text->get<std::string>();
        question.conversation = conversation;
        RH_TRY_STATUS(read_evidence(list[i], question));
        // Nothing to be found: the answer is that it was never said.
        if (!question.gold.empty()) builder_.add_question(std::move(question));
      }
    }
    return {};
  }

  // A message named twice is one piece of evidence, however the lists of numbers are nested.
  Status read_evidence(const Json& question, Question& out) {
    const auto sources = question.find("source_chat_ids");
    if (sources == question.end() || sources->is_null()) return {};
    std::set<int64_t> ids;
    const Json flat = sources->flatten();
    for (const auto& [path, value] : flat.items()) {
      if (value.is_number_integer()) {
        ids.insert(value.get<int64_t>());
      } else if (!value.is_null() && !value.empty()) {
        return complaint(fmt::format("the evidence of '{}' is not a list of messages", out.text));
      }
    }
    for (const int64_t id : ids) {
      const auto document = documents_.find(id);
      if (document == documents_.end()) {
        return complaint(fmt::format("there is no message {}, evidence of '{}'", id, out.text));
      }
      out.gold.push_back({{Span{document->second}}});
    }
    return {};
  }

  const ReaderInput& input_;
  DatasetBuilder& builder_;
  SpokenConversation spoken_;
  std::map<int64_t, int> documents_;  // by the message's number
  std::string day_;
  std::string speaker_;
  std::string where_;
};

}  // namespace

Status read_beam(const ReaderInput& input, DatasetBuilder& builder) {
  const int first = input.options.integer("first", 1, 1, kMostConversations);
  const int last = input.options.integer("last", 20, first, kMostConversations);
  BeamReader reader(input, builder);
  for (int number = first; number <= last; ++number) RH_TRY_STATUS(reader.read(number));
  return {};
}

}  // namespace rhapsode::eval

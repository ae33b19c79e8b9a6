// Facts out of a message by the model itself, which answers under a JSON schema.
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "rhapsode/facts.h"
#include "text/text_scan.h"

namespace rhapsode {
namespace {

using Json = nlohmann::json;

constexpr int kMostTokens = 256;
constexpr size_t kMostMessageBytes = 4000;

constexpr char kInstruction[] =
    "You note down lasting facts that the speaker states about people, things and preferences. For each: "
    "subject "
    "(a name), attribute (a short noun), value (words copied from the message), action (stated, corrected or "
    "retracted). Questions, wishes and small talk hold no facts: reply with an empty list.";

constexpr char kSchema[] = R"({"type":"object","properties":{"facts":{"type":"array","maxItems":6,
"items":{"type":"object","properties":{"subject":{"type":"string","maxLength":60},
"attribute":{"type":"string","maxLength":60},"value":{"type":"string","maxLength":120},
"action":{"enum":["stated","corrected","retracted"]}},
"required":["subject","attribute","value","action"],"additionalProperties":false}}},
"required":["facts"],"additionalProperties":false})";

std::string text_of(const Json& fact, const char* key) {
  const auto at = fact.find(key);
  return at != fact.end() && at->is_string() ? text::one_line(at->get<std::string>()) : std::string();
}

FactStatement statement_of(const Json& fact, const HeardMessage& message) {
  FactStatement statement;
  statement.subject = text_of(fact, "subject");
  const std::string lower = text::ascii_lower(statement.subject);
  if (lower == "i" || lower == "me" || lower == "speaker" || lower == "user") {
    statement.subject = message.speaker.empty() ? message.user : message.speaker;
  }
  statement.attribute = text_of(fact, "attribute");
  statement.value = text_of(fact, "value");
  const std::string action = text_of(fact, "action");
  statement.action = action == "corrected"   ? FactAction::kCorrected
                     : action == "retracted" ? FactAction::kRetracted
                                             : FactAction::kStated;
  statement.user = message.user;
  statement.message = message.id;
  statement.speaker = message.speaker;
  statement.told = message.stamp;
  statement.quote = text::one_line(message.text.substr(0, kMostMessageBytes));
  statement.made_by = "model";
  return statement;
}

}  // namespace

Result<FactReading> ask_model_for_facts(Engine& engine, const HeardMessage& message) {
  Request request;
  const std::string who = message.speaker.empty() ? "the user" : message.speaker;
  request.messages = {
      {"system", kInstruction},
      {"user", fmt::format("Speaker: {}\nMessage: {}", who,
                           message.text.substr(0, text::character_floor(message.text, kMostMessageBytes)))}};
  request.max_tokens = kMostTokens;
  request.sampling.json_schema = kSchema;
  RH_TRY(const Response response, engine.run(std::move(request)));
  FactReading reading;
  reading.prompt_tokens = response.usage.prompt_tokens;
  reading.generated_tokens = response.usage.generated_tokens;
  // An answer that was cut short is no JSON: then nothing was found.
  const Json json = Json::parse(response.text, nullptr, false);
  if (json.is_discarded() || !json.is_object() || !json.contains("facts") || !json["facts"].is_array()) {
    return reading;
  }
  const std::string said = text::ascii_lower(message.text);
  for (const Json& fact : json["facts"]) {
    FactStatement statement = statement_of(fact, message);
    const bool grounded =
        !statement.value.empty() && said.find(text::ascii_lower(statement.value)) != std::string::npos;
    if (!grounded || statement.subject.empty() || statement.attribute.empty()) continue;
    if (statement.action == FactAction::kRetracted) statement.value.clear();
    reading.statements.push_back(std::move(statement));
  }
  return reading;
}

}  // namespace rhapsode

// Messages of a conversation as tokens, and stretches of it as text.
#include <algorithm>
#include <optional>

#include "base/iso_time.h"
#include "base/sha256.h"
#include "engine/conversation_impl.h"
#include "recall/links.h"
#include "text/search_terms.h"

namespace rhapsode {

namespace {

// Whatever changes how passages are made of conversations.
constexpr std::string_view kRecipe = "conversation 2";

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

std::string label_of(const store::MessageRow& message) {
  return message.speaker.empty() ? message.role : message.speaker;
}

// The bytes of tokens [begin, end) of a message's text. A character belongs to where it begins.
std::string text_between(const store::MessageRow& message, int begin, int end,
                         const text::Tokenizer& tokenizer) {
  if (begin <= message.body_begin && end >= message.body_end) return message.text;
  if (begin <= message.body_begin && end > message.body_begin) {
    // Who said it and when stand among the tokens, but not in the text.
    const std::string later = text_between(message, end, message.body_end, tokenizer);
    if (message.text.ends_with(later)) return message.text.substr(0, message.text.size() - later.size());
  }
  const auto bytes = [&](int from, int to) {
    return tokenizer.decode(std::span(message.tokens).subspan(from, to - from));
  };
  begin = std::max(begin, message.body_begin);
  end = std::min(end, message.body_end);
  if (begin >= end) return "";
  std::string text = bytes(begin, end);
  if (begin > message.body_begin) {
    const size_t first =
        static_cast<size_t>(std::find_if_not(text.begin(), text.end(), is_continuation) - text.begin());
    text.erase(0, first);
  }
  for (int next = end; next < message.body_end; ++next) {
    const std::string piece = bytes(next, next + 1);
    const auto own = std::find_if_not(piece.begin(), piece.end(), is_continuation);
    text.append(piece.begin(), own);
    if (own != piece.end()) break;
  }
  return text;
}

// Out of what stands of the message; whether anything stood there.
bool leave_out(std::span<const OutdatedWords> outdated, const store::MessageRow& message, std::string& text) {
  constexpr std::string_view kEnds = ".!, ";
  bool any = false;
  for (const OutdatedWords& words : outdated) {
    if (message.role != "user" || message.speaker != words.speaker) continue;
    if (!words.told.empty() && words.told != message.said) continue;
    const size_t at = text.find(words.quote);
    if (at == std::string::npos) continue;
    size_t end = at + words.quote.size();
    while (end < text.size() && kEnds.find(text[end]) != std::string_view::npos) ++end;
    text.erase(at, end - at);
    any = true;
  }
  return any;
}

// "2026-11-30", or the time as it stands where that is shorter.
std::string day_of(const std::string& said) {
  return said.substr(0, 10);
}

}  // namespace

Result<store::MessageRow> Conversation::Impl::message(const std::string& role, const std::string& text,
                                                      const std::string& speaker,
                                                      const std::string& time) const {
  const bool user = role == "user";
  if (!user && role != "assistant") {
    return make_error(ErrorKind::kInvalidArgument,
                      "a message of a conversation is of the user or the assistant, not of '{}'", role);
  }
  store::MessageRow made;
  made.number = next_number;
  made.turn = next_turn;
  made.role = role;
  made.speaker = speaker;
  made.text = text;
  made.said = time;
  made.first_token = tail.end_token();
  if (time.empty()) {
    made.said = format_iso_time(wall_clock_ms());
  } else {
    RH_TRY_STATUS(parse_iso_time(time));
  }
  std::string shown = text;
  if (user && (!speaker.empty() || !time.empty())) {
    const std::string comma = speaker.empty() || time.empty() ? "" : ", ";
    shown = fmt::format("[{}{}{}] {}", speaker, comma, time, text);
  }
  if (user && !shown.empty()) shown = recall::PromptFrame::question_text(shown);
  RH_TRY(made.tokens, memory.frame->message(shown, user ? frame.before_answer : frame.behind_answer));
  RH_TRY(const std::vector<int32_t> body, memory.frame->message(shown, {}));
  made.body_end = static_cast<int>(std::min(body.size(), made.tokens.size()));
  return made;
}

std::pair<int64_t, int64_t> messages_of(const ConversationPiece& piece) {
  std::optional<std::pair<int64_t, int64_t>> words, anything;
  for (const store::MessageRow& message : piece.messages) {
    const auto reaches = [&](int64_t begin, int64_t end) {
      return begin < piece.end && end > piece.begin && begin < end;
    };
    const auto extend = [&](auto& range) {
      if (!range) range.emplace(message.number, message.number);
      range->second = message.number;
    };
    if (reaches(message.first_token, message.end_token())) extend(anything);
    const int64_t body = message.first_token;
    if (reaches(body + message.body_begin, body + message.body_end)) extend(words);
  }
  return words ? *words : anything.value_or(std::pair<int64_t, int64_t>{0, 0});
}

Transcript transcript_of(const ConversationPiece& piece, const text::Tokenizer& tokenizer,
                         std::span<const OutdatedWords> outdated) {
  Transcript transcript;
  std::vector<std::string> speakers;
  std::string last_said;
  for (const store::MessageRow& message : piece.messages) {
    if (message.end_token() <= piece.begin || message.first_token >= piece.end) continue;
    const auto from = static_cast<int>(std::max<int64_t>(0, piece.begin - message.first_token));
    const auto to = static_cast<int>(std::min(message.end_token(), piece.end) - message.first_token);
    if (transcript.said.empty()) transcript.said = message.said;
    last_said = message.said;
    std::string text = text_between(message, from, to, tokenizer);
    if (leave_out(outdated, message, text)) transcript.shortened = true;
    if (text.empty()) continue;
    const std::string label = label_of(message);
    transcript.text += fmt::format("{}{}: {}", transcript.text.empty() ? "" : "\n", label, text);
    const bool listed = std::find(speakers.begin(), speakers.end(), label) != speakers.end();
    if (message.role == "user" && !listed) speakers.push_back(label);
  }
  const std::string first_day = day_of(transcript.said);
  const std::string last_day = day_of(last_said);
  transcript.speakers = fmt::format("{}", fmt::join(speakers, ", "));
  transcript.header = fmt::format("[{}{}{}{}]", transcript.speakers, speakers.empty() ? "" : ", ", first_day,
                                  first_day == last_day ? "" : " to " + last_day);
  return transcript;
}

std::vector<OutdatedWords> outdated_words(std::span<const store::FactRow> facts) {
  std::vector<OutdatedWords> outdated;
  const auto same = [](const OutdatedWords& words, const store::FactEvent& event) {
    return words.speaker == event.speaker && words.told == event.told && words.quote == event.statement;
  };
  for (const store::FactRow& row : facts) {
    if (row.current || row.event.statement.empty()) continue;
    outdated.push_back({row.event.speaker, row.event.told, row.event.statement});
  }
  for (const store::FactRow& row : facts) {
    if (row.current) std::erase_if(outdated, [&](const auto& words) { return same(words, row.event); });
  }
  return outdated;
}

Result<PassageDraft> draft_passage(const recall::PromptFrame& frame, const ConversationPiece& piece,
                                   const Transcript& transcript) {
  PassageDraft draft;
  const std::string& text = transcript.text;
  RH_TRY(draft.alone, frame.passage(transcript.header, text));
  // Never one content for two conversations, unless one is a fork of the other.
  draft.key.recipe = fmt::format("{}; {}/{}; vocabulary {}", kRecipe, piece.conversation.id, piece.number,
                                 piece.conversation.vocabulary);
  RH_TRY(draft.key.sha256, sha256(std::as_bytes(std::span(text.data(), text.size()))));
  store::PassagePlace place;
  place.end = text.size();
  place.header = transcript.header;
  place.tokens = static_cast<int>(draft.alone.tokens.size());
  place.terms = text::search_terms(transcript.header + "\n" + text);
  const auto text_begin = draft.alone.tokens.begin() + draft.alone.header_tokens;
  const std::set<int32_t> unique(text_begin, text_begin + draft.alone.text_tokens);
  place.unique_tokens.assign(unique.begin(), unique.end());
  draft.content.text = text;
  draft.content.kind = store::kConversationKind;
  draft.content.passages.push_back(std::move(place));
  recall::add_mentions(draft.content);
  draft.source.name = store::passage_source(piece.conversation.name, piece.number);
  draft.source.kind = store::kConversationKind;
  draft.source.title = piece.conversation.name;
  draft.source.author = transcript.speakers;
  draft.source.event_time = transcript.said;
  draft.source.added = format_iso_time(wall_clock_ms());
  draft.source.bytes = text.size();
  return draft;
}

Result<DraftCodes> encode_draft(recall::Encoder& encoder, const index::Whitening& whitening,
                                const PassageDraft& draft) {
  RH_TRY(const std::vector<recall::Encoded> encoded,
         encoder.encode(std::span(&draft.alone, 1), /*index_only=*/true));
  DraftCodes made;
  made.chunks = encoded.front().chunks;
  made.codes.resize(made.chunks * whitening.code_bytes());
  whitening.encode(encoded.front().chunk_states, made.codes);
  return made;
}

}  // namespace rhapsode

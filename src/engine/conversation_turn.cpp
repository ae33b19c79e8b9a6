// A turn of a conversation: the message, the answer, the end of the turn; and messages said elsewhere.
#include "engine/conversation_turn.h"

#include <algorithm>

#include "base/iso_time.h"
#include "base/text_check.h"

namespace rhapsode {

namespace {

constexpr size_t kMostSpeakerBytes = 100;

Status check_message(const std::string& text, const std::string& speaker) {
  if (!is_utf8(text)) {
    return make_error(ErrorKind::kInvalidArgument, "the message is not UTF-8: '{}'", shown(text));
  }
  const bool controls =
      std::any_of(speaker.begin(), speaker.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  if (speaker.size() > kMostSpeakerBytes || controls || !is_utf8(speaker)) {
    return make_error(ErrorKind::kInvalidArgument,
                      "'{}' is no name of a speaker: up to {} bytes of text on one line", shown(speaker),
                      kMostSpeakerBytes);
  }
  return {};
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

Status Conversation::Impl::say_row(store::MessageRow message) {
  RH_TRY_STATUS(log.append(row.id, std::span(&message, 1)));
  unanswered = message.role == "user";
  next_number = message.number + 1;
  next_turn = message.turn + (unanswered ? 0 : 1);
  recent.push_back(std::move(message));
  return {};
}

Status Conversation::Impl::end_open_turn(Reply& reply) {
  if (!unanswered) return {};
  RH_TRY(store::MessageRow nothing, message("assistant", "", "", ""));
  const std::vector<int32_t> tokens = nothing.tokens;
  RH_TRY_STATUS(say_row(std::move(nothing)));
  return take_in_steps(tokens, Border::kTurn, reply);
}

Status ConversationTurn::check() const {
  RH_TRY_STATUS(check_message(options_.text, options_.speaker));
  if (is_blank(options_.text)) return make_error(ErrorKind::kInvalidArgument, "the message is empty");
  if (options_.budget_tokens < 1 || options_.most_passages < 0 || options_.max_tokens < 1) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "{} tokens of {} recalled passages and {} for the answer have no meaning: give at least "
        "1 token each, and 0 passages to recall nothing",
        options_.budget_tokens, options_.most_passages, options_.max_tokens);
  }
  const int64_t needed = static_cast<int64_t>(memory_.frame->prefix().size()) +
                         (options_.most_passages > 0 ? options_.budget_tokens : 0) +
                         conversation_.options.live_budget_tokens + conversation_.aim_tokens() +
                         options_.max_tokens;
  if (needed <= memory_.engine->context_tokens) return {};
  return make_error(
      ErrorKind::kTooLarge,
      "a live budget of {} tokens, {} of recalled passages, a step of {} and {} for the answer do "
      "not fit the context of {}: take a smaller --live-budget or --budget, or raise --context",
      conversation_.options.live_budget_tokens, options_.budget_tokens, conversation_.aim_tokens(),
      options_.max_tokens, memory_.engine->context_tokens);
}

Result<Reply> ConversationTurn::say() {
  RH_TRY_STATUS(check());
  RH_TRY_STATUS(conversation_.bring_live(reply_.usage));
  conversation_.stale = true;  // until the turn is whole
  RH_TRY_STATUS(conversation_.end_open_turn(reply_));
  RH_TRY(store::MessageRow message,
         conversation_.message("user", options_.text, options_.speaker, options_.time));
  const std::vector<int32_t> tokens = message.tokens;
  reply_.turn = message.turn;
  reply_.message = message.number + 1;
  reply_.usage.message_tokens = static_cast<int>(tokens.size());
  RH_TRY_STATUS(conversation_.say_row(std::move(message)));
  // A message larger than a step is read in steps; what is recalled stands before the last one.
  const auto step = static_cast<size_t>(conversation_.aim_tokens());
  std::span<const int32_t> rest = tokens;
  while (rest.size() > step) {
    RH_TRY_STATUS(conversation_.make_room(static_cast<int>(step), 0, reply_));
    RH_TRY_STATUS(conversation_.take_in(rest.first(step), {}));
    RH_TRY_STATUS(conversation_.close_full(Conversation::Impl::Border::kNone, reply_.usage));
    rest = rest.subspan(step);
  }
  reply_.usage.evaluated_tokens += static_cast<int>(tokens.size());
  const int reserve = std::min(options_.max_tokens, conversation_.options.live_budget_tokens / 4);
  RH_TRY_STATUS(conversation_.make_room(static_cast<int>(rest.size()), reserve, reply_));
  RH_TRY_STATUS(recall());
  RH_TRY_STATUS(answer(rest));
  reply_.usage.live_tokens = conversation_.live_tokens();
  reply_.timing.total_ms = ms_between(begin_ns_, now_ns());
  conversation_.stale = false;
  return std::move(reply_);
}

Status ConversationTurn::answer(std::span<const int32_t> tokens) {
  Request request;
  request.max_tokens = options_.max_tokens;
  request.sampling = options_.sampling;
  request.on_text = [this](std::string_view text) {
    if (first_text_ns_ == 0) first_text_ns_ = now_ns();
    return !options_.on_text || options_.on_text(text);
  };
  RH_TRY(auto state, conversation_.start_state(view_, std::move(request), tokens));
  std::vector<int32_t> prompt = std::move(state->prompt);
  RH_TRY(Generation generation, memory_.engine->start(state, std::move(prompt)));
  RH_TRY(const Response response, generation.wait());
  reply_.text = response.text;
  reply_.finish = response.finish;
  reply_.usage.generated_tokens = response.usage.generated_tokens;
  reply_.timing.prefill_ms = response.timing.prefill_ms;
  reply_.timing.decode_tokens_per_s = response.timing.decode_tokens_per_s;
  if (first_text_ns_) reply_.timing.ttft_ms = ms_between(begin_ns_, first_text_ns_);
  std::vector<int32_t> rows(tokens.begin(), tokens.end());
  for (const GeneratedToken& generated : response.tokens) rows.push_back(generated.token);
  if (response.finish == FinishReason::kEnd) rows.pop_back();  // the template ends the turn itself
  state->kept_tokens = std::min(state->kept_tokens, static_cast<int>(rows.size()));
  conversation_.absorb(*state, rows, view_);
  const int kept = state->kept_tokens;

  RH_TRY(store::MessageRow message, conversation_.message("assistant", "", "", ""));
  message.text = reply_.text;
  message.first_token = conversation_.recent.back().end_token();
  const auto body = std::span<const int32_t>(rows).subspan(tokens.size());
  message.tokens.insert(message.tokens.begin(), body.begin(), body.end());
  message.body_end = static_cast<int>(body.size());
  message.saw.assign(conversation_.tail.saw.begin(), conversation_.tail.saw.end());
  RH_TRY_STATUS(conversation_.say_row(std::move(message)));
  // What the model has not read yet: its own last token, what a cancelled pass left, and the end of the turn.
  std::vector<int32_t> left(rows.begin() + kept, rows.end());
  left.insert(left.end(), conversation_.behind_answer.begin(), conversation_.behind_answer.end());
  reply_.usage.evaluated_tokens += static_cast<int>(conversation_.behind_answer.size());
  RH_TRY_STATUS(conversation_.take_in(left, {}));
  RH_TRY_STATUS(conversation_.close_full(Conversation::Impl::Border::kTurn, reply_.usage));
  while (!conversation_.closed.empty() &&
         conversation_.live_tokens() > conversation_.options.live_budget_tokens) {
    conversation_.spill_front(reply_);
  }
  return {};
}

// Everything in one request that leaves nothing behind: the message, what is recalled, the answer.
Result<AnswerScore> ConversationTurn::score(const std::string& answer, int most_tokens) {
  RH_TRY_STATUS(check());
  RH_TRY_STATUS(conversation_.bring_live(reply_.usage));
  AnswerScore score;
  RH_TRY(score.tokens, memory_.passes->tokenizer().encode(answer, {}));
  if (score.tokens.size() > static_cast<size_t>(most_tokens)) score.tokens.resize(most_tokens);
  if (score.tokens.empty()) return score;
  RH_TRY(const store::MessageRow message,
         conversation_.message("user", options_.text, options_.speaker, options_.time));
  RH_TRY_STATUS(recall());
  std::vector<int32_t> rows;
  if (conversation_.unanswered) rows = conversation_.behind_answer;
  rows.insert(rows.end(), message.tokens.begin(), message.tokens.end());
  rows.insert(rows.end(), score.tokens.begin(), score.tokens.end());
  Request request;
  request.max_tokens = 0;
  RH_TRY(auto state, conversation_.start_state(view_, std::move(request), rows));
  state->keep_pages = false;
  state->scored_tokens = static_cast<int>(score.tokens.size());
  std::vector<int32_t> prompt = std::move(state->prompt);
  RH_TRY(Generation generation, memory_.engine->start(state, std::move(prompt)));
  RH_TRY(const Response response, generation.wait());
  if (response.finish == FinishReason::kCancelled) {
    return make_error(ErrorKind::kCancelled, "scoring was cancelled");
  }
  score.logits = std::move(state->prompt_logits);
  score.logits.resize(score.tokens.size());
  return score;
}

Result<Reply> Conversation::say(const SayOptions& options) {
  const std::lock_guard lock(impl_->memory.gate);
  return ConversationTurn(*impl_, options).say();
}

Result<AnswerScore> Conversation::score(const SayOptions& options, const std::string& answer,
                                        int most_tokens) {
  const std::lock_guard lock(impl_->memory.gate);
  return ConversationTurn(*impl_, options).score(answer, most_tokens);
}

Result<Reply> Conversation::note(const NotedMessage& noted) {
  const std::lock_guard lock(impl_->memory.gate);
  Impl& conversation = *impl_;
  const int64_t begin = now_ns();
  RH_TRY_STATUS(check_message(noted.text, noted.speaker));
  Reply reply;
  RH_TRY_STATUS(conversation.bring_live(reply.usage));
  conversation.stale = true;
  const bool user = noted.role == "user";
  if (user) RH_TRY_STATUS(conversation.end_open_turn(reply));
  if (!user && !conversation.unanswered) {
    // An answer to nothing: its turn begins with an empty question.
    RH_TRY(store::MessageRow nothing, conversation.message("user", "", "", ""));
    const std::vector<int32_t> tokens = nothing.tokens;
    RH_TRY_STATUS(conversation.say_row(std::move(nothing)));
    RH_TRY_STATUS(conversation.take_in_steps(tokens, Impl::Border::kMessage, reply));
  }
  RH_TRY(store::MessageRow message, conversation.message(noted.role, noted.text, noted.speaker, noted.time));
  const std::vector<int32_t> tokens = message.tokens;
  reply.turn = message.turn;
  reply.message = message.number;
  reply.usage.message_tokens = static_cast<int>(tokens.size());
  RH_TRY_STATUS(conversation.say_row(std::move(message)));
  const auto border = user ? Impl::Border::kMessage : Impl::Border::kTurn;
  RH_TRY_STATUS(conversation.take_in_steps(tokens, border, reply));
  reply.usage.live_tokens = conversation.live_tokens();
  reply.timing.total_ms = ms_between(begin, now_ns());
  conversation.stale = false;
  return reply;
}

}  // namespace rhapsode

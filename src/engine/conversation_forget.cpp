// What conversations made of a source: listed, and erased when that is asked for.
#include <algorithm>

#include "engine/conversation_impl.h"

namespace rhapsode {

namespace {

// The message as it will be: without its text, ending its turn.
void blank(store::MessageRow& message) {
  message.text.clear();
  message.tokens.erase(message.tokens.begin() + message.body_begin,
                       message.tokens.begin() + message.body_end);
  message.body_end = message.body_begin;
}

// The same range of tokens when `removed` = [begin, end) is gone.
int64_t moved(int64_t token, int64_t begin, int64_t end) {
  return token - std::clamp<int64_t>(token - begin, 0, end - begin);
}

}  // namespace

Result<std::vector<DerivedAnswer>> Memory::derived(const ForgetOptions& options) {
  const engine::BesideAnswers inside(impl_->gate);
  RH_TRY_STATUS(impl_->catalog->refresh());
  RH_TRY(const std::vector<std::string> names, impl_->names_of(options));
  return impl_->derived_answers(names);
}

Result<std::vector<DerivedAnswer>> Memory::Impl::derived_answers(
    const std::vector<std::string>& names) const {
  RH_TRY(const auto messages, store::ConversationLog(*catalog).derived(names));
  std::vector<DerivedAnswer> derived;
  for (const store::DerivedMessage& message : messages) {
    derived.push_back({message.conversation, message.number, message.said, message.text});
  }
  return derived;
}

// One answer: first the passages that hold a part of it are made without it, then it goes itself, so that a
// kill in between leaves it on the list.
Status Memory::Impl::erase_derived(const DerivedAnswer& answer) {
  store::ConversationLog log(*catalog);
  RH_TRY(const std::optional<store::ConversationRow> row, log.find(answer.conversation));
  if (!row) return {};
  RH_TRY(std::vector<store::MessageRow> messages, log.messages(row->id));
  const auto found = std::find_if(messages.begin(), messages.end(),
                                  [&](const auto& message) { return message.number == answer.message; });
  if (found == messages.end()) return {};
  const int64_t begin = found->first_token + found->body_begin;
  const int64_t end = found->first_token + found->body_end;
  blank(*found);
  for (auto later = found + 1; later != messages.end(); ++later) later->first_token -= end - begin;
  RH_TRY(const std::vector<store::ConversationPassage> passages, log.passages(row->id));
  for (const store::ConversationPassage& passage : passages) {
    const int64_t passage_end = passage.first_token + passage.tokens;
    if (passage_end <= begin || passage.first_token >= end) continue;
    const ConversationPiece piece{*row, passage.number, moved(passage.first_token, begin, end),
                                  moved(passage_end, begin, end), messages};
    const Transcript transcript = transcript_of(piece, passes->tokenizer());
    tier->drop(passage.passage);
    if (transcript.text.empty()) {
      RH_TRY_STATUS(log.replace_passage(*row, passage.number, 0));
      continue;
    }
    RH_TRY(const PassageDraft draft, draft_passage(*frame, piece, transcript));
    RH_TRY(const DraftCodes made, encode_draft(*encoder, *whitening, draft));
    RH_TRY(const store::ContentInfo info, catalog->begin_content(draft.key, draft.content));
    const store::EncodedPassage encoded{0, made.chunks, whitening->id(), made.codes, {}, {}};
    RH_TRY_STATUS(catalog->put_encoded(info.id, std::span(&encoded, 1)));
    RH_TRY_STATUS(log.replace_passage(*row, passage.number, info.id));
  }
  return log.blank(row->id, answer.message, found->tokens);
}

}  // namespace rhapsode

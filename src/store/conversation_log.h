// Conversations in a catalog: what was said, which passages of the memory it has become, and what their KV
// saw.
//
// Messages are kept as they were said, one commit each time. A stretch that has been closed is an ordinary
// passage (its own content and source, kind "conversation"), whose KV as it was computed lies under a
// fingerprint of its own; beside it stands the list of contents that were in view meanwhile. When a content
// leaves the memory, that KV of everything that saw it, directly or through others, is dropped in the same
// commit (CatalogState::drop_views_of). Ownership: refers to its catalog. Threads and errors: the catalog's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/catalog.h"
#include "store/conversation_types.h"

namespace rhapsode::store {

class ConversationLog {
 public:
  explicit ConversationLog(Catalog& catalog) : state_(*catalog.state_) {}

  Result<std::vector<ConversationRow>> list() const;  // by name
  Result<std::optional<ConversationRow>> find(std::string_view name) const;
  Result<ConversationRow> create(std::string_view name, std::string_view vocabulary);
  // A second conversation with the same messages and passages: their texts, codes and KV are shared.
  Result<ConversationRow> fork(const ConversationRow& from, std::string_view name);

  // In one commit.
  Status append(int64_t conversation, std::span<const MessageRow> messages);
  // Messages with tokens in [from_token, to_token), in order.
  Result<std::vector<MessageRow>> messages(int64_t conversation, int64_t from_token = 0,
                                           int64_t to_token = INT64_MAX) const;
  // Another content takes the place of the conversation's passage `number`, or none (0): the one that was
  // there goes when nothing else holds it, and Catalog::erase() removes its last bytes. `content` is begun
  // and encoded.
  Status replace_passage(const ConversationRow& conversation, int64_t number, int64_t content);
  // The message's text goes, and its tokens but `left` (what ends its turn); what stands behind moves up. In
  // one commit.
  Status blank(int64_t conversation, int64_t number, std::span<const int32_t> left);

  // Says what KV of a passage is about to be stored under spill.fingerprint, and which contents were in view
  // while it was computed: first, so that there is no such KV of which that is not known.
  Status set_spill(int64_t passage, const Spill& spill, std::span<const int64_t> saw);
  // The passage, published before, is the conversation's next one.
  Status add_passage(int64_t conversation, const ConversationPassage& passage);
  Result<std::vector<ConversationPassage>> passages(int64_t conversation) const;
  // Nothing when the passage has no KV as it was computed, or that was dropped.
  Result<std::optional<Spill>> spill(int64_t passage) const;
  // True when another conversation has passages.
  Result<bool> has_others(int64_t conversation) const;
  // Of the contents, those that the memory still holds.
  Result<std::vector<int64_t>> known_contents(std::span<const int64_t> contents) const;

  // What assistants said with one of the sources (exact names) in view, in conversations that are not of
  // these sources themselves.
  Result<std::vector<DerivedMessage>> derived(std::span<const std::string> sources) const;

 private:
  CatalogState& state_;
};

}  // namespace rhapsode::store

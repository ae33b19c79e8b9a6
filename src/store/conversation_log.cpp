#include "store/conversation_log.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/iso_time.h"
#include "store/catalog_schema.h"
#include "store/catalog_state.h"

namespace rhapsode::store {
namespace {

static_assert(std::endian::native == std::endian::little, "token ids are stored little-endian");

constexpr char kConversationColumns[] =
    "SELECT c.id, c.name, c.forked_from, c.created, c.vocabulary, "
    "(SELECT count(*) FROM messages m WHERE m.conversation = c.id), "
    "(SELECT coalesce(max(m.end_token), 0) FROM messages m WHERE m.conversation = c.id), "
    "(SELECT coalesce(sum(length(CAST(m.text AS BLOB))), 0) FROM messages m WHERE m.conversation = c.id), "
    "(SELECT count(*) FROM conversation_passages p WHERE p.conversation = c.id), c.edits FROM "
    "conversations c";

// Everything that saw ?1, directly or through what saw it, and ?1 itself.
constexpr char kReached[] =
    "WITH RECURSIVE reached(content) AS (SELECT value FROM json_each(?1) UNION SELECT p.content FROM "
    "reached r JOIN spill_views v ON v.content = r.content JOIN passages p ON p.id = v.passage) ";

ConversationRow conversation_row(const Statement& row) {
  return {row.integer(0),           std::string(row.text(1)),
          std::string(row.text(2)), std::string(row.text(3)),
          std::string(row.text(4)), row.integer(5),
          row.integer(6),           row.integer(7),
          row.integer(8),           row.integer(9)};
}

// A catalog of an older version that is only read has none.
Result<bool> has_conversations(Database& database) {
  RH_TRY(const int version, schema_version(database));
  return version >= kConversationsSince;
}

std::span<const std::byte> bytes_of(const std::vector<int32_t>& tokens) {
  return std::as_bytes(std::span(tokens));
}

Result<std::vector<int32_t>> tokens_of(const Database& database, std::span<const std::byte> bytes) {
  if (bytes.size() % sizeof(int32_t) != 0) {
    return make_error(ErrorKind::kCorrupt, "{}: the tokens of a message are {} bytes, no whole number of ids",
                      database.path().string(), bytes.size());
  }
  std::vector<int32_t> tokens(bytes.size() / sizeof(int32_t));
  if (!bytes.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  return tokens;
}

Result<MessageRow> message_row(const Database& database, const Statement& row) {
  MessageRow message;
  message.number = row.integer(0);
  message.turn = row.integer(1);
  message.role = row.text(2);
  message.speaker = row.text(3);
  message.said = row.text(4);
  message.text = row.text(5);
  message.first_token = row.integer(6);
  RH_TRY(message.tokens, tokens_of(database, row.blob(7)));
  message.body_begin = row.small(8);
  message.body_end = row.small(9);
  message.forgotten = row.small(10) != 0;
  const auto count = static_cast<int>(message.tokens.size());
  if (message.body_begin < 0 || message.body_begin > message.body_end || message.body_end > count) {
    return make_error(ErrorKind::kCorrupt, "{}: the text of message {} is tokens {} to {} of {}",
                      database.path().string(), message.number, message.body_begin, message.body_end, count);
  }
  return message;
}

Status insert_message(Database& database, int64_t conversation, const MessageRow& message) {
  RH_TRY(Statement insert,
         database.prepare("INSERT INTO messages(conversation, number, turn, role, speaker, said, text, "
                          "first_token, end_token, tokens, body_begin, body_end, forgotten) "
                          "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)"));
  insert.bind(1, conversation).bind(2, message.number).bind(3, message.turn).bind(4, message.role);
  insert.bind(5, message.speaker).bind(6, message.said).bind(7, message.text).bind(8, message.first_token);
  insert.bind(9, message.end_token()).bind(10, bytes_of(message.tokens));
  insert.bind(11, int64_t{message.body_begin}).bind(12, int64_t{message.body_end});
  RH_TRY_STATUS(insert.run());
  const int64_t id = database.last_insert_id();
  for (const int64_t content : message.saw) {
    RH_TRY_STATUS(database.run(
        "INSERT INTO message_views(message, content) SELECT ?, id FROM contents WHERE id = ?", id, content));
  }
  return {};
}

Status insert_spill(CatalogState& state, int64_t passage, const Spill& spill, std::span<const int64_t> saw) {
  RH_TRY(const int64_t fingerprint, state.label(spill.fingerprint));
  RH_TRY(const int64_t base, state.label(spill.base));
  RH_TRY_STATUS(state.database->run("DELETE FROM spill_views WHERE passage = ?", passage));
  RH_TRY_STATUS(state.database->run("DELETE FROM spills WHERE passage = ?", passage));
  RH_TRY_STATUS(
      state.database->run("INSERT INTO spills(passage, fingerprint, base, first_position) VALUES(?, ?, ?, ?)",
                          passage, fingerprint, base, int64_t{spill.first_position}));
  for (const int64_t content : saw) {
    RH_TRY_STATUS(
        state.database->run("INSERT INTO spill_views(passage, content) VALUES(?, ?)", passage, content));
  }
  return {};
}

}  // namespace

std::string passage_source(std::string_view conversation, int64_t number) {
  return fmt::format("{}{}/{:07}", kConversationFolder, conversation, number);
}

Result<std::vector<ConversationRow>> ConversationLog::list() const {
  RH_TRY(const bool there, has_conversations(*state_.database));
  if (!there) return std::vector<ConversationRow>();
  RH_TRY(Statement rows, state_.database->prepare(std::string(kConversationColumns) + " ORDER BY c.name"));
  std::vector<ConversationRow> conversations;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return conversations;
    conversations.push_back(conversation_row(rows));
  }
}

Result<std::optional<ConversationRow>> ConversationLog::find(std::string_view name) const {
  RH_TRY(const bool there, has_conversations(*state_.database));
  if (!there) return std::optional<ConversationRow>();
  RH_TRY(Statement rows, state_.database->prepare(std::string(kConversationColumns) + " WHERE c.name = ?"));
  rows.bind(1, name);
  RH_TRY(const bool row, rows.step());
  if (!row) return std::optional<ConversationRow>();
  return std::optional<ConversationRow>(conversation_row(rows));
}

Result<ConversationRow> ConversationLog::create(std::string_view name, std::string_view vocabulary) {
  RH_TRY(WriteScope scope, WriteScope::begin(state_));
  const std::string now = format_iso_time(wall_clock_ms());
  RH_TRY_STATUS(state_.database->run(
      "INSERT INTO conversations(name, forked_from, created, vocabulary, edits) VALUES(?, '', ?, ?, 0)", name,
      now, vocabulary));
  RH_TRY_STATUS(scope.commit());
  RH_TRY(const std::optional<ConversationRow> made, find(name));
  if (made) return *made;
  return make_error(ErrorKind::kInternal, "{}: the conversation '{}' was not kept",
                    state_.database->path().string(), name);
}

Result<ConversationRow> ConversationLog::fork(const ConversationRow& from, std::string_view name) {
  Database& database = *state_.database;
  {
    RH_TRY(WriteScope scope, WriteScope::begin(state_));
    const std::string now = format_iso_time(wall_clock_ms());
    RH_TRY_STATUS(database.run(
        "INSERT INTO conversations(name, forked_from, created, vocabulary, edits) VALUES(?, ?, ?, ?, 0)",
        name, from.name, now, from.vocabulary));
    const int64_t id = database.last_insert_id();
    RH_TRY_STATUS(database.run(
        "INSERT INTO messages(conversation, number, turn, role, speaker, said, text, first_token, "
        "end_token, tokens, body_begin, body_end, forgotten) SELECT ?1, number, turn, role, speaker, said, "
        "text, first_token, end_token, tokens, body_begin, body_end, forgotten FROM messages WHERE "
        "conversation = ?2",
        id, from.id));
    RH_TRY_STATUS(database.run(
        "INSERT INTO message_views(message, content) SELECT n.id, v.content FROM messages n JOIN messages o "
        "ON o.conversation = ?2 AND o.number = n.number JOIN message_views v ON v.message = o.id WHERE "
        "n.conversation = ?1",
        id, from.id));
    RH_TRY_STATUS(database.run(
        "INSERT INTO conversation_passages(conversation, number, passage, first_token, tokens) SELECT ?1, "
        "number, passage, first_token, tokens FROM conversation_passages WHERE conversation = ?2",
        id, from.id));
    // Each passage under the new name: the same content, so nothing of it is copied.
    const std::string old_folder = fmt::format("{}{}/", kConversationFolder, from.name);
    const std::string new_folder = fmt::format("{}{}/", kConversationFolder, name);
    RH_TRY_STATUS(
        database.run("INSERT INTO sources(name) SELECT ?2 || substr(name, length(?1) + 1) FROM "
                     "sources WHERE substr(name, 1, length(?1)) = ?1",
                     old_folder, new_folder));
    RH_TRY_STATUS(database.run(
        "INSERT INTO versions(source, number, content, kind, title, author, tags, event_time, added, "
        "replaced, valid_from, valid_to, bytes) SELECT n.id, 1, v.content, v.kind, ?3, v.author, v.tags, "
        "v.event_time, v.added, '', v.valid_from, NULL, v.bytes FROM sources o JOIN sources n ON n.name = ?2 "
        "|| substr(o.name, length(?1) + 1) JOIN versions v ON v.source = o.id AND v.valid_to IS NULL WHERE "
        "substr(o.name, 1, length(?1)) = ?1",
        old_folder, new_folder, name));
    RH_TRY_STATUS(scope.commit());
  }
  RH_TRY(const std::optional<ConversationRow> made, find(name));
  if (made) return *made;
  return make_error(ErrorKind::kInternal, "{}: the conversation '{}' was not kept", database.path().string(),
                    name);
}

Status ConversationLog::append(int64_t conversation, std::span<const MessageRow> messages) {
  if (state_.options.read_only) {
    RH_TRY_STATUS(WriteScope::begin(state_));
  }
  // No passage changes: what is kept of the catalog's views stays good, so a turn costs the same in a large
  // memory.
  RH_TRY(Transaction transaction, Transaction::begin(*state_.database));
  for (const MessageRow& message : messages) {
    RH_TRY_STATUS(insert_message(*state_.database, conversation, message));
  }
  return transaction.commit();
}

Result<std::vector<MessageRow>> ConversationLog::messages(int64_t conversation, int64_t from_token,
                                                          int64_t to_token) const {
  RH_TRY(Statement rows,
         state_.database->prepare("SELECT number, turn, role, speaker, said, text, first_token, tokens, "
                                  "body_begin, body_end, forgotten FROM messages WHERE conversation = ? AND "
                                  "end_token > ? AND first_token < ? ORDER BY number"));
  rows.bind(1, conversation).bind(2, from_token).bind(3, to_token);
  std::vector<MessageRow> messages;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return messages;
    RH_TRY(MessageRow message, message_row(*state_.database, rows));
    messages.push_back(std::move(message));
  }
}

Status ConversationLog::replace_passage(const ConversationRow& conversation, int64_t number,
                                        int64_t content) {
  Database& database = *state_.database;
  ContentInfo info;
  if (content != 0) {
    RH_TRY(info, state_.content_info(content));
  }
  RH_TRY(WriteScope scope, WriteScope::begin(state_));
  const std::string name = passage_source(conversation.name, number);
  RH_TRY(const int64_t old,
         database.number("SELECT p.content FROM conversation_passages c JOIN passages p ON "
                         "p.id = c.passage WHERE c.conversation = ? AND c.number = ?",
                         conversation.id, number));
  if (old == 0 || old == content) return {};
  if (content == 0) {
    RH_TRY_STATUS(database.run("DELETE FROM conversation_passages WHERE conversation = ? AND number = ?",
                               conversation.id, number));
    RH_TRY_STATUS(
        database.run("DELETE FROM versions WHERE source = (SELECT id FROM sources WHERE name = ?)", name));
    RH_TRY_STATUS(database.run("DELETE FROM sources WHERE name = ?", name));
  } else {
    if (!info.complete) RH_TRY_STATUS(state_.complete_content(content));
    RH_TRY_STATUS(
        database.run("UPDATE conversation_passages SET passage = ? WHERE conversation = ? AND number "
                     "= ?",
                     info.passages.front(), conversation.id, number));
    RH_TRY_STATUS(
        database.run("UPDATE versions SET content = ? WHERE content = ? AND source = (SELECT id FROM "
                     "sources WHERE name = ?)",
                     content, old, name));
  }
  RH_TRY(const int64_t holders, database.number("SELECT count(*) FROM versions WHERE content = ?", old));
  Erased dropped;
  if (holders == 0) RH_TRY_STATUS(state_.drop_content(old, dropped));
  RH_TRY_STATUS(
      database.run("INSERT INTO counters(name, value) VALUES('erasing', 1) ON CONFLICT DO NOTHING"));
  return scope.commit();
}

Status ConversationLog::blank(int64_t conversation, int64_t number, std::span<const int32_t> left) {
  Database& database = *state_.database;
  RH_TRY(WriteScope scope, WriteScope::begin(state_));
  int64_t begin = 0;
  int64_t end = 0;
  {
    RH_TRY(Statement row,
           database.prepare("SELECT first_token, end_token FROM messages WHERE conversation = ? "
                            "AND number = ?"));
    row.bind(1, conversation).bind(2, number);
    RH_TRY(const bool there, row.step());
    if (!there) return {};
    begin = row.integer(0);
    end = row.integer(1);
  }
  const int64_t kept = begin + static_cast<int64_t>(left.size());
  RH_TRY_STATUS(
      database.run("DELETE FROM message_views WHERE message = (SELECT id FROM messages WHERE "
                   "conversation = ? AND number = ?)",
                   conversation, number));
  RH_TRY_STATUS(
      database.run("UPDATE messages SET text = '', forgotten = 1, tokens = ?3, body_begin = 0, "
                   "body_end = 0, end_token = ?4 WHERE conversation = ?1 AND number = ?2",
                   conversation, number, std::as_bytes(left), kept));
  RH_TRY_STATUS(
      database.run("UPDATE messages SET first_token = first_token - ?3, end_token = end_token - ?3 "
                   "WHERE conversation = ?1 AND number > ?2",
                   conversation, number, end - kept));
  // Where a passage begins or ends behind what is gone, that many tokens earlier.
  RH_TRY_STATUS(database.run(
      "UPDATE conversation_passages SET first_token = first_token - max(0, min(first_token - ?2, ?3 - ?2)), "
      "tokens = tokens - max(0, min(first_token + tokens - ?2, ?3 - ?2)) + max(0, min(first_token - ?2, ?3 - "
      "?2)) WHERE conversation = ?1",
      conversation, kept, end));
  RH_TRY_STATUS(database.run("UPDATE conversations SET edits = edits + 1 WHERE id = ?", conversation));
  return scope.commit();
}

Status ConversationLog::add_passage(int64_t conversation, const ConversationPassage& passage) {
  RH_TRY(WriteScope scope, WriteScope::begin(state_));
  RH_TRY_STATUS(state_.database->run(
      "INSERT INTO conversation_passages(conversation, number, passage, first_token, tokens) VALUES(?, ?, ?, "
      "?, ?)",
      conversation, passage.number, passage.passage, passage.first_token, passage.tokens));
  return scope.commit();
}

Status ConversationLog::set_spill(int64_t passage, const Spill& spill, std::span<const int64_t> saw) {
  RH_TRY(WriteScope scope, WriteScope::begin(state_));
  RH_TRY_STATUS(insert_spill(state_, passage, spill, saw));
  return scope.commit();
}

Result<std::vector<ConversationPassage>> ConversationLog::passages(int64_t conversation) const {
  RH_TRY(Statement rows,
         state_.database->prepare(
             "SELECT c.number, c.passage, p.content, c.first_token, c.tokens, s.passage IS NOT NULL, f.text, "
             "b.text, s.first_position FROM conversation_passages c JOIN passages p ON p.id = c.passage LEFT "
             "JOIN spills s ON s.passage = c.passage LEFT JOIN labels f ON f.id = s.fingerprint LEFT JOIN "
             "labels b ON b.id = s.base WHERE c.conversation = ? ORDER BY c.number"));
  rows.bind(1, conversation);
  std::vector<ConversationPassage> passages;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return passages;
    passages.push_back({rows.integer(0),
                        rows.integer(1),
                        rows.integer(2),
                        rows.integer(3),
                        rows.integer(4),
                        rows.small(5) != 0,
                        {std::string(rows.text(6)), std::string(rows.text(7)), rows.small(8)}});
  }
}

Result<std::optional<Spill>> ConversationLog::spill(int64_t passage) const {
  RH_TRY(Statement row, state_.database->prepare(
                            "SELECT f.text, b.text, s.first_position FROM spills s JOIN labels f ON f.id = "
                            "s.fingerprint JOIN labels b ON b.id = s.base WHERE s.passage = ?"));
  row.bind(1, passage);
  RH_TRY(const bool there, row.step());
  if (!there) return std::optional<Spill>();
  return std::optional<Spill>({std::string(row.text(0)), std::string(row.text(1)), row.small(2)});
}

Result<bool> ConversationLog::has_others(int64_t conversation) const {
  RH_TRY(const bool there, has_conversations(*state_.database));
  if (!there) return false;
  RH_TRY(const int64_t others,
         state_.database->number(
             "SELECT EXISTS (SELECT 1 FROM conversation_passages WHERE conversation <> ?)", conversation));
  return others != 0;
}

Result<std::vector<int64_t>> ConversationLog::known_contents(std::span<const int64_t> contents) const {
  RH_TRY(Statement rows,
         state_.database->prepare(
             "SELECT c.id FROM json_each(?) j JOIN contents c ON c.id = j.value ORDER BY c.id"));
  rows.bind(1, json_list(contents));
  std::vector<int64_t> known;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return known;
    known.push_back(rows.integer(0));
  }
}

Result<std::vector<DerivedMessage>> ConversationLog::derived(std::span<const std::string> sources) const {
  std::vector<int64_t> contents;
  std::string names;
  for (const std::string& source : sources) {
    RH_TRY(Statement rows,
           state_.database->prepare("SELECT DISTINCT v.content FROM versions v JOIN sources s ON s.id = "
                                    "v.source WHERE s.name = ?"));
    rows.bind(1, source);
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      contents.push_back(rows.integer(0));
    }
  }
  RH_TRY(Statement rows,
         state_.database->prepare(std::string(kReached) +
                                  "SELECT DISTINCT c.name, m.number, m.said, m.text FROM reached r JOIN "
                                  "message_views v ON v.content = r.content JOIN messages m ON m.id = "
                                  "v.message JOIN conversations c ON c.id = m.conversation WHERE m.role = "
                                  "'assistant' AND m.forgotten = 0 AND m.text <> '' ORDER BY c.name, "
                                  "m.number"));
  rows.bind(1, json_list(contents));
  std::vector<DerivedMessage> derived;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return derived;
    std::string name(rows.text(0));
    const std::string whole = std::string(kConversationFolder) + name;
    if (std::find(sources.begin(), sources.end(), whole) != sources.end()) continue;
    derived.push_back(
        {std::move(name), rows.integer(1), std::string(rows.text(2)), std::string(rows.text(3))});
  }
}

Status CatalogState::drop_views_of(int64_t content) {
  std::vector<std::pair<int64_t, int64_t>> spilled;
  {
    RH_TRY(Statement rows,
           database->prepare(std::string(kReached) +
                             "SELECT s.passage, s.fingerprint FROM reached r JOIN passages p ON p.content = "
                             "r.content JOIN spills s ON s.passage = p.id"));
    rows.bind(1, json_list(std::span(&content, 1)));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      spilled.emplace_back(rows.integer(0), rows.integer(1));
    }
  }
  for (const auto& [passage, fingerprint] : spilled) {
    RH_TRY_STATUS(drop_kv_extents(fmt::format("passage = {} AND fingerprint = {}", passage, fingerprint)));
    RH_TRY_STATUS(database->run("DELETE FROM spill_views WHERE passage = ?", passage));
    RH_TRY_STATUS(database->run("DELETE FROM spills WHERE passage = ?", passage));
  }
  RH_TRY_STATUS(database->run("DELETE FROM message_views WHERE content = ?", content));
  return database->run(
      "DELETE FROM conversation_passages WHERE passage IN (SELECT id FROM passages WHERE content = ?)",
      content);
}

Result<bool> CatalogState::drop_conversation(std::string_view name, std::vector<std::string>& sources) {
  if (!name.starts_with(kConversationFolder)) return false;
  RH_TRY(const int64_t id, database->number("SELECT id FROM conversations WHERE name = ?",
                                            name.substr(kConversationFolder.size())));
  if (id == 0) return false;
  {
    RH_TRY(Statement rows,
           database->prepare("SELECT name FROM sources WHERE substr(name, 1, length(?1)) = ?1"));
    rows.bind(1, std::string(name) + "/");
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      sources.emplace_back(rows.text(0));
    }
  }
  RH_TRY_STATUS(database->run("DELETE FROM conversation_passages WHERE conversation = ?", id));
  RH_TRY_STATUS(database->run("DELETE FROM messages WHERE conversation = ?", id));
  RH_TRY_STATUS(database->run("DELETE FROM conversations WHERE id = ?", id));
  return true;
}

}  // namespace rhapsode::store

// Catalog: facts. A fact is a source whose versions are its values; what was said of it are its events.
#include <algorithm>

#include "base/iso_time.h"
#include "base/text_check.h"
#include "store/catalog_state.h"

namespace rhapsode::store {
namespace {

Status check_event(const FactEvent& event) {
  const bool retracts = event.action == FactAction::kRetracted;
  if (event.key.empty() || event.subject.empty() || event.attribute.empty() ||
      retracts != event.value.empty()) {
    return make_error(
        ErrorKind::kInvalidArgument,
        "a fact needs a key, a subject and an attribute, and a value unless it is retracted; this "
        "one is of '{}' and '{}'",
        shown(event.subject), shown(event.attribute));
  }
  if (!event.told.empty()) RH_TRY_STATUS(parse_iso_time(event.told));
  return {};
}

struct InForce {
  int64_t version = 0;  // 0: none
  int64_t content = 0;
  int64_t valid_from_ms = 0;
  std::string event_time;
};

// Of the fact's versions, the one that is current, or was at a time.
Result<InForce> in_force(Database& database, int64_t source, std::optional<int64_t> at_ms) {
  RH_TRY(Statement row,
         database.prepare(fmt::format("SELECT v.id, v.content, v.valid_from, v.event_time FROM "
                                      "versions v WHERE v.source = ?2 AND {}",
                                      time_condition(at_ms.has_value()))));
  if (at_ms) row.bind(1, *at_ms);
  row.bind(2, source);
  RH_TRY(const bool there, row.step());
  if (!there) return InForce{};
  return InForce{row.integer(0), row.integer(1), row.integer(2), std::string(row.text(3))};
}

Status insert_event(Database& database, int64_t source, int64_t version, const FactEvent& event,
                    const SourceRecord& record, int64_t begins_ms) {
  RH_TRY(
      Statement insert,
      database.prepare(
          "INSERT INTO fact_events(source, version, key, action, subject, attribute, value, statement, "
          "message, speaker, told, event_time, recorded, begins, made_by) VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, "
          "?, ?, ?, ?, ?, ?)"));
  insert.bind(1, source).bind(3, event.key).bind(4, static_cast<int64_t>(event.action));
  if (version != 0) {
    insert.bind(2, version);
  } else {
    insert.bind_null(2);
  }
  insert.bind(5, event.subject).bind(6, event.attribute).bind(7, event.value).bind(8, event.statement);
  insert.bind(9, event.message).bind(10, event.speaker).bind(11, event.told).bind(12, record.event_time);
  return insert.bind(13, record.added).bind(14, begins_ms).bind(15, event.made_by).run();
}

std::string iso_or_empty(const Statement& row, int column) {
  return row.is_null(column) ? std::string() : format_iso_time(row.integer(column));
}

FactRow fact_row(const Statement& row) {
  FactRow fact;
  fact.id = row.integer(0);
  fact.source = row.text(1);
  fact.user = row.text(2);
  fact.event = {std::string(row.text(3)),  static_cast<FactAction>(row.small(4)),
                std::string(row.text(5)),  std::string(row.text(6)),
                std::string(row.text(7)),  std::string(row.text(8)),
                std::string(row.text(9)),  std::string(row.text(10)),
                std::string(row.text(11)), std::string(row.text(12))};
  fact.event_time = row.text(13);
  fact.version = row.small(14);
  fact.valid_from = iso_or_empty(row, 15);
  fact.valid_to = iso_or_empty(row, 16);
  fact.current = fact.version != 0 && fact.valid_to.empty();
  return fact;
}

}  // namespace

Result<bool> Catalog::knows_fact(std::string_view key) const {
  RH_TRY(const int64_t known, state_->database->number("SELECT 1 FROM fact_events WHERE key = ?", key));
  return known != 0;
}

Result<std::string> Catalog::fact_in_force(std::string_view source, std::string_view at) const {
  Database& database = *state_->database;
  RH_TRY(const int64_t id, database.number("SELECT id FROM sources WHERE name = ?", source));
  std::optional<int64_t> at_ms;
  if (!at.empty()) {
    RH_TRY(const IsoPeriod period, parse_iso_time(at));
    at_ms = period.first_ms;
  }
  RH_TRY(const InForce found, in_force(database, id, at_ms));
  RH_TRY(Statement row,
         database.prepare("SELECT value FROM fact_events WHERE version = ? ORDER BY id DESC LIMIT 1"));
  row.bind(1, found.version);
  RH_TRY(const bool there, row.step());
  return there ? std::string(row.text(0)) : std::string();
}

Result<bool> Catalog::record_fact(const SourceRecord& source, std::optional<int64_t> content,
                                  const FactEvent& event) {
  RH_TRY_STATUS(check_event(event));
  RH_TRY(const bool known, knows_fact(event.key));
  if (known) return false;
  Database& database = *state_->database;
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  RH_TRY(const int64_t known_source, database.number("SELECT id FROM sources WHERE name = ?", source.name));
  if (known_source == 0 && !content) {
    return make_error(ErrorKind::kNotFound, "the memory holds no fact '{}'", shown(source.name));
  }
  RH_TRY(const int64_t source_id, state_->source_id_of(source));
  SourceRecord record = source;
  RH_TRY(const InForce current, in_force(database, source_id, std::nullopt));
  const bool corrects = event.action == FactAction::kCorrected && current.version != 0;
  if (corrects) record.event_time = current.event_time;
  RH_TRY(const IsoPeriod begins,
         parse_iso_time(record.event_time.empty() ? record.added : record.event_time));
  int64_t begins_ms = corrects ? current.valid_from_ms : begins.first_ms;
  int64_t version = 0;
  if (content) {
    RH_TRY(const ContentInfo info, state_->content_info(*content));
    if (!info.complete) RH_TRY_STATUS(state_->complete_content(*content));
    RH_TRY(version, state_->add_version(source_id, *content, record));
  } else if (event.action != FactAction::kRetracted) {
    RH_TRY(const InForce said,
           in_force(database, source_id, corrects ? std::nullopt : std::optional(begins_ms)));
    if (said.version == 0) {
      return make_error(ErrorKind::kInvalidArgument, "'{}' has no value to be confirmed", shown(source.name));
    }
    version = said.version;
    begins_ms = said.valid_from_ms;
  }
  RH_TRY_STATUS(insert_event(database, source_id, version, event, record, begins_ms));
  RH_TRY_STATUS(state_->order_fact_versions(source_id, source.added));
  RH_TRY_STATUS(scope.commit());
  return true;
}

// Each version from its event's time to the next event's; of two at one time the later told holds.
Status CatalogState::order_fact_versions(int64_t source, std::string_view now) {
  struct Turn {
    int64_t version;
    int64_t begins_ms;
  };
  std::vector<Turn> turns;
  {
    RH_TRY(Statement rows,
           database->prepare("SELECT coalesce(version, 0), begins FROM fact_events WHERE source "
                             "= ? ORDER BY begins, id"));
    rows.bind(1, source);
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      const Turn turn{rows.integer(0), rows.integer(1)};
      // A confirmation changes nothing.
      const bool again = !turns.empty() && turn.version != 0 && turns.back().version == turn.version;
      if (!again) turns.push_back(turn);
    }
  }
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].version == 0) continue;
    const bool last = i + 1 == turns.size();
    if (last) {
      RH_TRY_STATUS(
          database->run("UPDATE versions SET valid_from = ?, valid_to = NULL, replaced = '' WHERE id = ?",
                        turns[i].begins_ms, turns[i].version));
      continue;
    }
    RH_TRY_STATUS(
        database->run("UPDATE versions SET valid_from = ?, valid_to = ?, replaced = CASE replaced WHEN "
                      "'' THEN ? ELSE replaced END WHERE id = ?",
                      turns[i].begins_ms, turns[i + 1].begins_ms, now, turns[i].version));
  }
  return {};
}

Result<std::vector<FactRow>> Catalog::facts(const Selection& selection) const {
  RH_TRY(const VisibleRows visible, state_->visible_rows(selection));
  // The last word on each version that is there; with history all words, retractions among them.
  const std::string where =
      selection.history
          ? std::string(
                "EXISTS (SELECT 1 FROM versions v JOIN sources s ON s.id = v.source WHERE v.source = "
                "f.source AND ") +
                visible.where + ")"
          : "f.id = (SELECT max(g.id) FROM fact_events g WHERE g.version = f.version) AND EXISTS (SELECT 1 "
            "FROM "
            "versions v JOIN sources s ON s.id = v.source WHERE v.id = f.version AND " +
                visible.where + ")";
  RH_TRY(
      Statement rows,
      state_->database->prepare(fmt::format(
          "SELECT f.id, n.name, coalesce((SELECT o.user FROM scopes o WHERE o.source = n.id), ''), f.key, "
          "f.action, f.subject, f.attribute, f.value, f.statement, f.message, f.speaker, f.told, f.made_by, "
          "f.event_time, coalesce(t.number, 0), t.valid_from, t.valid_to FROM fact_events f JOIN sources n "
          "ON "
          "n.id = f.source LEFT JOIN versions t ON t.id = f.version WHERE {} ORDER BY f.id",
          where)));
  if (visible.at_ms) rows.bind(1, *visible.at_ms);
  std::vector<FactRow> facts;
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) return facts;
    facts.push_back(fact_row(rows));
  }
}

}  // namespace rhapsode::store

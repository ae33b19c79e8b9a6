// Catalog: whose sources a selection sees, at which time, and which of them others have superseded.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/iso_time.h"
#include "base/text_check.h"
#include "store/catalog_state.h"
#include "store/conversation_types.h"

namespace rhapsode::store {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestUser = 200;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// What a name and a reference to it have in common: the last part without its ending, in lower case.
std::string key_of(std::string_view name) {
  name.remove_prefix(name.find_last_of('/') + 1);
  const size_t dot = name.rfind('.');
  return lower(dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot));
}

std::string beside(const std::string& name, std::string_view reference) {
  return (fs::path(name).parent_path() / fs::path(reference)).lexically_normal().generic_string();
}

// Marks the edges that lie on a cycle: each leads back to where it began.
void mark_cycles(std::vector<SupersessionEdge>& edges) {
  std::map<int64_t, std::vector<int64_t>> newer_of;
  for (const SupersessionEdge& edge : edges) newer_of[edge.older].push_back(edge.newer);
  for (SupersessionEdge& edge : edges) {
    std::set<int64_t> reached;
    std::vector<int64_t> open = {edge.newer};
    while (!open.empty() && !edge.in_cycle) {
      const int64_t source = open.back();
      open.pop_back();
      edge.in_cycle = source == edge.older;
      if (!reached.insert(source).second) continue;
      if (const auto next = newer_of.find(source); next != newer_of.end()) {
        open.insert(open.end(), next->second.begin(), next->second.end());
      }
    }
  }
}

}  // namespace

const char* const kOfUser =
    "NOT EXISTS (SELECT 1 FROM scopes o WHERE o.source = v.source AND NOT rh_user(o.user))";

std::string time_condition(bool then) {
  if (!then) return "v.valid_to IS NULL";
  // Of the versions that had begun and had not been replaced, the one that began last.
  return "v.valid_from <= ?1 AND (v.valid_to IS NULL OR v.valid_to > ?1) AND NOT EXISTS (SELECT 1 FROM "
         "versions w WHERE w.source = v.source AND w.valid_from <= ?1 AND (w.valid_to IS NULL OR w.valid_to "
         "> ?1) AND (w.valid_from > v.valid_from OR (w.valid_from = v.valid_from AND w.number > v.number)))";
}

std::string time_condition_of_any(bool then) {
  if (!then) return "w.valid_to IS NULL";
  return "w.valid_from <= ?1 AND (w.valid_to IS NULL OR w.valid_to > ?1)";
}

Result<bool> CatalogState::has_users() const {
  RH_TRY(const int64_t any, database->number("SELECT 1 FROM scopes LIMIT 1"));
  return any != 0;
}

Result<bool> Catalog::has_users() const {
  RH_TRY_STATUS(state_->follow_migration());
  return state_->has_users();
}

Result<bool> Catalog::has_facts() const {
  RH_TRY(const int64_t any, state_->database->number("SELECT 1 FROM fact_events LIMIT 1"));
  return any != 0;
}

Result<bool> Catalog::sees_all(const Selection& selection) const {
  RH_TRY(const bool users, has_users());
  return selection.is_open() && !users;
}

Status CatalogState::follow_migration() {
  if (overlaid_version == 0) return {};
  RH_TRY(const int64_t version, database->number("PRAGMA main.user_version"));
  if (version == overlaid_version) return {};
  return make_error(ErrorKind::kCancelled,
                    "{} was brought to a newer format while it was open: open the memory again",
                    database->path().string());
}

Result<VisibleRows> CatalogState::scope_rows(const Selection& selection) {
  RH_TRY_STATUS(follow_migration());
  VisibleRows rows;
  if (selection.history) {
    rows.where = "1";
  } else if (!selection.as_of.empty()) {
    RH_TRY(const IsoPeriod at, parse_iso_time(selection.as_of));
    rows.at_ms = at.last_ms;
    rows.where = time_condition(true);
  } else {
    rows.where = time_condition(false);
  }
  if (selection.past_facts && !selection.history) {
    rows.where = fmt::format("(({}) OR v.kind = 'fact')", rows.where);
  }
  if (selection.all_users) return rows;
  RH_TRY(const bool users, has_users());
  if (!users) return rows;
  if (selection.user.empty()) {
    return make_error(
        ErrorKind::kPermission,
        "the memory in {} holds users' own sources: say whose question this is with --user NAME, "
        "or --all-users to see everyone's",
        options.folder.string());
  }
  filter.user = selection.user;
  rows.where += fmt::format(" AND {}", kOfUser);
  return rows;
}

Result<std::vector<SupersessionEdge>> CatalogState::supersession_edges(const VisibleRows& scope) const {
  std::vector<SupersessionEdge> edges;
  RH_TRY(const int64_t any, database->number("SELECT 1 FROM supersessions WHERE other IS NOT NULL LIMIT 1"));
  if (any == 0) return edges;
  const bool then = scope.at_ms.has_value();
  // The newer one has to be there itself, in a version of its own when the older one makes the claim.
  RH_TRY(
      Statement rows,
      database->prepare(fmt::format(
          "SELECT CASE x.reverse WHEN 0 THEN x.other ELSE v.source END AS older, CASE x.reverse WHEN 0 THEN "
          "v.source ELSE x.other END AS newer, min(CASE x.reverse WHEN 0 THEN v.valid_from ELSE (SELECT "
          "min(w.valid_from) FROM versions w WHERE w.source = x.other AND {1}) END) FROM supersessions x "
          "JOIN versions v ON v.id = x.version WHERE x.other IS NOT NULL AND {0} AND EXISTS (SELECT 1 FROM "
          "versions w WHERE w.source = x.other AND (x.reverse = 0 OR {1})) AND NOT EXISTS (SELECT 1 FROM "
          "scopes o WHERE o.source = x.other AND {2}) GROUP BY older, newer ORDER BY older, newer",
          scope.where, time_condition_of_any(then),
          scope.where.find("rh_user") == std::string::npos ? "0" : "NOT rh_user(o.user)")));
  if (then) rows.bind(1, *scope.at_ms);
  while (true) {
    RH_TRY(const bool row, rows.step());
    if (!row) break;
    edges.push_back({rows.integer(0), rows.integer(1), rows.integer(2), false});
  }
  mark_cycles(edges);
  return edges;
}

Result<VisibleRows> CatalogState::visible_rows(const Selection& selection) {
  RH_TRY(VisibleRows visible, scope_rows(selection));
  filter.names.clear();
  for (std::string name : selection.sources) {
    while (name.ends_with('/')) name.pop_back();
    filter.names.insert(std::move(name));
  }
  filter.tags = selection.tags;
  filter.superseded.clear();
  if (!selection.superseded && !selection.history) {
    RH_TRY(const std::vector<SupersessionEdge> edges, supersession_edges(visible));
    std::set<int64_t> older;
    for (const SupersessionEdge& edge : edges) {
      if (!edge.in_cycle) older.insert(edge.older);
    }
    for (const auto* names : {&selection.sources, &selection.admitted}) {
      for (const std::string& name : *names) {
        RH_TRY(const int64_t id, database->number("SELECT id FROM sources WHERE name = ?", name));
        older.erase(id);
      }
    }
    filter.superseded.assign(older.begin(), older.end());
  }
  const char* const selected =
      filter.names.empty() && filter.tags.empty() ? "1" : "rh_selected(s.name, v.tags)";
  // Conversations have no users yet: beside users' own sources only those that are named here are seen.
  RH_TRY(const bool users, has_users());
  const bool guarded = users && !selection.all_users;
  if (selection.conversations || guarded) {
    const auto named = selection.conversations.value_or(std::vector<std::string>());
    filter.conversations = {named.begin(), named.end()};
    for (const std::string& name : filter.names) {
      if (guarded) break;
      if ((name + "/").starts_with(kConversationFolder)) filter.conversations.insert(name);
    }
    visible.where += fmt::format(" AND CASE v.kind WHEN '{}' THEN rh_conversing(s.name) ELSE {} END",
                                 kConversationKind, selected);
  } else {
    visible.where += fmt::format(" AND {}", selected);
  }
  if (!filter.superseded.empty()) visible.where += " AND rh_live(v.source)";
  return visible;
}

Result<std::vector<SupersessionRow>> Catalog::supersessions(const Selection& selection) const {
  Database& database = *state_->database;
  RH_TRY(const VisibleRows scope, state_->scope_rows(selection));
  RH_TRY(const std::vector<SupersessionEdge> edges, state_->supersession_edges(scope));
  std::vector<SupersessionRow> found;
  RH_TRY(Statement name, database.prepare("SELECT name FROM sources WHERE id = ?"));
  const auto name_of = [&](int64_t id) -> Result<std::string> {
    name.reset();
    name.bind(1, id);
    RH_TRY(const bool there, name.step());
    return there ? std::string(name.text(0)) : std::string();
  };
  for (const SupersessionEdge& edge : edges) {
    SupersessionRow row;
    RH_TRY(row.older, name_of(edge.older));
    RH_TRY(row.newer, name_of(edge.newer));
    row.since = format_iso_time(edge.since_ms);
    if (edge.in_cycle) row.problem = "cycle";
    found.push_back(std::move(row));
  }
  RH_TRY(Statement open,
         database.prepare(
             fmt::format("SELECT s.name, x.reverse, x.reference FROM supersessions x JOIN versions v ON v.id "
                         "= x.version JOIN sources s ON s.id = v.source WHERE x.other IS NULL AND {} ORDER "
                         "BY s.name, x.reverse, x.reference",
                         scope.where)));
  if (scope.at_ms) open.bind(1, *scope.at_ms);
  while (true) {
    RH_TRY(const bool row, open.step());
    if (!row) return found;
    SupersessionRow unknown{std::string(open.text(2)), std::string(open.text(0)), "", "unknown"};
    if (open.small(1) != 0) std::swap(unknown.older, unknown.newer);
    found.push_back(std::move(unknown));
  }
}

Result<std::optional<int64_t>> CatalogState::resolve_claim(const SourceRecord& claiming,
                                                           std::string_view reference) const {
  // What everybody sees refers to what everybody sees; a user's own to either.
  constexpr char kMine[] = "NOT EXISTS (SELECT 1 FROM scopes o WHERE o.source = s.id AND o.user <> ?)";
  const auto one = [&](std::string_view where, const auto&... values) {
    return database->number(fmt::format("SELECT min(s.id) FROM sources s WHERE s.name <> ? AND {} AND {} "
                                        "HAVING count(*) = 1",
                                        kMine, where),
                            claiming.name, claiming.user, values...);
  };
  const std::string near = beside(claiming.name, reference);
  RH_TRY(int64_t id, one("s.name = ?", reference));
  if (id == 0) {
    RH_TRY(id, one("s.name = ?", near));
  }
  if (id == 0) {
    RH_TRY(id, one("s.name >= ? AND s.name < ? AND instr(substr(s.name, ?), '/') = 0", near + ".", near + "/",
                   static_cast<int64_t>(near.size() + 1)));
  }
  if (id == 0) {
    RH_TRY(id,
           one("s.id IN (SELECT v.source FROM identifiers i JOIN versions v ON v.id = i.version WHERE i.key "
               "= ? AND v.valid_to IS NULL)",
               lower(reference)));
  }
  return id == 0 ? std::nullopt : std::optional(id);
}

Status CatalogState::store_claims(int64_t version, const SourceRecord& source) {
  RH_TRY_STATUS(database->run("DELETE FROM identifiers WHERE version = ?", version));
  if (!source.identifier.empty()) {
    RH_TRY_STATUS(database->run("INSERT INTO identifiers(version, key, identifier) VALUES(?, ?, ?)", version,
                                lower(source.identifier), source.identifier));
  }
  RH_TRY_STATUS(database->run("DELETE FROM supersessions WHERE version = ?", version));
  for (const SupersessionClaim& claim : source.supersessions) {
    RH_TRY(const auto other, resolve_claim(source, claim.reference));
    RH_TRY(Statement insert,
           database->prepare("INSERT INTO supersessions(version, reverse, reference, by_user, key, other) "
                             "VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"));
    insert.bind(1, version).bind(2, int64_t{claim.reverse}).bind(3, claim.reference);
    insert.bind(4, int64_t{claim.by_user}).bind(5, key_of(claim.reference));
    if (other) {
      insert.bind(6, *other);
    } else {
      insert.bind_null(6);
    }
    RH_TRY_STATUS(insert.run());
  }
  return {};
}

// Claims that led nowhere until this source came.
Status CatalogState::adopt_open_claims(const SourceRecord& source, int64_t source_id) {
  struct Open {
    int64_t version;
    int64_t reverse;
    std::string reference;
    SourceRecord claiming;
  };
  std::vector<Open> open;
  {
    RH_TRY(
        Statement rows,
        database->prepare("SELECT x.version, x.reverse, x.reference, s.name, coalesce(o.user, '') FROM "
                          "supersessions x JOIN versions v ON v.id = x.version JOIN sources s ON s.id = "
                          "v.source LEFT JOIN scopes o ON o.source = s.id WHERE x.other IS NULL AND x.key IN "
                          "(?, ?)"));
    rows.bind(1, key_of(source.name)).bind(2, key_of(source.identifier));
    while (true) {
      RH_TRY(const bool row, rows.step());
      if (!row) break;
      SourceRecord claiming;
      claiming.name = rows.text(3);
      claiming.user = rows.text(4);
      open.push_back({rows.integer(0), rows.integer(1), std::string(rows.text(2)), std::move(claiming)});
    }
  }
  for (const Open& claim : open) {
    RH_TRY(const auto other, resolve_claim(claim.claiming, claim.reference));
    if (other != source_id) continue;
    RH_TRY_STATUS(database->run(
        "UPDATE supersessions SET other = ? WHERE version = ? AND reverse = ? AND reference = ?", source_id,
        claim.version, claim.reverse, claim.reference));
  }
  return {};
}

Status CatalogState::check_user(const SourceRecord& source, int64_t source_id) const {
  const std::string& user = source.user;
  if (user.size() > kLongestUser || user.find_first_of(std::string_view("/\n\0", 3)) != std::string::npos ||
      !is_utf8(user)) {
    return make_error(ErrorKind::kInvalidArgument, "'{}' is no name of a user", shown(user));
  }
  if (source_id == 0) return {};
  RH_TRY(
      const int64_t strange,
      database->number("SELECT count(*) FROM sources s LEFT JOIN scopes o ON o.source = s.id WHERE s.id = ? "
                       "AND coalesce(o.user, '') <> ?",
                       source_id, user));
  if (strange == 0) return {};
  return make_error(ErrorKind::kPermission, "the source '{}' belongs to somebody else: give it another name",
                    shown(source.name));
}

Result<int64_t> CatalogState::source_id_of(const SourceRecord& source) {
  RH_TRY(const int64_t known, database->number("SELECT id FROM sources WHERE name = ?", source.name));
  RH_TRY_STATUS(check_user(source, known));
  if (known != 0) return known;
  RH_TRY_STATUS(database->run("INSERT INTO sources(name) VALUES(?)", source.name));
  const int64_t id = database->last_insert_id();
  if (!source.user.empty()) {
    RH_TRY_STATUS(database->run("INSERT INTO scopes(source, user) VALUES(?, ?)", id, source.user));
  }
  return id;
}

}  // namespace rhapsode::store

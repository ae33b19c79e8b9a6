#include "store/catalog.h"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "store/catalog_schema.h"
#include "store/catalog_state.h"

namespace rhapsode::store {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSegmentsUnderCap = 16;

CatalogState* state_of(sqlite3_context* context) {
  return static_cast<CatalogState*>(sqlite3_user_data(context));
}

std::string_view text_of(sqlite3_value* value) {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_value_text(value));
  return bytes == nullptr ? std::string_view()
                          : std::string_view(bytes, static_cast<size_t>(sqlite3_value_bytes(value)));
}

// `names` holds the name or a folder above it.
bool has_name(const std::set<std::string, std::less<>>& names, std::string_view name) {
  if (names.contains(name)) return true;
  for (size_t slash = name.find('/'); slash != std::string_view::npos; slash = name.find('/', slash + 1)) {
    if (names.contains(name.substr(0, slash))) return true;
  }
  return false;
}

// Tags are stored one a line.
bool has_tags(const RowFilter& filter, std::string_view lines) {
  return std::all_of(filter.tags.begin(), filter.tags.end(), [&](const std::string& wanted) {
    std::string_view rest = lines;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      if (rest.substr(0, end) == wanted) return true;
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return false;
  });
}

void sql_selected(sqlite3_context* context, int, sqlite3_value** values) {
  const RowFilter& filter = state_of(context)->filter;
  const bool named = filter.names.empty() || has_name(filter.names, text_of(values[0]));
  sqlite3_result_int(context, named && has_tags(filter, text_of(values[1])) ? 1 : 0);
}

void sql_conversing(sqlite3_context* context, int, sqlite3_value** values) {
  const RowFilter& filter = state_of(context)->filter;
  sqlite3_result_int(context, has_name(filter.conversations, text_of(values[0])) ? 1 : 0);
}

void sql_listed(sqlite3_context* context, int, sqlite3_value** values) {
  const auto& ids = state_of(context)->filter.ids;
  sqlite3_result_int(context,
                     std::binary_search(ids.begin(), ids.end(), sqlite3_value_int64(values[0])) ? 1 : 0);
}

void sql_user(sqlite3_context* context, int, sqlite3_value** values) {
  sqlite3_result_int(context, text_of(values[0]) == state_of(context)->filter.user ? 1 : 0);
}

void sql_live(sqlite3_context* context, int, sqlite3_value** values) {
  const auto& ids = state_of(context)->filter.superseded;
  sqlite3_result_int(context,
                     std::binary_search(ids.begin(), ids.end(), sqlite3_value_int64(values[0])) ? 0 : 1);
}

Error not_there(const fs::path& folder) {
  return make_error(ErrorKind::kNotFound, "there is no memory in {}: add something to make one",
                    folder.string());
}

struct OpenedDatabase {
  std::unique_ptr<Database> database;
  int64_t overlaid_version = 0;
};

Result<OpenedDatabase> open_database(const CatalogOptions& options) {
  const fs::path path = options.folder / "catalog.db";
  const DatabaseOptions how{options.read_only, options.create, options.wait_ms};
  RH_TRY(auto database, Database::open(path, how));
  RH_TRY(const int version, schema_version(*database));
  if (version == 0 && (options.read_only || !options.create)) return not_there(options.folder);
  OpenedDatabase opened;
  if (options.read_only) {
    RH_TRY_STATUS(overlay_missing_tables(*database, version));
    opened.overlaid_version = version < kTimesSince ? version : 0;
  } else if (version < kCatalogVersion) {
    RH_TRY_STATUS(upgrade_schema(*database, version));
    if (version == 0) RH_TRY_STATUS(sync_directory(options.folder));
  }
  opened.database = std::move(database);
  return opened;
}

}  // namespace

Result<std::unique_ptr<Catalog>> Catalog::open(const CatalogOptions& options) {
  std::error_code failure;
  const bool there = fs::exists(options.folder / "catalog.db", failure);
  if (failure) return make_system_error(failure.value(), "cannot look into " + options.folder.string());
  if (!there && (!options.create || options.read_only)) return not_there(options.folder);
  FileLock lock;
  if (!options.read_only) {
    RH_TRY_STATUS(make_directories(options.folder / "texts"));
    auto held = FileLock::acquire(options.folder / "LOCK", false);
    if (!held.ok() && held.error().kind == ErrorKind::kCancelled) {
      return make_error(ErrorKind::kCancelled,
                        "another process is writing to the memory in {}: wait until it is done",
                        options.folder.string());
    }
    if (!held.ok()) return held.error();
    lock = std::move(*held);
  }
  RH_TRY(OpenedDatabase opened, open_database(options));
  auto state = std::make_unique<CatalogState>(options, std::move(lock), std::move(opened.database));
  state->overlaid_version = opened.overlaid_version;
  RH_TRY_STATUS(state->register_functions());
  if (!options.read_only) RH_TRY_STATUS(state->recover());
  return std::unique_ptr<Catalog>(new Catalog(std::move(state)));
}

Catalog::Catalog(std::unique_ptr<CatalogState> state) : state_(std::move(state)) {}
Catalog::~Catalog() = default;

CatalogState::CatalogState(CatalogOptions given, FileLock held, std::unique_ptr<Database> opened)
    : options(std::move(given)),
      lock(std::move(held)),
      database(std::move(opened)),
      texts(options.folder / "texts"),
      segments(*database, options.folder, options.segment_bytes) {}

CatalogState::~CatalogState() {
  // Uses only guide eviction: losing some is no harm.
  if (options.read_only || pending_uses.empty()) return;
  auto scope = WriteScope::begin(*this);
  if (scope.ok()) static_cast<void>(scope->commit().ok());
}

Status CatalogState::register_functions() {
  const int flags = SQLITE_UTF8 | SQLITE_DIRECTONLY;
  sqlite3* const handle = database->handle();
  using Function = void (*)(sqlite3_context*, int, sqlite3_value**);
  const std::tuple<const char*, int, Function> functions[] = {{"rh_selected", 2, sql_selected},
                                                              {"rh_listed", 1, sql_listed},
                                                              {"rh_conversing", 1, sql_conversing},
                                                              {"rh_user", 1, sql_user},
                                                              {"rh_live", 1, sql_live}};
  for (const auto& [name, parameters, function] : functions) {
    const int code = sqlite3_create_function_v2(handle, name, parameters, flags, this, function, nullptr,
                                                nullptr, nullptr);
    if (code != SQLITE_OK) return database->error(code);
  }
  return {};
}

Status CatalogState::sweep() {
  RH_TRY_STATUS(segments.recover());
  return texts.sweep([this](const std::string& sha256) -> Result<bool> {
    RH_TRY(const int64_t known, database->number("SELECT count(*) FROM texts WHERE sha256 = ?", sha256));
    return known != 0;
  });
}

Status CatalogState::recover() {
  RH_TRY_STATUS(sweep());
  RH_TRY(const uint64_t cap, kv_cap());
  if (cap != 0) segments.set_segment_bytes(std::min(options.segment_bytes, cap / kSegmentsUnderCap));
  RH_TRY(const int64_t erasing, database->number("SELECT value FROM counters WHERE name = 'erasing'"));
  if (erasing == 0) return {};
  // Another process may still read what an earlier erase() removed: then the next writer tries again.
  const Status finished = scrub();
  if (!finished.ok() && finished.error().kind != ErrorKind::kCancelled) return finished;
  return {};
}

void CatalogState::forget_views() {
  segments.release_views();
  sound_codes.clear();
  recent_texts.clear();
  visible_now.reset();
  ++views_let_go;
}

Status CatalogState::flush_uses() {
  for (const auto& [key, uses] : pending_uses) {
    RH_TRY_STATUS(
        database->run("UPDATE kv_extents SET uses = uses + ?, last_use = unixepoch() WHERE passage = ? AND "
                      "fingerprint = ?",
                      uses, key.first, key.second));
  }
  return {};
}

Result<int64_t> CatalogState::known_label(std::string_view text) const {
  return database->number("SELECT id FROM labels WHERE text = ?", text);
}

Result<int64_t> CatalogState::label(std::string_view text) {
  RH_TRY(const int64_t known, known_label(text));
  if (known != 0) return known;
  RH_TRY_STATUS(database->run("INSERT INTO labels(text) VALUES(?)", text));
  return database->last_insert_id();
}

Result<std::optional<std::string>> CatalogState::setting(std::string_view key) const {
  RH_TRY(Statement rows, database->prepare("SELECT value FROM settings WHERE key = ?"));
  rows.bind(1, key);
  RH_TRY(const bool row, rows.step());
  if (!row) return std::optional<std::string>();
  return std::optional<std::string>(rows.text(0));
}

Result<uint64_t> CatalogState::kv_cap() const {
  RH_TRY(const auto text, setting(kKvCapSetting));
  uint64_t cap = 0;
  if (!text || text->empty()) return cap;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), cap);
  if (error != std::errc() || end != text->data() + text->size()) {
    return make_error(ErrorKind::kInvalidArgument, "{}: the setting {} is no number of bytes",
                      database->path().string(), kKvCapSetting);
  }
  return cap;
}

Result<WriteScope> WriteScope::begin(CatalogState& state) {
  if (state.options.read_only) {
    return make_error(ErrorKind::kPermission,
                      "the memory in {} was opened to be read only: nothing is written to it",
                      state.options.folder.string());
  }
  state.forget_views();
  WriteScope scope(&state);
  if (state.joins_changes) return scope;
  auto transaction = Transaction::begin(*state.database);
  if (!transaction.ok()) {
    scope.state_ = nullptr;
    return transaction.error();
  }
  scope.transaction_.emplace(std::move(transaction).value());
  RH_TRY_STATUS(state.flush_uses());
  return scope;
}

WriteScope::~WriteScope() {
  if (state_ == nullptr) return;
  if (!transaction_) {
    state_->joined_failed = true;
    return;
  }
  transaction_.reset();
  state_->segments.discard();
}

Status WriteScope::commit() {
  if (!transaction_) {
    state_ = nullptr;
    return {};
  }
  RH_TRY_STATUS(state_->segments.sync());
  RH_TRY_STATUS(transaction_->commit());
  CatalogState& state = *std::exchange(state_, nullptr);
  state.pending_uses.clear();
  state.visible_now.reset();
  return state.segments.remove_dropped_files();
}

Status Catalog::in_one_commit(const std::function<Status()>& change) {
  if (state_->joins_changes) return change();
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  state_->joins_changes = true;
  state_->joined_failed = false;
  Status done = change();
  state_->joins_changes = false;
  RH_TRY_STATUS(done);
  if (state_->joined_failed) {
    return make_error(ErrorKind::kInternal, "{}: a part of a change failed: nothing of it was kept",
                      state_->database->path().string());
  }
  return scope.commit();
}

Result<std::optional<std::string>> Catalog::setting(std::string_view key) const {
  return state_->setting(key);
}

Status Catalog::set_settings(const std::map<std::string, std::string>& values) {
  RH_TRY(WriteScope scope, WriteScope::begin(*state_));
  for (const auto& [key, value] : values) {
    RH_TRY_STATUS(state_->database->run(
        "INSERT INTO settings(key, value) VALUES(?1, ?2) ON CONFLICT(key) DO UPDATE SET "
        "value = excluded.value",
        key, value));
  }
  RH_TRY(const uint64_t cap, state_->kv_cap());
  RH_TRY_STATUS(scope.commit());
  const uint64_t most = state_->options.segment_bytes;
  state_->segments.set_segment_bytes(cap == 0 ? most : std::min(most, cap / kSegmentsUnderCap));
  return {};
}

Status Catalog::refresh() {
  RH_TRY(const int64_t data_version, state_->database->number("PRAGMA data_version"));
  if (data_version == state_->viewed_data_version) return {};
  state_->viewed_data_version = data_version;
  state_->forget_views();
  return {};
}

Result<int64_t> Catalog::generation() const {
  RH_TRY(const int64_t data_version, state_->database->number("PRAGMA data_version"));
  return state_->views_let_go << 32 | (data_version & 0xffffffff);
}

std::string json_list(std::span<const int64_t> ids) {
  return fmt::format("[{}]", fmt::join(ids, ","));
}

}  // namespace rhapsode::store

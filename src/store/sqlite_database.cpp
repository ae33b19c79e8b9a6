#include "store/sqlite_database.h"

#include <fcntl.h>
#include <unistd.h>

namespace rhapsode::store {
namespace {

ErrorKind kind_of(int code, int system_error) {
  switch (code & 0xff) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
      return ErrorKind::kNoSpace;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorKind::kCorrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorKind::kCancelled;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return ErrorKind::kPermission;
    case SQLITE_TOOBIG:
      return ErrorKind::kTooLarge;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
      return make_system_error(system_error, "").kind;
    default:
      return ErrorKind::kInternal;
  }
}

// The system's reason for the last failed call: of the connection, its file or its log, whichever knows one.
int system_error_of(sqlite3* handle) {
  if (handle == nullptr) return 0;
  int reason = sqlite3_system_errno(handle);
  if (reason == 0) sqlite3_file_control(handle, "main", SQLITE_FCNTL_LAST_ERRNO, &reason);
  sqlite3_file* log = nullptr;
  const bool has_log = sqlite3_file_control(handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log) == SQLITE_OK;
  if (reason == 0 && has_log && log != nullptr && log->pMethods != nullptr) {
    log->pMethods->xFileControl(log, SQLITE_FCNTL_LAST_ERRNO, &reason);
  }
  return reason;
}

bool may_write(const std::filesystem::path& folder) {
  return ::faccessat(AT_FDCWD, folder.c_str(), W_OK, AT_EACCESS) == 0;
}

// A file: URI, in which every byte but the plainest is written %hh.
std::string immutable_uri(const std::filesystem::path& path) {
  std::string uri = "file:";
  for (const char c : std::filesystem::absolute(path).string()) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/';
    uri += plain ? std::string(1, c) : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  }
  return uri + "?immutable=1";
}

const char* advice_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kNoSpace:
      return "free some space and try again; nothing was changed";
    case ErrorKind::kCorrupt:
      return "the catalog is damaged: restore the memory from an export or add its sources to a new one";
    case ErrorKind::kCancelled:
      return "another process is using it: try again";
    case ErrorKind::kPermission:
      return "it cannot be written here";
    default:
      return "nothing was changed";
  }
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      sql_(std::move(other.sql_)),
      handle_(std::exchange(other.handle_, nullptr)),
      bind_result_(other.bind_result_) {}

Statement::~Statement() {
  if (handle_ == nullptr) return;
  sqlite3_reset(handle_);
  sqlite3_clear_bindings(handle_);
  database_->idle_.emplace(std::move(sql_), handle_);
}

Statement& Statement::bind(int index, int64_t value) {
  const int code = sqlite3_bind_int64(handle_, index, value);
  if (code != SQLITE_OK) bind_result_ = code;
  return *this;
}

Statement& Statement::bind(int index, std::string_view text) {
  // A view without bytes may have no address, which SQLite takes for NULL.
  const char* bytes = text.data() == nullptr ? "" : text.data();
  const int code = sqlite3_bind_text64(handle_, index, bytes, text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_result_ = code;
  return *this;
}

Statement& Statement::bind(int index, std::span<const std::byte> blob) {
  const void* bytes = blob.data() == nullptr ? "" : static_cast<const void*>(blob.data());
  const int code = sqlite3_bind_blob64(handle_, index, bytes, blob.size(), SQLITE_TRANSIENT);
  if (code != SQLITE_OK) bind_result_ = code;
  return *this;
}

Statement& Statement::bind_null(int index) {
  const int code = sqlite3_bind_null(handle_, index);
  if (code != SQLITE_OK) bind_result_ = code;
  return *this;
}

Result<bool> Statement::step() {
  if (bind_result_ != SQLITE_OK) return database_->error(bind_result_);
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->error(code);
}

Status Statement::run() {
  while (true) {
    RH_TRY(const bool row, step());
    if (!row) break;
  }
  reset();
  return {};
}

void Statement::reset() {
  sqlite3_reset(handle_);
  bind_result_ = SQLITE_OK;
}

std::string_view Statement::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(handle_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(handle_, column))};
}

std::span<const std::byte> Statement::blob(int column) const {
  const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(handle_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(handle_, column))};
}

Result<std::unique_ptr<Database>> Database::open(const std::filesystem::path& path,
                                                 const DatabaseOptions& options) {
  auto database = open_plainly(path, options, false);
  if (database.ok() &&
      (!options.read_only || (*database)->number("SELECT count(*) FROM sqlite_schema").ok())) {
    return database;
  }
  // Reading needs the log's index beside the file. Where the folder cannot be written, nobody writes to the
  // file either, and without a log it can be read as it is.
  std::error_code ignored;
  const bool has_log = std::filesystem::exists(path.string() + "-wal", ignored);
  if (!options.read_only || has_log || may_write(path.parent_path())) return database;
  return open_plainly(path, options, true);
}

Result<std::unique_ptr<Database>> Database::open_plainly(const std::filesystem::path& path,
                                                         const DatabaseOptions& options, bool immutable) {
  std::unique_ptr<Database> database(new Database);
  database->path_ = path;
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |= options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (options.create && !options.read_only) flags |= SQLITE_OPEN_CREATE;
  const std::string name = immutable ? immutable_uri(path) : path.string();
  if (immutable) flags |= SQLITE_OPEN_URI;
  const int code = sqlite3_open_v2(name.c_str(), &database->handle_, flags, nullptr);
  if (code != SQLITE_OK) return database->error(code);
  RH_TRY_STATUS(database->configure(options));
  return database;
}

Status Database::configure(const DatabaseOptions& options) {
  sqlite3_busy_timeout(handle_, options.busy_ms);
  // The file may come from a stranger: its schema runs nothing of ours and its pages are checked.
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  RH_TRY_STATUS(
      execute("PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON; PRAGMA cache_size = -32768;"));
  if (options.read_only) return execute("PRAGMA query_only = ON;");
  // secure_delete: what is removed is overwritten with zeros, also inside pages that stay.
  return execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;");
}

Database::~Database() {
  for (auto& [sql, statement] : idle_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

Result<Statement> Database::prepare(std::string_view sql) {
  if (const auto found = idle_.find(sql); found != idle_.end()) {
    auto node = idle_.extract(found);
    return Statement(this, std::move(node.key()), node.mapped());
  }
  sqlite3_stmt* handle = nullptr;
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &handle, nullptr);
  if (code != SQLITE_OK) return error(code);
  return Statement(this, std::string(sql), handle);
}

Status Database::execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return error(code);
  return {};
}

Error Database::error(int code) const {
  const ErrorKind kind = kind_of(code, system_error_of(handle_));
  const char* reason = handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_);
  return make_error(kind, "{}: {} (SQLite code {}); {}", path_.string(), reason, code, advice_of(kind));
}

Result<Transaction> Transaction::begin(Database& database) {
  RH_TRY_STATUS(database.execute("BEGIN IMMEDIATE"));
  return Transaction(&database);
}

Transaction::~Transaction() {
  // A failed statement may have rolled back by itself.
  if (database_ != nullptr && database_->in_transaction()) {
    sqlite3_exec(database_->handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

Status Transaction::commit() {
  RH_TRY_STATUS(database_->execute("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace rhapsode::store

// A thin layer over SQLite: a connection, statements that clean up after themselves, transactions.
//
// Errors: SQLite's codes become our kinds (full disk: kNoSpace, damaged file: kCorrupt, held by another
// process: kCancelled, read-only: kPermission) in a sentence with the file. Statements are compiled once and
// kept; a Statement borrows one and gives it back. Threads: one at a time an object. Ownership: a Database
// outlives its statements and transactions.
#pragma once

#include <sqlite3.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace rhapsode::store {

class Database;

class Statement {
 public:
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Parameters are numbered from 1. A failure is reported by the next step().
  Statement& bind(int index, int64_t value);
  Statement& bind(int index, std::string_view text);
  Statement& bind(int index, std::span<const std::byte> blob);
  Statement& bind_null(int index);
  // True when a row is there, false at the end.
  Result<bool> step();
  // Steps to the end.
  Status run();
  // Ready to be bound and stepped again.
  void reset();

  // Columns are numbered from 0; NULL reads as 0 or empty. Views live until the next step().
  int64_t integer(int column) const { return sqlite3_column_int64(handle_, column); }
  uint64_t size(int column) const { return static_cast<uint64_t>(integer(column)); }
  int small(int column) const { return sqlite3_column_int(handle_, column); }
  double real(int column) const { return sqlite3_column_double(handle_, column); }
  bool is_null(int column) const { return sqlite3_column_type(handle_, column) == SQLITE_NULL; }
  std::string_view text(int column) const;
  std::span<const std::byte> blob(int column) const;

 private:
  friend class Database;
  Statement(Database* database, std::string sql, sqlite3_stmt* handle)
      : database_(database), sql_(std::move(sql)), handle_(handle) {}
  Database* database_ = nullptr;
  std::string sql_;
  sqlite3_stmt* handle_ = nullptr;
  int bind_result_ = SQLITE_OK;
};

struct DatabaseOptions {
  bool read_only = false;
  bool create = false;
  int busy_ms = 5000;  // how long a call waits for another process
};

class Database {
 public:
  static Result<std::unique_ptr<Database>> open(const std::filesystem::path& path,
                                                const DatabaseOptions& options);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Result<Statement> prepare(std::string_view sql);
  // Any number of statements without parameters; rows are dropped.
  Status execute(const char* sql);
  // One statement with its parameters, to the end.
  template <typename... Values>
  Status run(std::string_view sql, const Values&... values) {
    RH_TRY(Statement statement, prepare(sql));
    int index = 0;
    (statement.bind(++index, values), ...);
    return statement.run();
  }
  // The first column of the first row, 0 without one.
  template <typename... Values>
  Result<int64_t> number(std::string_view sql, const Values&... values) {
    RH_TRY(Statement statement, prepare(sql));
    int index = 0;
    (statement.bind(++index, values), ...);
    RH_TRY(const bool row, statement.step());
    return row ? statement.integer(0) : 0;
  }

  int64_t last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }
  int64_t changes() const { return sqlite3_changes64(handle_); }
  bool in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }
  const std::filesystem::path& path() const { return path_; }
  sqlite3* handle() const { return handle_; }
  // The last failure as an error; `code` is SQLite's (extended) result.
  Error error(int code) const;

 private:
  friend class Statement;
  Database() = default;
  static Result<std::unique_ptr<Database>> open_plainly(const std::filesystem::path& path,
                                                        const DatabaseOptions& options, bool immutable);
  Status configure(const DatabaseOptions& options);

  std::filesystem::path path_;
  sqlite3* handle_ = nullptr;
  std::multimap<std::string, sqlite3_stmt*, std::less<>> idle_;  // compiled statements nobody uses
};

// BEGIN IMMEDIATE ... COMMIT; rolls back unless commit() was called and succeeded.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database* database) : database_(database) {}
  Database* database_ = nullptr;
};

}  // namespace rhapsode::store

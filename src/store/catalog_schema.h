// The tables of catalog.db (docs/formats/catalog.md) and their version stamp.
//
// Errors: kCorrupt for a database that is no catalog, kUnsupported for one of a newer version, with both
// versions. Threads: the database's.
#pragma once

#include "base/result.h"
#include "store/sqlite_database.h"

namespace rhapsode::store {

inline constexpr int kCatalogVersion = 1;

// True when the tables are there and of this version; false for an empty database.
Result<bool> check_schema(Database& database);
// Makes the tables, in one transaction.
Status create_schema(Database& database);

}  // namespace rhapsode::store

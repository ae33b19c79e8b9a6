// The tables of catalog.db (docs/formats/catalog.md), their version, and the steps from one version to the
// next.
//
// A new catalog is made as version 1 and taken through all steps, so that every table is written down once.
// Errors: kCorrupt for a database that is no catalog, kUnsupported for one of a newer version, with both
// versions. Threads: the database's.
#pragma once

#include "base/result.h"
#include "store/sqlite_database.h"

namespace rhapsode::store {

inline constexpr int kCatalogVersion = 4;
inline constexpr int kMentionsSince = 2;  // version with mentions
inline constexpr int kConversationsSince = 3;
inline constexpr int kTimesSince = 4;  // version with users, supersession and facts

// The version of the tables, one that this build reads; 0: the database is empty.
Result<int> schema_version(Database& database);
// Makes the tables of an empty database, or takes those of an older version to kCatalogVersion, in one
// transaction: for a writer. Readers take older versions as they are,
Status upgrade_schema(Database& database, int from);
// with the tables of kTimesSince, where they are missing, as empty temporary ones.
Status overlay_missing_tables(Database& database, int version);

// The step that makes `version` out of the one before it (catalog_migration.cpp). Inside a transaction.
Status migrate_to(Database& database, int version);

}  // namespace rhapsode::store

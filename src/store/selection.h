// Which sources a reading call of the catalog looks at: whose, named how, and when. A plain value.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rhapsode::store {

// Sources to look at. `sources` are names or folders above them; empty lists mean all.
struct Selection {
  std::vector<std::string> sources;
  std::vector<std::string> tags;  // all of these
  // ISO 8601; a day means its last moment; empty: now, whatever event times say.
  std::string as_of;
  // Unset: conversations are sources like others. Set: they are seen only below one of these names or one of
  // `sources`, whatever else is selected.
  std::optional<std::vector<std::string>> conversations = {};
  // Whose sources: those that are everybody's and this user's own; or, with all_users, everyone's. In a
  // catalog that has users' own sources, a selection that says neither is refused (kPermission).
  std::string user = {};
  bool all_users = false;
  // Superseded sources are left out, except those named in `sources` or here (exactly, no folders).
  std::vector<std::string> admitted = {};
  bool superseded = false;  // none is left out
  bool past_facts = false;  // all values that facts ever had, besides what is current
  bool history = false;     // every version there ever was, ended and superseded ones too; as_of is ignored

  // What is stored and current, whoever's it is and whatever supersedes it: for writers, never for questions.
  static Selection stored() {
    Selection selection;
    selection.all_users = selection.superseded = true;
    return selection;
  }
  // Whatever is stored, of any time: for what was selected before.
  static Selection stored_ever() {
    Selection selection;
    selection.all_users = selection.history = true;
    return selection;
  }
  // Leaves no live source out, where no source is a user's own.
  bool is_open() const {
    return sources.empty() && tags.empty() && as_of.empty() && admitted.empty() && !superseded && !history &&
           !conversations && !past_facts;
  }
};

}  // namespace rhapsode::store

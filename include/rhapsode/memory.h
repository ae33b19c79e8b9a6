// A memory: a folder that holds what a model has read, and answers from it with exact citations.
//
// add() encodes documents once; ask() routes a question inside the model, reads the chosen passages' KV and
// streams an answer; search() shows what would be read. A memory belongs to one model (its fingerprint); one
// process writes at a time (add, forget, import), any number read. What was stored is never lost or half
// visible: every change becomes visible in one commit, and a killed add() goes on where it was.
// Ownership: keeps a reference to its engine, which outlives it. Threads: every function may be called from
// any thread, but not from within on_text; calls wait for one another, except that those that only read go
// on while an ask()'s answer is being generated, further answers included. Errors: sentences that name what,
// where and what to do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/answer.h"
#include "rhapsode/engine.h"
#include "rhapsode/facts.h"
#include "rhapsode/memory_options.h"
#include "rhapsode/memory_results.h"
#include "rhapsode/result.h"

namespace rhapsode {

class ConversationTurn;

class Memory {
 public:
  // Opens the memory at options.folder, or makes it when options.create is set. A memory made with another
  // model is refused with what re-encoding would cost, unless options.reencode is set.
  static Result<std::unique_ptr<Memory>> open(Engine& engine, const MemoryOptions& options);
  // Opens a memory that exists without its model: list, show, text, stats and export_to work, the rest gives
  // kInvalidArgument. Cost: milliseconds.
  static Result<std::unique_ptr<Memory>> look(const MemoryOptions& options);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // What add() would do, without doing it: reads and cuts the sources, evaluates nothing.
  Result<AddPlan> plan(const AddOptions& options);
  // One bad source never stops the others: it is in the report with its reason. Cancelled by on_progress
  // returning false; what is done by then stays done.
  Result<AddReport> add(const AddOptions& options);

  Result<std::vector<FoundPassage>> search(const std::string& question, const SearchOptions& options);
  Result<Answer> ask(const AskOptions& options);
  // How likely `answer` (its first tokens) would be as the reply to the same ask(): for measurements.
  Result<AnswerScore> score(const AskOptions& options, const std::string& answer, int most_tokens = 64);

  Result<std::vector<SourceInfo>> list(const SourceFilter& filter);
  // Of `filter`, whose sources it is about and when.
  Result<SourceDetail> show(const std::string& source, const SourceFilter& filter = {});
  // The text that citations of the source's version are offsets of: the current one, or that of filter.as_of.
  Result<std::string> text(const std::string& source, const SourceFilter& filter = {});
  // What is said of facts, recorded (facts.h): each fact is a source, its values are its versions.
  Result<FactReport> record(std::span<const FactStatement> statements);
  // The facts that hold at the filter's time, or with `history` everything that was said, oldest first.
  Result<std::vector<FactInfo>> facts(const SourceFilter& filter);

  // Erases sources: no byte of their text, codes or KV stays in any file. Returns what went.
  Result<ForgetReport> forget(const ForgetOptions& options);
  // What answers in conversations were made with one of these sources in view: forget() leaves them alone
  // unless options.derived is set.
  Result<std::vector<DerivedAnswer>> derived(const ForgetOptions& options);
  // Of the whole memory: where sources are users' own, only with `all_users`.
  Result<MemoryStats> stats(bool all_users = false);
  // Checks every checksum and re-encodes a sample of passages.
  Result<VerifyReport> verify(const VerifyOptions& options);
  // One checksummed file with everything; import() makes a memory of it in an empty or absent folder.
  Status export_to(const std::filesystem::path& file, bool all_users = false);
  static Status import_from(const std::filesystem::path& file, const std::filesystem::path& folder);

  // Makes the routing file of the engine's model: the statistics that finding passages needs, once for a
  // model that is not of the catalogue.
  static Result<RoutingReport> make_routing(Engine& engine, const RoutingOptions& options);

  const std::filesystem::path& folder() const;

 private:
  friend class Conversation;
  friend class ConversationTurn;
  struct Impl;
  class Asking;
  class Hopping;
  explicit Memory(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What can be known of a memory without loading its model: which model it was made with, where from.
struct MemoryIdentity {
  std::filesystem::path folder;
  std::string model_name;            // "Qwen2.5 Coder 0.5B Instruct"
  std::filesystem::path model_path;  // where the model's file was when the memory was last opened
  std::string fingerprint;
};
Result<MemoryIdentity> identify_memory(const std::filesystem::path& folder);

}  // namespace rhapsode

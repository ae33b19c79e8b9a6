// What a Memory is made of: shared by the memory_*.cpp files.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/engine_passes.h"
#include "engine/memory_gate.h"
#include "engine/verdict.h"
#include "index/whitening.h"
#include "recall/encoder.h"
#include "recall/evidence_model.h"
#include "recall/finder.h"
#include "recall/ingester.h"
#include "recall/kv_tier.h"
#include "recall/passage_tokenizer.h"
#include "recall/prompt_frame.h"
#include "recall/router.h"
#include "rhapsode/memory.h"
#include "store/catalog.h"

namespace rhapsode {

// The system turn of a memory that was given none.
std::string built_in_instruction();
// The prompt's frame by the model's chat template, if it has one.
Result<recall::PromptFrame> make_frame(const engine::ModelRunner& runner, const std::string& instruction);

// What follows finding, stage by stage (route_stages.h).
struct RoutePlan {
  JudgeOptions judge;
  ChainOptions chain;
  LinkOptions links;
  bool evidence = false;  // ranked by the trained ranker

  Status check() const;
  bool chains() const { return chain.passages > 1; }
  // How many passages have to be found for all stages.
  int depth() const;
};

struct Memory::Impl {
  // `engine_in` may be null: then only what needs no model works, and `passes` and the parts below it are
  // null.
  Impl(Engine::Impl* engine_in, const MemoryOptions& options_in) : engine(engine_in), options(options_in) {
    if (engine) passes = std::make_unique<engine::EnginePasses>(*engine->runner, *engine->scheduler);
  }
  ~Impl();

  Engine::Impl* engine;
  MemoryOptions options;
  std::unique_ptr<engine::EnginePasses> passes;
  std::unique_ptr<store::Catalog> catalog;
  std::string model_sha256;
  std::string model_id;        // of weights and adapters: must be the memory's own
  std::string kv_fingerprint;  // of everything that changes KV bytes
  kernels::KvType stored_kv = kernels::KvType::kF16;
  uint64_t disk_cap_bytes = 0;
  int host_threads = 1;
  std::unique_ptr<recall::PromptFrame> frame;
  std::unique_ptr<recall::PassageTokenizer> tokenizer;
  std::unique_ptr<index::Whitening> whitening;
  std::unique_ptr<recall::Encoder> encoder;
  std::unique_ptr<recall::Finder> finder;
  std::unique_ptr<recall::Router> router;
  std::optional<recall::EvidenceModel> evidence;  // unset: there is none
  std::unique_ptr<recall::KvTier> tier;
  uint64_t planned_tokens = 0;  // by the last plan()
  // Passages read from stored KV since a self-check, times the share to be checked; begins anywhere in [0,
  // 1).
  double unchecked_reads = std::random_device()() / (std::random_device::max() + 1.0);
  uint64_t self_checks = 0;
  std::optional<engine::FoundVerdict> found_verdict;
  engine::MemoryGate gate;  // every call of Memory and of its conversations goes through it

  // What `attempt` gives; again, each time that another answer has been told, while it finds no room for
  // pages beside those of others. Between attempts it holds none.
  template <class Attempt>
  auto with_room(const Attempt& attempt) {
    auto result = attempt();
    while (!result.ok() && lacks_room(result.error()) && gate.wait_for_leave()) result = attempt();
    return result;
  }
  static bool lacks_room(const Error& error) {
    return error.kind == ErrorKind::kNoSpace || error.kind == ErrorKind::kTooLarge;
  }

  Status set_up();
  // kInvalidArgument when the memory was opened without its model.
  Status needs_model() const;
  Status adopt_settings();
  Result<bool> check_model();
  Status encode_again();
  Status make_parts(const std::string& instruction);
  std::unique_ptr<recall::Ingester> ingester();
  Result<store::Selection> selection(const SourceFilter& filter) const;
  // The same for questions: conversations are read only when they are named.
  Result<store::Selection> reading_selection(const SourceFilter& filter) const;
  Result<std::vector<DerivedAnswer>> derived_answers(const std::vector<std::string>& names) const;
  Status erase_derived(const DerivedAnswer& answer);
  // What a question's words do to what it sees: superseded sources that it names are seen, and earlier values
  // of facts when it asks about the past.
  struct Superseded {
    std::string by;    // a source
    std::string note;  // a sentence
  };
  struct QuestionTimes {
    store::Selection selection;
    std::optional<text::DatePeriod> period = {};  // statements of this time are preferred
    std::string as_of = {};                       // the same, as text: of the filter, else of the question
    std::vector<std::string> notes = {};
    std::map<std::string, Superseded> superseded = {};  // by source
  };
  static recall::RouteOptions route_options(const QuestionTimes& times);
  Result<QuestionTimes> question_times(const std::string& question, const SourceFilter& filter,
                                       bool heed) const;
  // Where sources are users' own, only with `all_users`.
  Status needs_all_users(bool all_users, std::string_view what) const;
  Status record(const FactStatement& statement, FactReport& report);
  Result<std::vector<std::string>> names_of(const ForgetOptions& options);
  // Runs `change` on a catalog that may write: this one, or for a moment another one of the same folder. A
  // memory that somebody else is writing to is left as it is; false then.
  bool with_writer(const std::function<Status(store::Catalog&)>& change);
  recall::KvUpkeep upkeep();
  // `dimensions` 0: only to say what there is, without reading the index.
  Result<std::unique_ptr<recall::Finder>> make_finder(int dimensions, int threads) const;
  // For a writer, after a change: the index of a large memory follows.
  Status sync_index();
  // Keeps what the finder's monitor has seen in the catalog, for later processes; a memory that cannot be
  // written to forgets it.
  void keep_recall_samples();
  Status verify_passage(int64_t id, VerifyReport& report);
  // Looked up once: calibrating again takes effect when the memory is next opened.
  const engine::FoundVerdict& verdict();
  PassageInfo info_of(const store::PassageRow& row) const;
  class RouteStages;
  // Settles what ranks. kNotFound when the trained ranker is asked for and not there; kAuto takes it where it
  // is and all signals of finding are wanted.
  Result<RoutePlan> route_plan(RoutePlan plan, RankBy rank, bool all_signals) const;
  // The best passages for a question. Adds what was run through the model.
  Result<recall::Route> route(const std::string& question, const recall::RouteOptions& route_options,
                              const RoutePlan& plan);
  Result<std::vector<FoundPassage>> found(std::span<const recall::Ranked> ranked, const QuestionTimes& times);
};

}  // namespace rhapsode

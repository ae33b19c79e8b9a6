// One Memory::ask(), step by step: choose passages, place them, bring their KV, answer, cite.
//
// Shared by memory_ask.cpp (what is asked and answered), asking_read.cpp (how passages become context),
// asking_again.cpp (routing within the answer), asking_trace.cpp and asking_cite.cpp. Threads: one call at a
// time, inside the memory's gate; only while the answer is generated it stands outside.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/answer_watch.h"
#include "engine/memory_impl.h"
#include "recall/attention_meter.h"
#include "recall/blender.h"
#include "recall/citer.h"
#include "text/document.h"

namespace rhapsode {

class Memory::Asking {
 public:
  Asking(Impl& memory, const AskOptions& options)
      : memory_(memory),
        options_(options),
        question_(options.question),
        begin_ns_(now_ns()),
        watch_(options.reroute, options.trace) {}

  Result<Answer> run();
  Result<AnswerScore> score(const std::string& answer, int most_tokens);

 private:
  using State = Generation::State;
  // What it works with, from the passages chosen to the prompt; vectors are by passage, in reading order.
  struct Reading {
    std::vector<FoundPassage> passages;
    std::vector<text::DocumentKind> kinds;
    std::vector<recall::PassageTokens> tokens;
    std::vector<std::vector<store::PagePin>> pages;  // only when stored KV is read, or when citing
    std::shared_ptr<recall::LoadedKv> coming;        // what of them may be on its way
    std::vector<int32_t> shifts;
    std::vector<std::string> misses;  // why KV was not there; empty: it was
    std::vector<int32_t> tail;
    recall::Blend blend;
    int32_t tail_position = 0;
    int memory_tokens = 0;
    int made_tokens = 0;            // of passages whose KV was not there
    size_t routing = 0;             // of the trace, that it began with
    size_t joined = 0;              // passages, the last ones, that another reading had not
    std::vector<double> attention;  // on each passage so far, summed over the tokens measured
  };

  Status check() const;
  void tell_times();
  Result<bool> choose();
  Result<recall::Route> look_for(const std::string& query, int count);
  void note_joined(size_t index);  // in what is read
  // Puts it last into what is read; false when the budget is full.
  Result<bool> take(FoundPassage passage, Reading& reading);
  Status look_up_kinds(std::span<const FoundPassage> found);  // of documents, all in one query
  void choose_policy();
  Status place();
  Status set_places();
  void reorder();
  Status load_pages();
  Status load();
  bool first_is_exact() const;
  Status blend();
  Result<std::vector<double>> rarity(std::span<const int32_t> tokens) const;
  bool reads_stored() const;
  std::vector<int32_t> prompt() const;
  Status read_into(State& state);  // runs, and what is evaluated within them
  Result<std::shared_ptr<State>> reader(Request request);
  Result<Response> read_and_generate();
  Result<Response> generate();
  // Usage of a reading, and how each passage came to be read.
  void account(const Reading& reading, const Usage& spent);

  // Looks for passages with what has been answered so far, and goes on behind what joins. Where it fails,
  // the answer goes on with what it has.
  void route_again(State& state);
  // Whether the pause is for a search: not when attention was looked at and has not fallen.
  Result<bool> wants_search(const State& state, TracedRouting& routing);
  Status search_again(State& state);
  // What is read now with the new passages behind it, best last, and without what has to leave.
  Result<Reading> joined(const State& state, std::vector<FoundPassage> found, size_t routing);
  Status leave(const State& state, int room, Reading& next);
  Status read_again(State& state, Reading next);

  // Where attention went at the tokens that were not measured yet.
  Status measure(const State& state, const std::vector<GeneratedToken>& told);
  recall::MeteredContext metered(const State& state) const;
  void finish_trace(const State& state, const Response& response);

  Status cite(const Response& response);
  Status check_self();
  Answer abstained();
  void add_citation(const recall::Support& support);

  Impl& memory_;
  AskOptions options_;    // the question as it is told to the model
  std::string question_;  // as asked
  Impl::QuestionTimes times_;
  std::map<std::string, text::DocumentKind> kinds_;  // of sources, as far as looked up
  BlendOptions blend_options_;                       // as asked for, or as the verdict says
  int64_t begin_ns_;
  int64_t first_text_ns_ = 0;
  std::string begin_text_;  // of options_.begin
  Reading reading_;
  AnswerWatch watch_;
  AnswerTrace trace_;
  std::vector<std::string> problems_;  // of routing again
  Answer answer_;
};

}  // namespace rhapsode

// One Memory::ask(), step by step: choose passages, place them, bring their KV, answer, cite.
//
// Shared by memory_ask.cpp (what is asked and answered), asking_read.cpp (how passages become context) and
// asking_cite.cpp. Threads: one call at a time, under the memory's lock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/memory_impl.h"
#include "recall/blender.h"
#include "recall/citer.h"
#include "text/document.h"

namespace rhapsode {

class Memory::Asking {
 public:
  Asking(Impl& memory, const AskOptions& options) : memory_(memory), options_(options), begin_ns_(now_ns()) {}

  Result<Answer> run();
  Result<AnswerScore> score(const std::string& answer, int most_tokens);

 private:
  // What it works with, from the passages chosen to the prompt; vectors are by passage, in reading order.
  struct Reading {
    std::vector<FoundPassage> passages;
    std::vector<text::DocumentKind> kinds;
    std::vector<recall::PassageTokens> tokens;
    std::vector<std::vector<store::PagePin>> pages;  // only when stored KV is read, or when citing
    std::vector<int32_t> shifts;
    std::vector<std::string> misses;  // why KV was not there; empty: it was
    std::vector<int32_t> tail;
    recall::Blend blend;
    int32_t tail_position = 0;
    int memory_tokens = 0;
  };

  Status check() const;
  void tell_times(const Impl::QuestionTimes& times);
  Result<bool> choose();
  void choose_policy();
  Status place();
  void reorder();
  Status load_pages();
  Status load();
  bool first_is_exact() const;
  Status blend();
  Result<std::vector<double>> rarity(std::span<const int32_t> tokens) const;
  bool reads_stored() const;
  std::vector<int32_t> prompt() const;
  Result<std::shared_ptr<Generation::State>> reader(Request request);
  Result<Response> generate();
  void account(const Response& response);  // usage, and how each passage came to be read
  Status cite(const Response& response);
  Status check_self();
  Answer abstained();
  void add_citation(const recall::Support& support);

  Impl& memory_;
  AskOptions options_;          // the question as it is told to the model
  BlendOptions blend_options_;  // as asked for, or as the verdict says
  int64_t begin_ns_;
  int64_t first_text_ns_ = 0;
  int made_tokens_ = 0;  // of passages whose KV was not there
  Reading reading_;
  Answer answer_;
};

}  // namespace rhapsode

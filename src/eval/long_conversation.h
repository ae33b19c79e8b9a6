// A long conversation, held and measured: what a turn costs as the conversation grows, and whether facts that
// were told are known long afterwards.
//
// Every turn of the script is said to a Talk. Turns of chats are noted, user and assistant; every
// answered_every-th is answered by the model, with recall; what users say goes through the write-back of
// facts as it is said. One record a window of turns (group "turns": medians and 95th percentiles) and one a
// fact (group "facts"). Ownership: keeps references. Threads: one. Errors: the Talk's, which end the run;
// kCancelled when the caller stops.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/long_script.h"
#include "eval/options.h"
#include "eval/record.h"
#include "eval/results_file.h"
#include "eval/task.h"
#include "rhapsode/conversation.h"
#include "rhapsode/facts.h"

namespace rhapsode::eval {

// What is measured, behind the few calls that the measurement needs.
class Talk {
 public:
  virtual ~Talk() = default;
  virtual Result<rhapsode::Reply> note(const NotedMessage& message) = 0;
  virtual Result<rhapsode::Reply> say(const SayOptions& options) = 0;
  virtual Status remember(const HeardMessage& message) = 0;
  // Those in force.
  virtual Result<std::vector<FactInfo>> facts() = 0;
  virtual uint64_t resident_bytes() = 0;  // of the process; 0: not known
};

struct LongOptions {
  SayOptions saying;  // its text, speaker and time are the script's
  int answer_tokens = 32;
  int window = 250;
};

class LongConversation {
 public:
  LongConversation(const Script& script, const LongOptions& options, Talk& talk)
      : script_(script), options_(options), talk_(talk) {}

  // false from on_turn stops.
  Status run(ResultsFile& results, const std::function<bool(size_t done, size_t total)>& on_turn = {});

 private:
  // Of the turns of a window.
  struct Window {
    std::vector<double> turn_ms, say_ms, route_ms, remember_ms;
    double total_ms = 0;
    int64_t tokens = 0;
  };

  Status take_turn(const ScriptTurn& turn, int number, ResultsFile& results);
  Status note(const std::string& role, const std::string& text, const ScriptTurn& turn);
  Status remember(const ScriptTurn& turn, int number);
  Result<rhapsode::Reply> say(const ScriptTurn& turn);
  Result<Record> judge(const ScriptedFact& fact, int number, const rhapsode::Reply& reply);
  Status close_window(int first, int last, ResultsFile& results);

  const Script& script_;
  const LongOptions& options_;
  Talk& talk_;
  Window window_;
};

// What results of equal numbers need, as Evaluation::settings().
Json talk_settings(const Task& task, const LongNumbers& numbers, const LongOptions& options,
                   const Options& asked, const SubjectInfo& info);

// The middle one, or the one that a twentieth lies above; 0 of none. Sorts.
double median_of(std::vector<double>& values);
double p95_of(std::vector<double>& values);

}  // namespace rhapsode::eval

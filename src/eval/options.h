// What one evaluation has been asked for. Plain values with defaults that work.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "rhapsode/memory_options.h"

namespace rhapsode::eval {

struct Options {
  std::filesystem::path data = "data";     // folder of the public sets
  std::filesystem::path memory;            // where memories are kept between runs; empty: a temporary folder
  std::filesystem::path output;            // results file; empty: TASK-MODEL.jsonl
  std::string contexts;                    // "closed,full"; empty: the task's own
  std::string baseline;                    // differences are taken from this context; empty: the task's own
  std::string pool = "own";                // own: the task's documents; all: its filler too
  std::string commit;                      // of the program measured; empty: its version
  ReadPolicy policy = ReadPolicy::kReuse;  // how found passages are read: as text when kFull or kPrefix
  int limit = 0;                           // questions, a seeded selection; 0: as the task says
  std::string part;         // "2/10": the second of ten equal runs of the selection; empty: all
  int pool_tokens = 0;      // size of the pool, a seeded selection, at 4 bytes a token; 0: all
  int distractors = -1;     // beside the evidence; -1: as the task says
  int passages = 5;         // read of what was found
  RerouteOptions reroute;   // of contexts with "+again"; with no condition: sentences
  int depth = 0;            // passages of a ranking that are kept; 0: as many as are measured
  bool heed_times = true;   // what questions say of time is used
  bool best_first = false;  // of what was found, the best passage stands first, not last
  int budget_tokens = 2560;
  int live_budget_tokens = 2048;  // of conversations that are replayed
  uint32_t seed = 0;              // of the selection and the intervals
  bool resume = false;
  bool recall_only = false;  // rank, do not answer
  bool fidelity = true;      // also likelihood of the gold answer and divergence from full attention
  bool encode = false;       // store the KV of the whole pool first instead of on first read
};

}  // namespace rhapsode::eval

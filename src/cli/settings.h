// What one run of the program has been asked to do: the library's own option structs plus what only commands
// need.
//
// The defaults here and in rhapsode/options.h are the only ones: help, `rhapsode config` and the resolver
// read them from a default-constructed Settings. Plain values; which option writes which member stands in
// option_table.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "eval/options.h"
#include "rhapsode/memory_options.h"
#include "rhapsode/options.h"

namespace rhapsode::cli {

struct GenerateSettings {
  std::filesystem::path file;  // prompt file; "-": standard input
  std::string system;
  bool raw = false;     // the prompt is text to continue, not a user's turn
  bool stream = false;  // with --json: one object a line, as the text comes
};

struct PullSettings {
  bool list = false;
  bool offline = false;
  std::string index_url;  // empty: $PIP_INDEX_URL, else the public index
};

struct InspectSettings {
  bool tensors = false;
};

struct BenchSettings {
  bool compare_llama = false;
  bool encode = false;
  std::vector<int> prefill_tokens{512, 2048, 16384};
  std::vector<int> decode_contexts{0, 2048, 16384};
  int runs = 5;
  int long_runs = 1;       // runs of lengths of 8,192 tokens and more
  int decode_tokens = 32;  // steps timed at each context
};

// What `remember` is told, and by whom.
struct RememberSettings {
  std::string at;  // empty: unknown
  std::string id;
  bool ask_model = false;
};

// What commands over a memory take: the library's own options, and what only the shell needs.
struct MemorySettings {
  MemoryOptions options;
  SourceFilter filter;  // its tags are also those that `add` gives and `forget` takes
  AddOptions add;
  SearchOptions search;
  AskOptions ask;            // max_tokens and sampling are those of `request`
  std::vector<int> read;     // ids of passages to read instead of routing
  VerifyOptions verify;      // its seed is that of `request`
  std::string conversation;  // empty: none, what is said is not kept
  std::string fork_from;
  std::string speaker;
  int live_budget_tokens = 2048;
  bool other_conversations = false;
  bool derived = false;
  std::filesystem::path answer_trace;  // empty: none is written
  bool heat_map = false;
  bool yes = false;  // every question is answered so
  bool verbose = false;
  bool dry_run = false;
  bool text = false;  // print the stored text
  RememberSettings remember;
};

struct RoutingSettings {
  std::filesystem::path questions;
  std::filesystem::path file;
  int chunks = 40000;
};

struct CalibrateSettings {
  bool thorough = false;
  std::filesystem::path file;
};

struct Settings {
  std::string model = "qwen2.5-coder-0.5b";  // catalogue name or path
  EngineOptions engine;
  Request request;
  bool json = false;
  int limit = 0;                 // of passages to show, or of questions to ask; 0: the command's own
  std::filesystem::path config;  // empty: rhapsode.toml in the home folder, if there is one
  GenerateSettings generate;
  PullSettings pull;
  InspectSettings inspect;
  BenchSettings bench;
  MemorySettings memory;
  RoutingSettings routing;
  CalibrateSettings calibrate;
  eval::Options eval;  // its folder, policy, seed and numbers are those of `memory` and `request`
};

}  // namespace rhapsode::cli

// What a caller of memory.h chooses: plain values with defaults that work.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rhapsode/options.h"

namespace rhapsode {

enum class ReadPolicy : uint8_t {
  kAuto,     // the model's verdict decides: reuse where it allows it, else full
  kFull,     // passages evaluated as text
  kPrefix,   // the same with the KV of equal prefixes reused, exactly
  kReuse,    // stored KV at new positions, nothing evaluated again
  kBlend,    // reuse, with a share of the passages' tokens evaluated again in their place
  kReorder,  // prefix, with the passages in the order in which most of their KV is cached
};
const char* to_string(ReadPolicy policy);  // "auto", "full", "prefix", "reuse", "blend", "reorder"

// Which tokens of the passages are evaluated again under kBlend.
enum class BlendSelector : uint8_t {
  kAttention,       // those the question attends to most, from one pass of it over the stored KV
  kFirst,           // the first of each passage (EPIC, arXiv 2410.15332)
  kLast,            // the last of each passage
  kAttentionFirst,  // half by each of the two
  kAttentionLast,   // and of these two
  kDeviation,       // whose values differ most in an early layer (CacheBlend, arXiv 2405.16444)
  kBoundary,        // both ends of each passage and the memory's rarest tokens
  kRandom,          // a control
};
inline constexpr std::array kBlendSelectors{BlendSelector::kAttention,     BlendSelector::kFirst,
                                            BlendSelector::kLast,          BlendSelector::kAttentionFirst,
                                            BlendSelector::kAttentionLast, BlendSelector::kDeviation,
                                            BlendSelector::kBoundary,      BlendSelector::kRandom};
const char* to_string(BlendSelector selector);  // "attention", "first", "attention+first", "deviation", ...

inline constexpr int kMostBlendRounds = 8;
struct BlendOptions {
  BlendSelector selector = BlendSelector::kAttentionFirst;
  double share = 0.15;  // of the passages' tokens, 0 to 1
  // The share is chosen in so many steps: the selector looks again after each, over what was evaluated.
  int rounds = 1;     // at most kMostBlendRounds
  uint32_t seed = 0;  // of kRandom
};

enum class ReadOrder : uint8_t {
  kSequential,  // positions as if the passages stood one after another
  kParallel,    // every passage at the same positions
};

struct MemoryOptions {
  std::filesystem::path folder;
  bool create = false;
  bool read_only = false;
  bool reencode = false;                   // adopt the engine's model, dropping the KV and codes of another
  std::string instruction;                 // at creation: the system turn; empty: the built-in one
  std::optional<KvStorage> stored_kv;      // at creation: the type of stored KV; unset: the engine's
  std::optional<uint64_t> disk_cap_bytes;  // of stored KV; unset: keep (at creation: no cap)
  std::filesystem::path whitening;         // a routing side file; empty: the one shipped for the model
  std::filesystem::path ranker;            // a trained evidence ranker; empty: the one shipped
  // Passages are found by an index from so many chunks on; 0: never; unset: keep (at creation: a million).
  std::optional<uint64_t> index_chunks;
};

struct AddProgress {
  std::string source;  // being worked on
  int sources_done = 0;
  int sources_total = 0;
  uint64_t tokens_done = 0;   // encoded by this call
  uint64_t tokens_total = 0;  // to be encoded by this call, as far as known
  double tokens_per_s = 0;
  double seconds_left = 0;  // 0: unknown
};

struct AddOptions {
  std::vector<std::string> paths;  // files, folders, archives; "-": standard input
  std::string standard_input_name = "stdin";
  std::vector<std::string> tags;
  std::string event_time;  // ISO 8601; when the content was true; empty: the document's own date, if any
  std::string user;  // whose own the sources become ("@USER/" goes before their names); empty: everybody's
  std::vector<std::string> supersedes;  // sources, by name or identifier ("PEP 333"), whose place they take
  bool index_only = false;              // make routing keys now, KV on first read
  bool sync = false;                    // sources below the given folders that are gone are removed
  bool hidden = false;
  bool ignore_files = true;  // honour .gitignore
  uint64_t most_source_bytes = 64ull << 20;
  // Only with sync: called with the names to be removed; false keeps them. Unset: they are removed.
  std::function<bool(const std::vector<std::string>&)> confirm_removal;
  std::function<bool(const AddProgress&)> on_progress;  // false cancels
};

// Which sources a call sees. Superseded ones are left out, unless `sources` names them exactly.
struct SourceFilter {
  std::vector<std::string> sources;  // names, or folders above them; empty: all
  std::vector<std::string> tags;     // sources with all of these
  std::string as_of;                 // ISO 8601: what was current then; empty: now
  // Whose: everybody's sources and this user's own; or, with all_users, everyone's. A memory that holds
  // users' own sources refuses a filter that says neither (kPermission).
  std::string user = {};
  bool all_users = false;
  bool history = false;  // every version there ever was, superseded and ended ones too; as_of is ignored
};

// The second stage of routing: of what is found, the best `candidates` are judged by how likely each makes
// the question, over stored KV. 0: no judging.
struct JudgeOptions {
  int candidates = 0;
  // Candidates without stored KV are encoded until so much time has passed; the rest keep what finding gave
  // them.
  int deadline_ms = 2000;
};

// The third stage: a chain of evidence. Its first passage is the best so far; the next one is the one that
// makes the question likeliest given those chosen, read over stored KV, among the candidates and what they
// link to. It ends when no passage adds more than it costs, so that a question of one passage keeps one.
struct ChainOptions {
  int passages = 0;  // at most; 0 or 1: no chain
  int candidates = 20;
  double cost = 1.0;       // nats that a further passage must add to the question's likelihood
  int deadline_ms = 2000;  // as JudgeOptions'
};

// The last stage: from the best `seeds` passages so far on to those that share a rare mention with them
// (names, titles, symbols, addresses), ranked by personalised PageRank. No model is asked.
struct LinkOptions {
  bool on = true;
  int seeds = 5;
  double follow = 0.5;    // chance of going on along a link, 0 to 1
  int most_passages = 8;  // that hold a mention which links
};

// What decides the order of passages.
enum class RankBy : uint8_t {
  kAuto,   // evidence, where a trained ranker is there, links are on and both signals are wanted; else fused
  kFused,  // the signals of finding, then links
  kEvidence,  // a trained ranker over what is found, what links lead to, and what the question names
};
const char* to_string(RankBy rank);  // "auto", "fused", "evidence"

struct SearchOptions {
  SourceFilter filter;
  bool heed_times = true;  // as AskOptions'
  int limit = 5;
  JudgeOptions judge;
  ChainOptions chain;
  LinkOptions links;
  RankBy rank = RankBy::kAuto;
  bool latent = true;    // the model's own signal
  bool keywords = true;  // BM25
};

// Routing again within an answer: passages are looked for with the question and what has been answered so
// far, and what is new among the best joins the context, behind what is read already. The question and the
// answer so far are evaluated again behind it, so that the answer goes on as if all of it had stood there
// from the start; nothing that was told is taken back. Where the budget is full, those passages leave that
// got least of the model's attention. Each condition is off by itself; with none nothing is looked for again.
struct RerouteOptions {
  int every_tokens = 0;    // after so many tokens of the answer, and again
  bool sentences = false;  // when a sentence of the answer has ended
  double entropy = 0;      // before a token whose distribution has more than so many nats
  // When the share of attention that falls on the passages drops below this part of its highest so far, 0 to
  // 1: looked at after every eight tokens, at the cost of evaluating them again.
  double attention = 0;
  int most = 3;      // times in an answer
  int passages = 2;  // that may join at a time

  bool on() const { return every_tokens > 0 || sentences || entropy > 0 || attention > 0; }
};

struct AskOptions {
  std::string question;
  SourceFilter filter;
  std::vector<Message> history;  // earlier turns: user and assistant alternately
  // Dates in the question prefer passages whose statements hold then, words about the past ("before",
  // "used to") show earlier values of facts, and a superseded source that the question names is read. What
  // was done is told in Answer::notes. filter.as_of goes before dates in the question.
  bool heed_times = true;
  int budget_tokens = 2560;  // of memory to read
  int most_passages = 5;     // 0: read nothing, answer from the question alone
  JudgeOptions judge;
  ChainOptions chain;
  LinkOptions links;
  RankBy rank = RankBy::kAuto;
  // Searches and readings: what one hop finds and answers becomes part of the next one's query. 1: one.
  int hops = 1;
  RerouteOptions reroute;  // not with hops or `passages`
  ReadPolicy policy = ReadPolicy::kAuto;
  BlendOptions blend;  // under kBlend
  // Under kAuto the cheapest way of reading is taken whose measured distance from full attention is within
  // both:
  double max_kl = 0.5;        // nats a token
  double max_f1_loss = 0.05;  // of answers' F1, 0 to 1
  // Share of the passages read from stored KV that are encoded again afterwards and compared; what differs is
  // set aside (reported in Answer::self_check).
  double self_check = 0.01;
  ReadOrder order = ReadOrder::kSequential;
  // The best passage stands first, where its stored KV is exact, instead of last, nearest to the question.
  bool best_first = false;
  std::vector<int64_t> passages;  // read exactly these, in this order, instead of routing
  std::vector<int32_t> begin;     // tokens that the answer begins with: given, not generated
  int max_tokens = 256;
  SamplingOptions sampling;
  bool cite = true;
  bool trace = false;                             // fills Answer::trace, at the cost of evaluating the
                                                  // answer's tokens once more after it was told
  bool abstain = true;                            // say so when the memory holds nothing fit
  std::function<bool(std::string_view)> on_text;  // as Request::on_text
};

struct ForgetOptions {
  std::vector<std::string> sources;  // names, or folders above them
  std::vector<std::string> tags;     // sources with any of these
  bool derived = false;              // erases what answers of conversations made of them, too
  std::string user = {};             // as SourceFilter's
  bool all_users = false;
  // Called with the names found; false forgets nothing. Unset: they are forgotten.
  std::function<bool(const std::vector<std::string>&)> confirm;
};

// What a routing file is made of: texts like those that will be read, and questions like those that will be
// asked. At least 20,000 chunks of 16 tokens are needed.
struct RoutingOptions {
  std::vector<std::string> paths;   // files, folders, archives
  std::filesystem::path questions;  // a question a line; empty: sentences of the texts stand for them
  std::filesystem::path output;     // empty: where the model's memories look for it, in the home folder
  int64_t most_chunks = 40000;
  std::function<bool(int64_t chunks)> on_progress;  // false cancels
};

struct VerifyOptions {
  double sample = 0.05;  // share of passages to encode again, at least one
  uint32_t seed = 0;
  bool all_users = false;  // needed where sources are users' own: the report names sources
};

}  // namespace rhapsode

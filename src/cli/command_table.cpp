#include "cli/command.h"

namespace rhapsode::cli {
namespace {

constexpr Command kCommands[] = {
    {kAdd, "add", "PATH...", 1, kManyArguments, "read documents into a memory",
     "rhapsode add docs/ README.md\n"
     "rhapsode add --sync --yes notes/\n"
     "git log | rhapsode add - --name log --tag project --event-time 2026-03-01\n"
     "rhapsode add --dry-run --hidden --no-ignore --largest 256MiB .\n"
     "rhapsode add --index-only --verbose ~/papers\n"
     "rhapsode add --index-chunks 200000 ~/papers\n"
     "rhapsode add --supersedes docs/old.md README.md\n"
     "rhapsode add --memory ~/team --user ana notes/\n"
     "rhapsode add --memory ~/law --stored-kv i8 --cap 20GiB law/\n"
     "rhapsode add --memory ~/log --instruction \"Answer from the log.\" notes/\n"
     "rhapsode add --model qwen2.5-coder-1.5b --reencode docs/",
     run_add},
    {kAsk, "ask", "QUESTION", 1, 1, "answer a question from a memory, with citations",
     "rhapsode ask \"Who may approve a release?\"\n"
     "rhapsode ask --source docs/guide --tag project \"How is the cache filled?\"\n"
     "rhapsode ask --memory ~/team --user ana --history --no-heed-times \"My home?\"\n"
     "rhapsode ask --as-of 2026-03-01 --budget 4000 --passages 8 \"Who led it?\"\n"
     "rhapsode ask --policy full --no-cite --no-abstain \"What is a page?\"\n"
     "rhapsode ask --policy blend --blend-share 0.3 \"Which one is older?\"\n"
     "rhapsode ask --max-kl 0.1 --max-f1-loss 0.02 --self-check 0.1 \"Who led it?\"\n"
     "rhapsode ask --policy blend --blend-selector first \"Who wrote it?\"\n"
     "rhapsode ask --policy blend --blend-rounds 2 --best-first \"Who wrote it?\"\n"
     "rhapsode ask --read 3,1 --order parallel -v \"How do these two differ?\"\n"
     "rhapsode ask --hops 2 -v \"Where was the author of the handbook born?\"\n"
     "rhapsode ask --reroute-sentences --reroute-passages 1 \"How did both end?\"\n"
     "rhapsode ask --reroute-every 32 --reroute-most 4 --heat-map \"Tell it all\"\n"
     "rhapsode ask --reroute-entropy 2.5 --reroute-attention 0.5 \"Why did it fail?\"\n"
     "rhapsode ask --answer-trace trace.json \"Why did it fail?\"\n"
     "rhapsode ask --json --stream - < question.txt",
     run_ask},
    {kSearch, "search", "QUESTION", 1, 1, "show the passages a question finds, with their scores",
     "rhapsode search \"retry policy\"\n"
     "rhapsode search --judge 40 --judge-ms 5000 \"who approved it\"\n"
     "rhapsode search --rank fused \"who approved it\"\n"
     "rhapsode search --ranker evidence.gguf \"where was its author born\"\n"
     "rhapsode search --chain 4 --chain-cost 2 \"where was its author born\"\n"
     "rhapsode search --chain 3 --chain-candidates 30 --no-links \"error 1042\"\n"
     "rhapsode search --limit 20 --no-latent --json \"ECONNRESET\"\n"
     "rhapsode search --no-keywords --source docs -v \"what if the disk is full\"",
     run_search},
    {kChat, "chat", "", 0, 0, "ask a memory in several turns",
     "rhapsode chat\n"
     "rhapsode chat --conversation work --live-budget 4096 --speaker Ada\n"
     "rhapsode chat --conversation work-b --fork-from work --other-conversations\n"
     "rhapsode chat --tag project --temperature 0.3\n"
     "printf '%s\\n' \"What is a page?\" \"Who fills it?\" | rhapsode chat --json",
     run_chat},
    {kList, "list", "", 0, 0, "list the sources a memory holds",
     "rhapsode list\n"
     "rhapsode list --tag project --source docs --json\n"
     "rhapsode list --as-of 2026-03-01 --memory ~/law",
     run_list_sources},
    {kShow, "show", "SOURCE", 1, 1, "show a source's versions and passages, or its text",
     "rhapsode show docs/guide.md\n"
     "rhapsode show --text docs/guide.md | tail -n 5",
     run_show},
    {kForget, "forget", "[SOURCE...]", 0, kManyArguments,
     "erase sources from a memory, with all that was made of them",
     "rhapsode forget docs/old.md docs/drafts\n"
     "rhapsode forget --derived docs/old.md\n"
     "rhapsode forget --tag project --yes",
     run_forget},
    {kRemember, "remember", "TEXT", 1, 1, "record facts that a message states or takes back",
     "rhapsode remember --memory ~/team --user ana \"My favourite tea is oolong.\"\n"
     "rhapsode remember --memory ~/team --speaker Ana --at 2026-03-08 \"My dog: Rex\"\n"
     "rhapsode remember --memory ~/team --ask-model --message-id 17 \"Mint for me!\"\n"
     "rhapsode remember --memory ~/team --user ana \"Forget my favourite tea.\"",
     run_remember},
    {kFacts, "facts", "[SUBJECT]", 0, 1, "list the facts a memory holds, or their history",
     "rhapsode facts --memory ~/team --user ana\n"
     "rhapsode facts --memory ~/team --user ana --history Ana\n"
     "rhapsode facts --memory ~/team --all-users --as-of 2025-12-31 --json",
     run_facts},
    {kStats, "stats", "", 0, 0, "show what a memory holds and takes",
     "rhapsode stats\n"
     "rhapsode stats --memory ~/law --json",
     run_stats},
    {kVerify, "verify", "", 0, 0, "check a memory's checksums and encode a sample again",
     "rhapsode verify\n"
     "rhapsode verify --sample 0.2 --seed 7 --routing m.routing",
     run_verify},
    {kExport, "export", "FILE", 1, 1, "write a memory into one file",
     "rhapsode export memory.rhapsode\n"
     "rhapsode export --memory ~/law --yes law.rhapsode",
     run_export},
    {kImport, "import", "FILE", 1, 1, "make a memory of an exported file",
     "rhapsode import --memory ~/law-copy law.rhapsode", run_import},
    {kGenerate, "generate", "[PROMPT]", 0, 1, "answer a prompt",
     "rhapsode generate \"What is a rhapsode?\"\n"
     "git diff | rhapsode generate --system \"Review this change.\"\n"
     "rhapsode generate --raw -n 64 \"def quicksort(items):\"\n"
     "rhapsode generate --json --json-schema answer.schema.json -f question.txt",
     run_generate},
    {kPull, "pull", "[NAME|URL|PATH]", 0, 1, "get a model, verified, into the home folder",
     "rhapsode pull\n"
     "rhapsode pull smollm2-135m\n"
     "rhapsode pull --list",
     run_pull},
    {kInspect, "inspect", "[MODEL]", 0, 1, "describe a model file without loading it",
     "rhapsode inspect qwen2.5-coder-0.5b\n"
     "rhapsode inspect --tensors ./model.gguf",
     run_inspect},
    {kBench, "bench", "", 0, 0, "measure how fast prompts are read and text is generated",
     "rhapsode bench --model smollm2-135m\n"
     "rhapsode bench --prefill 512,2048 --decode 0,2048 --compare-llama --json",
     run_bench},
    {kEval, "eval", "TASK | compare FILE FILE", 1, 3,
     "measure a model and its memory on questions with known answers",
     "rhapsode eval multihop-dev --data eval-data --limit 60 --resume\n"
     "rhapsode eval timeqa --contexts routed --no-heed-times -o plain.jsonl\n"
     "rhapsode eval peps --contexts gold,routed --baseline gold --passages 3\n"
     "rhapsode eval nq-open-oracle --pool all --recall-only -o recall.jsonl\n"
     "rhapsode eval multihop-dev --pool all --pool-tokens 65536 --part 2/10\n"
     "rhapsode eval xquad-en --memory eval-memory --encode-all --distractors 9\n"
     "rhapsode eval citations --no-fidelity --seed 7 --commit v0.2 --json\n"
     "rhapsode eval needles-books --policy full --budget 4000\n"
     "rhapsode eval beam --live-budget 2048 --stored-kv i8 --contexts messages\n"
     "rhapsode eval compare before.jsonl after.jsonl",
     run_eval},
    {kRouting, "routing", "PATH...", 1, kManyArguments, "make the routing file of another model, from texts",
     "rhapsode routing --model ./my-model.gguf ~/texts\n"
     "rhapsode routing --questions asked.txt --chunks 60000 ~/texts\n"
     "rhapsode routing --routing-file my-model.rhw ~/texts",
     run_routing},
    {kCalibrate, "calibrate", "[PATH...]", 0, kManyArguments,
     "measure what reading stored keys and values costs a model",
     "rhapsode calibrate\n"
     "rhapsode calibrate --model ./my-model.gguf --routing my-model.rhw\n"
     "rhapsode calibrate --stored-kv i8 ~/texts\n"
     "rhapsode calibrate --thorough --verdict-file verdict.json --json",
     run_calibrate},
    {kConfig, "config", "[COMMAND]", 0, 1, "show every option's value and where it comes from",
     "rhapsode config\n"
     "rhapsode config generate --temperature 0.7",
     run_config},
};

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

const Command* find_command(std::string_view name) {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  return names;
}

}  // namespace rhapsode::cli

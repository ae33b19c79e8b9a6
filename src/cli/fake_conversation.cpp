// A Conversation for tests of the program: what is said is kept in one JSON file beside the fake memory's, an
// answer is the sentence that the fake memory finds, and a token is four bytes. Linked in place of the
// engine's.
#include "rhapsode/conversation.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/result.h"

namespace rhapsode {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kTime = "2026-03-01T12:00:00Z";

int tokens_of(const std::string& text) {
  return static_cast<int>(text.size() / 4 + 1);
}

}  // namespace

struct Conversation::Impl {
  Memory& memory;
  ConversationOptions options;
  Json all;  // {name: [{role, speaker, text}]}
  size_t live_from = 0;

  fs::path file() const { return memory.folder() / "fake-chats.json"; }
  Json& said() { return all[options.name]; }
  void load() {
    std::ifstream in(file());
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    all = Json::accept(text) ? Json::parse(text) : Json::object();
  }
  void save() { std::ofstream(file()) << all.dump(1); }
  int live_tokens() {
    int total = 0;
    for (size_t i = live_from; i < said().size(); ++i)
      total += tokens_of(said()[i]["text"].get<std::string>());
    return total;
  }
  void spill(Reply& reply) {
    while (live_tokens() > options.live_budget_tokens) {
      const int tokens = tokens_of(said()[live_from]["text"].get<std::string>());
      const auto number = static_cast<int64_t>(live_from++);
      reply.spilled.push_back({number + 1, "chats/" + options.name + "/0000000", tokens, number, number});
    }
  }
};

Conversation::Conversation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Conversation::~Conversation() = default;

Result<std::unique_ptr<Conversation>> Conversation::open(Memory& memory, const ConversationOptions& options) {
  if (options.name.find('/') != std::string::npos) {
    return make_error(ErrorKind::kInvalidArgument, "'{}' is no name of a conversation", options.name);
  }
  auto impl = std::make_unique<Impl>(Impl{memory, options, {}, 0});
  impl->load();
  if (!options.fork_from.empty()) {
    if (!impl->all.contains(options.fork_from)) {
      return make_error(ErrorKind::kNotFound, "the memory has no conversation '{}'", options.fork_from);
    }
    impl->all[options.name] = impl->all[options.fork_from];
  }
  if (impl->said().is_null()) impl->said() = Json::array();
  impl->save();
  return std::unique_ptr<Conversation>(new Conversation(std::move(impl)));
}

Result<Reply> Conversation::say(const SayOptions& options) {
  AskOptions asking;
  asking.question = options.text;
  asking.filter = options.filter;
  asking.most_passages = options.most_passages;
  asking.max_tokens = options.max_tokens;
  asking.abstain = false;
  asking.on_text = options.on_text;
  RH_TRY(const Answer answer, impl_->memory.ask(asking));
  Reply reply;
  Json& said = impl_->said();
  reply.turn = static_cast<int64_t>(said.size() / 2);
  reply.message = static_cast<int64_t>(said.size()) + 1;
  said.push_back({{"role", "user"}, {"speaker", options.speaker}, {"text", options.text}});
  said.push_back({{"role", "assistant"}, {"speaker", ""}, {"text", answer.text}});
  impl_->save();
  reply.text = answer.text;
  reply.finish = answer.finish;
  for (const FoundPassage& found : answer.passages) {
    reply.recalled.push_back({found, found.passage.tokens, false, false, {0, found.passage.tokens, 0, ""}});
    reply.usage.recalled_tokens += found.passage.tokens;
  }
  reply.policy = answer.policy;
  reply.policy_reason = answer.policy_reason;
  reply.usage.message_tokens = reply.usage.evaluated_tokens = tokens_of(options.text);
  reply.usage.generated_tokens = answer.usage.generated_tokens;
  reply.timing = answer.timing;
  impl_->spill(reply);
  reply.usage.live_tokens = impl_->live_tokens();
  return reply;
}

Result<Reply> Conversation::note(const NotedMessage& message) {
  Reply reply;
  impl_->said().push_back({{"role", message.role}, {"speaker", message.speaker}, {"text", message.text}});
  impl_->save();
  impl_->spill(reply);
  return reply;
}

Result<AnswerScore> Conversation::score(const SayOptions&, const std::string& answer, int most_tokens) {
  return impl_->memory.score({}, answer, most_tokens);
}

Result<std::unique_ptr<Conversation>> Conversation::fork(const std::string& name) {
  ConversationOptions options = impl_->options;
  options.fork_from = options.name;
  options.name = name;
  return open(impl_->memory, options);
}

Result<std::vector<SaidMessage>> Conversation::history() {
  std::vector<SaidMessage> history;
  for (const Json& message : impl_->said()) {
    const auto number = static_cast<int64_t>(history.size());
    history.push_back(
        {number, number / 2, message["role"], message["speaker"], kTime, message["text"], false});
  }
  return history;
}

Result<std::vector<SpilledPassage>> Conversation::passages() {
  std::vector<SpilledPassage> passages;
  for (size_t i = 0; i < impl_->live_from; ++i) {
    const auto number = static_cast<int64_t>(i);
    passages.push_back({number + 1, "chats/" + impl_->options.name + "/0000000",
                        tokens_of(impl_->said()[i]["text"].get<std::string>()), number, number});
  }
  return passages;
}

int Conversation::live_tokens() const {
  return impl_->live_tokens();
}

const std::string& Conversation::name() const {
  return impl_->options.name;
}

}  // namespace rhapsode

#include "cli/talker.h"

#include <algorithm>

#include "cli/add_report.h"
#include "cli/answer_output.h"
#include "cli/memory_json.h"
#include "cli/quantity.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

// Nothing that was asked for is ignored in silence.
Status check_flags(const Invocation& invocation) {
  for (const char* name :
       {"read", "order", "best-first", "blend-share", "blend-selector", "self-check", "cite", "abstain",
        "hops", "blend-rounds", "reroute-sentences", "reroute-every", "reroute-entropy", "reroute-attention",
        "reroute-most", "reroute-passages", "heat-map"}) {
    const OptionSpec* const spec = find_option(name);
    if (!invocation.sources.flags.contains(spec)) continue;
    return make_error(ErrorKind::kInvalidArgument,
                      "{} does not apply to a conversation that is kept: drop it", spec->flag());
  }
  return {};
}

SayOptions say_options(const Settings& settings, const AskOptions& options) {
  SayOptions saying;
  saying.speaker = settings.memory.speaker;
  saying.filter = options.filter;
  saying.other_conversations = settings.memory.other_conversations;
  saying.budget_tokens = options.budget_tokens;
  saying.most_passages = options.most_passages;
  saying.judge = options.judge;
  saying.chain = options.chain;
  saying.links = options.links;
  saying.policy = options.policy;
  saying.max_kl = options.max_kl;
  saying.max_f1_loss = options.max_f1_loss;
  saying.max_tokens = options.max_tokens;
  saying.sampling = options.sampling;
  return saying;
}

std::string reply_numbers(const Reply& reply) {
  const TurnUsage& usage = reply.usage;
  const auto whole = [](int count) { return show_whole(static_cast<uint64_t>(std::max(count, 0))); };
  std::string text = fmt::format(
      "turn {} · first token after {:.2f} s · {} tokens live, {} recalled, {} evaluated · "
      "{} tokens at {:.1f}/s",
      reply.turn + 1, reply.timing.ttft_ms / 1000, whole(usage.live_tokens), whole(usage.recalled_tokens),
      whole(usage.evaluated_tokens), whole(usage.generated_tokens), reply.timing.decode_tokens_per_s);
  if (!reply.recalled.empty()) text += fmt::format(" · {}", to_string(reply.policy));
  if (!reply.recalled.empty() && reply.policy != ReadPolicy::kReuse) text += ": " + reply.policy_reason;
  return text;
}

}  // namespace

Talker::Talker(Invocation& invocation, MemorySession& session, std::unique_ptr<Conversation> conversation,
               SayOptions options)
    : session_(session),
      terminal_(invocation.terminal),
      conversation_(std::move(conversation)),
      options_(std::move(options)),
      stream_(invocation.terminal,
              invocation.settings.json ? AnswerStream::Form::kLine : AnswerStream::Form::kText),
      verbose_(invocation.settings.memory.verbose) {}

Result<std::unique_ptr<Talker>> Talker::make(Invocation& invocation, MemorySession& session,
                                             const AskOptions& options) {
  RH_TRY_STATUS(check_flags(invocation));
  const MemorySettings& settings = invocation.settings.memory;
  ConversationOptions opening;
  opening.name = settings.conversation;
  opening.fork_from = settings.fork_from;
  opening.live_budget_tokens = settings.live_budget_tokens;
  RH_TRY(auto conversation, Conversation::open(*session.memory, opening));
  return std::unique_ptr<Talker>(
      new Talker(invocation, session, std::move(conversation), say_options(invocation.settings, options)));
}

Result<Reply> Talker::say(const std::string& text, const InterruptGuard& interrupts) {
  Result<Reply> reply = Error{ErrorKind::kInternal, "the message did not end"};
  options_.text = text;
  const auto work = [&](const AnswerStream::OnText& on_text) {
    options_.on_text = on_text;
    reply = conversation_->say(options_);
  };
  RH_TRY_STATUS(stream_.run("Reading …", work, interrupts));
  terminal_.clear_status();
  if (!reply.ok()) {
    stream_.end_line();
    return reply;
  }
  last_read_.clear();
  for (const RecalledPassage& recalled : reply->recalled) last_read_.push_back(recalled.found);
  if (stream_.form() != AnswerStream::Form::kText) {
    terminal_.print(to_line(reply_json(*reply, name(), session_.engine->model())));
    return reply;
  }
  stream_.end_line();
  if (verbose_ && !last_read_.empty()) terminal_.print("\n" + read_table(last_read_, terminal_));
  print_notes(*reply);
  return reply;
}

void Talker::print_notes(const Reply& reply) {
  if (reply.finish == FinishReason::kContext) {
    stream_.note(Style::kYellow, "the context is full; a larger --context leaves more room");
  }
  if (!terminal_.shows_status() && !verbose_) return;
  if (reply.finish == FinishReason::kLength) {
    stream_.note(Style::kDim, fmt::format("ended at --max-tokens {}", options_.max_tokens));
  }
  if (reply.finish == FinishReason::kCancelled) stream_.note(Style::kDim, "stopped");
  for (const SpilledPassage& spilled : reply.spilled) {
    stream_.note(Style::kDim,
                 fmt::format("messages {} to {} are live no more: {} tokens in {}", spilled.first_message,
                             spilled.last_message, spilled.tokens, spilled.source));
  }
  stream_.note(Style::kDim, reply_numbers(reply));
}

Status Talker::print_history() {
  RH_TRY(const std::vector<SaidMessage> history, conversation_->history());
  for (const SaidMessage& message : history) {
    const std::string who = fmt::format("[{}, {}]", message.speaker.empty() ? message.role : message.speaker,
                                        message.time.substr(0, 16));
    terminal_.print(terminal_.paint(Style::kCyan, terminal_.shown(who)) + " " +
                    terminal_.shown(message.forgotten ? "(forgotten)" : message.text) + "\n");
  }
  return {};
}

}  // namespace rhapsode::cli

#include "cli/answer_output.h"

#include <algorithm>

#include "cli/quantity.h"
#include "cli/snippet.h"
#include "cli/table.h"
#include "cli/text_width.h"

namespace rhapsode::cli {
namespace {

constexpr int kIndent = 4;
constexpr int kWidest = 100;
constexpr int kSnippetColumns = 300;

// Indented behind `kIndent` columns; wrapped only where somebody looks at it.
std::string paragraph(const std::string& text, int first_line_used, const Terminal& terminal) {
  if (!terminal.traits().out_is_terminal) return text;
  const int width = std::min(terminal.traits().columns, kWidest) - kIndent;
  // What stands before on the first line takes room like a word of that width.
  const std::string stand_in(static_cast<size_t>(first_line_used), 'x');
  return wrap_text(stand_in + text, width, kIndent).substr(stand_in.size());
}

std::string scores(const FoundPassage& found) {
  return fmt::format("score {:.3f} · latent {:.3f} (z {:.2f}) · keywords {:.3f} (z {:.2f})", found.score,
                     found.latent, found.latent_z, found.keywords, found.keywords_z);
}

}  // namespace

const char* words_for(KvTier tier) {
  switch (tier) {
    case KvTier::kText:
      return "to be made";
    case KvTier::kDisk:
      return "on disk";
    case KvTier::kMemory:
      return "in memory";
  }
  return "";
}

std::string footnotes(const std::vector<Citation>& citations, const Terminal& terminal) {
  std::string text;
  for (const Citation& citation : citations) {
    const std::string mark = fmt::format("[{}]", citation.n);
    const std::string rest =
        fmt::format(" {} \"{}\"", place_in_source(citation.source, citation.line, citation.page),
                    flattened(citation.quote));
    text += terminal.paint(Style::kCyan, mark) +
            paragraph(terminal.shown(rest), display_width(mark), terminal) + "\n";
  }
  return text;
}

std::string answer_numbers(const Answer& answer, double model_load_ms) {
  const AskUsage& usage = answer.usage;
  const auto whole = [](int count) { return show_whole(static_cast<uint64_t>(std::max(count, 0))); };
  std::string text = fmt::format(
      "first token after {:.2f} s (model loaded in {:.2f} s) · {} tokens reused, {} evaluated · "
      "{} tokens at {:.1f}/s · {}",
      answer.timing.ttft_ms / 1000, model_load_ms / 1000, whole(usage.cached_tokens),
      whole(usage.evaluated_tokens), whole(usage.generated_tokens), answer.timing.decode_tokens_per_s,
      to_string(answer.policy));
  if (answer.policy != ReadPolicy::kReuse && !answer.policy_reason.empty()) {
    text += fmt::format(": {}", answer.policy_reason);
  }
  return text;
}

std::string found_text(int rank, const FoundPassage& found, const std::string& question, bool whole,
                       const Terminal& terminal) {
  const std::string mark = fmt::format("{:>2}", rank);
  const std::string place = place_in_source(found.passage.source, found.passage.line, found.passage.page);
  std::string text = fmt::format("{}  {}\n", terminal.paint(Style::kBold, mark),
                                 terminal.paint(Style::kCyan, terminal.shown(place)));
  text += "    " + terminal.paint(Style::kDim, scores(found)) + "\n";
  text += "    " +
          terminal.paint(Style::kDim, fmt::format("passage {} · {} tokens · KV {}", found.passage.id,
                                                  found.passage.tokens, words_for(found.passage.tier))) +
          "\n";
  if (found.link) {
    const std::string way =
        fmt::format("linked from passage {} by \"{}\"", found.link->from, found.link->mention);
    text += "    " + terminal.paint(Style::kDim, terminal.shown(way)) + "\n";
  }
  if (whole) return text + terminal.shown(found.text) + (found.text.ends_with('\n') ? "" : "\n");
  const std::string sentence = clip_text(best_sentence(found.text, question), kSnippetColumns);
  return text + "    " + paragraph(terminal.shown(sentence), 0, terminal) + "\n";
}

std::string hop_text(int number, const Hop& hop, const Terminal& terminal) {
  std::string text = fmt::format("{} {}\n", terminal.paint(Style::kBold, fmt::format("hop {}:", number)),
                                 terminal.shown(hop.query));
  for (const FoundPassage& found : hop.passages) {
    const std::string place = place_in_source(found.passage.source, found.passage.line, found.passage.page);
    const std::string way =
        found.link ? fmt::format(" (linked by \"{}\")", found.link->mention) : std::string();
    text += "    " + terminal.paint(Style::kCyan, terminal.shown(place + way)) + "\n";
  }
  return text + "    " + terminal.shown(flattened(hop.answer)) + "\n";
}

std::string read_table(const std::vector<FoundPassage>& passages, const Terminal& terminal) {
  Table table({{"passage read", false, true}, {"tokens", true}, {"score", true}, {"KV"}, {"id", true}});
  for (auto found = passages.rbegin(); found != passages.rend(); ++found) {
    const PassageInfo& passage = found->passage;
    table.add({place_in_source(passage.source, passage.line, passage.page), fmt::format("{}", passage.tokens),
               fmt::format("{:.3f}", found->score), words_for(passage.tier), fmt::format("{}", passage.id)});
  }
  return table.render(terminal);
}

}  // namespace rhapsode::cli

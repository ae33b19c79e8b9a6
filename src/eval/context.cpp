#include "eval/context.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <tuple>

namespace rhapsode::eval {
namespace {

using Kind = Context::Kind;

constexpr std::array<const char*, 11> kKinds{"closed",         "gold",   "own",    "messages", "routed",
                                             "bm25",           "latent", "judged", "chain",    "evidence",
                                             "evidence+judged"};
constexpr std::string_view kLinks = "+links";
constexpr std::string_view kAgain = "+again";
constexpr std::array kReadings{ReadPolicy::kFull, ReadPolicy::kPrefix, ReadPolicy::kReorder,
                               ReadPolicy::kReuse, ReadPolicy::kBlend};

// The part before `separator`, which is cut off `text` with it; all of `text` when there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t at = std::min(text.find(separator), text.size());
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return head;
}

// "15" or, in several rounds, "15x2".
bool read_share(std::string_view text, Context& context) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), context.percent);
  const char* const last = text.data() + text.size();
  if (error != std::errc() || context.percent < 0 || context.percent > 100) return false;
  if (end == last) return true;
  if (*end != 'x') return false;
  const auto [stop, wrong] = std::from_chars(end + 1, last, context.rounds);
  return wrong == std::errc() && stop == last && context.rounds >= 1 && context.rounds <= kMostBlendRounds;
}

bool read_reading(std::string_view text, Context& context) {
  const bool named_all = text.find('=') == std::string_view::npos;
  const std::string_view policy = take_until(text, '=');
  const auto found = std::find_if(kReadings.begin(), kReadings.end(),
                                  [&](ReadPolicy p) { return policy == rhapsode::to_string(p); });
  if (found == kReadings.end()) return false;
  context.policy = *found;
  if (named_all) return true;
  if (context.policy != ReadPolicy::kBlend) return false;
  const bool has_percent = text.find('@') != std::string_view::npos;
  const std::string_view name = take_until(text, '@');
  const auto selector = std::find_if(kBlendSelectors.begin(), kBlendSelectors.end(),
                                     [&](BlendSelector s) { return name == rhapsode::to_string(s); });
  if (selector == kBlendSelectors.end()) return false;
  context.selector = *selector;
  return !has_percent || read_share(text, context);
}

auto rank_of(const Context& context) {
  const auto reading = std::find(kReadings.begin(), kReadings.end(), context.policy) - kReadings.begin();
  return std::tuple(context.kind, context.links, context.policy == ReadPolicy::kAuto ? -1 : reading,
                    context.selector, context.percent, context.rounds, context.again);
}

// Whether Memory::ask() itself can search by these signals, as it has to within an answer.
bool is_asked_by(Kind kind) {
  return kind == Kind::kRouted || kind >= Kind::kJudged;
}

}  // namespace

std::string to_string(const Context& context) {
  if (context.again) {
    Context once = context;
    once.again = false;
    return to_string(once) + std::string(kAgain);
  }
  if (context == Context::kFull) return "full";
  if (context == Context::kReuse) return "reuse";
  std::string name = kKinds[static_cast<size_t>(context.kind)];
  if (context.links) name += kLinks;
  if (context.policy == ReadPolicy::kAuto) return name;
  name += std::string(":") + rhapsode::to_string(context.policy);
  if (context.policy != ReadPolicy::kBlend) return name;
  name += fmt::format("={}@{:g}", rhapsode::to_string(context.selector), context.percent);
  return context.rounds == 1 ? name : name + fmt::format("x{}", context.rounds);
}

std::optional<Context> context_named(std::string_view name) {
  if (name.ends_with(kAgain)) {
    std::optional<Context> once = context_named(name.substr(0, name.size() - kAgain.size()));
    if (!once || once->again || !is_asked_by(once->kind)) return std::nullopt;
    once->again = true;
    return once;
  }
  Context context;
  std::string_view rest = name;
  const std::string_view first = take_until(rest, ':');
  std::string_view bare = first == "linked" ? "routed" : first;
  context.links = first == "linked" || bare.ends_with(kLinks);
  if (bare.ends_with(kLinks)) bare.remove_suffix(kLinks.size());
  const auto kind = std::find(kKinds.begin(), kKinds.end(), bare);
  if (kind == kKinds.end()) {
    if (context.links) return std::nullopt;
    // A reading alone is one of the question's own passages.
    context.kind = Kind::kOwn;
    if (!read_reading(name, context)) return std::nullopt;
    return context;
  }
  context.kind = static_cast<Kind>(kind - kKinds.begin());
  const bool in_memory = is_searched(context) && context.kind != Kind::kMessages;
  if (context.links && !in_memory) return std::nullopt;
  const bool reads = context.kind == Kind::kOwn || in_memory;
  const bool alone = first.size() == name.size();
  if (alone) return context.kind == Kind::kOwn ? std::nullopt : std::optional(context);
  if (!reads || !read_reading(rest, context)) return std::nullopt;
  return context;
}

bool runs_before(const Context& a, const Context& b) {
  return rank_of(a) < rank_of(b);
}

Result<std::vector<Context>> parse_contexts(std::string_view names) {
  std::vector<Context> contexts;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const std::string_view name = names.substr(begin, end - begin);
    const std::optional<Context> context = context_named(name);
    if (!context) {
      return make_error(ErrorKind::kInvalidArgument,
                        "'{}' is no context; there are closed, gold, full, reuse, routed, bm25, latent, "
                        "judged, chain, searched ones with +links, evidence, evidence+judged, and own or a "
                        "searched one with how they are read: routed:prefix, "
                        "own:blend=attention+first@15; with +again at the end passages are looked for again "
                        "within the answer",
                        name);
    }
    contexts.push_back(*context);
    begin = end + 1;
  }
  std::sort(contexts.begin(), contexts.end(), runs_before);
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  return contexts;
}

}  // namespace rhapsode::eval

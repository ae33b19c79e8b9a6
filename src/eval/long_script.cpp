#include "eval/long_script.h"

#include <algorithm>
#include <array>

#include "base/iso_time.h"
#include "eval/made_up.h"
#include "eval/random.h"

namespace rhapsode::eval {
namespace {

constexpr int64_t kFirstTime = 1735689600000;  // 2025-01-01, after what the chats speak of
constexpr int64_t kTurnTime = 600000;          // ten minutes each
constexpr uint64_t kPersonFacts = 5;

// {0}: a value, {1}: the one before.
struct FactForm {
  const char* attribute;
  const char* stated;
  const char* corrected;
  const char* retracted;
  const char* question;  // {0}: the person
};
constexpr std::array<FactForm, kPersonFacts> kForms{
    {{"favourite tea", "My favourite tea is {0}.", "Actually, my favourite tea is {0}, not {1}.",
      "Please forget my favourite tea.", "What is {0}'s favourite tea?"},
     {"home", "I live in {0}.", "Actually, I live in {0}, not {1}.", "Forget that I live in {0}.",
      "In which town does {0} live?"},
     {"employer", "I work for {0}.", "Sorry, I meant I work for {0}, not {1}.", "I no longer work for {0}.",
      "Which company does {0} work for?"},
     {"locker code", "My locker code is {0}.", "Correction: my locker code is {0}, not {1}.",
      "Please forget my locker code.", "What is {0}'s locker code?"},
     {"cat", "My cat is called {0}.", "Actually, my cat is called {0}, not {1}.", "Please forget my cat.",
      "What is the name of {0}'s cat?"}}};

std::string time_of(int turn) {
  return format_iso_time(kFirstTime + turn * kTurnTime);
}

// Turns [from, to) that nothing is planned for yet.
class Places {
 public:
  Places(int turns, Random& random) : taken_(static_cast<size_t>(turns)), random_(random) {}
  // A free one, or the first free one behind it, or in front of it.
  int take(int from, int to) {
    const int size = static_cast<int>(taken_.size());
    int at = std::clamp(from + static_cast<int>(random_.below(static_cast<uint64_t>(std::max(1, to - from)))),
                        0, size - 1);
    return take_at(at);
  }
  int take_at(int at) {
    const int size = static_cast<int>(taken_.size());
    int place = at;
    while (place < size && taken_[static_cast<size_t>(place)]) ++place;
    if (place == size) {
      place = at;
      while (taken_[static_cast<size_t>(place)]) --place;
    }
    taken_[static_cast<size_t>(place)] = true;
    return place;
  }
  bool taken(int at) const { return taken_[static_cast<size_t>(at)]; }

 private:
  std::vector<bool> taken_;
  Random& random_;
};

struct ChatTurn {
  int user = -1;
  int assistant = -1;  // -1: none was there
  std::string speaker;
  std::string time;
};

std::vector<ChatTurn> turns_of(const SpokenConversation& conversation) {
  std::vector<ChatTurn> turns;
  for (const SpokenMessage& message : conversation.messages) {
    if (message.role == "user") {
      turns.push_back({message.document, -1, message.speaker, message.time});
    } else if (!turns.empty() && turns.back().assistant < 0) {
      turns.back().assistant = message.document;
    }
  }
  return turns;
}

class ChatMixer {
 public:
  ChatMixer(const Dataset& dataset, uint64_t seed) : dataset_(dataset), random_(seed, "chats") {
    for (const SpokenConversation& conversation : dataset.conversations) {
      chats_.push_back(turns_of(conversation));
      total_ += chats_.back().size();
    }
    said_.resize(chats_.size());
    left_ = total_;
  }
  bool empty() const { return total_ == 0; }

  ScriptTurn next() {
    if (left_ == 0) {
      std::fill(said_.begin(), said_.end(), 0);
      left_ = total_;
    }
    uint64_t drawn = random_.below(left_--);
    size_t chat = 0;
    for (; drawn >= chats_[chat].size() - said_[chat]; ++chat) drawn -= chats_[chat].size() - said_[chat];
    const ChatTurn& turn = chats_[chat][said_[chat]++];
    ScriptTurn scripted;
    scripted.text = dataset_.documents[static_cast<size_t>(turn.user)].text;
    if (turn.assistant >= 0) scripted.answer = dataset_.documents[static_cast<size_t>(turn.assistant)].text;
    scripted.speaker = turn.speaker;
    scripted.time = turn.time;
    return scripted;
  }

 private:
  const Dataset& dataset_;
  Random random_;
  std::vector<std::vector<ChatTurn>> chats_;
  std::vector<size_t> said_;
  uint64_t total_ = 0;
  uint64_t left_ = 0;
};

std::vector<ScriptedFact> make_facts(const LongNumbers& numbers, uint64_t seed) {
  Random names(seed, "names");
  std::vector<ScriptedFact> facts;
  std::string person;
  for (int i = 0; i < numbers.facts; ++i) {
    const size_t form = static_cast<size_t>(i) % kForms.size();
    if (form == 0) person = made_up_name(names);
    ScriptedFact fact;
    fact.fate = i < numbers.corrected                       ? FactFate::kCorrected
                : i < numbers.corrected + numbers.retracted ? FactFate::kRetracted
                                                            : FactFate::kStated;
    fact.person = person;
    fact.attribute = kForms[form].attribute;
    fact.question = fmt::format(fmt::runtime(kForms[form].question), person);
    const bool code = fact.attribute == "locker code";
    fact.value = code ? made_up_value(names) : made_up_name(names);
    if (fact.fate == FactFate::kCorrected) fact.corrected = code ? made_up_value(names) : made_up_name(names);
    facts.push_back(std::move(fact));
  }
  return facts;
}

Status check(const LongNumbers& numbers) {
  const int told = numbers.facts + numbers.corrected + numbers.retracted;
  const bool sound = numbers.facts >= 0 && numbers.corrected >= 0 && numbers.retracted >= 0 &&
                     numbers.corrected + numbers.retracted <= numbers.facts && numbers.answered_every >= 1 &&
                     numbers.window >= 1 && numbers.asked_after >= 1;
  // What is told last is asked before the end, and every turn has one thing to say.
  const int needed = numbers.turns / 3 + numbers.asked_after + numbers.facts;
  if (sound && needed <= numbers.turns && told <= numbers.turns / 3) return {};
  return make_error(
      ErrorKind::kInvalidArgument,
      "{} facts ({} corrected, {} taken back), asked {} turns later, do not fit {} turns: they are "
      "told in the first third and asked before the end",
      numbers.facts, numbers.corrected, numbers.retracted, numbers.asked_after, numbers.turns);
}

}  // namespace

const char* to_string(FactFate fate) {
  switch (fate) {
    case FactFate::kStated:
      return "stated";
    case FactFate::kCorrected:
      return "corrected";
    case FactFate::kRetracted:
      return "retracted";
  }
  return "";
}

LongNumbers scaled(const LongNumbers& numbers, int turns) {
  const auto part = [&](int number) {
    return static_cast<int>(static_cast<int64_t>(number) * turns / std::max(numbers.turns, 1));
  };
  LongNumbers out = numbers;
  out.turns = turns;
  out.facts = part(numbers.facts);
  out.corrected = part(numbers.corrected);
  out.retracted = part(numbers.retracted);
  out.asked_after = std::max(1, part(numbers.asked_after));
  out.window = std::max(1, part(numbers.window));
  return out;
}

Result<Script> write_script(const Dataset& dataset, const LongNumbers& numbers, uint64_t seed) {
  RH_TRY_STATUS(check(numbers));
  ChatMixer chats(dataset, seed);
  if (chats.empty()) {
    return make_error(ErrorKind::kInvalidArgument, "a long conversation needs data with conversations in it");
  }
  Script script;
  script.facts = make_facts(numbers, seed);
  script.turns.resize(static_cast<size_t>(numbers.turns));
  Random random(seed, "places");
  Places places(numbers.turns, random);
  const auto plan = [&](int at, ScriptTurn::Kind kind, int fact, const std::string& speaker,
                        std::string text) {
    script.turns[static_cast<size_t>(at)] = {kind, std::move(text), "", speaker, time_of(at), fact};
  };
  const int third = numbers.turns / 3;
  std::vector<int> order(script.facts.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  random.shuffle(order);
  for (const int number : order) {
    ScriptedFact& fact = script.facts[static_cast<size_t>(number)];
    const FactForm& form = kForms[static_cast<size_t>(number) % kForms.size()];
    const int stated = fact.last_told = places.take(0, third / 2);
    plan(stated, ScriptTurn::Kind::kFact, number, fact.person,
         fmt::format(fmt::runtime(form.stated), fact.value));
    if (fact.fate != FactFate::kStated) {
      fact.last_told = places.take(std::max(third / 2, stated + 1), third);
      const bool corrects = fact.fate == FactFate::kCorrected;
      plan(fact.last_told, ScriptTurn::Kind::kFact, number, fact.person,
           corrects ? fmt::format(fmt::runtime(form.corrected), fact.corrected, fact.value)
                    : fmt::format(fmt::runtime(form.retracted), fact.value));
    }
  }
  for (const int number : order) {
    ScriptedFact& fact = script.facts[static_cast<size_t>(number)];
    fact.asked = places.take_at(fact.last_told + numbers.asked_after);
    plan(fact.asked, ScriptTurn::Kind::kAsk, number, "", fact.question);
  }
  int chatted = 0;
  for (int at = 0; at < numbers.turns; ++at) {
    if (places.taken(at)) continue;
    ScriptTurn& turn = script.turns[static_cast<size_t>(at)] = chats.next();
    const bool answered = ++chatted % numbers.answered_every == 0;
    turn.kind = answered ? ScriptTurn::Kind::kAnswered : ScriptTurn::Kind::kChat;
  }
  return script;
}

}  // namespace rhapsode::eval

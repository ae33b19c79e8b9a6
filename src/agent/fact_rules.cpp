// Facts out of a message by rules for English sentences: statements, changes, corrections, retractions.
//
// Each sentence is matched against a few forms, the more telling ones first; what fits none says nothing.
// Precision goes before recall: a question, a condition, a wish or hearsay is no fact.
#include <algorithm>
#include <array>
#include <optional>
#include <regex>

#include "base/result.h"
#include "rhapsode/facts.h"
#include "text/document.h"
#include "text/passage.h"
#include "text/text_scan.h"
#include "text/time_expressions.h"

namespace rhapsode {
namespace {

constexpr size_t kMostSentenceBytes = 400;  // std::regex recurses by length: longer sentences are left alone
constexpr size_t kMostMessageBytes = 1 << 16;

// A relation that a verb states: "I live in Rome" is the speaker's home.
struct Relation {
  const char* verbs;      // a regular expression in lower case, present and past
  const char* attribute;  // as it is recorded
  const char* sentence;   // what the memory will hold: {0} subject, {1} value
  bool many = false;      // one does not rule out another: each value is a fact of its own
};
constexpr std::array<Relation, 12> kRelations = {{
    {"(?:lives?|am living|is living|(?:have |has )?moved|(?:have |has )?relocated) (?:in|to)", "home",
     "{0} lives in {1}."},
    {"works? (?:for|at)|(?:am|is) (?:employed by|working (?:for|at))|(?:have |has )?joined", "employer",
     "{0} works for {1}."},
    {"works? as|(?:am|is) working as|became", "job", "{0} works as {1}."},
    {"drives?|am driving|is driving", "car", "{0} drives {1}."},
    {"speaks?", "language", "{0} speaks {1}.", true},
    {"stud(?:y|ies)|am studying|is studying", "field of study", "{0} studies {1}."},
    {"plays? the", "instrument", "{0} plays the {1}.", true},
    {"(?:(?:am|is) )?married to", "spouse", "{0} is married to {1}."},
    {"(?:am|is) allergic to", "allergy", "{0} is allergic to {1}.", true},
    {"(?:am|is) engaged to", "fiancé", "{0} is engaged to {1}."},
    {"owns?", "possession", "{0} owns {1}.", true},
    {"(?:was|were) born (?:in|on)", "birthplace", "{0} was born in {1}."},
}};

struct Sentence {
  std::string text;   // one line, without its full stop
  std::string lower;  // the same; as long
};

std::vector<Sentence> sentences_of(std::string_view message) {
  message = message.substr(0, text::character_floor(message, kMostMessageBytes));
  std::vector<Sentence> sentences;
  const std::vector<size_t> starts = text::sentence_starts(message, text::DocumentKind::kPlain);
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : message.size();
    std::string line = text::one_line(text::trim(message.substr(starts[i], end - starts[i])));
    if (line.empty() || line.size() > kMostSentenceBytes || line.back() == '?') continue;
    while (!line.empty() && (line.back() == '.' || line.back() == '!' || line.back() == ',')) line.pop_back();
    std::string lower = text::ascii_lower(line);
    sentences.push_back({std::move(line), std::move(lower)});
  }
  return sentences;
}

// A condition, a wish, a plan, hearsay or a doubt: nothing is stated.
bool is_uncertain(const std::string& lower) {
  static const std::regex kDoubt(
      "^(?:if|when|suppose|imagine|maybe|perhaps|let's "
      "say)\\b|\\b(?:would|could|might|should|wish|hope|hoping|"
      "thinking (?:of|about)|considering|planning|want to|wants to|going to|heard that|they say|someone said|"
      "not sure|i guess|what if|pretend)\\b");
  return std::regex_search(lower, kDoubt);
}

// "the" of "the harbour" stays; articles in front of a job or a car go.
std::string clean_value(std::string value) {
  value = std::string(text::trim(value));
  static const std::regex kTail(
      "(?:\\s+(?:now|these days|nowadays|at the moment|currently|anymore|any more|again|instead|as of now|by "
      "the "
      "way|too|as well|actually))+$|\\s*,\\s*(?:and|but|so|because|not|which|since|by the "
      "way)\\b.*$|\\s+(?:because"
      "|since|but|instead of|rather than)\\s.*$",
      std::regex::icase);
  value = std::regex_replace(value, kTail, "");
  static const std::regex kLead("^(?:now|actually|currently|really|just)\\s+", std::regex::icase);
  value = std::regex_replace(value, kLead, "");
  while (!value.empty() && std::string_view(".,;:! ").find(value.back()) != std::string_view::npos)
    value.pop_back();
  return value;
}

class FactFinder {
 public:
  FactFinder(const HeardMessage& message, const std::vector<FactInfo>& known)
      : message_(message), known_(known) {
    me_ = !message.speaker.empty() ? message.speaker : !message.user.empty() ? message.user : "the user";
  }

  std::vector<FactStatement> find() && {
    for (const Sentence& sentence : sentences_of(message_.text)) {
      quote_ = sentence.text;
      Sentence stated = sentence;
      const bool corrects = take_correction(stated);
      take_date(stated);
      if (take_retraction(stated)) continue;
      if (is_uncertain(stated.lower)) continue;
      if (take_correction_of_last(stated, corrects)) continue;
      if (take_attribute(stated, corrects) || take_taste(stated, corrects) || take_name(stated, corrects))
        continue;
      static_cast<void>(take_relation(stated, corrects));
    }
    return std::move(found_);
  }

 private:
  // --- Forms ---

  // "Actually, ...", "Sorry, I meant ...", "No, ...", "Correction: ...".
  static bool take_correction(Sentence& sentence) {
    static const std::regex kLead(
        "^(?:(?:no|oh|oops|sorry|wait|correction|actually|well|i was wrong|i made a mistake|my mistake|to "
        "correct myself|let me correct that)[,:;]?\\s+(?:but\\s+)?)+(?:i meant(?: to say)?(?: "
        "that)?[,:]?\\s+)?");
    std::smatch match;
    if (!std::regex_search(sentence.lower, match, kLead)) return false;
    const auto length = static_cast<size_t>(match.length());
    const bool corrects =
        match.str().find("actually") != std::string::npos ||
        match.str().find("correct") != std::string::npos || match.str().find("wrong") != std::string::npos ||
        match.str().find("mistake") != std::string::npos || match.str().find("meant") != std::string::npos ||
        match.str().find("sorry") != std::string::npos || match.str().find("no") == 0;
    sentence.text.erase(0, length);
    sentence.lower.erase(0, length);
    return corrects;
  }

  // A date in the sentence says since when it is so; it is no part of the value.
  void take_date(Sentence& sentence) {
    date_.clear();
    take_named_date(sentence);
    // What says when without saying which day ("recently", or "yesterday" of a message without a stamp).
    static const std::regex kLead(
        "^(?:(?:yesterday|today|tonight|tomorrow|recently|lately|nowadays|these "
        "days|currently|now|so|and|but|also|"
        "(?:last|this|next) [a-z]+|[a-z0-9]+ [a-z]+ ago),?\\s+)+");
    std::smatch match;
    if (!std::regex_search(sentence.lower, match, kLead)) return;
    sentence.text.erase(0, static_cast<size_t>(match.length()));
    sentence.lower.erase(0, static_cast<size_t>(match.length()));
  }

  void take_named_date(Sentence& sentence) {
    const std::vector<text::FoundDate> dates = text::find_dates(sentence.text, message_.stamp);
    if (dates.empty()) return;
    const text::FoundDate& date = dates.front();
    date_ = date.period.iso();
    static const std::regex kBefore(
        "(?:,?\\s*\\b(?:in|on|since|from|as of|back in|starting|beginning|this|last))?\\s*$");
    std::string before = sentence.lower.substr(0, date.begin);
    const std::string shorter =
        std::regex_replace(before, kBefore, "", std::regex_constants::format_first_only);
    std::string after = sentence.text.substr(date.end);
    if (shorter.empty()) after.erase(0, after.find_first_not_of(" ,"));
    sentence.text = sentence.text.substr(0, shorter.size()) + after;
    sentence.text = std::string(text::trim(sentence.text));
    sentence.lower = text::ascii_lower(sentence.text);
  }

  // "Forget that I live in Oslo", "forget my address", "I no longer live in Oslo", "my car is no longer ...".
  bool take_retraction(const Sentence& sentence) {
    std::smatch match;
    static const std::regex kForgetMy(
        "^(?:please\\s+)?(?:forget|delete|erase|remove)\\s+(?:about\\s+)?(my|[a-z0-9 .]+'s)\\s+(.+)$");
    if (std::regex_match(sentence.lower, match, kForgetMy)) {
      return retract(subject_of(original(sentence, match, 1)), clean_value(match[2].str()));
    }
    static const std::regex kForgetThat(
        "^(?:please\\s+)?(?:forget|ignore|disregard)\\s+(?:about\\s+)?(?:that|what i (?:just )?said|it)$");
    if (std::regex_match(sentence.lower, match, kForgetThat)) return retract_last();
    static const std::regex kForgetSaid(
        "^(?:please\\s+)?(?:forget|ignore|disregard)\\s+(?:the fact\\s+)?that\\s+(.+)$");
    if (std::regex_match(sentence.lower, match, kForgetSaid)) {
      return retract_said(original(sentence, match, 1));
    }
    static const std::regex kNoLonger(
        "\\b(?:no longer|not\\b(.*)\\bany ?more|(?:do|does|is|am|are)(?:n't| not)\\b(.*)\\bany ?more)\\b");
    if (std::regex_search(sentence.lower, kNoLonger)) {
      static const std::regex kWords(
          "\\b(?:no longer|any ?more)\\b|\\b(?:do|does)(?:n't| not)\\b|(?:n't|\\bnot)\\b");
      const std::string positive = text::one_line(std::regex_replace(sentence.text, kWords, " "));
      return retract_said(positive);
    }
    static const std::regex kNotTrue(
        "^(?:it is|it's|that is|that's) (?:not|no longer) (?:true|the case|right) that\\s+(.+)$");
    if (std::regex_match(sentence.lower, match, kNotTrue)) return retract_said(original(sentence, match, 1));
    return false;
  }

  // "Actually it's Bergen, not Oslo": the last recorded value that is Oslo.
  bool take_correction_of_last(const Sentence& sentence, bool corrects) {
    std::smatch match;
    static const std::regex kNotThat(
        "^(?:it is|it's|it was|that is|that's|i meant|make that)\\s+(.+?),?\\s+(?:and\\s+)?not\\s+(.+)$");
    static const std::regex kIs("^(?:it is|it's|it was|that's|i meant|make that)\\s+(.+)$");
    if (std::regex_match(sentence.lower, match, kNotThat)) {
      return correct_value(clean_value(original(sentence, match, 1)),
                           clean_value(original(sentence, match, 2)));
    }
    if (corrects && std::regex_match(sentence.lower, match, kIs)) {
      return correct_value(clean_value(original(sentence, match, 1)), "");
    }
    return false;
  }

  // "My favourite tea is mint", "Ana's phone number is 123", "the capital of X is Y" is no fact of a
  // person's.
  bool take_attribute(const Sentence& sentence, bool corrects) {
    std::smatch match;
    static const std::regex kIs(
        "^(?:and\\s+)?(?:also\\s+)?(?:remember that\\s+|note that\\s+|fyi,?\\s+|by the "
        "way,?\\s+)*(my|[^,;:]{1,60}?'s|[^,;:]{1,60}?s')\\s+"
        "([^,;:]{2,60}?)\\s+(?:(?:has\\s+)?(?:now\\s+)?(?:changed|moved)\\s+to|(?:is|are)(?:\\s+now)?(?:\\s+"
        "called)?|is named)\\s+(.+)$");
    if (!std::regex_match(sentence.lower, match, kIs)) return false;
    const std::string attribute = clean_attribute(match[2].str());
    std::string value = original(sentence, match, 3);
    const std::string_view start =
        std::string_view(sentence.lower).substr(static_cast<size_t>(match.position(3)));
    if (attribute.empty() || start.starts_with("not ") || start.starts_with("very ") ||
        start.starts_with("so ")) {
      return false;
    }
    value = without_not(value);
    const std::string subject = subject_of(original(sentence, match, 1));
    return state(subject, attribute, value, "", corrects);
  }

  // "Ana now dislikes oolong, prefers mint": of the same kind of thing as what is recorded.
  bool take_taste(const Sentence& sentence, bool corrects) {
    std::smatch match;
    static const std::regex kSwap(
        "^(.{1,60}?)\\s+(?:now\\s+|no longer\\s+)?(?:dislikes?|hates?|does not like|doesn't like|don't "
        "like|likes?)\\s+(.+?)(?:,|;|\\s+and|\\s+but)+\\s+(?:(?:she|he|they|i)\\s+)?"
        "(?:now\\s+)?(?:prefers?|likes?|loves?)\\s+(.+?)(?:\\s+(?:instead|now))?$");
    if (!std::regex_match(sentence.lower, match, kSwap)) return false;
    const std::string subject = subject_of(original(sentence, match, 1));
    const std::string old_value = clean_value(match[2].str());
    const std::string value = clean_value(original(sentence, match, 3));
    for (auto fact = known_.rbegin(); fact != known_.rend(); ++fact) {
      if (!fact->current || !text::equals_ignoring_case(fact->subject, subject)) continue;
      if (text::ascii_lower(fact->value).find(old_value) == std::string::npos) continue;
      return state(fact->subject, fact->attribute, value, "", corrects);
    }
    return state(subject, "preference: " + value, value, fmt::format("{} prefers {}.", subject, value),
                 corrects);
  }

  // "Call me Ana", "my name is ..." is an attribute.
  bool take_name(const Sentence& sentence, bool corrects) {
    std::smatch match;
    static const std::regex kCall("^(?:please\\s+)?call me\\s+(.+)$");
    if (!std::regex_match(sentence.lower, match, kCall)) return false;
    return state(me_, "name", clean_value(original(sentence, match, 1)), "", corrects);
  }

  bool take_relation(const Sentence& sentence, bool corrects) {
    for (const auto& [relation, pattern] : relations()) {
      std::smatch match;
      if (!std::regex_match(sentence.lower, match, pattern)) continue;
      const std::string subject = subject_of(original(sentence, match, 1));
      const std::string value = without_not(clean_value(original(sentence, match, 2)));
      if (subject.empty()) return false;
      const std::string kept = fmt::format(fmt::runtime(relation->sentence), subject, value);
      const std::string attribute = relation->attribute;
      return state(subject, relation->many ? attribute + ": " + value : attribute, value, kept, corrects);
    }
    return false;
  }

  // --- What they come to ---

  bool state(const std::string& subject, const std::string& attribute, const std::string& raw,
             const std::string& sentence, bool corrects) {
    const std::string value = clean_value(raw);
    if (subject.empty() || attribute.empty() || value.empty() || value.size() > 200) return false;
    FactStatement statement = blank();
    statement.action =
        corrects && is_known(subject, attribute) ? FactAction::kCorrected : FactAction::kStated;
    statement.subject = subject;
    statement.attribute = attribute;
    statement.value = value;
    statement.sentence = sentence;
    found_.push_back(std::move(statement));
    return true;
  }

  bool correct_value(const std::string& value, const std::string& wrong) {
    const FactInfo* fact = last_known(wrong);
    if (!fact || value.empty()) return false;
    FactStatement statement = blank();
    statement.action = FactAction::kCorrected;
    statement.subject = fact->subject;
    statement.attribute = fact->attribute;
    statement.value = value;
    found_.push_back(std::move(statement));
    return true;
  }

  bool retract(const std::string& subject, const std::string& attribute) {
    if (subject.empty() || attribute.empty()) return false;
    FactStatement statement = blank();
    statement.action = FactAction::kRetracted;
    statement.subject = subject;
    statement.attribute = attribute;
    found_.push_back(std::move(statement));
    return true;
  }

  bool retract_last() {
    if (!found_.empty()) {
      found_.pop_back();  // said and taken back in one message
      return true;
    }
    const FactInfo* fact = last_known("");
    return fact && retract(fact->subject, fact->attribute);
  }

  // What the words would state is taken back, if that is what is recorded.
  bool retract_said(const std::string& words) {
    HeardMessage said = message_;
    said.text = words;
    const std::vector<FactStatement> stated = FactFinder(said, known_).find();
    if (stated.empty()) return false;
    for (const FactStatement& one : stated) {
      if (one.action != FactAction::kRetracted && !is_known(one.subject, one.attribute, one.value)) continue;
      static_cast<void>(retract(one.subject, one.attribute));
    }
    return true;
  }

  FactStatement blank() const {
    FactStatement statement;
    statement.event_time = date_;
    statement.user = message_.user;
    statement.message = message_.id;
    statement.speaker = message_.speaker;
    statement.told = message_.stamp;
    statement.quote = quote_;
    statement.made_by = "rule";
    return statement;
  }

  // --- Parts ---

  static std::string original(const Sentence& sentence, const std::smatch& match, size_t group) {
    return sentence.text.substr(static_cast<size_t>(match.position(group)),
                                static_cast<size_t>(match.length(group)));
  }

  // "my", "I", "we" is the speaker; "Ana's" is Ana. Pronouns of others and common nouns are nobody known.
  std::string subject_of(const std::string& given) const {
    std::string name = clean_value(given);
    for (const std::string_view ending : {"'s", "\xE2\x80\x99s"}) {
      if (name.ends_with(ending)) name.resize(name.size() - ending.size());
    }
    if (name.ends_with("s'")) name.pop_back();
    const std::string lower = text::ascii_lower(name);
    static constexpr std::array<std::string_view, 4> kMe = {"i", "my", "me", "i've"};
    if (std::find(kMe.begin(), kMe.end(), lower) != kMe.end()) return me_;
    static constexpr std::array<std::string_view, 22> kNobody = {
        "he",   "she", "it",    "they", "his", "her",  "its", "their", "this", "that",  "there",
        "what", "who", "which", "we",   "our", "your", "you", "let",   "here", "today", "one"};
    if (std::find(kNobody.begin(), kNobody.end(), lower) != kNobody.end()) return {};
    if (lower.starts_with("my ")) return me_ + "'s " + name.substr(3);
    const bool named = !name.empty() && (text::is_ascii_upper(name.front()) ||
                                         static_cast<unsigned char>(name.front()) >= 0x80);
    const bool noun = lower.starts_with("the ");
    if (!named && !noun) return {};
    if (std::count(name.begin(), name.end(), ' ') > 4) return {};
    return name;
  }

  static std::string clean_attribute(std::string attribute) {
    static const std::regex kLead("^(?:new|current|own|old|real|present)\\s+");
    attribute = std::regex_replace(attribute, kLead, "");
    // A verb in it means that this is a longer sentence than the form is for.
    static const std::regex kVerb("\\b(?:is|are|was|that|which|who|said|says|told|because|if)\\b");
    if (std::regex_search(attribute, kVerb)) return {};
    return attribute;
  }

  // "mint, not oolong" is mint.
  static std::string without_not(const std::string& value) {
    const std::string lower = text::ascii_lower(value);
    for (const std::string_view mark : {", not ", " and not ", " instead of ", " rather than "}) {
      if (const size_t at = lower.find(mark); at != std::string::npos) return value.substr(0, at);
    }
    return value;
  }

  bool is_known(const std::string& subject, const std::string& attribute,
                const std::string& value = {}) const {
    return std::any_of(known_.begin(), known_.end(), [&](const FactInfo& fact) {
      const std::string wanted = text::ascii_lower(value);
      return fact.current && text::equals_ignoring_case(fact.subject, subject) &&
             text::equals_ignoring_case(fact.attribute, attribute) &&
             (value.empty() || text::ascii_lower(fact.value).find(wanted) != std::string::npos ||
              wanted.find(text::ascii_lower(fact.value)) != std::string::npos);
    });
  }

  const FactInfo* last_known(const std::string& value) const {
    for (auto fact = known_.rbegin(); fact != known_.rend(); ++fact) {
      if (fact->current && (value.empty() || text::equals_ignoring_case(fact->value, value))) return &*fact;
    }
    return nullptr;
  }

  using CompiledRelation = std::pair<const Relation*, std::regex>;
  static const std::vector<CompiledRelation>& relations() {
    static const std::vector<CompiledRelation> compiled = [] {
      std::vector<CompiledRelation> all;
      for (const Relation& relation : kRelations) {
        all.emplace_back(
            &relation,
            std::regex(fmt::format(
                "^(?:and\\s+)?(?:remember that\\s+|note that\\s+)?(.{{1,60}}?)\\s+(?:now\\s+|currently\\s+|"
                "recently\\s+|just\\s+|have\\s+|has\\s+)*(?:{})\\s+(.+)$",
                relation.verbs)));
      }
      return all;
    }();
    return compiled;
  }

  const HeardMessage& message_;
  const std::vector<FactInfo>& known_;
  std::string me_;
  std::string quote_;
  std::string date_;
  std::vector<FactStatement> found_;
};

}  // namespace

std::vector<FactStatement> find_facts(const HeardMessage& message, const std::vector<FactInfo>& known) {
  return FactFinder(message, known).find();
}

}  // namespace rhapsode

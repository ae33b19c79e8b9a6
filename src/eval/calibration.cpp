#include "eval/calibration.h"

#include <algorithm>
#include <array>

#include "base/sha256.h"
#include "eval/built_in_texts.h"
#include "eval/dataset_builder.h"
#include "eval/made_up.h"
#include "eval/summary.h"

namespace rhapsode::eval {

namespace {

constexpr int kPassages = 5;  // to a question
constexpr int kLongTokens = 64;
constexpr size_t kMostTextBytes = 4u << 20;

struct Group {
  const char* name;
  size_t passage_bytes;
  int least_tokens;
  int most_tokens;  // 0: no limit
};
constexpr std::array<Group, 2> kGroups{
    {{"filled", 1900, kFilledTokens, 0}, {"short", 520, 0, kFilledTokens - 1}}};

// How many questions of each kind a group gets.
struct Amounts {
  int single, joined, at_length;
};
constexpr Amounts kQuick{5, 5, 2};
constexpr Amounts kThorough{25, 25, 10};

constexpr const char* kInstruction =
    "You answer questions. Use only the given documents. Reply with the short answer only (a name, a number, "
    "a "
    "few words), unless you are asked for several sentences.";

struct Site {
  std::string place, keeper, town, code;
};

Site made_up_site(Random& random) {
  return {made_up_name(random), made_up_name(random), made_up_name(random), made_up_value(random)};
}

// The sentence put into each passage of a question; those of the first two hold what it asks for.
struct Sentences {
  std::string question, answer;
  std::vector<std::string> of_passage;
  int gold = 0;  // the first ones are evidence
};

Sentences single_fact(Random& random) {
  Sentences made;
  for (int i = 0; i < kPassages; ++i) {
    const Site site = made_up_site(random);
    made.of_passage.push_back(
        fmt::format("The access code of the depot at {} is {}.", site.place, site.code));
    if (i > 0) continue;
    made.question = fmt::format("What is the access code of the depot at {}?", site.place);
    made.answer = site.code;
  }
  made.gold = 1;
  return made;
}

Sentences joined_facts(Random& random) {
  Sentences made;
  const Site asked = made_up_site(random);
  made.of_passage = {fmt::format("The depot at {} is led by {}.", asked.place, asked.keeper),
                     fmt::format("{} was born in {}.", asked.keeper, asked.town)};
  for (int i = 2; i < kPassages; ++i) {
    const Site other = made_up_site(random);
    made.of_passage.push_back(i % 2 == 0
                                  ? fmt::format("The depot at {} is led by {}.", other.place, other.keeper)
                                  : fmt::format("{} was born in {}.", other.keeper, other.town));
  }
  made.question = fmt::format("In which town was the leader of the depot at {} born?", asked.place);
  made.answer = asked.town;
  made.gold = 2;
  return made;
}

Sentences long_answer(Random& random) {
  Sentences made = single_fact(random);
  made.question = "Say in several sentences what these documents are about.";
  made.answer.clear();
  made.gold = 0;
  return made;
}

class Maker {
 public:
  Maker(std::vector<Section> sections, const Group& group, Random random, DatasetBuilder& builder)
      : sections_(std::move(sections)), group_(group), random_(random), builder_(builder) {}

  void add(const char* type, const Sentences& sentences) {
    Question question;
    question.id = fmt::format("{}-{}", type, number_++);
    question.group = group_.name;
    question.type = type;
    question.text = sentences.question;
    if (!sentences.answer.empty()) question.answers = {sentences.answer};
    if (sentences.answer.empty()) question.answer_tokens = kLongTokens;
    for (int i = 0; i < kPassages; ++i) {
      const int document = add_passage(sentences.of_passage[i]);
      question.own.push_back({document});
      if (i < sentences.gold) question.gold.push_back({{Span{document}}});
    }
    random_.shuffle(question.own);
    builder_.add_question(std::move(question));
  }
  Random& random() { return random_; }

 private:
  // The next section, with the sentence at the end of one of its paragraphs.
  int add_passage(const std::string& sentence) {
    const Section& section = sections_[next_++ % sections_.size()];
    const size_t at = random_.below(section.paragraphs.size());
    std::string text;
    for (size_t p = 0; p < section.paragraphs.size(); ++p) {
      text += section.paragraphs[p];
      text += p == at ? " " + sentence + "\n\n" : "\n\n";
    }
    return builder_.add_document(section.title, std::move(text));
  }

  std::vector<Section> sections_;
  const Group& group_;
  Random random_;
  DatasetBuilder& builder_;
  size_t next_ = 0;
  int number_ = 0;
};

const Group& group_named(const std::string& name) {
  return name == kGroups[0].name ? kGroups[0] : kGroups[1];
}

double mean_of(const std::map<std::string, Interval>& intervals, const char* metric) {
  const auto found = intervals.find(metric);
  return found == intervals.end() ? 0 : found->second.mean;
}

}  // namespace

std::vector<CalibrationText> built_in_calibration_texts() {
  std::vector<CalibrationText> texts;
  for (const BuiltInText& text : built_in_texts())
    texts.push_back({std::string(text.name), std::string(text.text)});
  return texts;
}

Result<Dataset> calibration_data(const std::vector<CalibrationText>& texts,
                                 const CalibrationOptions& options) {
  Dataset dataset;
  DatasetBuilder builder(dataset);
  const Amounts& amounts = options.thorough ? kThorough : kQuick;
  for (const Group& group : kGroups) {
    std::vector<Section> sections;
    for (const CalibrationText& text : texts) {
      add_sections(text.name, paragraphs_of(text.text, kMostTextBytes), group.passage_bytes, sections);
    }
    // The last section of a text may be a stump.
    std::erase_if(sections, [&](const Section& section) {
      size_t bytes = 0;
      for (const std::string_view paragraph : section.paragraphs) bytes += paragraph.size() + 2;
      return bytes < group.passage_bytes / 2 || bytes > 2 * group.passage_bytes;
    });
    if (sections.size() < static_cast<size_t>(kPassages)) {
      return make_error(ErrorKind::kInvalidArgument,
                        "the texts give {} passages of some {} bytes and {} are needed: give more text, in "
                        "paragraphs with blank lines between them",
                        sections.size(), group.passage_bytes, kPassages);
    }
    Random random(options.seed, group.name);
    random.shuffle(sections);
    Maker maker(std::move(sections), group, random, builder);
    for (int i = 0; i < amounts.single; ++i) maker.add("single", single_fact(maker.random()));
    for (int i = 0; i < amounts.joined; ++i) maker.add("joined", joined_facts(maker.random()));
    for (int i = 0; i < amounts.at_length; ++i) maker.add("long", long_answer(maker.random()));
  }
  dataset.own_documents = dataset.documents.size();
  return dataset;
}

Task calibration_task(const CalibrationOptions& options) {
  Task task;
  task.name = "calibration";
  task.title = "Reading stored keys and values, against full attention";
  task.instruction = kInstruction;
  task.metrics = {"em", "f1"};
  std::string names = "full,reuse,blend=attention+first@15,blend=attention+first@30";
  if (options.thorough) {
    for (const char* selector :
         {"attention", "first", "attention+first", "deviation", "boundary", "random"}) {
      for (const int percent : {5, 15, 30, 50}) names += fmt::format(",blend={}@{}", selector, percent);
    }
  }
  task.contexts = task.default_contexts = std::move(parse_contexts(names).value());
  task.max_tokens = 24;
  task.sha256 = sha256(std::as_bytes(std::span(names))).value();
  return task;
}

std::vector<model::MeasuredReading> measured_readings(const std::vector<Record>& records, uint64_t seed,
                                                      const std::string& stored) {
  std::vector<model::MeasuredReading> rows;
  const Summary summary = summarise(records, to_string(Context::kFull), seed);
  for (const GroupSummary& group : summary.groups) {
    const bool known = group.group == kGroups[0].name || group.group == kGroups[1].name;
    if (!known) continue;
    const Group& size = group_named(group.group);
    double full_ttft_ms = 0;
    for (const ContextSummary& measured : group.contexts) {
      const auto context = context_named(measured.context);
      if (!context) continue;
      if (*context == Context::kFull) full_ttft_ms = mean_of(measured.metrics, "ttft_ms");
      if (context->policy != ReadPolicy::kReuse && context->policy != ReadPolicy::kBlend) continue;
      model::MeasuredReading row;
      row.policy = rhapsode::to_string(context->policy);
      if (context->policy == ReadPolicy::kBlend) {
        row.selector = rhapsode::to_string(context->selector);
        row.share = context->percent / 100;
      }
      row.stored = stored;
      row.least_tokens = size.least_tokens;
      row.most_tokens = size.most_tokens;
      row.kl = mean_of(measured.metrics, "kl");
      row.top1 = mean_of(measured.metrics, "top1");
      row.long_kl = mean_of(measured.metrics, "long_kl");
      row.first_divergence = mean_of(measured.metrics, "first_divergence");
      row.charged = mean_of(measured.metrics, "charged");
      const double ttft_ms = mean_of(measured.metrics, "ttft_ms");
      row.ttft_ratio = ttft_ms > 0 ? full_ttft_ms / ttft_ms : 0;
      row.questions = measured.questions;
      if (const auto f1 = measured.differences.find("f1"); f1 != measured.differences.end()) {
        row.f1_loss = -f1->second.mean;
        row.f1_half_width = (f1->second.high - f1->second.low) / 2;
      }
      rows.push_back(std::move(row));
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.charged < b.charged; });
  return rows;
}

}  // namespace rhapsode::eval

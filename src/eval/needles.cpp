// Needles: facts that nobody can guess, hidden in real text, and the questions that ask for them.
//
// The haystack is cut into documents of about one passage each at paragraph ends; a fact is one sentence at
// the end of a paragraph, all places equally likely. Every fact stands in the one haystack, so each is a
// distractor of the same shape for all others. Two kinds: "single" asks for one value, "multi" for the three
// values of one name that stand in three places.
#include <algorithm>
#include <array>
#include <map>

#include "eval/dataset_builder.h"
#include "eval/made_up.h"
#include "io/file.h"

namespace rhapsode::eval {
namespace {

constexpr uint64_t kMostFileBytes = 64u << 20;
constexpr int kValuesOfMulti = 3;

struct Wording {
  const char* fact;  // {0}: name, {1}: value
  const char* question;
};
constexpr std::array<Wording, 4> kSingle{{
    {"The access code of the depot at {0} is {1}.", "What is the access code of the depot at {0}?"},
    {"The call number that {0} uses on the radio is {1}.", "Which call number does {0} use on the radio?"},
    {"The ledger lists the debt of {0} as {1} crowns.",
     "How many crowns is the debt of {0} according to the ledger?"},
    {"The instrument kept at {0} bears the serial number {1}.",
     "What serial number does the instrument kept at {0} bear?"},
}};
constexpr Wording kMulti{"One of the three signal codes of {0} is {1}.",
                         "What are the three signal codes of {0}?"};

struct Fact {
  int needle = 0;
  std::string sentence;
};

struct Needle {
  std::string name;
  std::string question;
  std::vector<std::string> values;
  std::vector<Span> places;
};

Result<std::vector<std::filesystem::path>> text_files(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return std::vector<std::filesystem::path>{path};
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".md" || extension == ".rst") files.push_back(entry.path());
  }
  if (error) return make_system_error(error.value(), path.string());
  if (files.empty()) {
    return make_error(ErrorKind::kNotFound, "{} holds no .md or .rst file to hide needles in", path.string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// As many needles as asked for, every third of them with several values; names are all different.
std::vector<Needle> make_facts(int count, Random& random, std::vector<Fact>& facts) {
  std::vector<Needle> needles;
  std::set<std::string> names;
  while (static_cast<int>(needles.size()) < count) {
    Needle needle{made_up_name(random), "", {}, {}};
    if (!names.insert(needle.name).second) continue;
    const bool multi = needles.size() % 3 == 2;
    const Wording& wording = multi ? kMulti : kSingle[random.below(kSingle.size())];
    needle.question = fmt::format(fmt::runtime(wording.question), needle.name);
    for (int i = 0; i < (multi ? kValuesOfMulti : 1); ++i) {
      needle.values.push_back(made_up_value(random));
      facts.push_back({static_cast<int>(needles.size()),
                       fmt::format(fmt::runtime(wording.fact), needle.name, needle.values.back())});
    }
    needles.push_back(std::move(needle));
  }
  return needles;
}

// Draws a paragraph of its own for each fact: [section, paragraph] -> fact.
std::map<std::pair<size_t, size_t>, const Fact*> place_facts(const std::vector<Section>& sections,
                                                             const std::vector<Fact>& facts, Random& random) {
  std::vector<std::pair<size_t, size_t>> slots;
  for (size_t s = 0; s < sections.size(); ++s) {
    for (size_t p = 0; p < sections[s].paragraphs.size(); ++p) slots.emplace_back(s, p);
  }
  random.shuffle(slots);
  std::map<std::pair<size_t, size_t>, const Fact*> placed;
  for (size_t i = 0; i < facts.size() && i < slots.size(); ++i) placed[slots[i]] = &facts[i];
  return placed;
}

void write_documents(const std::vector<Section>& sections, const std::vector<Fact>& facts, Random& random,
                     std::vector<Needle>& needles, DatasetBuilder& builder) {
  const auto placed = place_facts(sections, facts, random);
  for (size_t s = 0; s < sections.size(); ++s) {
    std::string text;
    std::vector<std::pair<int, Span>> places;
    for (size_t p = 0; p < sections[s].paragraphs.size(); ++p) {
      text += sections[s].paragraphs[p];
      if (const auto found = placed.find({s, p}); found != placed.end()) {
        text += ' ';
        places.push_back(
            {found->second->needle, {0, text.size(), text.size() + found->second->sentence.size()}});
        text += found->second->sentence;
      }
      text += "\n\n";
    }
    const int document = builder.add_document(sections[s].title, std::move(text));
    for (auto& [needle, span] : places) {
      span.document = document;
      needles[static_cast<size_t>(needle)].places.push_back(span);
    }
  }
}

Question question_of(const Needle& needle, const std::string& group, size_t number) {
  Question question;
  question.id = fmt::format("{}", number);
  question.group = group;
  question.type = needle.values.size() > 1 ? "multi" : "single";
  question.text = needle.question;
  question.answers = {fmt::format("{}", fmt::join(needle.values, ", "))};
  question.values = needle.values;
  for (const Span& place : needle.places) {
    question.gold.push_back({{place}});
    question.own.push_back(place);
  }
  return question;
}

}  // namespace

// `bytes`: of haystack, in equal parts from all files; `needles`: questions; `section_bytes`: of one
// document.
Status make_needles(const ReaderInput& input, DatasetBuilder& builder) {
  const int bytes = input.options.integer("bytes", 1000000, 1000, 1 << 30);
  const int count = input.options.integer("needles", 100, 1, 100000);
  const int section_bytes = input.options.integer("section_bytes", 2000, 200, 1 << 20);
  RH_TRY(const std::vector<std::filesystem::path> files, text_files(input.path));
  std::vector<std::string> texts;
  std::vector<Section> sections;
  texts.reserve(files.size());  // sections hold views of them
  for (const std::filesystem::path& file : files) {
    RH_TRY(std::string text, read_text_file(file, kMostFileBytes));
    texts.push_back(std::move(text));
    add_sections(file.stem().string(), paragraphs_of(texts.back(), static_cast<size_t>(bytes) / files.size()),
                 static_cast<size_t>(section_bytes), sections);
  }
  Random random(input.options.seed(), input.group);
  std::vector<Fact> facts;
  std::vector<Needle> needles = make_facts(count, random, facts);
  size_t paragraphs = 0;
  for (const Section& section : sections) paragraphs += section.paragraphs.size();
  if (paragraphs < facts.size()) {
    return make_error(ErrorKind::kInvalidArgument,
                      "{} facts do not fit the {} paragraphs of {}: ask for fewer needles or more bytes",
                      facts.size(), paragraphs, input.path.string());
  }
  write_documents(sections, facts, random, needles, builder);
  for (size_t i = 0; i < needles.size(); ++i) {
    builder.add_question(question_of(needles[i], input.group, i));
  }
  return {};
}

}  // namespace rhapsode::eval

// Whether the sentence that citing by masks finds is the one that the answer really rests on.
//
//   rhapsode_citation_check MODEL DATA_FOLDER [QUESTIONS]
//
// Citing masks a sentence out of stored KV whose later tokens have seen it: an approximation. Here every
// sentence of the first cited passage is taken out of the text, the passage is evaluated again without it
// (full attention), and what the answer's likelihood loses is compared: which sentence loses most, and how
// much of that loss the cited one has. Questions are those of the task `citations` that are answered right
// and cited in a passage of at least two sentences, in its order. Cost: a prefill a sentence.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>

#include "base/result.h"
#include "eval/answer_text.h"
#include "eval/metrics.h"
#include "eval/plan.h"
#include "eval/readers.h"
#include "rhapsode/memory.h"
#include "text/passage.h"

namespace rhapsode {
namespace {

namespace fs = std::filesystem;

struct Case {
  AskOptions ask;
  std::string answer;
  size_t cited_at = 0;                // index into ask.passages
  std::vector<std::string> variants;  // sources: the cited passage less one sentence each
  std::vector<double> drop;           // of the answer's log-likelihood, by sentence
  int cited_sentence = 0;
};

class Check {
 public:
  Check(std::unique_ptr<Engine> engine, std::unique_ptr<Memory> memory, fs::path folder)
      : engine_(std::move(engine)), memory_(std::move(memory)), folder_(std::move(folder)) {}

  Status run(const eval::Plan& plan, int most) {
    for (const int number : plan.questions()) {
      if (static_cast<int>(cases_.size()) == most) break;
      RH_TRY_STATUS(ask(plan, number));
    }
    RH_TRY_STATUS(add("variants"));
    int agree = 0, second = 0;
    double share = 0;
    for (Case& one : cases_) {
      RH_TRY_STATUS(measure(one));
      const double cited = one.drop[one.cited_sentence];
      const auto larger =
          std::count_if(one.drop.begin(), one.drop.end(), [&](double d) { return d > cited; });
      agree += larger == 0;
      second += larger <= 1;
      const double best = *std::max_element(one.drop.begin(), one.drop.end());
      share += best > 0 ? std::clamp(cited / best, 0.0, 1.0) : 1.0;
      fmt::print("{:2} sentences, cited loses {:6.2f} nats, the most any loses {:6.2f}\n", one.drop.size(),
                 cited, best);
    }
    const auto count = std::max<size_t>(1, cases_.size());
    fmt::print(
        "{} answers: the cited sentence loses most in {} ({:.0f} %), is among the first two in {}, and has "
        "{:.2f} of the largest loss on average\n",
        cases_.size(), agree, 100.0 * agree / static_cast<double>(count), second,
        share / static_cast<double>(count));
    return {};
  }

 private:
  std::string write(const std::string& folder, const std::string& name, const std::string& text) {
    fs::create_directories(folder_ / folder);
    std::ofstream(folder_ / folder / name) << text << "\n";
    return (folder_ / folder / name).string();
  }
  Status add(const std::string& folder) {
    AddOptions options;
    options.paths = {(folder_ / folder).string()};
    options.index_only = true;
    RH_TRY(const AddReport report, memory_->add(options));
    if (report.failed.empty()) return {};
    return make_error(ErrorKind::kInternal, "{}: {}", report.failed[0].source, report.failed[0].reason);
  }
  // The only passage of a source; 0 when it has several.
  Result<int64_t> passage_of(const std::string& source) {
    RH_TRY(const SourceDetail detail, memory_->show(source));
    return detail.passages.size() == 1 ? detail.passages[0].id : 0;
  }

  Status ask(const eval::Plan& plan, int number) {
    const eval::Question& question = plan.question(number);
    std::vector<std::string> sources;
    const std::string folder = fmt::format("question-{}", number);
    for (const eval::Span& place : plan.own_places(question)) {
      const std::string& text = plan.dataset().documents[static_cast<size_t>(place.document)].text;
      sources.push_back(write(folder, fmt::format("{}.txt", place.document), text));
    }
    RH_TRY_STATUS(add(folder));
    Case one;
    one.ask.question = question.text;
    one.ask.policy = ReadPolicy::kFull;
    one.ask.max_tokens = 24;
    one.ask.abstain = false;
    for (const std::string& source : sources) {
      RH_TRY(const int64_t id, passage_of(source));
      if (id == 0) return {};
      one.ask.passages.push_back(id);
    }
    RH_TRY(const Answer answer, memory_->ask(one.ask));
    one.answer = eval::answer_of_reply(answer.text);
    if (answer.citations.empty() || eval::exact_match(one.answer, question.answers) == 0) return {};
    const Citation& cited = answer.citations.front();
    one.cited_at = std::find(sources.begin(), sources.end(), cited.source) - sources.begin();
    RH_TRY(const std::string text, memory_->text(cited.source));
    const std::vector<size_t> starts = text::sentence_starts(text, text::DocumentKind::kPlain);
    if (starts.size() < 2 || one.cited_at == sources.size()) return {};
    for (size_t s = 0; s < starts.size(); ++s) {
      const size_t end = s + 1 < starts.size() ? starts[s + 1] : text.size();
      if (starts[s] <= cited.start_byte && cited.start_byte < end) one.cited_sentence = static_cast<int>(s);
      std::string without = text.substr(0, starts[s]) + text.substr(end);
      one.variants.push_back(write("variants", fmt::format("{}-{}.txt", number, s), without));
    }
    cases_.push_back(std::move(one));
    return {};
  }

  Result<double> likelihood(const AskOptions& ask, const std::string& answer) {
    RH_TRY(const AnswerScore score, memory_->score(ask, answer));
    double sum = 0;
    for (size_t t = 0; t < score.tokens.size(); ++t) {
      std::vector<float> row = score.logits[t];
      eval::log_softmax(row);
      sum += row[static_cast<size_t>(score.tokens[t])];
    }
    return sum;
  }

  Status measure(Case& one) {
    one.ask.cite = false;
    RH_TRY(const double whole, likelihood(one.ask, one.answer));
    for (const std::string& variant : one.variants) {
      AskOptions ask = one.ask;
      RH_TRY(ask.passages[one.cited_at], passage_of(variant));
      RH_TRY(const double without, likelihood(ask, one.answer));
      one.drop.push_back(whole - without);
    }
    return {};
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Memory> memory_;  // behind the engine, which it refers to
  fs::path folder_;
  std::vector<Case> cases_;
};

Status check(const std::string& model, const fs::path& data, int questions, const fs::path& folder) {
  RH_TRY(const eval::Task task, eval::find_task("citations"));
  RH_TRY(const eval::Dataset dataset, eval::load_dataset(task, data, /*with_filler=*/false));
  eval::Options options;
  RH_TRY(const eval::Plan plan, eval::Plan::make(task, dataset, options));
  EngineOptions engine_options;
  engine_options.model = model;
  engine_options.weights = WeightFormat::kMixed;
  RH_TRY(std::unique_ptr<Engine> engine, Engine::open(engine_options));
  MemoryOptions memory_options;
  memory_options.folder = folder / "memory";
  memory_options.create = true;
  memory_options.instruction = task.instruction;
  RH_TRY(std::unique_ptr<Memory> memory, Memory::open(*engine, memory_options));
  return Check(std::move(engine), std::move(memory), folder).run(plan, questions);
}

}  // namespace
}  // namespace rhapsode

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: rhapsode_citation_check MODEL DATA_FOLDER [QUESTIONS]\n";
    return 2;
  }
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("rhapsode-citations-{}", ::getpid());
  const rhapsode::Status status =
      rhapsode::check(argv[1], argv[2], argc > 3 ? std::atoi(argv[3]) : 25, folder);
  std::filesystem::remove_all(folder);
  if (status.ok()) return 0;
  std::cerr << status.error().message << "\n";
  return 1;
}

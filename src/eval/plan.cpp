#include "eval/plan.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>

#include "eval/metrics.h"
#include "eval/random.h"
#include "eval/readers.h"

namespace rhapsode::eval {
namespace {

// Neighbours looked at for each distractor wanted: many hold an answer and are passed over.
constexpr size_t kCandidates = 200;
constexpr int64_t kBytesOfToken = 4;  // as lengths of pools are published

// What a task's list of contexts must hold for one to be allowed.
Context::Kind allowed_as(const Context& context) {
  return context.kind >= Context::Kind::kJudged ? Context::Kind::kRouted : context.kind;
}

Result<std::vector<Context>> chosen_contexts(const Task& task, const Options& options) {
  if (options.contexts.empty()) return task.default_contexts;
  RH_TRY(std::vector<Context> contexts, parse_contexts(options.contexts));
  for (const Context& context : contexts) {
    const bool allowed_kind =
        std::any_of(task.contexts.begin(), task.contexts.end(),
                    [&](const Context& other) { return other.kind == allowed_as(context); });
    if (!allowed_kind) {
      std::vector<std::string> allowed;
      for (const Context& other : task.contexts) allowed.emplace_back(to_string(other));
      return make_error(ErrorKind::kInvalidArgument, "task {} has no context '{}'; it has {}", task.name,
                        to_string(context), fmt::join(allowed, ", "));
    }
  }
  return contexts;
}

// Empty: there is none.
Result<std::string> chosen_baseline(const Task& task, const std::string& baseline) {
  if (baseline.empty()) return task.baseline;
  if (baseline == "none") return std::string();
  if (context_named(baseline)) return baseline;
  return make_error(ErrorKind::kInvalidArgument, "'{}' is no context to compare with", baseline);
}

// "2/10" of the questions in the order drawn.
Result<std::vector<int>> part_of(std::vector<int> questions, const std::string& part) {
  if (part.empty()) return questions;
  size_t number = 0, parts = 0;
  const char* const end = part.data() + part.size();
  const auto first = std::from_chars(part.data(), end, number);
  const bool divided = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = divided ? std::from_chars(first.ptr + 1, end, parts) : first;
  if (!divided || second.ec != std::errc() || second.ptr != end || number < 1 || number > parts ||
      parts > questions.size()) {
    return make_error(ErrorKind::kInvalidArgument,
                      "'{}' is no part of {} questions; 2/10 is the second of ten equal parts", part,
                      questions.size());
  }
  const auto at = [&](size_t count) {
    return questions.begin() + static_cast<ptrdiff_t>(questions.size() * count / parts);
  };
  return std::vector<int>(at(number - 1), at(number));
}

// The first ones: a conversation costs more to replay than all questions about it.
Result<std::vector<int>> by_conversation(const Dataset& dataset, int limit) {
  std::vector<int> order(dataset.questions.size());
  std::iota(order.begin(), order.end(), 0);
  const auto conversation_of = [&](int number) {
    return dataset.questions[static_cast<size_t>(number)].conversation;
  };
  const bool all = std::all_of(order.begin(), order.end(), [&](int number) {
    const int conversation = conversation_of(number);
    return conversation >= 0 && conversation < static_cast<int>(dataset.conversations.size());
  });
  if (!all) {
    return make_error(ErrorKind::kInvalidArgument,
                      "a task of kind replay needs data whose questions are asked about conversations");
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return conversation_of(a) < conversation_of(b); });
  if (limit > 0 && static_cast<size_t>(limit) < order.size()) order.resize(static_cast<size_t>(limit));
  return order;
}

}  // namespace

Result<Plan> Plan::make(const Task& task, const Dataset& dataset, const Options& options) {
  if (task.kind == TaskKind::kTalk) {
    return make_error(ErrorKind::kInvalidArgument,
                      "task {} holds a conversation; it has no questions to plan", task.name);
  }
  Plan plan(task, dataset, options);
  RH_TRY(plan.contexts_, chosen_contexts(task, options));
  RH_TRY(plan.baseline_, chosen_baseline(task, options.baseline));
  if (options.recall_only) {
    std::erase_if(plan.contexts_, [](const Context& context) { return !is_searched(context); });
    if (plan.contexts_.empty()) {
      return make_error(ErrorKind::kInvalidArgument,
                        "--recall-only needs a context that searches: routed, bm25 or latent");
    }
  }
  plan.distractors_ = options.distractors >= 0 ? options.distractors : task.distractors;
  plan.pool_tokens_ = options.pool_tokens;
  const int limit = options.limit > 0 ? options.limit : task.limit;
  if (task.kind == TaskKind::kReplay) {
    RH_TRY(plan.questions_, by_conversation(dataset, limit));
  } else {
    plan.questions_ = draw_questions(dataset, limit, task.seed + options.seed);
  }
  RH_TRY(plan.questions_, part_of(std::move(plan.questions_), options.part));
  if (plan.distractors_ > 0) plan.search_ = std::make_shared<const Bm25>(dataset.documents);
  return plan;
}

bool Plan::searches() const {
  return std::any_of(contexts_.begin(), contexts_.end(), is_searched);
}

std::vector<Span> Plan::gold_places(const Question& question) const {
  std::vector<Span> places;
  for (const Evidence& evidence : question.gold) {
    if (evidence.places.empty()) continue;
    const Span& place = evidence.places.front();
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }
  return places;
}

std::vector<Span> Plan::neighbours(const Question& question, const std::vector<Span>& gold) const {
  std::set<int> taken;
  for (const Evidence& evidence : question.gold) {
    for (const Span& place : evidence.places) taken.insert(place.document);
  }
  const auto& answers = question.values.empty() ? question.answers : question.values;
  std::vector<Span> places;
  const size_t wanted = static_cast<size_t>(distractors_);
  for (const int number : search_->best(question.text, wanted + kCandidates + gold.size())) {
    if (places.size() == wanted) break;
    const Document& document = dataset_->documents[static_cast<size_t>(number)];
    if (taken.contains(number) || subspan_match(document.text, answers) > 0) continue;
    // Of a long document only its opening, as one passage of it would be.
    places.push_back(task_->unit == RankUnit::kPassage ? Span{number, 0, 1} : Span{number});
  }
  return places;
}

std::vector<Span> Plan::own_places(const Question& question) const {
  if (distractors_ < 0) return question.own;
  std::vector<Span> places = gold_places(question);
  if (search_) {
    const std::vector<Span> others = neighbours(question, places);
    places.insert(places.end(), others.begin(), others.end());
  }
  Random(seed_, question.group + '/' + question.id).shuffle(places);
  return places;
}

void Plan::fill_pool(std::set<int>& needed) const {
  int64_t bytes = 0;
  const auto size_of = [&](int number) {
    return static_cast<int64_t>(dataset_->documents[static_cast<size_t>(number)].text.size());
  };
  for (const int number : needed) bytes += size_of(number);
  std::vector<int> others(dataset_->documents.size());
  std::iota(others.begin(), others.end(), 0);
  Random(seed_, "pool").shuffle(others);
  for (const int number : others) {
    if (bytes >= pool_tokens_ * kBytesOfToken) return;
    if (needed.insert(number).second) bytes += size_of(number);
  }
}

std::vector<int> Plan::needed_documents() const {
  std::set<int> needed;
  if (searches() && pool_tokens_ == 0) {
    for (size_t i = 0; i < dataset_->documents.size(); ++i) needed.insert(static_cast<int>(i));
    return {needed.begin(), needed.end()};
  }
  const bool own = std::any_of(contexts_.begin(), contexts_.end(),
                               [](const Context& context) { return context.kind == Context::Kind::kOwn; });
  for (const int number : questions_) {
    // Any place of a piece of evidence will do, so none of them may be missing.
    for (const Evidence& evidence : question(number).gold) {
      for (const Span& place : evidence.places) needed.insert(place.document);
    }
    if (!own && searches()) continue;
    for (const Span& place : own_places(question(number))) needed.insert(place.document);
  }
  if (searches()) fill_pool(needed);
  return {needed.begin(), needed.end()};
}

std::vector<int> Plan::gold_in(const Question& question, const Span& passage) {
  std::vector<int> held;
  for (size_t i = 0; i < question.gold.size(); ++i) {
    const std::vector<Span>& places = question.gold[i].places;
    if (std::any_of(places.begin(), places.end(),
                    [&](const Span& place) { return place.overlaps(passage); })) {
      held.push_back(static_cast<int>(i));
    }
  }
  return held;
}

}  // namespace rhapsode::eval

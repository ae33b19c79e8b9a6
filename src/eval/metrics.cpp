#include "eval/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "eval/answer_text.h"

namespace rhapsode::eval {
namespace {

// F1 of two multisets; both empty agree.
template <typename T>
double multiset_f1(std::span<const T> prediction, std::span<const T> gold) {
  if (prediction.empty() || gold.empty()) return prediction.empty() && gold.empty() ? 1 : 0;
  std::map<T, int> counts;
  for (const T& item : gold) ++counts[item];
  int common = 0;
  for (const T& item : prediction) common += counts[item]-- > 0;
  return 2.0 * common / static_cast<double>(prediction.size() + gold.size());
}

bool holds_words(std::span<const std::string> text, std::span<const std::string> part) {
  return !part.empty() && std::search(text.begin(), text.end(), part.begin(), part.end()) != text.end();
}

}  // namespace

double exact_match(std::string_view prediction, std::span<const std::string> golds) {
  const std::string normalised = normalise_answer(prediction);
  return std::any_of(golds.begin(), golds.end(),
                     [&](const std::string& gold) { return normalise_answer(gold) == normalised; });
}

double token_f1(std::string_view prediction, std::span<const std::string> golds) {
  const std::vector<std::string> words = answer_words(prediction);
  double best = 0;
  for (const std::string& gold : golds) {
    const std::vector<std::string> gold_words = answer_words(gold);
    best = std::max(best, multiset_f1<std::string>(words, gold_words));
  }
  return best;
}

double subspan_match(std::string_view prediction, std::span<const std::string> golds) {
  const std::string normalised = normalise_answer(prediction);
  return std::any_of(golds.begin(), golds.end(), [&](const std::string& gold) {
    const std::string part = normalise_answer(gold);
    return !part.empty() && normalised.find(part) != std::string::npos;
  });
}

std::optional<double> stale_answer(std::string_view prediction, std::span<const std::string> golds,
                                   std::span<const std::string> stale) {
  const std::string said = " " + normalise_answer(prediction) + " ";
  const auto names = [&](const std::string& value) {
    const std::string wanted = " " + normalise_answer(value) + " ";
    if (said.size() <= 2 || wanted.size() <= 2) return false;
    return said.find(wanted) != std::string::npos || wanted.find(said) != std::string::npos;
  };
  if (std::any_of(golds.begin(), golds.end(), names)) return 0.0;
  if (std::any_of(stale.begin(), stale.end(), names)) return 1.0;
  return std::nullopt;
}

double value_recall(std::string_view prediction, std::span<const std::string> values) {
  if (values.empty()) return 0;
  const std::vector<std::string> words = answer_words(prediction);
  const auto found = std::count_if(values.begin(), values.end(), [&](const std::string& value) {
    return holds_words(words, answer_words(value));
  });
  return static_cast<double>(found) / static_cast<double>(values.size());
}

double id_f1(std::span<const int32_t> prediction, std::span<const int32_t> gold) {
  return multiset_f1<int32_t>(prediction, gold);
}

std::string cacheblend_answer(std::string_view reply) {
  reply.remove_prefix(std::min(reply.find_first_not_of('\n'), reply.size()));
  const std::string_view line = reply.substr(0, reply.find('\n'));
  if (line.starts_with("Yes") || line.starts_with("yes")) return "Yes";
  const std::string_view word = line.substr(std::min(line.find_first_not_of(" \t\r"), line.size()));
  if (word.starts_with("No") || word.starts_with("no")) return "No";
  return std::string(line);
}

double recall_at(std::span<const std::vector<int>> ranked, int gold_count, int k) {
  if (gold_count <= 0) return 0;
  std::set<int> found;
  for (const std::vector<int>& golds : ranked.first(std::min(ranked.size(), static_cast<size_t>(k)))) {
    found.insert(golds.begin(), golds.end());
  }
  return static_cast<double>(found.size()) / gold_count;
}

void log_softmax(std::span<float> row) {
  if (row.empty()) return;
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value - largest));
  const auto log_sum = static_cast<float>(std::log(sum));
  for (float& value : row) value = (value - largest) - log_sum;  // largest + log_sum would round the latter
}

double kl_divergence(std::span<const float> reference, std::span<const float> other) {
  double sum = 0;
  for (size_t i = 0; i < std::min(reference.size(), other.size()); ++i) {
    const double p = std::exp(static_cast<double>(reference[i]));
    if (p > 0) sum += p * (static_cast<double>(reference[i]) - static_cast<double>(other[i]));
  }
  return std::max(sum, 0.0);  // rounding may leave a hair below nothing
}

int argmax(std::span<const float> row) {
  return static_cast<int>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace rhapsode::eval

#include "eval/bm25.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

namespace rhapsode::eval {
namespace {

constexpr double kSaturation = 1.2;  // k1
constexpr double kLength = 0.75;     // b

bool is_stop_word(const std::string& word) {
  static const std::unordered_set<std::string> kWords{
      "a",    "an",   "the",  "of",    "in",   "on",   "at",    "to",   "for",   "and",  "or",    "is",
      "was",  "are",  "were", "be",    "been", "by",   "with",  "from", "as",    "that", "which", "who",
      "whom", "what", "when", "where", "how",  "did",  "does",  "do",   "has",   "had",  "have",  "it",
      "its",  "he",   "his",  "she",   "her",  "they", "their", "this", "these", "those"};
  return kWords.contains(word);
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty() && !is_stop_word(word)) words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool part = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
                      static_cast<unsigned char>(c) >= 128;
    if (part) {
      word += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

}  // namespace

Bm25::Bm25(const std::vector<Document>& documents) {
  std::vector<size_t> lengths;
  double total = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    std::vector<std::string> words = words_of(documents[i].title);
    std::vector<std::string> body = words_of(documents[i].text);
    words.insert(words.end(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
    std::unordered_map<std::string, int> times;
    for (const std::string& word : words) ++times[word];
    for (const auto& [word, count] : times) postings_[word].push_back({static_cast<int>(i), count});
    lengths.push_back(words.size());
    total += static_cast<double>(words.size());
  }
  const double mean = std::max(total / static_cast<double>(std::max<size_t>(documents.size(), 1)), 1.0);
  for (const size_t length : lengths) {
    length_norm_.push_back(1 - kLength + kLength * static_cast<double>(length) / mean);
  }
}

std::vector<int> Bm25::best(std::string_view question, size_t count) const {
  const auto documents = static_cast<double>(length_norm_.size());
  std::map<int, double> scores;
  for (const std::string& word : words_of(question)) {
    const auto found = postings_.find(word);
    if (found == postings_.end()) continue;
    const auto holding = static_cast<double>(found->second.size());
    const double rarity = std::log(1 + (documents - holding + 0.5) / (holding + 0.5));
    for (const Posting& posting : found->second) {
      const double norm = length_norm_[static_cast<size_t>(posting.document)];
      scores[posting.document] +=
          rarity * posting.times * (kSaturation + 1) / (posting.times + kSaturation * norm);
    }
  }
  std::vector<std::pair<double, int>> ranked;
  for (const auto& [document, score] : scores) ranked.emplace_back(-score, document);
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(std::min(ranked.size(), count));
  std::vector<int> best;
  for (const auto& [score, document] : ranked) best.push_back(document);
  return best;
}

}  // namespace rhapsode::eval

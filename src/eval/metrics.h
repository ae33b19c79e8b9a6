// What a prediction is worth: by its text, by the passages found, by the distribution behind it.
//
// Text metrics compare normalised answers (answer_text.h) and take the best over several gold answers; all
// lie in 0..1. Distributions are rows of natural log-probabilities over the vocabulary. Threads: any.
// Errors: none; an empty list of gold answers scores 0. Cost: O(input).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::eval {

// 1 when the normalised texts are equal.
double exact_match(std::string_view prediction, std::span<const std::string> golds);
// Harmonic mean of precision and recall over the multiset of words; two empty texts agree.
double token_f1(std::string_view prediction, std::span<const std::string> golds);
// 1 when a normalised gold answer stands somewhere in the normalised prediction ("best-subspan EM").
double subspan_match(std::string_view prediction, std::span<const std::string> golds);
// Of a prediction that names a right value or one of another time: 1 when it names no right one, else 0;
// nothing when it names neither. A value is named when one of the two, normalised, is a run of whole words of
// the other.
std::optional<double> stale_answer(std::string_view prediction, std::span<const std::string> golds,
                                   std::span<const std::string> stale);
// Share of the values that stand in the prediction, each as a whole run of words.
double value_recall(std::string_view prediction, std::span<const std::string> values);

// F1 over multisets of token ids, as CacheBlend scores: both empty agree, one empty scores 0.
double id_f1(std::span<const int32_t> prediction, std::span<const int32_t> gold);
// What CacheBlend scores of a reply: its first line; "Yes" or "No" when it begins with that.
std::string cacheblend_answer(std::string_view reply);

// Share of the gold passages among the first k ranked. ranked[i]: the gold passages (by number, from 0) that
// the i-th ranked one is; a gold passage counts once.
double recall_at(std::span<const std::vector<int>> ranked, int gold_count, int k);

// Logits to natural log-probabilities, in place.
void log_softmax(std::span<float> row);
// KL(reference || other) in nats, of two rows of log-probabilities.
double kl_divergence(std::span<const float> reference, std::span<const float> other);
// The likeliest token; the lowest id on ties.
int argmax(std::span<const float> row);

}  // namespace rhapsode::eval

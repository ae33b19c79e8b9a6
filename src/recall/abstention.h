// Abstention: whether a memory holds what a question asks for.
//
// Two moments: before reading, from how much of the question the chosen passages cover; after answering, from
// the answer itself (the instruction of a memory asks the model to say when the documents hold nothing).
// Thresholds are calibrated on held-out questions (docs/results.md). Threads: any.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rhapsode::recall {

// What speaks for the chosen passages before they are read.
struct Fitness {
  double coverage =
      0;              // share of the question's terms that occur in them; numbers and rare names count double
  double latent = 0;  // the best passage's latent score over the question's weight, in [-1, 1]
};

// `texts`: header and text of each chosen passage.
Fitness fitness_of(std::span<const std::string> terms, std::span<const std::string> texts, double best_latent,
                   double question_weight);

// True when the passages hold nothing that the question is about.
bool is_unfit(const Fitness& fitness);

// True for an answer that says that the documents do not hold it.
bool is_refusal(std::string_view answer);

}  // namespace rhapsode::recall

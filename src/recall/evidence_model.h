// The weights of a trained evidence ranker: what a question's candidates are ranked by.
//
// A candidate is a row of named numbers (kEvidenceFeatures, made by evidence.h); its score is their weighted
// sum. Two sets of weights: *found*, and *judged* for a ranking of which candidates were judged (judge.h).
// They are trained listwise on labelled questions by python/train_evidence.py and stored in a GGUF side file
// (docs/formats/evidence.md), which names the features it was trained on, so that a file of another version
// is refused. Ownership: values. Threads: const functions from any. Errors: kCorrupt, kUnsupported with what
// to do.
#pragma once

#include <array>
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace rhapsode::recall {

// Those of a candidate in question; "best" are the first five found, "titled" are passages whose title stands
// in the question. A *names* B: A mentions the title of B.
inline constexpr std::array<std::string_view, 22> kEvidenceFeatures = {
    "latent",  // z-scores against a fixed sample of passages
    "keywords",
    "fused",            // their sum
    "found",            // 1 among those found first, 0 when only links lead there
    "first",            // 1 for the best one found
    "coverage",         // of the question's terms, by inverse frequency, the share that occurs
    "new_coverage",     // the same of terms that the best one lacks
    "title_coverage",   // of the title's terms, the share that occurs in the question
    "titled",           // its title stands in the question
    "title_words",      // of that title, thirds
    "any_titled",       // some title stands in the question
    "walk",             // log of its PageRank from the best, relative to the highest
    "title_walk",       // the same from those titled
    "walk_coverage",    // walk x coverage
    "named_by_titled",  // a titled one names it
    "named_by_titled_coverage",
    "named_by_best",  // sum over the best that name it of 1 / rank
    "names_best",     // sum over the best that it names of 1 / rank
    "link_to_best",   // weight of its heaviest link to one of them
    "length",         // log of its bytes / 7
    "judged",         // z-score of what it adds to the question's likelihood, among those judged
    "was_judged",
};
inline constexpr size_t kEvidenceFeatureCount = kEvidenceFeatures.size();
using EvidenceRow = std::array<float, kEvidenceFeatureCount>;
// The place of a feature; a name that is none does not compile.
consteval size_t feature(std::string_view name) {
  size_t place = 0;
  while (kEvidenceFeatures.at(place) != name) ++place;
  return place;
}

struct EvidenceModel {
  EvidenceRow found{};
  EvidenceRow judged{};

  static Result<EvidenceModel> load(const std::filesystem::path& path);
};

double evidence_score(const EvidenceRow& weights, const EvidenceRow& row);

}  // namespace rhapsode::recall

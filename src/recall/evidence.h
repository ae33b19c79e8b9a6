// Evidence: candidates for a question, those found and those that links lead to, and what is known of each.
//
// Questions of several passages are answered by passages that the question does not resemble: what the best
// ones name, and what names them. From the best five found, and from passages whose title stands in the
// question, two walks over the link graph (personalised PageRank, index/passage_graph.h) gather candidates;
// numbers of each (evidence_model.h) are then weighed by a trained model. Nothing here asks the language
// model. Filters come first: only allowed passages link, count or are candidates. Ownership: values; catalog
// and router outlive the calls. Threads: one at a time. Errors: the catalog's. Cost: the links around a dozen
// passages, and the texts of about a hundred candidates.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "recall/evidence_model.h"
#include "recall/router.h"
#include "store/catalog.h"

namespace rhapsode::recall {

struct EvidenceCandidate {
  Ranked ranked;
  EvidenceRow row{};
};

struct EvidenceLimits {
  int found = 40;   // of the ranking
  int walked = 40;  // best reached by each walk
  int best = 5;     // that walks start from
};

// Of the ranking's first `found` and what links reach, in no order.
Result<std::vector<EvidenceCandidate>> gather_evidence(const store::Catalog& catalog, Router& router,
                                                       const std::string& question, const Route& route,
                                                       const EvidenceLimits& limits = {});

// Fills in what judging says, by the candidates that have it.
void add_judgement(std::span<EvidenceCandidate> candidates);

// Scores by the weights, best first, ties by lower id.
void rank_evidence(const EvidenceRow& weights, std::vector<EvidenceCandidate>& candidates);

}  // namespace rhapsode::recall

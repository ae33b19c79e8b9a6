// Which way of reading serves a model: the gate of design section 5.
//
// Approximate ways need a verdict: numbers measured against full attention, the user's own (`rhapsode
// calibrate`) or those that models of the catalogue ship with. Of the ways within the limits asked for, the
// cheapest is taken; where there is none, text is read (`prefix`, exact), and the reason says why. What the
// user asks for by name is done. Threads: any.
#pragma once

#include <span>
#include <string>

#include "model/verdict_file.h"
#include "rhapsode/memory_options.h"
#include "rhapsode/options.h"

namespace rhapsode::engine {

struct PolicyChoice {
  ReadPolicy policy = ReadPolicy::kPrefix;  // never kAuto
  BlendOptions blend;                       // of kBlend
  std::string reason;
};

// What is to be read, and how far from full attention it may be.
struct ReadingWanted {
  int mean_tokens = 0;  // of the passages; short ones diverge more than long ones
  std::string stored;   // type of stored KV
  double max_kl = 0;
  double max_f1_loss = 0;
};

// The cheapest of `readings` that is within the limits, or kPrefix. Rows that hold for other passages or
// another type are passed over.
PolicyChoice choose_reading(std::span<const model::MeasuredReading> readings, const ReadingWanted& wanted);

// The verdict on a model: the user's, else the catalogue's; empty with a reason when there is none.
struct FoundVerdict {
  std::vector<model::MeasuredReading> readings;
  std::string missing;  // why there are none
};
FoundVerdict find_verdict(const EngineOptions& options, const std::string& model_sha256);

}  // namespace rhapsode::engine

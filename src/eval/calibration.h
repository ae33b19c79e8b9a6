// Calibration: how far each way of reading a model's stored KV is from full attention, on data made for it.
//
// Held-out text is cut into passages of two sizes, facts that nobody can guess are put in, and questions ask
// for one fact, for two that must be joined, or for a long answer. Every question is read by every setting
// and compared with full attention over the same passages: KL and top-1 agreement over the right answer and
// over what full attention itself says at length, F1, first divergence, cost. What comes out is a list of
// model::MeasuredReading, which the engine's gate reads (engine/verdict.h). Deterministic given texts and
// seed. Threads: any. Errors: kInvalidArgument when the texts are too short.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "eval/dataset.h"
#include "eval/record.h"
#include "eval/task.h"
#include "model/catalogue.h"

namespace rhapsode::eval {

struct CalibrationText {
  std::string name;
  std::string text;
};
// What is read when no texts are given: pages of this project's documentation.
std::vector<CalibrationText> built_in_calibration_texts();

struct CalibrationOptions {
  bool thorough = false;  // five times the questions, and every selector at four shares
  uint64_t seed = 0;
};

// Passages from this size on are the group "filled"; those below are "short".
inline constexpr int kFilledTokens = 256;

Result<Dataset> calibration_data(const std::vector<CalibrationText>& texts,
                                 const CalibrationOptions& options);
// Contexts and measures of a calibration, for Plan and Evaluation.
Task calibration_task(const CalibrationOptions& options);
// One row for each context and group of passages, the cheapest first; `stored` names the type of stored KV.
std::vector<model::MeasuredReading> measured_readings(const std::vector<Record>& records, uint64_t seed,
                                                      const std::string& stored);

}  // namespace rhapsode::eval

// What was measured of reading stored KV with a model: the rows of a verdict, in the catalogue (for its
// models) and in HOME/verdicts/SHA256.json (`rhapsode calibrate`).
//
// The file is JSON: {"format": 1, "model_sha256", "title", "weights", "kv", "program", "created", "texts",
// "readings": [...]}, rows with the fields of MeasuredReading by name. Threads: plain values. Errors:
// kCorrupt with file, row and field; kNotFound when there is no file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace rhapsode::model {

// What was measured of one way of reading stored KV with a model, against full attention over the same
// passages
// (`rhapsode calibrate`, docs/results.md).
struct MeasuredReading {
  std::string policy;    // "reuse", "blend"
  std::string selector;  // of blend
  double share = 0;      // of blend
  std::string stored;    // type of stored KV: "f16"
  int least_tokens = 0;  // holds for passages of so many tokens on average,
  int most_tokens = 0;   // up to so many; 0: no limit
  double kl = 0;         // nats a token, over right answers
  double top1 = 0;       // share of tokens with the same likeliest one
  double f1_loss = 0;    // full - this; its half-width in f1_half_width
  double f1_half_width = 0;
  double long_kl = 0;           // over what full attention says at length
  double first_divergence = 0;  // tokens of it said alike
  double charged = 0;           // tokens evaluated for it, of those read
  double ttft_ratio = 0;        // full / this
  int questions = 0;
};

struct Verdict {
  std::string model_sha256;
  std::string title;
  std::string weights;  // "shipped", "bf16", "mixed": what it was measured with
  std::string kv;       // type of the engine's KV
  std::string program;  // version
  std::string created;  // ISO 8601
  std::string texts;    // what was read
  std::vector<MeasuredReading> readings;
};

std::filesystem::path verdict_path(const std::filesystem::path& home, std::string_view model_sha256);
Result<Verdict> load_verdict(const std::filesystem::path& path);
Status save_verdict(const Verdict& verdict, const std::filesystem::path& path);

// A list of rows; `label` stands for it in messages.
Result<std::vector<MeasuredReading>> parse_readings(std::string_view json, const std::string& label);

}  // namespace rhapsode::model

#include "engine/parity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/logits.h"

namespace rhapsode::engine {

namespace {

struct RowDifference {
  double largest = 0;
  double kl = 0;
  double reference_gap = 0;  // between the reference's two likeliest tokens
  int32_t reference_best = 0;
  int32_t subject_best = 0;
};

Result<RowDifference> compare_rows(std::span<const float> reference, std::span<const float> subject) {
  RowDifference row;
  RH_TRY(row.reference_best, text::argmax(reference));
  RH_TRY(row.subject_best, text::argmax(subject));
  RH_TRY(const double reference_sum, text::log_sum_exp(reference));
  RH_TRY(const double subject_sum, text::log_sum_exp(subject));
  double second = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < reference.size(); ++i) {
    const double a = reference[i];
    const double b = subject[i];
    row.largest = std::max(row.largest, std::abs(a - b));
    if (static_cast<int32_t>(i) != row.reference_best) second = std::max(second, a);
    const double p = std::exp(a - reference_sum);
    if (p > 0) row.kl += p * ((a - reference_sum) - (b - subject_sum));
  }
  row.reference_gap = reference[row.reference_best] - second;
  return row;
}

}  // namespace

Result<ParityReport> compare_logits(LogitSource& reference, LogitSource& subject,
                                    std::span<const std::vector<int32_t>> prompts, int steps,
                                    const std::function<void(size_t, const ParityReport&)>& progress) {
  ParityReport report;
  double kl = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    reference.reset();
    subject.reset();
    std::vector<int32_t> input = prompts[i];
    for (int step = 0; step < steps; ++step) {
      RH_TRY(const auto reference_row, reference.evaluate(input));
      RH_TRY(const auto subject_row, subject.evaluate(input));
      const size_t common = std::min(reference_row.size(), subject_row.size());
      RH_TRY(const RowDifference row, compare_rows(reference_row.first(common), subject_row.first(common)));
      ++report.rows;
      kl += row.kl;
      report.max_abs_logit_diff = std::max(report.max_abs_logit_diff, row.largest);
      if (row.reference_best == row.subject_best) {
        ++report.argmax_equal;
      } else if (row.reference_gap < 2 * row.largest) {
        ++report.ties;
      } else {
        ++report.mismatches;
      }
      input.assign(1, row.reference_best);
    }
    report.mean_kl = kl / report.rows;
    if (progress) progress(i, report);
  }
  return report;
}

}  // namespace rhapsode::engine

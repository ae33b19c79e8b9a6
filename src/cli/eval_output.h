// The summary of an evaluation as tables: a table a group, a row a context, a column a metric.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "eval/summary.h"

namespace rhapsode::cli {

// "0.312 ±0.041"; fewer digits for large numbers.
std::string show_interval(const eval::Interval& interval);

// Windows of a long conversation (group "turns"), a row each.
std::string render_windows(const std::vector<eval::Record>& records, const Terminal& terminal);

std::string render_summary(const eval::Summary& summary, const Terminal& terminal);

}  // namespace rhapsode::cli

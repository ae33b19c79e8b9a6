// An answer's trace on a terminal: under each word how much of the model's attention each passage got.
//
// The answer runs along the top, in lines as wide as the terminal; below each line stands a row for every
// passage read then, for the question and for the answer's own words before, with the share of attention in
// per cent over the line, and a shade below each token. Where the locale is not UTF-8 shades are ASCII.
// Where passages joined within the answer, a line says so and another line of the map begins.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "rhapsode/answer.h"

namespace rhapsode::cli {

// Empty for an answer of which nothing was measured.
std::string heat_map(const AnswerTrace& trace, const Terminal& terminal);

}  // namespace rhapsode::cli

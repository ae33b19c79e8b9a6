#include "text/regex_guard.h"

#include <algorithm>
#include <array>

namespace rhapsode::text {
namespace {

enum class Run { kWord, kPunctuation, kSpace };

Run run_of(unsigned char c) {
  if (c == ' ' || (c >= '\t' && c <= '\r')) return Run::kSpace;
  const bool is_letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
  return c >= 0x80 || is_letter || (c >= '0' && c <= '9') ? Run::kWord : Run::kPunctuation;
}

bool starts_character(unsigned char c) {
  return (c & 0xC0) != 0x80;
}

}  // namespace

bool needs_regex_guard(std::string_view pre_tokenizer) {
  static constexpr std::array<std::string_view, 9> kHandWritten = {"gpt-2",     "llama3", "llama-v3",
                                                                   "llama-bpe", "qwen2",  "deepseek-r1-qwen",
                                                                   "qwen35",    "smollm", "starcoder"};
  return std::find(kHandWritten.begin(), kHandWritten.end(), pre_tokenizer) == kHandWritten.end();
}

std::vector<std::string_view> cut_long_runs(std::string_view text) {
  std::vector<std::string_view> pieces;
  size_t piece_begin = 0;
  size_t run_begin = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (run_of(byte) != run_of(static_cast<unsigned char>(text[i - 1]))) {
      run_begin = i;
    } else if (i - run_begin >= kLongestRun && (starts_character(byte) || i - run_begin >= kLongestRun + 4)) {
      pieces.push_back(text.substr(piece_begin, i - piece_begin));
      piece_begin = run_begin = i;
    }
  }
  pieces.push_back(text.substr(piece_begin));
  return pieces;
}

}  // namespace rhapsode::text

// Keeps std::regex from overflowing the stack inside libllama.
//
// libllama splits text for some byte-pair vocabularies with std::regex, which recurses once a character of a
// match: 100,000 letters without a break end the process. Other vocabularies (those of SmolLM, Qwen2 and
// Qwen3, Llama 3, GPT-2) have hand-written splitters and need no guard.
//
// The guard cuts runs of one kind of character (letters and digits, punctuation, white space) after
// kLongestRun bytes, at a character's start. Text without such a run, hence all text that people write, is
// encoded exactly as the model's own tokenizer does. Threads: pure functions. Errors: none. Cost: one pass
// over the text.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace rhapsode::text {

inline constexpr size_t kLongestRun = 4096;

// Whether libllama may use std::regex on a byte-pair vocabulary with this pre-tokenizer.
bool needs_regex_guard(std::string_view pre_tokenizer);

// The text in pieces: one, unless a run is too long.
std::vector<std::string_view> cut_long_runs(std::string_view text);

}  // namespace rhapsode::text
